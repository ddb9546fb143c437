"""Figures of the GPU that is here, measured once: hand-overs by counter and by tags, and what an rTask costs.

They are medians of what `handover.py` measures, kept in the cache folder under a key made from GPU, compiler and code.
Whoever stored them first is believed, so equal compilations see equal figures (ADR 0010).
"""

from __future__ import annotations

import functools
import json
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rammer.devices.base import no_progress
from rammer.devices.cache import PEAKS, Cache, content_key
from rammer.devices.cuda.architecture import Gpu
from rammer.devices.cuda.build import build
from rammer.devices.cuda.describe import Peaks, describe
from rammer.devices.cuda.handover import HandOvers, handover_plan, measure
from rammer.devices.cuda.launch import LoadedModel
from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE, DEVICE_RECORDS
from rammer.devices.cuda.toolchain import find_toolchain
from rammer.errors import DeviceError
from rammer.ir.program import Plan
from rammer.options import CompileOptions

_TEAM_US = 0.2
"""What a step of LSTM-TC and Seq2Seq takes on an H200 beyond a pair's hand-over: it waits for a whole team."""


def find_peaks(gpu: Gpu, options: CompileOptions) -> Peaks:
    """The measured figures of the GPU of this process: from the cache, else measured now, which takes some seconds.

    Where they cannot be measured (there is no compiler, say) there are none, and the provenance says why.
    """
    try:
        return _find_peaks(gpu, options.cache_dir)
    except DeviceError as error:
        return Peaks(provenance=f"not measured: {error.message}")


def measure_handovers(gpu: Gpu, options: CompileOptions) -> HandOvers:
    """Measure hand-overs on the GPU of this process now, whatever is kept.

    Raises:
        DeviceError: the GPU or the compiler cannot be used.
    """
    plan = _plan(gpu)
    return measure(load_plan(plan, gpu, options), plan)


def load_plan(plan: Plan, gpu: Gpu, options: CompileOptions) -> LoadedModel:
    """A plan on the GPU of this process.

    Raises:
        DeviceError: the GPU or the compiler cannot be used.
    """
    source = source_of(plan, describe(gpu, None))
    return LoadedModel(source, build(source, gpu.architecture, options, no_progress), options)


@functools.lru_cache(maxsize=8)
def _find_peaks(gpu: Gpu, cache_dir: Path) -> Peaks:
    compiler = f"NVRTC {find_toolchain().version}"
    source = source_of(_plan(gpu), describe(gpu, None))
    key = content_key(repr(gpu), compiler, source.files[CODE], source.files[DEVICE_RECORDS])
    cache = Cache(cache_dir / PEAKS)
    stored = cache.get(key)
    if stored is None:
        found = measure_handovers(gpu, CompileOptions(cache_dir=cache_dir))
        peaks = Peaks(
            provenance=f"measured {time.strftime('%Y-%m-%d')} with {compiler}",
            handover_us=float(np.median(found.counter_us)),
            tagged_handover_us=float(np.median(found.tagged_us)) + _TEAM_US,
            task_overhead_us=float(np.median(found.task_us) - np.median(found.own_us)),
        )
        stored = cache.keep(key, json.dumps(asdict(peaks), sort_keys=True).encode())
    return Peaks(**json.loads(stored))


def _plan(gpu: Gpu) -> Plan:
    """What measures, on all multiprocessors."""
    return handover_plan(describe(gpu, None))
