"""Measures rPrograms whole, on inputs that are made up. Figures are kept like those of rKernels."""

from __future__ import annotations

import hashlib
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from rammer.devices.base import Clocked, Device, Early, Loaded, Source, Trace, TracedApart
from rammer.devices.cache import DATABASE
from rammer.ir.graph import Array
from rammer.ir.program import Plan
from rammer.ir.types import TensorType
from rammer.ir.vdevice import Figure, VDevice
from rammer.options import CompileOptions
from rammer.profiler.database import Database

_RUNS = 31
_TURNS = 3
_TRACES = 3
_LONGEST_S = 1.0  # after which there are runs enough, however few


def measure_plan(plan: Plan, device: Device, vdevice: VDevice, options: CompileOptions) -> Figure:
    """The median time of a run, in microseconds, from the database or else measured and kept there.

    On a device with a clock of its own it is that of the program alone, elsewhere that of a call.

    Args:
        plan: a verified plan.
        device: where it runs.
        vdevice: its description, or that of the part of it that the plan is for.
        options: compiler, cache and limits.

    Raises:
        CompilerNotFoundError: no compiler.
        CompilerFailedError: the compiler ended with an error, or not at all.
        RunTimeoutError: a run stopped making progress.
    """
    return _measured(plan, device.emit(plan, vdevice), device, vdevice, options)


def _measured(plan: Plan, source: Source, device: Device, vdevice: VDevice, options: CompileOptions) -> Figure:
    """`measure_plan`, given what `Device.emit` returns."""
    database, key = Database(options.cache_dir / DATABASE), _key(source, vdevice)
    known = database.find([key]) if source.files else {}
    if key not in known:
        loaded = device.load(source, device.build(source, options), options)
        provenance = f"the whole program, measured {time.strftime('%Y-%m-%d')} with {vdevice.compiler}"
        known = {key: Figure(_time_us(plan, loaded), provenance)}
        if source.files:
            database.keep(known)
    return known[key]


def measure_plans(
    plans: Sequence[Plan], device: Device, vdevices: Sequence[VDevice], options: CompileOptions
) -> list[Figure]:
    """`measure_plan` for each of some plans, whose codes are built side by side where a device's compiler can do that.

    Args:
        plans: verified plans.
        device: where they run.
        vdevices: its description for each.
        options: compiler, cache and limits.

    Raises:
        CompilerNotFoundError: as `measure_plan`.
        CompilerFailedError: likewise.
        RunTimeoutError: likewise.
    """
    if not isinstance(device, Early):
        return [measure_plan(plan, device, one, options) for plan, one in zip(plans, vdevices, strict=True)]
    codes = [device.code(plan.graph, plan.schedule, one) for plan, one in zip(plans, vdevices, strict=True)]
    different = {tuple((name, bytes(content)) for name, content in code.files.items()): code for code in codes}
    with ThreadPoolExecutor(os.cpu_count()) as beside:
        list(beside.map(lambda code: device.build(code, options), different.values()))  # into the cache
    return [
        _measured(plan, device.complete(plan, one, code), device, one, options)
        for plan, one, code in zip(plans, vdevices, codes, strict=True)
    ]


def compare_plans(
    plans: Sequence[Plan], device: Device, vdevices: Sequence[VDevice], options: CompileOptions
) -> list[float]:
    """The times of runs of some plans in microseconds, measured in turns: closer to each other than `measure_plans`.

    Each is loaded several times, one at a time, for a program is a percent quicker or slower wherever it lies. Nothing
    is kept. Arguments and errors are those of `measure_plans`.
    """
    sources = [device.emit(plan, one) for plan, one in zip(plans, vdevices, strict=True)]
    binaries = [device.build(source, options) for source in sources]
    rounds = [
        [
            _time_us(plan, device.load(source, binary, options))
            for plan, source, binary in zip(plans, sources, binaries, strict=True)
        ]
        for _ in range(_TURNS)
    ]
    return [statistics.median(times_us) for times_us in zip(*rounds, strict=True)]


def trace_plans(
    plans: Sequence[Plan], device: Device, vdevices: Sequence[VDevice], options: CompileOptions
) -> list[list[Trace]]:
    """Some runs of each plan with the time of every step; none where it keeps states.

    Arguments and errors are those of `measure_plans`.
    """
    found: list[list[Trace]] = [[] for _ in plans]
    places = [place for place, plan in enumerate(plans) if not plan.graph.states]
    sources = [device.emit(plans[place], vdevices[place]) for place in places]
    build = device.build_traced if isinstance(device, TracedApart) else device.build
    with ThreadPoolExecutor(os.cpu_count()) as beside:
        binaries = list(beside.map(lambda source: build(source, options), sources))
    for place, source, binary in zip(places, sources, binaries, strict=True):
        loaded = device.load(source, binary, options)
        inputs, outputs = _arrays(plans[place])
        found[place] = [loaded.trace(inputs, outputs) for _ in range(1 + _TRACES)][1:]
    return found


def _time_us(plan: Plan, loaded: Loaded) -> float:
    inputs, outputs = _arrays(plan)
    if isinstance(loaded, Clocked):
        return statistics.median(loaded.measure_us(inputs, _RUNS))
    loaded.run(inputs, outputs)
    return statistics.median(_times_us(loaded, inputs, outputs))


def _arrays(plan: Plan) -> tuple[list[Array], list[Array]]:
    """Inputs that are made up, and room for outputs."""
    tensors = plan.graph.tensors
    inputs = [_made_up(tensors[number].type, number) for number in plan.graph.inputs]
    types = [tensors[number].type for number in plan.graph.outputs]
    return inputs, [np.zeros(type_.shape, type_.dtype.numpy) for type_ in types]


def _times_us(loaded: Loaded, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[float]:
    times_us: list[float] = []
    end_s = time.perf_counter() + _LONGEST_S
    while len(times_us) < _RUNS and (not times_us or time.perf_counter() < end_s):
        start = time.perf_counter_ns()
        loaded.run(inputs, outputs)
        times_us.append((time.perf_counter_ns() - start) / 1e3)
    return times_us


def _made_up(type_: TensorType, seed: int) -> Array:
    """Normal numbers; zeros where they are integers, which may be indices."""
    numbers = (
        np.random.default_rng(seed).standard_normal(type_.shape) if type_.dtype.is_float else np.zeros(type_.shape)
    )
    array: Array = np.asarray(numbers).astype(type_.dtype.numpy)
    return array


def _key(source: Source, vdevice: VDevice) -> str:
    """A digest of the code and tables and of the machine."""
    digest = hashlib.sha256(repr((vdevice.kind, vdevice.name, vdevice.compiler)).encode())
    for name, content in sorted(source.files.items()):
        digest.update(name.encode())
        digest.update(content)
    return digest.hexdigest()
