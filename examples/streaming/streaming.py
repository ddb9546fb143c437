"""A recurrent model that hears a signal chunk by chunk and notices a fault in it; what it remembers is its state.

    python examples/streaming/streaming.py
    python examples/streaming/streaming.py --device cuda

It learns to foretell the next sample of a wave, in seconds on one core. Then it hears a long one as it comes in, a
chunk in each call. The state of the LSTM stays in the program from call to call, so that chunks give the same bits as
the whole signal at once, and several signals can be heard side by side.
"""

from __future__ import annotations

import argparse

import torch

import rammer

WIDTH, WINDOW, BATCH = 32, 32, 8
LENGTH, FAULT = 240, 170


class Listener(torch.nn.Module):
    """The next sample behind each sample of a chunk of shape [time, 1, 1]; it goes on where the last chunk ended."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = torch.nn.LSTM(1, WIDTH), torch.nn.Linear(WIDTH, 1)
        for name in ("hidden", "cell"):
            self.register_buffer(name, torch.zeros(1, 1, WIDTH), persistent=False)

    def forward(self, chunk: torch.Tensor) -> torch.Tensor:
        heard, (hidden, cell) = self.lstm(chunk, (self.hidden, self.cell))
        self.hidden.copy_(hidden)
        self.cell.copy_(cell)
        return self.head(heard)


def wave(times: torch.Tensor) -> torch.Tensor:
    """Two tones, one much slower than the other."""
    return 0.7 * torch.sin(times * 0.6) + 0.3 * torch.sin(times * 0.11)


def faulty_wave() -> torch.Tensor:
    """A long wave, [time, 1, 1], that stands still for a moment."""
    signal = wave(torch.arange(float(LENGTH)))
    signal[FAULT : FAULT + 4] = signal[FAULT - 1]
    return signal.reshape(-1, 1, 1)


def loss_of(listener: torch.nn.Module, windows: torch.Tensor) -> torch.Tensor:
    """How far the next samples are from what was foretold, over windows of shape [time, batch, 1]."""
    heard, _ = listener.lstm(windows[:-1])
    return torch.nn.functional.mse_loss(listener.head(heard), windows[1:])


def train(listener: Listener, steps: int, device: str = "cpu") -> float:
    """Train on windows that begin anywhere, on the device where the listener lies; the last loss."""
    optimizer = torch.optim.Adam(listener.parameters(), lr=1e-2)
    step = rammer.compile_step(
        loss_of, listener, optimizer, device, args=(torch.zeros(WINDOW, BATCH, 1, device=device),)
    )
    loss = 0.0
    for begins in torch.rand(steps, BATCH) * 1000:
        loss = step(wave(torch.arange(WINDOW)[:, None] + begins)[..., None].to(device)).item()
    step.sync()
    return loss


def listen(listener: Listener, signal: torch.Tensor, chunk: int, device: str = "cpu") -> torch.Tensor:
    """What is foretold behind each sample of a signal that comes in chunks.

    No sum is cut into parts that several cores add (`numerics="strict"`): how it is cut may depend on the chunk.
    """
    net = rammer.compile(listener.eval(), device, args=(signal[:chunk],), numerics="strict")
    return torch.cat([net(part) for part in signal.split(chunk)])


def main() -> None:
    """Train, listen in chunks of several lengths, and say where the signal was not as foretold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    torch.manual_seed(0)
    listener, signal = Listener().to(given.device), faulty_wave().to(given.device)
    print(f"loss after {given.steps} steps: {train(listener, given.steps, given.device):.5f}")
    whole = listen(listener, signal, LENGTH, given.device)
    for chunk in (1, 8, 60):
        heard = listen(listener, signal, chunk, given.device)
        print(f"chunks of {chunk}: the whole signal's bits:", torch.equal(heard, whole))
    surprise = (signal[1:] - whole[:-1]).abs().flatten()
    print(f"most surprising is sample {int(surprise.argmax()) + 1}; the fault is at {FAULT} to {FAULT + 3}")


if __name__ == "__main__":
    main()
