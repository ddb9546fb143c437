"""Models that are chains of programs: a device that runs each of them on its own, and what it keeps of them.

ChainedDevice(device) is a `Device` for the sources and binaries that `joined_source` and `joined_binary` make.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

import numpy as np

from rammer.devices.base import (
    Binary,
    Buffer,
    Device,
    DeviceArray,
    Loaded,
    OnHost,
    Progress,
    Resident,
    Source,
    StateMemory,
    Trace,
    no_progress,
)
from rammer.devices.codegen.source import MANIFEST
from rammer.devices.codegen.tables import Manifest
from rammer.errors import OptionError, OutOfMemoryError, StreamCaptureError
from rammer.ir.chain import Chain
from rammer.ir.schema import Schema, SchemaError, read_json
from rammer.ir.sizes import size_text
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions
from rammer.runtime.arrays import aligned_empty

if TYPE_CHECKING:
    from rammer.ir.graph import Array
    from rammer.ir.program import Plan
    from rammer.ir.recipe import Recipe
    from rammer.ir.vdevice import VDevice

CHAIN = "chain.json"
_FILES = "files.json"
_NAMES: Schema = [{str: str}]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainedSource(Source):
    """The sources of a chain's programs. Those that live in memory only are in `parts` alone."""

    chain: Chain
    parts: tuple[Source, ...]


def joined_source(chain: Chain, parts: Sequence[Source]) -> ChainedSource:
    """The sources of a chain's programs as one. Equal files are in it once."""
    files: dict[str, Buffer] = {}
    recipes: dict[str, Recipe] = {}
    if all(part.files for part in parts):
        names = _put_together([part.files for part in parts], files)
        files[CHAIN] = chain.to_bytes()
        for part, own in zip(parts, names, strict=True):
            recipes |= {own[name]: recipe for name, recipe in part.recipes.items()}
    return ChainedSource(device=parts[0].device, files=files, recipes=recipes, chain=chain, parts=tuple(parts))


def joined_binary(parts: Sequence[Binary]) -> Binary:
    """The binaries of a chain's programs as one; they need the same machine."""
    files: dict[str, Buffer] = {}
    _put_together([part.files for part in parts], files)
    machine = {name: text for part in parts for name, text in part.machine.items()}
    return Binary(device=parts[0].device, machine=machine, files=files)


def _put_together(parts: Sequence[Mapping[str, Buffer]], files: dict[str, Buffer]) -> list[dict[str, str]]:
    """Add the files of all parts, each content once, and which of them are each part's; returns the latter."""
    known: dict[bytes, str] = {}
    names: list[dict[str, str]] = []
    for number, part in enumerate(parts):
        own: dict[str, str] = {}
        for name, content in part.items():
            own[name] = known.setdefault(hashlib.sha256(content).digest(), f"{number}/{name}")
            files.setdefault(own[name], content)
        names.append(own)
    files[_FILES] = json.dumps(names).encode()
    return names


def _taken_apart(files: Mapping[str, Buffer]) -> list[dict[str, Buffer]]:
    """The files of each part.

    Raises:
        SchemaError: they are not such files.
    """
    names = cast(list[dict[str, str]], read_json(files[_FILES], _NAMES, "its list of files"))
    return [_Files((name, files[key]) for name, key in own.items()) for own in names]


class _Files(dict[str, Buffer]):
    """The files of a part."""

    def __missing__(self, name: str) -> Buffer:
        raise SchemaError(f"a program of its chain has no file '{name}'")


class ChainedDevice:
    """A device for chains of programs of another device; see `rammer.devices.base.Device`."""

    def __init__(self, device: Device) -> None:
        self._device = device

    @property
    def name(self) -> str:
        """What users call it."""
        return self._device.name

    def describe(self, options: CompileOptions) -> VDevice:
        """The machine at hand; see `Device.describe`."""
        return self._device.describe(options)

    def emit(self, plan: Plan, vdevice: VDevice) -> Source:
        """The source of one program; see `Device.emit`."""
        return self._device.emit(plan, vdevice)

    def build(self, source: Source, options: CompileOptions, progress: Progress = no_progress) -> Binary:
        """Each of the programs; see `Device.build`."""
        return joined_binary([self._device.build(part, options, progress) for part in _parts(source)])

    def outdated(self, source: Source, array_bytes: Sequence[int]) -> str | None:
        """Why one of the programs cannot be read; see `Device.outdated`."""
        chain, parts = Chain.from_bytes(source.files[CHAIN]), _parts(source)
        if chain.array_bytes != tuple(array_bytes) or len(chain.links) != len(parts):
            raise SchemaError("its chain is for other arrays, or for another number of programs")
        for link, part in zip(chain.links, parts, strict=True):
            if (reason := self._device.outdated(part, link.array_bytes)) is not None:
                return reason
        return None

    def mismatch(self, binary: Binary) -> str | None:
        """Why this machine cannot run a binary; see `Device.mismatch`."""
        reasons = (self._device.mismatch(part) for part in _binaries(binary))
        return next((reason for reason in reasons if reason is not None), None)

    def load(self, source: Source, binary: Binary, options: CompileOptions) -> Loaded:
        """A chain ready to run; see `Device.load`.

        Raises:
            OptionError: the device cannot run it as it is.
        """
        chain = source.chain if isinstance(source, ChainedSource) else Chain.from_bytes(source.files[CHAIN])
        pairs = zip(_parts(source), _binaries(binary), strict=True)
        loaded = [self._device.load(*pair, options) for pair in pairs]
        if isinstance(loaded[0], Resident):
            return ChainedResident(chain, cast(list[Resident], loaded))
        return ChainedOnHost(chain, cast(list[OnHost], loaded))


def veus_of(source: Source) -> int:
    """How many execution units a source is for, at most where it is a chain's."""
    parts = _parts(source) if CHAIN in source.files else [source]
    return max(Manifest.from_bytes(part.files[MANIFEST]).veus for part in parts)


def _parts(source: Source) -> list[Source]:
    if not source.files and isinstance(source, ChainedSource):
        return list(source.parts)
    return [Source(device=source.device, files=files) for files in _taken_apart(source.files)]


def _binaries(binary: Binary) -> list[Binary]:
    return [Binary(device=binary.device, machine=binary.machine, files=files) for files in _taken_apart(binary.files)]


class ChainedOnHost:
    """A chain in the host's memory; see `rammer.devices.base.OnHost`. Each call has a scratch memory to itself."""

    def __init__(self, chain: Chain, programs: Sequence[OnHost]) -> None:
        self._chain, self._programs = chain, programs
        self._idle: deque[Array] = deque()

    def clone(self) -> ChainedOnHost:
        """The same chain once more; see `Loaded.clone`."""
        return ChainedOnHost(self._chain, [program.clone() for program in self._programs])

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the chain once; see `Loaded.run`."""
        self.run_at([array.ctypes.data for array in (*inputs, *outputs)])

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """The chain on the same arrays each time; see `OnHost.bound`."""
        return partial(self.run_at, [array.ctypes.data for array in (*inputs, *outputs)])

    def run_at(self, addresses: Sequence[int], stream: int | None = None) -> None:
        """Run the chain once; see `OnHost.run_at`.

        Raises:
            OutOfMemoryError: there is no memory for what lies between the programs.
            RunTimeoutError: a run stopped making progress.
        """
        scratch = self._scratch()
        try:
            buffers = self._chain.buffers(addresses, scratch.ctypes.data)
            for link, program in zip(self._chain.links, self._programs, strict=True):
                for places in link.runs_at(buffers):
                    program.run_at(places)
        finally:
            self._idle.append(scratch)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """Chains are not traced.

        Raises:
            OptionError: always.
        """
        raise _no_trace()

    def _scratch(self) -> Array:
        try:
            return self._idle.pop()
        except IndexError:
            size = self._chain.scratch_bytes
        try:
            return aligned_empty((size,), np.dtype(np.uint8))
        except (MemoryError, ValueError) as error:  # the latter where there can be none of that size
            raise OutOfMemoryError(f"no {size_text(size)} for the values between programs") from error


class ChainedResident:
    """A chain in a device's own memory; see `rammer.devices.base.Resident`.

    Its programs are given to one stream, one run behind the other, and each call has a scratch memory to itself, in the
    order of that stream. Nothing between the programs leaves the device.
    """

    def __init__(self, chain: Chain, programs: Sequence[Resident]) -> None:
        """Make the chain.

        Raises:
            OptionError: the model keeps states, or a run's part of an array would begin where none may.
        """
        self._chain, self._programs = chain, programs
        self._last = programs[-1]
        self.array_alignment_bytes = self._last.array_alignment_bytes
        self.stream_of, self.view, self.room, self.fill = (
            self._last.stream_of,
            self._last.view,
            self._last.room,
            self._last.fill,
        )
        self._check()

    def _check(self) -> None:
        if self._chain.states:
            raise OptionError(
                "a model with state and a loop of very many trips, on a GPU",
                hint="compile it for the processor, or take the state out of the model as an input and an output",
            )
        for link in self._chain.links:
            for argument in (*link.inputs, *link.outputs):
                if (
                    argument.first_bytes % self.array_alignment_bytes
                    or argument.step_bytes % self.array_alignment_bytes
                ):
                    raise OptionError(
                        "a loop of very many trips that takes some arrays from the front and others from the end, "
                        "on a GPU",
                        hint="compile it for the processor, or let the number of trips be a multiple of 16",
                    )

    def padded(self, address: int, given: TensorType, shape: tuple[int, ...], stream: int) -> DeviceArray:
        """An array that begins with a given one; see `Resident.padded`."""
        return self._last.padded(address, given, shape, stream)

    @cached_property
    def _scratch(self) -> Callable[[int], DeviceArray]:
        """What makes a scratch memory for runs on a stream."""
        return self.room(TensorType(DType.UINT8, (max(1, self._chain.scratch_bytes),)))

    @cached_property
    def _rooms(self) -> tuple[list[Callable[[int], DeviceArray]], list[Callable[[int], DeviceArray]]]:
        """What makes arrays on the device for inputs and outputs that lie on the host."""
        inputs, outputs = (
            [self.room(TensorType(DType.UINT8, (size,))) for size in sizes]
            for sizes in (self._chain.input_bytes, self._chain.output_bytes)
        )
        return inputs, outputs

    def clone(self) -> ChainedResident:
        """The same chain once more; see `Loaded.clone`."""
        return ChainedResident(self._chain, [program.clone() for program in self._programs])

    def new_state(self, types: Sequence[TensorType], in_place: Sequence[int] = ()) -> StateMemory:
        """Memory for states; see `Resident.new_state`."""
        return self._last.new_state(types, in_place)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> None:
        """Run the chain once on arrays of the host; see `Resident.run`."""
        stream = self.stream_of(None)
        taken, given = ([room(stream) for room in rooms] for rooms in self._rooms)
        for own, array in zip(taken, inputs, strict=True):
            self.fill(own.address, array)
        self.enqueue([own.address for own in (*taken, *given)], stream)
        self.wait()
        for own, array in zip(given, outputs, strict=True):
            array.reshape(-1).view(np.uint8)[...] = own.numpy()

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> Trace:
        """Chains are not traced.

        Raises:
            OptionError: always.
        """
        raise _no_trace()

    def enqueue(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """Give a run of each program after the other to a stream; see `Resident.enqueue`.

        Raises:
            StreamCaptureError: the stream is captured: a graph has no scratch memory of its own.
        """
        self._enqueue(arrays, self.stream_of(stream), [program.enqueue for program in self._programs])

    def again(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """`enqueue` to a stream that was given before; see `Resident.again`."""
        self._enqueue(arrays, stream, [program.again for program in self._programs])

    def _enqueue(self, arrays: Sequence[int], stream: int, programs: Sequence[Callable[..., None]]) -> None:
        try:
            scratch = self._scratch(stream)
        except StreamCaptureError as error:
            raise StreamCaptureError(
                "a model whose loops are programs of their own cannot be captured", hint="call it outside of a capture"
            ) from error
        buffers = self._chain.buffers(arrays, scratch.address)
        for link, program in zip(self._chain.links, programs, strict=True):
            for places in link.runs_at(buffers):
                program(places, stream)

    def wait(self) -> None:
        """Wait until all runs are over; see `Resident.wait`."""
        for program in self._programs:
            program.wait()


def _no_trace() -> OptionError:
    """What a trace of a chain is answered with."""
    return OptionError(
        "a trace of a model whose loops are programs of their own",
        hint="trace a model of the loop's body, or of fewer steps",
    )
