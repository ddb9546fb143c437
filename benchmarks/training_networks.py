"""What `benchmarks.training` trains: a module, arguments for a batch, and a loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.nn import functional

from benchmarks.networks.torch_modules import LstmTc
from benchmarks.networks.torch_transformers import Bert

CLASSES, LENGTH = 10, 8
_CLIP, _OF_VALUE, _OF_ENTROPY = 0.2, 0.5, 0.01  # as PPO's implementations have them
_OBSERVED, _ACTIONS = 8, 4

Loss = Callable[..., torch.Tensor]
Data = tuple[torch.Tensor, ...]


def cross_entropy(module: torch.nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """How far a classifier's scores are from the classes."""
    return functional.cross_entropy(module(x), target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A network and what it learns.

    Attributes:
        make: gives the module, in training mode.
        data: random arguments behind the module, for a batch.
        loss: of the module and the arguments.
    """

    make: Callable[[], torch.nn.Module]
    data: Callable[[int], Data]
    loss: Loss = cross_entropy


class Recurrent(torch.nn.Module):
    """A recurrent layer, whose last output is classified."""

    def __init__(self, kind: type[torch.nn.Module], features: int, width: int) -> None:
        super().__init__()
        self.layer = kind(features, width, batch_first=True)
        self.head = torch.nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Transformer(torch.nn.Module):
    """Two layers of attention over tokens, whose mean is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(64, 64)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(x)).mean(1))


class BertClassifier(torch.nn.Module):
    """BERT-base over 128 tokens, whose first one is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Bert()
        self.head = torch.nn.Linear(768, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(tokens, torch.ones_like(tokens, dtype=torch.bool))[:, 0])


class Block(torch.nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        stride = width // inputs
        self.conv1 = torch.nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.conv2 = torch.nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = torch.nn.BatchNorm2d(width), torch.nn.BatchNorm2d(width)
        self.shortcut = torch.nn.Identity()
        if stride > 1:
            conv = torch.nn.Conv2d(inputs, width, 1, stride, bias=False)
            self.shortcut = torch.nn.Sequential(conv, torch.nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


def resnet18() -> torch.nn.Module:
    """ResNet-18 for images of 224 x 224."""
    stem = (torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU())
    widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
    blocks = (Block(inputs, width) for inputs, width in pairwise(widths))
    end = (torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, CLASSES))
    return torch.nn.Sequential(*stem, torch.nn.MaxPool2d(3, 2, 1), *blocks, *end)


def cnn() -> torch.nn.Module:
    """Two convolutions over an image of 28 x 28."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(400, CLASSES),
    )


def mlp(results: int = CLASSES) -> torch.nn.Module:
    """Two hidden layers of 64."""
    layers = [torch.nn.Linear(_OBSERVED, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, results))


class ActorCritic(torch.nn.Module):
    """Two networks of two hidden layers of 64: scores of actions, and the value of a state."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = mlp(_ACTIONS), mlp(1)

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(state), self.critic(state)[:, 0]


def ppo_loss(
    module: torch.nn.Module,
    state: torch.Tensor,
    action: torch.Tensor,
    before: torch.Tensor,
    advantage: torch.Tensor,
    gained: torch.Tensor,
) -> torch.Tensor:
    """PPO's clipped loss (Schulman et al. 2017), with that of the values and the entropy."""
    scores, value = module(state)
    likely = functional.log_softmax(scores, -1)
    ratio = (likely.gather(1, action[:, None])[:, 0] - before).exp()
    worst = torch.minimum(ratio * advantage, ratio.clamp(1 - _CLIP, 1 + _CLIP) * advantage).mean()
    entropy = -(likely.exp() * likely).sum(-1).mean()
    return _OF_VALUE * (value - gained).square().mean() - worst - _OF_ENTROPY * entropy


def ppo_data(batch: int) -> Data:
    """States, actions, their logarithmic likelihoods before, advantages and what was gained."""
    actions = torch.randint(0, _ACTIONS, (batch,))
    return torch.randn(batch, _OBSERVED), actions, -torch.rand(batch) - 1, torch.randn(batch), torch.randn(batch)


def _classes(*shape: int) -> Callable[[int], Data]:
    """Normal numbers of a shape behind the batch, and classes."""
    return lambda batch: (torch.randn(batch, *shape), torch.randint(0, CLASSES, (batch,)))


def _words(words: int, length: int) -> Callable[[int], Data]:
    """Texts, and classes."""
    return lambda batch: (torch.randint(0, words, (batch, length)), torch.randint(0, CLASSES, (batch,)))


def lstm_tc(steps: int) -> Training:
    """LSTM-TC over so many steps; the batch lies behind them."""
    return Training(make=LstmTc, data=lambda batch: (torch.randn(steps, batch, 256), torch.randint(0, 256, (batch,))))


SMALL: Mapping[str, Training] = {
    "mlp": Training(make=mlp, data=_classes(_OBSERVED)),
    "cnn": Training(make=cnn, data=_classes(1, 28, 28)),
    "lstm": Training(make=lambda: Recurrent(torch.nn.LSTM, 16, 64), data=_classes(LENGTH, 16)),
    "gru": Training(make=lambda: Recurrent(torch.nn.GRU, 16, 64), data=_classes(LENGTH, 16)),
    "transformer": Training(make=Transformer, data=_words(64, 16)),
}
"""What is trained by default."""

NETWORKS: Mapping[str, Training] = {
    **SMALL,
    "ppo": Training(make=ActorCritic, data=ppo_data, loss=ppo_loss),
    "resnet18": Training(make=resnet18, data=_classes(3, 224, 224)),
    "bert": Training(make=BertClassifier, data=_words(30_522, 128)),
    **{f"lstm_tc-{steps}": lstm_tc(steps) for steps in (10, 100)},
}
"""All of them by name."""
