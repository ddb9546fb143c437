"""Side by side: all contestants hold the model in one process, agree on its outputs, and are timed in turns."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.harness.cases import Case
from benchmarks.harness.clock import Clock
from benchmarks.harness.contestant import Array, Contestant, Prepared
from benchmarks.harness.setups import Setup

WARMUP_CALLS = 5
TURN_WARMUP_CALLS = 2
TURN_US = 50_000.0
TURN_CALLS = range(3, 201)
QUIET_S = 0.005
QUIET_SHARE = 0.1
SETTLE_S = 2.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A contestant's calls on one case, in microseconds."""

    median_us: float
    p10_us: float
    p90_us: float
    calls: int

    @classmethod
    def of(cls, times_us: Sequence[float]) -> Timing:
        """The figures of single calls."""
        p10, median, p90 = np.percentile(times_us, (10, 50, 90)).tolist()
        return cls(median_us=median, p10_us=p10, p90_us=p90, calls=len(times_us))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case: timings by contestant, or why there are none.

    Attributes:
        differences: relative difference (norm) of each contestant's outputs from the reference's.
        refusal: why nothing is reported; empty where something is.
    """

    case: str
    network: str
    differences: Mapping[str, float] = field(default_factory=dict)
    timings: Mapping[str, Timing] = field(default_factory=dict)
    refusal: str = ""


def measure(
    case: Case,
    contestants: Sequence[Contestant],
    setup: Setup,
    *,
    rounds: int,
    progress: Progress,
) -> Row:
    """Measure one case; refuses to report it where any contestant's outputs differ from the reference's."""
    progress(f"{case.name}: {setup.reference.name} as the reference")
    expected = setup.reference.prepare(case).outputs()
    prepared: dict[str, Prepared] = {}
    differences: dict[str, float] = {}
    for contestant in contestants:
        progress(f"{case.name}: {contestant.name} compiles")
        prepared[contestant.name] = contestant.prepare(case)
        differences[contestant.name] = _difference(prepared[contestant.name].outputs(), expected)
    wrong = [name for name, difference in differences.items() if difference > setup.tolerance]
    if wrong:
        listing = ", ".join(f"{name} by {differences[name]:.1e}" for name in wrong)
        refusal = f"outputs differ from those of {setup.reference.name}: {listing} (allowed: {setup.tolerance:.0e})"
        return Row(case=case.name, network=case.form.task, differences=differences, refusal=refusal)
    times_us = in_turns(
        prepared, setup.clock, rounds, lambda number: progress(f"{case.name}: round {number} of {rounds}")
    )
    return Row(
        case=case.name,
        network=case.form.task,
        differences=differences,
        timings={name: Timing.of(times) for name, times in times_us.items()},
    )


def _difference(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """The largest relative difference by norm over the outputs; infinite where a shape or a NaN is in the way."""
    if [array.shape for array in actual] != [array.shape for array in expected]:
        return math.inf
    largest = 0.0
    for a, b in zip(actual, expected, strict=True):
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        difference = float(np.linalg.norm(wide_a - wide_b) / max(float(np.linalg.norm(wide_b)), 1e-30))
        largest = max(largest, difference if math.isfinite(difference) else math.inf)
    return largest


def in_turns(
    prepared: Mapping[str, Prepared], clock: Clock, rounds: int, progress: Callable[[int], None]
) -> dict[str, list[float]]:
    """Times of single calls by contestant. Each round gives everybody a turn, in an order that changes."""
    counts = {name: _turn_calls(clock, one.run) for name, one in prepared.items()}
    times_us: dict[str, list[float]] = {name: [] for name in prepared}
    order = random.Random(0)
    for number in range(1, rounds + 1):
        progress(number)
        for name in order.sample(list(prepared), len(prepared)):
            settle()
            clock.time_us(prepared[name].run, TURN_WARMUP_CALLS)
            times_us[name] += clock.time_us(prepared[name].run, counts[name])
    return times_us


def settle() -> None:
    """Wait until this process's threads have stopped polling for more work: some runtimes' do so for long."""
    deadline_s = time.monotonic() + SETTLE_S
    used_s = math.inf
    while used_s > QUIET_SHARE * QUIET_S and time.monotonic() < deadline_s:
        before_s = time.process_time()
        time.sleep(QUIET_S)
        used_s = time.process_time() - before_s


def _turn_calls(clock: Clock, run: Callable[[], object]) -> int:
    """Warm up, and find how many calls fill a turn."""
    typical_us = float(np.median(clock.time_us(run, WARMUP_CALLS)))
    return min(max(round(TURN_US / typical_us), TURN_CALLS.start), TURN_CALLS.stop - 1)
