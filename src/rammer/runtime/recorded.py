"""A loaded model whose runs are measured step by step: what trials of parts of a program go by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rammer.devices.addressed import array_at
from rammer.devices.base import Loaded, Trace
from rammer.ir.graph import Array
from rammer.ir.types import TensorType
from rammer.runtime.executable import Executable


class Recorded:
    """A `Loaded` on the host that keeps the times of its last run; see `rammer.devices.base.OnHost`."""

    def __init__(self, loaded: Loaded, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> None:
        """Record the runs of a model with inputs and outputs of these types."""
        self._loaded, self._inputs, self._outputs = loaded, tuple(inputs), tuple(outputs)
        self._last: Trace | None = None

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run the model once and keep the times."""
        self._last = self._loaded.trace(inputs, outputs)

    def run_at(self, addresses: Sequence[int], stream: int | None = None) -> None:
        """`run` on arrays by their addresses."""
        types = (*self._inputs, *self._outputs)
        arrays = [array_at(address, type_) for address, type_ in zip(addresses, types, strict=True)]
        self.run(arrays[: len(self._inputs)], arrays[len(self._inputs) :])

    def bound(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Callable[[], None]:
        """`run` on the same arrays each time."""
        return partial(self.run, inputs, outputs)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Trace:
        """`run`, with the times."""
        return self._loaded.trace(inputs, outputs)

    def clone(self) -> Recorded:
        """The same model once more."""
        return Recorded(self._loaded.clone(), self._inputs, self._outputs)

    def programs_us(self) -> list[float]:
        """How long each rProgram of the last run took, from its first step to its last, in us; 0 without steps."""
        assert self._last is not None  # there was a run
        found = []
        for queues in self._last.spans_ns:
            bounds = [(int(times[0, 0]), int(times[-1, 1])) for times in queues if len(times)]
            begin, end = min((one for one, _ in bounds), default=0), max((one for _, one in bounds), default=0)
            found.append((end - begin) / 1e3)
        return found


def record(program: Executable) -> Recorded:
    """Measure all runs of a program from now on, step by step; it is not one for a device with memory of its own."""
    signature = program.signature
    recorded = Recorded(
        program._loaded, [port.type for port in signature.inputs], [port.type for port in signature.outputs]
    )
    program._place(recorded)
    return recorded
