"""`load`. What reads a saved model is imported while its file is checked and a GPU's driver starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import Any

from rammer.devices.registry import start_device
from rammer.options import CompileOptions
from rammer.pipelines.guarded import guarded
from rammer.runtime.container import Json
from rammer.runtime.opening import begin, programs_of


def load(
    file: str | os.PathLike[str] | bytes, options: CompileOptions | None = None, *, veus: int | None = None
) -> Any:  # noqa: ANN401 - what was saved
    """Load what `save` wrote; needs neither the model nor, on a machine of the same kind, a compiler.

    Args:
        file: its path, or what `to_bytes` gave.
        options: how to run it, and to build it where it was built for another machine. What was decided when it was
            compiled stays, `veus` excepted.
        veus: execution units to use; None is those of the options (`RAMMER_VEUS`), else as many as it was saved with.
            For another number the same tasks are placed anew: results are the same bits. Of processors.

    Returns:
        What was saved: an `Executable`, a `CompiledModule`, a `ProgramSet` or what one was saved from.

    Raises:
        ArtifactError: the file cannot be used.
        DeviceUnavailableError: it was compiled for a device that is not here.
        OptionError: the programs cannot be placed on so many execution units.
        OutOfMemoryError: memory ran out.
    """
    options = options or CompileOptions()
    if veus is not None:
        options = replace(options, veus=veus)
    with guarded("loaded"), begin(file, options) as check, _started(check.container.meta):
        from rammer.pipelines.saved import restored  # noqa: PLC0415 - meanwhile, see above

        return restored(check, options, advise=True)


@contextmanager
def _started(meta: Mapping[str, Json]) -> Iterator[None]:
    """Start the devices of a file's programs meanwhile."""
    devices = {program.device for program in programs_of(meta)}
    threads = [Thread(target=start_device, args=(name,), name="rammer-start") for name in devices]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
