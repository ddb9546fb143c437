"""Candidates of an rOperator, compiled on a machine without a GPU and measured on one: a file for each rOperator."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rammer.devices.base import Binary
from rammer.ir.saved_tasks import read_tasks, saved_tasks
from rammer.ir.task import RKernel
from rammer.ir.vdevice import VDevice
from rammer.profiler.measure import Expected, plan_of

_PLACES = 4096  # of an output, that are looked at
_OWN = ("about", "tasks", "machine")
_FILE, _ADDRESSES, _VALUES = "file ", "addresses ", "values "


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedCandidates:
    """rKernels of one rOperator, their machine code, and what NumPy computes at some places of their outputs.

    `about` is what the benchmark has to say of them, as JSON can hold it.
    """

    about: Mapping[str, Any]
    kernels: tuple[RKernel, ...]
    binary: Binary
    right: tuple[Expected, ...]


def save(path: Path, candidates: SavedCandidates, vdevice: VDevice, veus: int) -> None:
    """Write a file; of each output, places are drawn that are looked at."""
    tasks = saved_tasks(plan_of(candidates.kernels, vdevice, veus), {})
    binary = candidates.binary
    texts = (json.dumps(candidates.about).encode(), tasks, json.dumps([binary.device, dict(binary.machine)]).encode())
    arrays: dict[str, Any] = {name: np.frombuffer(text, np.uint8) for name, text in zip(_OWN, texts, strict=True)}
    arrays |= {f"{_FILE}{name}": np.frombuffer(data, np.uint8) for name, data in binary.files.items()}
    rng = np.random.default_rng(0)
    for number, one in enumerate(candidates.right):
        chosen = rng.choice(one.addresses.size, min(_PLACES, one.addresses.size), replace=False)
        arrays[f"{_ADDRESSES}{number}"], arrays[f"{_VALUES}{number}"] = one.addresses[chosen], one.values[chosen]
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    path.write_bytes(packed.getvalue())


def read(path: Path) -> SavedCandidates:
    """What `save` wrote."""
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    about, tasks, machine = (arrays[name].tobytes() for name in _OWN)
    device, needs = json.loads(machine)
    outputs = sum(name.startswith(_VALUES) for name in arrays)
    return SavedCandidates(
        about=json.loads(about),
        kernels=tuple(operator.kernels[0] for operator in read_tasks(tasks).operators),
        binary=Binary(
            device=device,
            machine=needs,
            files={name.removeprefix(_FILE): a.tobytes() for name, a in arrays.items() if name.startswith(_FILE)},
        ),
        right=tuple(
            Expected(addresses=arrays[f"{_ADDRESSES}{number}"], values=arrays[f"{_VALUES}{number}"])
            for number in range(outputs)
        ),
    )
