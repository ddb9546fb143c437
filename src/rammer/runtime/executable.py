"""A compiled model that is called like a function."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, Device, DeviceArray, Loaded, Resident, Source, Trace, View
from rammer.errors import ArtifactWriteError, OutputError, PlacementError
from rammer.ir.graph import Array
from rammer.options import CompileOptions
from rammer.runtime.arrays import room_for, row_by_row, row_strides
from rammer.runtime.container import Buffer, Json, write_container
from rammer.runtime.signature import Port, Signature, check_input, check_output, host_input, host_output


class Executable:
    """A model compiled for a device, loaded and ready.

    Calls from several threads are safe. Every call gives the same bits for the same inputs.

    Arrays in the memory of the model's device (of PyTorch, CuPy, JAX or any library that speaks DLPack or the CUDA
    array interface) are used where they lie, and the results stay there, as arrays that those libraries take over:
    `torch.from_dlpack(net(x))`. Such a call returns as soon as the run is given to a stream. NumPy arrays, and what
    NumPy makes arrays of, give NumPy arrays.

    Attributes:
        name: the model's name.
        signature: names, dtypes and shapes of inputs and outputs.
        device: what it was compiled for.
    """

    def __init__(
        self,
        *,
        name: str,
        signature: Signature,
        device: Device,
        source: Source,
        binary: Binary,
        report: Buffer,
        options: CompileOptions,
    ) -> None:
        self.name = name
        self.signature = signature
        self._output_names = [port.name for port in signature.outputs]
        self._sizes_bytes = [port.type.nbytes for port in (*signature.inputs, *signature.outputs)]
        # What views of arrays that fit mostly hold behind the address. An input need not be writable.
        self._input_views = [_expected(port) for port in signature.inputs]
        self._output_views = [(*_expected(port), True) for port in signature.outputs]
        self.device = device.name
        self._source = source
        self._binary = binary
        self._report = report
        self._loaded: Loaded = device.load(source, binary, options)
        self._apart: list[int] = []  # where arrays begin that were found to lie apart: those of the next call often do
        self._host_rooms = [room_for(port.type) for port in signature.outputs]
        self._resident = self._loaded if isinstance(self._loaded, Resident) else None

    @property
    def report(self) -> Mapping[str, Any]:
        """What runs where and why, as JSON data; `rammer.inspection` renders it."""
        parsed: Mapping[str, Any] = json.loads(bytes(self._report))
        return parsed

    # As a union, every caller would have to tell its parts apart, though the model decides which one it is.
    def __call__(self, /, *inputs: object, **named: object) -> Any:  # noqa: ANN401
        """Run the model on arrays, given in order or by name.

        Returns:
            The output's array where the model has one output, else a dict of arrays by output name.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
        """
        outputs = self._run(self.signature.arrange(inputs, named), None, None)
        if len(outputs) == 1:
            return outputs[0]
        return self._by_name(outputs)

    def run(
        self, inputs: Mapping[str, object], *, outputs: Mapping[str, object] | None = None, stream: object = None
    ) -> dict[str, Any]:
        """Run the model on arrays by input name; always returns a dict by output name.

        Args:
            inputs: an array for each input, all on the host or all in the device's memory.
            outputs: arrays to write into, by output name, where the inputs are; None makes fresh ones.
            stream: for arrays in the device's memory, the stream to run on (a handle, or an object with
                `__cuda_stream__`); None is the default stream. The run follows what the libraries of the inputs have
                been told to do with them.

        Raises:
            CallError: the inputs or outputs are not what the signature says, or lie in different places.
            OptionError: the stream cannot be used.
            RunTimeoutError: the run, or an earlier one on a stream, stopped making progress.
        """
        into = None if outputs is None else self.signature.arrange_outputs(outputs)
        return self._by_name(self._run(self.signature.arrange((), inputs), into, stream))

    def wait(self) -> None:
        """Wait until all runs on streams are over.

        Raises:
            RunTimeoutError: one of them stopped making progress.
        """
        if self._resident is not None:
            self._resident.wait()

    def trace(self, inputs: Mapping[str, object]) -> Trace:
        """Run once, measuring every step.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
        """
        return self._loaded.trace(self._host_inputs(self.signature.arrange((), inputs)), self._empty())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the compiled model to one file that `rammer.load` reads.

        Raises:
            ArtifactWriteError: the file cannot be written, or the device's programs live in memory only.
        """
        if not self._source.files:
            raise ArtifactWriteError(
                f"programs of the {self.device} device cannot be saved", hint="compile for another device"
            )
        meta: dict[str, Json] = {
            "name": self.name,
            "device": self.device,
            "machine": dict(self._binary.machine),
            "signature": self.signature.to_json(),
        }
        sections: dict[str, Buffer] = {"report": self._report}
        sections |= {f"source/{name}": content for name, content in self._source.files.items()}
        sections |= {f"binary/{name}": content for name, content in self._binary.files.items()}
        write_container(path, meta, sections)

    # What stands in the way of every call counts positions: zip with strict=True takes three times as long.

    def _run(self, inputs: Sequence[Any], outputs: Sequence[Any] | None, stream: object) -> list[Any]:
        resident = self._resident
        if resident is not None and not _on_the_host(inputs):
            handle = resident.stream_of(stream)
            views = [view for array in inputs if (view := resident.view(array, handle)) is not None]
            if len(views) == len(inputs):
                return self._run_resident(resident, views, outputs, handle)
            if views:
                raise PlacementError("some inputs lie on the host, others on the device", hint="move them together")
        if stream is not None:
            raise PlacementError("a stream for inputs on the host", hint="give arrays in the device's memory")
        arrays = self._host_inputs(inputs)
        if outputs is None:
            results = self._empty()
        else:
            results = [host_output(outputs[i], port) for i, port in enumerate(self.signature.outputs)]
            self._check_apart(list(map(_address, arrays + results)))
        self._loaded.run(arrays, results)
        return results

    def _run_resident(
        self, resident: Resident, inputs: Sequence[View], outputs: Sequence[Any] | None, stream: int
    ) -> list[Any]:
        addresses = []
        for i, expected in enumerate(self._input_views):
            view = inputs[i]
            if view[1:4] != expected:
                _check_input(self.signature.inputs[i], view)
            addresses.append(view[0])
        results: list[Any] = []
        if outputs is None:
            for room in self._rooms:
                result = room(stream)
                results.append(result)
                addresses.append(result.address)
        else:
            results += outputs
            for i, wanted in enumerate(self._output_views):
                found = resident.view(results[i], stream)
                if found is None:
                    name = self.signature.outputs[i].name
                    raise OutputError(f"output '{name}' is to be written elsewhere", hint="give an array on the device")
                if found[1:] != wanted:
                    _check_output(self.signature.outputs[i], found)
                addresses.append(found[0])
            self._check_apart(addresses)
        resident.enqueue(addresses, stream)
        return results

    @cached_property
    def _rooms(self) -> list[Callable[[int], DeviceArray]]:
        """What makes room for each output on the device; asked for once a run needs it."""
        assert self._resident is not None
        return [self._resident.room(port.type) for port in self.signature.outputs]

    def _check_apart(self, addresses: list[int]) -> None:
        """Each output, which is written, lies apart from all other arrays, given where inputs and outputs begin.

        Inputs may share memory.
        """
        if addresses == self._apart:
            return
        inputs = len(self.signature.inputs)
        taken = written = last = 0  # of the arrays that begin before: where they end, where the outputs do, and which
        for i in sorted(range(len(addresses)), key=addresses.__getitem__):
            begin, end, is_output = addresses[i], addresses[i] + self._sizes_bytes[i], i >= inputs
            if begin < (taken if is_output else written) and begin < end:
                name = self.signature.outputs[(i if is_output else last) - inputs].name
                raise OutputError(
                    f"output '{name}' is to be written where another input or output lies",
                    hint="give each output an array of its own",
                )
            taken = max(taken, end)
            if is_output and end > written:
                written, last = end, i
        self._apart = addresses

    def _host_inputs(self, inputs: Sequence[npt.ArrayLike]) -> list[Array]:
        return [host_input(inputs[i], port) for i, port in enumerate(self.signature.inputs)]

    def _empty(self) -> list[Array]:
        return [room() for room in self._host_rooms]

    def _by_name(self, outputs: list[Any]) -> dict[str, Any]:
        named = {}
        for i, name in enumerate(self._output_names):
            named[name] = outputs[i]
        return named

    def __repr__(self) -> str:
        return f"<rammer.Executable {self.name} on {self.device}: {self.signature}>"


def _on_the_host(arrays: Sequence[object]) -> bool:
    # A loop: a generator takes three times as long.
    for array in arrays:  # noqa: SIM110
        if not isinstance(array, np.ndarray):
            return False
    return True


def _expected(port: Port) -> tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]:
    return port.type.dtype.numpy, port.type.shape, row_strides(port.type.shape)


def _check_input(port: Port, view: View) -> None:
    _, dtype, shape, strides, _ = view
    check_input(port, dtype, shape)
    if not row_by_row(shape, strides):
        raise PlacementError(f"input '{port.name}' does not lie row by row", hint="make it contiguous, in C order")


def _check_output(port: Port, view: View) -> None:
    _, dtype, shape, strides, writable = view
    check_output(port, dtype, shape, contiguous=row_by_row(shape, strides), writable=writable)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
