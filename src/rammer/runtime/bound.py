"""A compiled model tied to arrays: what a call checks was checked once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class BoundCall:
    """Runs of a model on the same arrays each time; `Executable.bind` makes it.

    Each call reads what the inputs hold then and writes the same outputs, in the device's memory on the stream that was
    bound. It keeps the arrays and the stream alive, but does not look at them again: they must stay where they are
    (PyTorch's `resize_` and `set_` move them), and their libraries are not asked to put their work in order, so what
    writes inputs or reads outputs on another stream has to wait for that by itself. Calls from several threads are
    safe.

    Attributes:
        outputs: the arrays that each call writes, by output name.
    """

    def __init__(self, run: Callable[[], object], outputs: Mapping[str, Any], kept: object) -> None:
        self._run = run
        self.outputs = outputs
        self._kept = kept  # whose addresses and handles the run has
        self._returned: Any = next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def __call__(self) -> Any:  # noqa: ANN401 - as for `Executable.__call__`
        """Run the model.

        Returns:
            The output's array where the model has one output, else `outputs`.

        Raises:
            RunTimeoutError: the run, or an earlier one on a stream, stopped making progress.
        """
        self._run()
        return self._returned
