"""Tokens one after another, each the next call's argument: `python -m benchmarks.generation --help`.

A decoder of Llama-3.2-1B's shape with random weights of float16, whose caches are the program's state and are updated
in place. The step gives the likeliest next token and its position, so a loop of calls asks for nothing else. Told are
the GPU's time of a single step, by events, and a token's in a loop, from its first call to the end of its last run; the
loop is fast enough where the host has given all runs to the GPU long before they are over. The first step's caches are
compared with eager PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch import Tensor, nn
from torch.nn import functional

import rammer
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import DeviceClock, gpu_facts
from benchmarks.networks import llama
from benchmarks.networks.torch_transformers import rotated

HEADS, GROUPS, SIZE = 32, 8, 64
TOLERANCE = 2e-2  # of caches in float16, relative to their norm, behind all layers
_ROUNDS = 5


class Attention(nn.Module):
    """Attention of one token to a cache of `room` positions, which has its row written first."""

    def __init__(self, hidden: int, room: int) -> None:
        super().__init__()
        self.q = nn.Linear(hidden, HEADS * SIZE, bias=False)
        self.k, self.v = (nn.Linear(hidden, GROUPS * SIZE, bias=False) for _ in range(2))
        self.out = nn.Linear(HEADS * SIZE, hidden, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, GROUPS, room, SIZE))

    def forward(self, x: Tensor, wave: tuple[Tensor, Tensor], position: Tensor, seen: Tensor) -> Tensor:
        query, key, value = (part(x).unflatten(-1, (-1, SIZE)).transpose(1, 2) for part in (self.q, self.k, self.v))
        keys = self.keys.index_copy_(2, position, rotated(key, wave))
        values = self.values.index_copy_(2, position, value)
        y = functional.scaled_dot_product_attention(rotated(query, wave), keys, values, attn_mask=seen, enable_gqa=True)
        projected: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return projected


class Layer(nn.Module):
    """Attention and a gated MLP."""

    def __init__(self, hidden: int, inner: int, room: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(hidden, eps=llama.EPSILON) for _ in range(2))
        self.attention = Attention(hidden, room)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, wave: tuple[Tensor, Tensor], position: Tensor, seen: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), wave, position, seen)
        y = self.norm2(x)
        z: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return z


class Decoder(nn.Module):
    """One token (1, 1) at a position (1,): the likeliest next token and its position."""

    def __init__(
        self, *, layers: int = 16, words: int = 128_256, room: int = 512, hidden: int = 2048, inner: int = 8192
    ) -> None:
        super().__init__()
        self.room = room
        self.embeddings = nn.Embedding(words, hidden)
        self.layers = nn.ModuleList(Layer(hidden, inner, room) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=llama.EPSILON)
        self.register_buffer("rates", llama.THETA ** (-torch.arange(0, SIZE, 2) / SIZE), persistent=False)

    def forward(self, token: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embeddings(token)
        angles = (position[:, None].float() * self.rates.float()).repeat(1, 2)
        wave = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        seen = torch.arange(self.room, device=token.device)[None] <= position[:, None]
        for layer in self.layers:
            x = layer(x, wave, position, seen)
        scores = functional.linear(self.norm(x), self.embeddings.weight)
        return scores.argmax(-1), position + 1


def decoder(layers: int, words: int, room: int, device: str) -> Decoder:
    """A decoder of float16 with random weights, made where it lies."""
    torch.manual_seed(0)
    with torch.device(device):
        made = Decoder(layers=layers, words=words, room=room).eval()
        for buffer in made.buffers():
            if buffer.ndim > 1:
                buffer.normal_()
    narrow: Decoder = made.half()
    return narrow


def main() -> int:
    """Measure, print and leave JSON; 1 where a loop's token takes over 5 % longer than a step, or caches differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--words", type=int, default=128_256)
    parser.add_argument("--room", type=int, default=512, help="positions that caches have room for")
    parser.add_argument("--tokens", type=int, default=100, help="of a loop, the last ones that there is room for")
    given = parser.parse_args()
    begun = time.perf_counter()
    module = decoder(given.layers, given.words, given.room, "cuda")
    first = torch.ones(1, 1, dtype=torch.int64, device="cuda")
    start = torch.full((1,), given.room - given.tokens, dtype=torch.int64, device="cuda")
    with torch.no_grad():
        net = rammer.compile(module, "cuda", args=(first, start), precision="fp16")
        compile_s = time.perf_counter() - begun
        module(first, start)
        net(first, start)
        error = max(
            float((torch.from_numpy(net.state[name]) - kept.cpu().float()).norm() / kept.float().norm())
            for name, kept in module.named_buffers()
            if name in {port.name for port in net.signature.states}
        )
        step_us = statistics.median(DeviceClock().time_us(lambda: net(first, start), 100))
        loops = [_loop_us(net, first, start, given.tokens) for _ in range(_ROUNDS)]
    token_us, host_us = (statistics.median(each) for each in zip(*loops, strict=True))
    states = f"{len(net.signature.in_place)} of {len(net.signature.states)} states in place"
    print(f"compiled in {compile_s:.0f} s; {states}; error {error:.1e}")
    print(f"a step {step_us:.1f} us, a token of a loop {token_us:.1f}, of which the host's calls {host_us:.1f}")
    found = {"step_us": step_us, "token_us": token_us, "host_us": host_us, "error": error, "compile_s": compile_s}
    OUT.mkdir(exist_ok=True)
    settings = environment([]) | gpu_facts() | {"torch": torch.__version__} | vars(given)
    (OUT / "generation.json").write_text(json.dumps(settings | found, indent=1))
    return int(token_us > 1.05 * step_us or error > TOLERANCE)


def _loop_us(net: rammer.Executable, token: Tensor, position: Tensor, count: int) -> tuple[float, float]:
    """What a token of a loop takes, and what its call takes the host, in microseconds."""
    torch.cuda.synchronize()
    start_ns = time.perf_counter_ns()
    for _ in range(count):
        token, position = net(token, position)
    called_ns = time.perf_counter_ns()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - start_ns) / 1e3 / count, (called_ns - start_ns) / 1e3 / count


if __name__ == "__main__":
    raise SystemExit(main())
