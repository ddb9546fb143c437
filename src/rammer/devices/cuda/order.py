"""The order of a model's runs: one after another, for they share memory, whatever streams callers give them to."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from rammer.devices.cuda.capture import Capture, capture_of
from rammer.devices.cuda.driver import LEGACY_STREAM, Driver
from rammer.devices.cuda.memory import Memory
from rammer.errors import StreamCaptureError

LASTING_STREAMS = frozenset({LEGACY_STREAM, 2})
"""The default streams, by DLPack's and the driver's numbers: the legacy one, and that of a thread. They never end."""


class Order:
    """Which stream has the last run. One event marks its end, recorded when it is needed or before a stream can end.

    Captured runs are another order, that of their graph: replays are not seen here. Safe to use from several threads.

    Attributes:
        steady: the legacy default stream where it has the last run. It never ends and is never captured: for another
            run there nothing is to be done. None where something may be.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._memory = Memory(driver)  # arrays that a run left may outlive the model
        self._untimed = int(driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        self._event, self._captured = (
            self._memory.own("cuEventDestroy", driver.call("cuEventCreate", self._untimed)) for _ in range(2)
        )
        self._capture: Capture | None = None
        self._lock = threading.RLock()  # inside, Python may free another program of the model, which calls `outlast`
        self._last: int | None = None
        self._lasts = False
        self.steady: int | None = None

    def before(self, stream: int) -> None:
        """The next work on `stream` follows the last run."""
        if self._last != stream and self._last is not None:
            self.follow(stream)

    def after(self, stream: int, *, waits: bool = False) -> None:
        """A run was given to `stream`. `waits` says that `ended` follows, before which the stream does not end."""
        lasts = waits or stream in LASTING_STREAMS
        if self._last == stream and lasts:
            return
        with self._lock:
            self._last, self._lasts = stream, lasts
            self.steady = stream if stream == LEGACY_STREAM else None
            if not lasts:
                self._driver.call("cuEventRecord", self._event, stream)

    def before_captured(self, stream: int, capture: Capture) -> None:
        """The next work on a captured `stream` follows the run that was captured last, if that is in the same graph."""
        if self._capture == capture:
            self._driver.call("cuStreamWaitEvent", stream, self._captured, 0)

    def after_captured(self, stream: int, capture: Capture) -> None:
        """A run was given to a captured `stream`."""
        self._driver.call("cuEventRecord", self._captured, stream)
        self._capture = capture

    def follow(self, stream: int) -> None:
        """Work given to `stream` from now on follows all runs so far.

        Raises:
            StreamCaptureError: the stream is captured, which cannot wait for a run outside.
        """
        if capture_of(self._driver, stream) is not None:
            raise StreamCaptureError(
                "a captured stream cannot wait for runs before the capture",
                hint="take arrays over before the capture, or read where `outputs=` was told to write",
            )
        with self._lock:
            if self._mark():
                self._driver.call("cuStreamWaitEvent", stream, self._event, 0)

    def outlast(self) -> None:
        """Stand still until the last run so far has ended; others may be given meanwhile."""
        with self._lock:
            marked = self._mark()
        if marked:
            self._driver.call("cuEventSynchronize", self._event)

    def wait(self) -> None:
        """Stand still until the last run has ended; nobody gives others meanwhile."""
        with self._lock:
            if self._mark():
                self._driver.call("cuEventSynchronize", self._event)
                self._last = self.steady = None

    def ended(self, stream: int) -> None:
        """Runs given to `stream` have ended: work that followed them was waited for."""
        with self._lock:
            if self._last == stream:
                self._last = self.steady = None

    def gather(self, readers: Iterable[int], stream: int) -> None:
        """Work given to `stream` from now on follows what the streams `readers` have been given so far."""
        for reader in readers:
            event = self._driver.call("cuEventCreate", self._untimed)
            self._driver.call("cuEventRecord", event, reader)
            self._driver.call("cuStreamWaitEvent", stream, event, 0)
            self._driver.call("cuEventDestroy", event)

    def _mark(self) -> bool:
        """The event marks the last run, if there is one that may be under way."""
        if self._last is not None and self._lasts:
            self._driver.call("cuEventRecord", self._event, self._last)
        return self._last is not None
