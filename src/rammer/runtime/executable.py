"""A compiled model that is called like a function."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Binary, Device, Loaded, Source, Trace
from rammer.errors import ArtifactWriteError
from rammer.ir.graph import Array
from rammer.options import CompileOptions
from rammer.runtime.container import Buffer, Json, write_container
from rammer.runtime.signature import Signature


class Executable:
    """A model compiled for a device, loaded and ready.

    Calls from several threads are safe. Every call returns fresh arrays and the same bits for the same inputs.

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
        self.device = device.name
        self._source = source
        self._binary = binary
        self._report = report
        self._loaded: Loaded = device.load(source, binary, options)

    @property
    def report(self) -> Mapping[str, Any]:
        """What runs where and why, as JSON data; `rammer.inspection` renders it."""
        parsed: Mapping[str, Any] = json.loads(bytes(self._report))
        return parsed

    # As a union, every caller would have to tell its parts apart, though the model decides which one it is.
    def __call__(self, /, *inputs: npt.ArrayLike, **named: npt.ArrayLike) -> Any:  # noqa: ANN401
        """Run the model on NumPy arrays, given in order or by name.

        Returns:
            The output's array where the model has one output, else a dict of arrays by output name.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
        """
        outputs = self._run(self.signature.arrange(inputs, named))
        if len(outputs) == 1:
            return outputs[0]
        return self._by_name(outputs)

    def run(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Run the model on arrays by input name; always returns a dict by output name.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
        """
        return self._by_name(self._run(self.signature.arrange((), inputs)))

    def trace(self, inputs: Mapping[str, npt.ArrayLike]) -> Trace:
        """Run once, measuring every step.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run stopped making progress.
        """
        return self._loaded.trace(self.signature.arrange((), inputs), self._empty())

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

    def _run(self, inputs: list[Array]) -> list[Array]:
        outputs = self._empty()
        self._loaded.run(inputs, outputs)
        return outputs

    def _empty(self) -> list[Array]:
        return [np.empty(port.type.shape, port.type.dtype.numpy) for port in self.signature.outputs]

    def _by_name(self, outputs: list[Array]) -> dict[str, Array]:
        return {port.name: array for port, array in zip(self.signature.outputs, outputs, strict=True)}

    def __repr__(self) -> str:
        return f"<rammer.Executable {self.name} on {self.device}: {self.signature}>"
