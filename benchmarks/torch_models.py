"""Modules of transformers, torchvision and timm with random weights: do they compile, and agree with eager PyTorch?

    python -m benchmarks.torch_models                    the zoo: small configurations and images
    python -m benchmarks.torch_models --classification   every classification model of torchvision at its own size
    python -m benchmarks.torch_models bert resnet18 ...  some of them

For a GPU of another machine, which may have neither timm nor time to compile: `--device cuda:sm_90 --save FOLDER`
leaves programs, arguments and eager results of the processor there, and `--saved FOLDER` compares them on that machine.

A line for each: nodes captured, processor seconds of capturing and of importing a hundred nodes, seconds of compiling
(which captures once more), and the greatest error relative to the greatest value. Exit code 1 where one fails or is
further off than 1e-5.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import rammer
from rammer.frontends.torch.capture import capture, functional
from rammer.frontends.torch.program import import_program

TOLERANCE = 1e-5
SMALL: Mapping[str, int] = {
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
TORCHVISION = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet"),
    *("inception_v3@299", "maxvit_t@224", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small", "regnet_y_400mf"),
    *("resnet18", "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t", "swin_v2_t", "vgg11"),
    "vit_b_16@224",
)
TIMM = (
    *("resnet26", "resnetv2_50", "efficientnet_lite0", "convnextv2_atto", "deit_tiny_patch16_224@224"),
    *("mixer_s32_224@224", "resmlp_12_224@224", "gmlp_ti16_224@224", "cait_xxs24_224@224"),
    *("xcit_nano_12_p16_224@224", "levit_128s@224", "mobilevit_xxs@256", "efficientformer_l1@224", "poolformer_s12"),
    *("coatnet_0_rw_224@224", "hrnet_w18_small", "regnetx_002", "dpn48b", "res2net50_14w_8s", "rexnet_100"),
    *("ghostnet_050", "nf_resnet26", "davit_tiny@224", "edgenext_xx_small@256", "repvgg_a0", "pvt_v2_b0@224"),
)
Made = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


def tokens(count: int = 16) -> torch.Tensor:
    return torch.randint(0, 90, (1, count))


def transformer(name: str) -> Made:
    """A model of transformers in a small configuration."""
    import transformers as T

    grouped = {**SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}
    positioned = {**SMALL, "max_position_embeddings": 64}
    vision = {k: v for k, v in SMALL.items() if k != "vocab_size"} | {"image_size": 32, "patch_size": 8}
    ids, image = {"input_ids": tokens()}, torch.randn(1, 3, 32, 32)
    cached = {**ids, "use_cache": False}
    both = {**cached, "decoder_input_ids": tokens(8)}
    seq = {"d_model": 32, "vocab_size": 100}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    whisper = {
        **{
            f"{side}_{what}": count
            for side in ("encoder", "decoder")
            for what, count in (("layers", 2), ("ffn_dim", 64))
        },
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "max_source_positions": 50,
        "max_target_positions": 32,
        "decoder_start_token_id": 1,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }
    convolved = {"conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    speech = {k: v for k, v in SMALL.items() if k != "vocab_size"} | convolved
    clip = {"text_config": {**SMALL, "max_position_embeddings": 32, **ends}, "vision_config": vision}
    makers: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
        "bert": lambda: (T.BertModel(T.BertConfig(**positioned)), ids),
        "roberta": lambda: (T.RobertaModel(T.RobertaConfig(**positioned)), ids),
        "gpt2": lambda: (
            T.GPT2LMHeadModel(T.GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
            cached,
        ),
        "llama": lambda: (T.LlamaForCausalLM(T.LlamaConfig(**grouped)), cached),
        "qwen2": lambda: (T.Qwen2ForCausalLM(T.Qwen2Config(**grouped)), cached),
        "mixtral": lambda: (
            T.MixtralForCausalLM(T.MixtralConfig(num_local_experts=4, num_experts_per_tok=2, **grouped)),
            cached,
        ),
        "mamba": lambda: (
            T.MambaForCausalLM(T.MambaConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2, state_size=8)),
            cached,
        ),
        "t5": lambda: (
            T.T5ForConditionalGeneration(T.T5Config(d_kv=8, d_ff=64, num_layers=2, num_heads=4, **seq)),
            both,
        ),
        "whisper": lambda: (
            T.WhisperForConditionalGeneration(T.WhisperConfig(**seq, **ends, **whisper)),
            {"input_features": torch.randn(1, 80, 100), "decoder_input_ids": tokens(8), "use_cache": False},
        ),
        "vit": lambda: (T.ViTForImageClassification(T.ViTConfig(**vision)), {"pixel_values": image}),
        "clip": lambda: (T.CLIPModel(T.CLIPConfig(projection_dim=32, **clip)), {**ids, "pixel_values": image}),
        "wav2vec2": lambda: (T.Wav2Vec2Model(T.Wav2Vec2Config(**speech)), {"input_values": torch.randn(1, 3200)}),
    }
    module, kwargs = makers[name]()
    return module, (), kwargs


TRANSFORMERS = (
    *("bert", "roberta", "gpt2", "llama", "qwen2", "mixtral", "mamba", "t5", "whisper", "vit", "clip", "wav2vec2"),
)


class Recurrent(torch.nn.Module):
    """A recurrent layer with a linear one behind its last step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = getattr(torch.nn, kind)(16, 32, 2, batch_first=True, bidirectional=True)
        self.last = torch.nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.layer(x)[0][:, -1])
        return out


def make(name: str) -> Made:
    """A model with weights and statistics that differ from channel to channel, and arguments for it."""
    torch.manual_seed(0)
    plain, _, size = name.partition("@")
    if plain in TRANSFORMERS:
        module, args, kwargs = transformer(plain)
    elif plain in ("LSTM", "GRU"):
        module, args, kwargs = Recurrent(plain), (torch.randn(1, 12, 16),), {}
    else:
        module, args, kwargs = image_model(plain), (torch.randn(1, 3, *(int(size or 64),) * 2),), {}
    return varied(module.eval()), args, kwargs


def image_model(name: str) -> torch.nn.Module:
    import torchvision

    if name in torchvision.models.list_models(torchvision.models):
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        found: torch.nn.Module = torchvision.models.get_model(name, weights=None, **options)
        return found
    import timm

    created: torch.nn.Module = timm.create_model(name, pretrained=False)
    return created


def varied(module: torch.nn.Module) -> torch.nn.Module:
    """Statistics and scales as training leaves them: those of a new module hide mistakes."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
                for tensor, low, high in ((part.running_mean, -0.2, 0.2), (part.running_var, 0.6, 1.4)):
                    if tensor is not None:
                        tensor.uniform_(low, high)
                for parameter, low, high in ((part.weight, 0.7, 1.3), (part.bias, -0.2, 0.2)):
                    if parameter is not None:
                        parameter.uniform_(low, high)
        for name, parameter in module.named_parameters():
            if "gamma" in name or "layer_scale" in name:  # 1e-6 in a new module: its branch would not count
                parameter.uniform_(0.1, 0.3)
            elif parameter.ndim > 1 and not parameter.any():  # a head that begins with zeros would hide all before it
                parameter.normal_(std=0.05)
    return module


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one model; times in seconds, of the processor but for `compile_s`."""

    nodes: int
    capture_s: float
    import_s: float
    compile_s: float
    error: float

    def __str__(self) -> str:
        per_hundred = self.import_s / max(self.nodes, 1) * 100
        return f"{self.nodes:6} {self.capture_s:9.2f} {per_hundred:11.3f} {self.compile_s:9.1f} {self.error:9.1e}"


def tried(name: str, device: str, veus: int | None) -> Outcome:
    """Compile a model and compare its results."""
    module, args, kwargs = make(name)
    start = time.process_time()
    program = functional(capture(module, args, kwargs, name), name)
    captured = time.process_time()
    import_program(program, name, module.forward)
    imported = time.process_time()
    begun = time.perf_counter()
    net = rammer.compile(module, device, args=args, kwargs=kwargs, veus=veus)
    compiled = time.perf_counter()
    with torch.no_grad():
        ours, theirs = tensors(net(*args, **kwargs)), tensors(module(*args, **kwargs))
    nodes = sum(node.op == "call_function" for node in program.graph.nodes)
    return Outcome(
        nodes=nodes,
        capture_s=captured - start,
        import_s=imported - captured,
        compile_s=compiled - begun,
        error=greatest_error(ours, theirs),
    )


def save(name: str, device: str, folder: Path) -> float:
    """Leave a model's program, its arguments and eager PyTorch's results in a folder; the seconds of compiling."""
    module, args, kwargs = make(name)
    with torch.no_grad():
        expected = tensors(module(*args, **kwargs))
    begun = time.perf_counter()
    net = rammer.compile(module, device, args=args, kwargs=kwargs)
    compiled_s = time.perf_counter() - begun
    folder.mkdir(parents=True, exist_ok=True)
    net.save(folder / f"{name}.rammer")
    torch.save((args, kwargs, expected), folder / f"{name}.pt")
    return compiled_s


def saved_errors(folder: Path) -> Iterator[tuple[str, float]]:
    """Each saved model, with its greatest error on this machine's GPU."""
    for path in sorted(folder.glob("*.rammer")):
        args, kwargs, expected = torch.load(path.with_suffix(".pt"))
        on_gpu = torch.utils._pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cuda(), (args, kwargs))
        found = [tensor.cpu() for tensor in tensors(rammer.load(path)(*on_gpu[0], **on_gpu[1]))]
        yield path.stem, greatest_error(found, expected)


def greatest_error(ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> float:
    """The greatest difference of two lists of results, each relative to its greatest value."""
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in zip(ours, theirs, strict=True))


def tensors(value: Any) -> list[torch.Tensor]:  # noqa: ANN401 - any nested result
    """The floating-point tensors of a nested result."""
    if isinstance(value, torch.Tensor):
        return [value.double()] if value.is_floating_point() else []
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def compared(folder: Path) -> int:
    """Print the errors of a folder's models; 1 where one is too great."""
    errors = dict(saved_errors(folder))
    for name, error in errors.items():
        print(f"{name:32} {error:9.1e}")
    good = sum(error <= TOLERANCE for error in errors.values())
    print(f"{good} of {len(errors)} agree to {TOLERANCE}")
    return int(good < len(errors))


def classification() -> list[str]:
    """torchvision's own list; Inception's size is its own."""
    import torchvision

    sizes = {"inception_v3": 299}
    names = torchvision.models.list_models(torchvision.models)
    return [f"{name}@{sizes.get(name, 224)}" for name in names if not name.startswith("quantized")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--classification", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--veus", type=int)
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="programs to compare elsewhere")
    parser.add_argument("--saved", type=Path, metavar="FOLDER", help="compare those on this machine's GPU")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    if given.saved:
        return compared(given.saved)
    zoo = [*TRANSFORMERS, "LSTM", "GRU", *TORCHVISION, *TIMM]
    names = given.models or (classification() if given.classification else zoo)
    if given.save:
        for name in names:
            print(f"{name:32} compiled in {save(name, given.device, given.save):.1f} s", flush=True)
        return 0
    good = 0
    print(f"{'model':32} {'nodes':>6} {'capture s':>9} {'s/100 nodes':>11} {'compile s':>9} {'error':>9}")
    for name in names:
        try:
            outcome = tried(name, given.device, given.veus)
        except rammer.RammerError as error:
            print(f"{name:32} {str(error).splitlines()[0][:160]}", flush=True)
            continue
        good += outcome.error <= TOLERANCE
        print(f"{name:32} {outcome}", flush=True)
    print(f"{good} of {len(names)} compile and agree to {TOLERANCE}")
    return 0 if good == len(names) else 1


if __name__ == "__main__":
    raise SystemExit(main())
