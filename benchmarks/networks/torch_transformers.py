"""The transformers as PyTorch modules: attention is `scaled_dot_product_attention`, PyTorch's fastest form."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.networks import bert, llama, vit, whisper


class Attention(nn.Module):
    """Attention of a sequence to itself, with linear layers before and behind."""

    def __init__(self, width: int, heads: int, *, biased_keys: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.v, self.out = (nn.Linear(width, width) for _ in range(3))
        self.k = nn.Linear(width, width, bias=biased_keys)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        y = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        projected: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return projected


class Mlp(nn.Module):
    """Two linear layers with a GELU between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fc2(functional.gelu(self.fc1(x)))
        return y


class Layer(nn.Module):
    """Attention and MLP, each with its sum; normalisation is before them or, if not `first`, behind the sums."""

    def __init__(self, width: int, heads: int, *, epsilon: float, first: bool, biased_keys: bool = True) -> None:
        super().__init__()
        self.attention = Attention(width, heads, biased_keys=biased_keys)
        self.mlp = Mlp(width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=epsilon) for _ in range(2))
        self.first = first

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if self.first:
            x = x + self.attention(self.norm1(x), mask)
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x, mask))
        y: Tensor = self.norm2(x + self.mlp(x))
        return y


class Bert(nn.Module):
    """`benchmarks.networks.bert`."""

    def __init__(self, *, layers: int = 12, hidden: int = 768, heads: int = 12, words: int = 30_522) -> None:
        super().__init__()
        rows = {"words": words, "positions": bert.POSITIONS, "sorts": 2}
        self.embeddings = nn.ModuleDict({name: nn.Embedding(count, hidden) for name, count in rows.items()})
        self.embeddings["norm"] = nn.LayerNorm(hidden, eps=bert.EPSILON)
        self.layers = nn.ModuleList(Layer(hidden, heads, epsilon=bert.EPSILON, first=False) for _ in range(layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        parts = self.embeddings
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = parts["words"](input_ids) + parts["sorts"](torch.zeros_like(input_ids)) + parts["positions"](places)
        x = parts["norm"](x)
        mask = attention_mask[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Vit(nn.Module):
    """`benchmarks.networks.vit`."""

    def __init__(
        self,
        *,
        image: int = 224,
        patch: int = 16,
        layers: int = 12,
        hidden: int = 768,
        heads: int = 12,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, stride=patch)
        self.label = nn.Parameter(torch.empty(1, 1, hidden))
        self.positions = nn.Parameter(torch.empty(1, 1 + (image // patch) ** 2, hidden))
        self.layers = nn.ModuleList(Layer(hidden, heads, epsilon=vit.EPSILON, first=True) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, eps=vit.EPSILON)
        self.head = nn.Linear(hidden, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.label.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


class Whisper(nn.Module):
    """`benchmarks.networks.whisper`."""

    def __init__(self, *, frames: int = 3000, layers: int = 4, hidden: int = 384, heads: int = 6) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(whisper.BANDS, hidden, 3, padding=1)
        self.conv2 = nn.Conv1d(hidden, hidden, 3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.empty((frames + 1) // 2, hidden))
        self.layers = nn.ModuleList(
            Layer(hidden, heads, epsilon=whisper.EPSILON, first=True, biased_keys=False) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden, eps=whisper.EPSILON)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(spectrogram))))
        x = x.transpose(1, 2) + self.positions
        for layer in self.layers:
            x = layer(x)
        y: Tensor = self.norm(x)
        return y


class CachedAttention(nn.Module):
    """Attention of one token to a cache, whose last row it writes."""

    def __init__(self, hidden: int, heads: int, groups: int, size: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        self.q = nn.Linear(hidden, heads * size, bias=False)
        self.k, self.v = (nn.Linear(hidden, groups * size, bias=False) for _ in range(2))
        self.out = nn.Linear(heads * size, hidden, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, wave: tuple[Tensor, Tensor]) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (heads, -1)).transpose(1, 2)
            for part, heads in ((self.q, self.heads), (self.k, self.groups), (self.v, self.groups))
        )
        keys[:, :, -1:] = rotated(key, wave)
        values[:, :, -1:] = value
        y = functional.scaled_dot_product_attention(rotated(query, wave), keys, values, enable_gqa=True)
        projected: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return projected


def rotated(x: Tensor, wave: tuple[Tensor, Tensor]) -> Tensor:
    """Heads whose two halves are turned against each other by angles, of which `wave` are the cosines and sines."""
    cosines, sines = wave
    low, high = x.chunk(2, dim=-1)
    return x * cosines + torch.cat([-high, low], dim=-1) * sines


class LlamaLayer(nn.Module):
    """Attention to the cache, and a gated MLP."""

    def __init__(self, hidden: int, heads: int, groups: int, size: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(hidden, eps=llama.EPSILON) for _ in range(2))
        self.attention = CachedAttention(hidden, heads, groups, size)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, wave: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.norm1(x), keys, values, wave)
        y = self.norm2(x)
        z: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return z


class Llama(nn.Module):
    """`benchmarks.networks.llama`. The caches have room for the token's row, which is written in place.

    Weights of few bits are floats here; the last layer's are then no longer the embeddings.
    """

    def __init__(
        self,
        *,
        layers: int = 16,
        hidden: int = 2048,
        heads: int = 32,
        groups: int = 8,
        size: int = 64,
        inner: int = 8192,
        words: int = 128_256,
        bits: int = 0,
    ) -> None:
        super().__init__()
        self.size = size
        self.embeddings = nn.Embedding(words, hidden)
        self.layers = nn.ModuleList(LlamaLayer(hidden, heads, groups, size, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=llama.EPSILON)
        self.words = nn.Linear(hidden, words, bias=False) if bits else None

    @staticmethod
    def with_room(input_ids: Tensor, position: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """The model's inputs as the module takes them: caches have a row for the token."""
        return input_ids, position, *(functional.pad(cache, (0, 0, 0, 1)) for cache in caches)

    def forward(self, input_ids: Tensor, position: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        rates = llama.THETA ** (-torch.arange(0, self.size, 2, device=position.device) / self.size)
        angles = (position[:, :, None] * rates).repeat(1, 1, 2)[:, None]
        x = self.embeddings(input_ids)
        wave = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer, keys, values in zip(self.layers, caches[::2], caches[1::2], strict=True):
            x = layer(x, keys, values, wave)
        weight = self.embeddings.weight if self.words is None else self.words.weight
        return functional.linear(self.norm(x), weight), *caches
