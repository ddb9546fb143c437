"""Programs of a model that are loaded beside its first one, within a budget of the device's memory."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

from rammer.devices.base import Binary, Device, Loaded, Source, Swappable
from rammer.errors import OutOfMemoryError
from rammer.ir.sizes import size_text
from rammer.options import CompileOptions
from rammer.runtime.executable import Executable
from rammer.runtime.sharing import with_files_of


class Beside:
    """Loads programs beside the first one of a model; on a device with memory of its own they share what is equal."""

    def __init__(
        self,
        first: Executable,
        device: Device,
        options: CompileOptions,
        kind: Callable[..., Executable],
        budget_bytes: int,
    ) -> None:
        """Begin with a program.

        Args:
            first: the program.
            device: what it is for.
            options: how to build and run.
            kind: makes an executable; it has the signature.
            budget_bytes: of the device's memory, what other programs may take at a time.
        """
        self._first, self._device, self._options, self._kind = first, device, options, kind
        self._budget_bytes = self._left_bytes = budget_bytes
        self._lock = threading.Lock()

    @property
    def may_be_written(self) -> bool:
        """Whether programs are bytes, which another process may write."""
        return bool(self._first._source.files)

    def made(
        self, source: Source, *, as_first: Sequence[str], report: bytes, tasks: bytes, by_program: bool
    ) -> Executable:
        """A program, built and loaded.

        Args:
            source: of the program.
            as_first: names of files that it has as the first program, and are not among its own.
            report: what runs where and why.
            tasks: its rOperators, where the device needs them.
            by_program: whether each of its rPrograms is to be timed apart.

        Raises:
            OutOfMemoryError: it would take more than what is left of the budget.
            DeviceError: it cannot be built or loaded.
        """
        known = self._first._source
        files = {**source.files, **{name: known.files[name] for name in as_first}}
        source = with_files_of(replace(source, files=files), [known]) if files else source
        binary = self._device.build(source, self._options)
        return self._kind(
            name=self._first.name,
            device=self._device,
            source=source,
            binary=binary,
            report=report,
            tasks=tasks,
            options=self._options,
            loaded=self._loaded(source, binary, by_program=by_program),
        )

    def _loaded(self, source: Source, binary: Binary, *, by_program: bool) -> Loaded:
        first = self._first._loaded
        if not isinstance(first, Swappable):
            return self._device.load(source, binary, self._options)
        added_bytes = first.added_bytes(source)
        self._take(added_bytes)
        try:
            loaded = first.beside(source, binary, by_program=by_program)
        except BaseException:
            self._take(-added_bytes)
            raise
        weakref.finalize(loaded, self._take, -added_bytes).atexit = False
        return loaded

    def _take(self, size_bytes: int) -> None:
        with self._lock:
            if size_bytes > self._left_bytes:
                raise OutOfMemoryError(
                    f"a program that is tried takes {size_text(size_bytes)}, of budget_bytes={self._budget_bytes} are "
                    f"{size_text(self._left_bytes)} left",
                    hint="give a larger budget_bytes=, or do without this program",
                )
            self._left_bytes -= size_bytes
