"""A small decoder, trained by `rammer.compile_step` and run token by token from a cache that is the program's state.

    python examples/decoder/decoder.py
    python examples/decoder/decoder.py --device cuda

It learns the text beside it letter by letter, in half a minute on one core, and then writes some of its own. A letter
takes one call: keys and values of the letters before stay in the model's state, at fixed positions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

import rammer

TEXT = Path(__file__).with_name("text.txt")
WIDTH, HEADS, LAYERS, LENGTH = 64, 4, 2, 64


class Layer(torch.nn.Module):
    """Attention to the letters before, and two products; with a cache, for one letter at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm_2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 128), torch.nn.GELU(), torch.nn.Linear(128, WIDTH))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, HEADS, LENGTH, WIDTH // HEADS), persistent=False)

    def forward(self, x: torch.Tensor, seen: torch.Tensor, position: torch.Tensor | None) -> torch.Tensor:
        q, k, v = (
            part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        if position is not None:
            k, v = self.keys.index_copy_(2, position, k), self.values.index_copy_(2, position, v)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norm_2(x))


class Decoder(torch.nn.Module):
    """Scores of the next letter, behind each letter of a text, or behind one letter at a position."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters, self.places = torch.nn.Embedding(letters, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, letters)

    def forward(self, text: torch.Tensor, position: torch.Tensor | None = None) -> torch.Tensor:
        numbers = torch.arange(LENGTH, device=text.device)
        here = numbers[: text.shape[1]] if position is None else position
        x = self.letters(text) + self.places(here)
        for layer in self.layers:
            x = layer(x, numbers[: LENGTH if position is not None else text.shape[1]] <= here[:, None], position)
        return self.head(x)


def loss_of(decoder: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
    """How surprising each letter is after those before it."""
    scores = decoder(text[:, :-1])
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())


def train(decoder: Decoder, letters: torch.Tensor, steps: int, device: str = "cpu") -> float:
    """Train on random pieces of the text, where the decoder and the text lie; the last loss."""
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=3e-3)
    starts = torch.randint(0, len(letters) - LENGTH, (steps, 8))
    batch = letters.new_zeros(8, LENGTH)
    step = rammer.compile_step(loss_of, decoder, optimizer, device, args=(batch,))
    begun, loss = time.perf_counter(), 0.0
    for i, places in enumerate(starts.tolist(), start=1):
        loss = step(torch.stack([letters[place : place + LENGTH] for place in places])).item()
        if i % 100 == 0:
            print(f"step {i}: loss {loss:.2f}, {(time.perf_counter() - begun) / i * 1e3:.1f} ms a step")
    step.sync()
    return loss


def generate(decoder: Decoder, alphabet: str, prompt: str, device: str = "cpu") -> str:
    """The most likely continuation of a prompt, a letter in each call, as far as the cache goes."""
    letter, place = (
        torch.zeros(1, 1, dtype=torch.int64, device=device),
        torch.zeros(1, dtype=torch.int64, device=device),
    )
    net = rammer.compile(decoder.eval(), device, args=(letter, place))
    text = prompt
    for position in range(LENGTH - 1):
        scores = net(letter.fill_(alphabet.index(text[position])), place.fill_(position))
        if position == len(text) - 1:
            text += alphabet[int(scores[0, 0].argmax())]
    return text


def main() -> None:
    """Train, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    torch.manual_seed(0)
    text = TEXT.read_text(encoding="utf-8")
    alphabet = "".join(sorted(set(text)))
    decoder = Decoder(len(alphabet)).train().to(given.device)
    letters = torch.tensor([alphabet.index(letter) for letter in text], device=given.device)
    train(decoder, letters, given.steps, given.device)
    print(generate(decoder, alphabet, "A program ", given.device))


if __name__ == "__main__":
    main()
