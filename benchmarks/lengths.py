"""Calls whose lengths vary: `python -m benchmarks.lengths --help`.

An encoder of the shape of MiniLM-L6 (6 layers of 384 units, 12 heads) with random weights makes a vector of each
sentence, whose length is drawn anew for each call, as a server of embeddings gets them. Rammer has a program for each
bucket, PyTorch runs eagerly or as TorchInductor compiled it for any length, and as CUDA graphs of the same buckets.
Told is the time of a call from tensors to the result, waited for, in turns with the same sentences.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import rammer
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import gpu_facts

LAYERS, WIDTH, HEADS, INNER = 6, 384, 12, 1536
BUCKETS = (16, 32, 64, 128)
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2}

Call = Callable[[Tensor, Tensor], Tensor]


class Layer(nn.Module):
    """A layer of the encoder, normalised behind each of its two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        x = self.norm1(x + self.out(seen.transpose(1, 2).flatten(2)))
        normed: Tensor = self.norm2(x + self.down(functional.gelu(self.up(x))))
        return normed


class Encoder(nn.Module):
    """The vector of a sentence: the mean of its tokens' last values, of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        kept = mask[..., None].to(x.dtype)
        return functional.normalize((x * kept).sum(1) / kept.sum(1), dim=-1)


def sentence(length: int, dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Embedded tokens and their mask."""
    x = torch.randn(1, length, WIDTH, device=device, dtype=dtype)
    return x, torch.ones(1, length, device=device, dtype=torch.bool)


class Graphs:
    """A CUDA graph of a module for each bucket, and calls that are padded to it."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        self._recorded = {}
        for bucket in BUCKETS:
            given = sentence(bucket, dtype, "cuda")
            for _ in range(3):
                module(*given)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                result = module(*given)
            self._recorded[bucket] = graph, given, result

    def __call__(self, x: Tensor, mask: Tensor) -> Tensor:
        length = x.shape[1]
        graph, given, result = self._recorded[next(bucket for bucket in BUCKETS if bucket >= length)]
        for into, part in zip(given, (x, mask), strict=True):
            into.zero_()
            into[:, :length] = part
        graph.replay()
        return result


def ways(module: nn.Module, dtype: torch.dtype, device: str, saved: Path | None) -> dict[str, Call]:
    """Each way to call the module, by name."""
    if saved is not None and saved.exists():
        net: Any = rammer.load(saved)
    else:
        length = rammer.Dim(name="length", low=1, high=BUCKETS[-1], buckets=BUCKETS, mask="mask")
        dynamic = {name: {1: length} for name in ("x", "mask")}
        net = rammer.compile(module, device, args=sentence(8, dtype, device), dynamic=dynamic)
    calls: dict[str, Call] = {"Rammer": net, "eager": module}
    calls["TorchInductor"] = torch.compile(module, dynamic=True)
    if device == "cuda":
        calls["CUDA graphs"] = Graphs(module, dtype)
    return calls


def main() -> None:
    """Measure, print a table, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--half", action="store_true", help="in float16")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--saved", type=Path, help="the compiled model, instead of compiling it")
    parser.add_argument("--out", type=Path, default=OUT / "lengths.json")
    chosen = parser.parse_args()
    torch.manual_seed(0)
    device, dtype = chosen.device, torch.float16 if chosen.half else torch.float32
    with torch.no_grad():
        module = Encoder().eval().to(device, dtype)
        calls = ways(module, dtype, device, chosen.saved)
        settle: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
        times_us: dict[str, list[float]] = {name: [] for name in calls}
        warmup = 20
        for turn in range(warmup + chosen.calls):
            given = sentence(int(torch.randint(4, BUCKETS[-1] + 1, ())), dtype, device)
            expected = module(*given)
            for name, call in calls.items():
                settle()
                begin_s = time.perf_counter()
                result = call(*given)
                settle()
                taken_us = 1e6 * (time.perf_counter() - begin_s)
                torch.testing.assert_close(result, expected, atol=TOLERANCE[dtype], rtol=0)
                if turn >= warmup:
                    times_us[name].append(taken_us)
    found = {name: statistics.median(times) for name, times in times_us.items()}
    for name, median_us in found.items():
        print(f"{name:15} {median_us:8.1f} us {median_us / found['Rammer']:6.2f}")
    facts = {**environment([]), **(gpu_facts() if device == "cuda" else {})}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps({**facts, "half": chosen.half, "median_us": found}, indent=1))


if __name__ == "__main__":
    main()
