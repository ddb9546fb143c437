"""Runs that are captured into a CUDA graph: whether one is being made, and what cannot be part of it.

A launch can: the kernel counts its runs in the GPU's memory, and a graph repeats it with the same arrays. What waits
for the GPU or takes memory cannot; to try it would end the capture, so it is refused before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rammer.devices.cuda.driver import LEGACY_STREAM, Driver
from rammer.errors import StreamCaptureError

Capture = int
"""What the driver calls a capture, which may go over several streams."""


def capture_of(driver: Driver, stream: int) -> Capture | None:
    """The capture that work given to a stream becomes part of; None where it runs, as on the legacy default stream.

    Raises:
        StreamCaptureError: what was captured before has gone wrong.
    """
    if stream == LEGACY_STREAM:
        return None
    if not driver.call("cuStreamIsCapturing", stream):
        return None
    status, capture, *_ = driver.call("cuStreamGetCaptureInfo", stream)
    if status != driver.api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        raise StreamCaptureError(
            "a stream whose capture was made invalid", hint="see what was called before; capture anew"
        )
    return int(capture)


@contextmanager
def unrestricted(driver: Driver) -> Iterator[None]:
    """Inside, captures of other threads do not keep this one from giving memory back."""
    mode = driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = driver.call("cuThreadExchangeStreamCaptureMode", mode)
    try:
        yield
    finally:
        driver.call("cuThreadExchangeStreamCaptureMode", before)


def is_capturing() -> bool:
    """Whether PyTorch captures its current stream on this thread."""
    return _pytorch.captures()


def refuse_while_capturing(what: str, hint: str) -> None:
    """Refuse what the graph that PyTorch captures on this thread would not hold, or what would end the capture.

    The driver says of a stream whether it is captured, but not of a thread; other libraries capture streams that are
    named in every call.

    Raises:
        StreamCaptureError: PyTorch captures its current stream.
    """
    if _pytorch.captures():
        raise StreamCaptureError(f"{what} while PyTorch captures a CUDA graph", hint=hint)


class _PyTorch:
    """PyTorch, once it is imported and uses a GPU. To ask it stands in the way of every call."""

    def __init__(self) -> None:
        self.captures: Callable[[], bool] = self._find

    def _find(self) -> bool:
        cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)  # it may be half imported, or find no driver
        if not hasattr(cuda, "is_initialized") or not cuda.is_initialized():
            return False
        self.captures = cuda.is_current_stream_capturing
        return self.captures()


_pytorch = _PyTorch()
