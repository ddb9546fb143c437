"""Times of runs by the GPU's clock: events around a launch, read when the GPU has come to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rammer.devices.cuda.driver import Driver, check
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.spans import Spans
from rammer.devices.cuda.streaming import Launch

_Pair = tuple[Any, Any]


class Events:
    """Pairs of events, each for one run at a time; they are used again.

    Attributes:
        record: gives the driver an event for a stream, and what it answers.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._memory = Memory(driver)
        self._free: list[_Pair] = []
        self._relaxed = driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.record = driver.api.cuEventRecord

    def take(self) -> _Pair:
        """A pair for a run."""
        if self._free:
            return self._free.pop()
        self._driver.enter()
        before, after = (self._memory.own("cuEventDestroy", self._driver.call("cuEventCreate", 0)) for _ in range(2))
        return before, after

    def give(self, pair: _Pair) -> None:
        """Take a pair back."""
        self._free.append(pair)

    def between_us(self, pair: _Pair) -> float | None:
        """The time from the first to the second of a pair, in us; None while the GPU has not come to them.

        Captures, of this thread and of others, are left as they are.
        """
        driver, api = self._driver, self._driver.api
        driver.enter()
        mode = api.cuThreadExchangeStreamCaptureMode(self._relaxed)[1]  # not by `unrestricted`, which takes 3 us
        answer = api.cuEventElapsedTime(*pair)
        api.cuThreadExchangeStreamCaptureMode(mode)
        if answer[0] == api.CUresult.CUDA_ERROR_NOT_READY:
            return None
        return 1e3 * float(check(api, "cuEventElapsedTime", answer))


class EventLap:
    """The time of one run; see `rammer.devices.base.Lap`."""

    def __init__(self, events: Events, check: Callable[[], None]) -> None:
        """Begin; `check` raises if the run was given up."""
        self._events, self._check = events, check
        self._pair = events.take()

    def launch(self, launch: Launch, stream: int, parameters: int) -> Any:  # noqa: ANN401 - what the driver answers
        """A launch between the two events."""
        before, after = self._pair
        record = self._events.record
        answer = record(before, stream)
        if not answer[0]:
            answer = launch(stream, parameters)
        return answer if answer[0] else record(after, stream)

    def times_us(self) -> Sequence[float] | None:
        """The run's time; see `Lap.times_us`."""
        time_us = self._events.between_us(self._pair)
        if time_us is None:
            return None
        self._check()
        return (time_us,)

    def __del__(self) -> None:
        self._events.give(self._pair)


class ProgramsLap(EventLap):
    """The times of a run's rPrograms, which its code writes; see `rammer.devices.base.Lap`."""

    def __init__(self, events: Events, check: Callable[[], None], spans: Spans) -> None:
        super().__init__(events, check)
        self._spans = spans
        self._room = spans.take()

    def launch(self, launch: Launch, stream: int, parameters: int) -> Any:  # noqa: ANN401 - what the driver answers
        """A launch, and what brings its times to the host, between the two events."""

        def measured(stream: int, parameters: int) -> Any:  # noqa: ANN401 - what the driver answers
            answer = self._spans.begin(stream)
            if not answer[0]:
                answer = launch(stream, parameters)
            return answer if answer[0] else self._spans.fetch(self._room, stream)

        return super().launch(measured, stream, parameters)

    def times_us(self) -> Sequence[float] | None:
        """The times, by rProgram; see `Lap.times_us`."""
        return None if super().times_us() is None else self._spans.programs_us(self._room)

    def __del__(self) -> None:
        super().__del__()
        self._spans.give(self._room)
