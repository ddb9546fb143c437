"""From kernel sources to shared objects: compiled in parallel, linked once, each step kept in the cache."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rammer.devices.base import Binary, Buffer, Progress, Source
from rammer.devices.cache import Cache, CodeCache, content_key, in_scratch_folder
from rammer.devices.codegen.source import MANIFEST
from rammer.devices.codegen.tables import KernelEntry, Manifest
from rammer.devices.cpu.binary import KERNELS_LIBRARY, RUNTIME_LIBRARY, requirements
from rammer.devices.cpu.machine import Machine
from rammer.devices.cpu.source import DEVICE, KERNEL_FOLDER, included
from rammer.devices.cpu.toolchain import (
    KERNEL_FLAGS,
    LINK_FLAGS,
    QUICK_FLAGS,
    RUNTIME_FLAGS,
    Toolchain,
    find_toolchain,
    native_flags,
)
from rammer.options import CompileOptions
from rammer.printable import listing

_log = logging.getLogger(__name__)

_MOST_ALONE = 256  # kernels, each a translation unit: no network that is published has half as many
_TOGETHER = 16
_EXTERN = "extern_"  # what symbols of users' code begin with

RUNTIME_FILES = (
    "rammer_runtime.h",
    "clock.h",
    "clock.c",
    "pool.h",
    "pool.c",
    "model.h",
    "walk.c",
    "program.c",
    "restore.c",
)


def build(source: Source, machine: Machine, options: CompileOptions, progress: Progress) -> Binary:
    """The libraries of a source, for `machine`; see `Device.build`."""
    manifest = Manifest.from_bytes(source.files[MANIFEST])
    toolchain = find_toolchain(options.cc)
    workshop = _Workshop(
        toolchain=toolchain,
        cache=CodeCache(options.cache_dir, options.cache_bytes),
        cache_dir=options.cache_dir,
        timeout_s=options.compile_timeout_s,
        native=native_flags(machine.features),
        identity="\n".join([toolchain.version, machine.architecture, machine.name, *machine.features]),
    )
    units = units_of(manifest.kernels)
    done = itertools.count(1)
    total = len(units) + 1

    def compile_unit(unit: Sequence[KernelEntry]) -> bytes:
        code = workshop.unit(source, unit)
        progress(next(done), total)
        return code

    built: dict[str, Buffer] = {RUNTIME_LIBRARY: workshop.runtime()}
    progress(next(done), total)
    with ThreadPoolExecutor(max_workers=machine.usable_cores) as pool:
        futures = [pool.submit(compile_unit, unit) for unit in units]
        try:
            objects = {f"{unit[0].symbol}.o": made.result() for unit, made in zip(units, futures, strict=True)}
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    if objects:
        built[KERNELS_LIBRARY] = workshop.make(KERNELS_LIBRARY, objects, [*objects, *LINK_FLAGS])
    return Binary(device=DEVICE, machine=requirements(machine), files=built)


def units_of(kernels: Sequence[KernelEntry]) -> list[Sequence[KernelEntry]]:
    """The kernels of each translation unit: one, so that models share objects, or of a great many several each.

    To start a compiler and to read headers takes as long as a small kernel does. Users' code stays by itself: it may
    call things as other code does.
    """
    if len(kernels) <= _MOST_ALONE:
        return [[entry] for entry in kernels]
    own = [entry for entry in kernels if not entry.symbol.startswith(_EXTERN)]
    joined = [own[first : first + _TOGETHER] for first in range(0, len(own), _TOGETHER)]
    return [*joined, *([entry] for entry in kernels if entry.symbol.startswith(_EXTERN))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workshop:
    """A compiler with a cache before it. With equal texts, arguments and identity it makes equal bytes."""

    toolchain: Toolchain
    cache: Cache
    cache_dir: Path
    timeout_s: float
    native: tuple[str, ...]
    identity: str

    def unit(self, source: Source, unit: Sequence[KernelEntry]) -> bytes:
        """The object of a translation unit, which is called as its first kernel is."""
        names = [f"{entry.symbol}.c" for entry in unit]
        code = {
            path.removeprefix(KERNEL_FOLDER): bytes(text)
            for path, text in source.files.items()
            if path.startswith(KERNEL_FOLDER)
        }
        headers = {name: text.decode() for name, text in code.items() if name.endswith(".h")}
        used = included([code[name].decode() for name in names], headers)
        texts = {name: code[name] for name in (*used, *names)}
        name = names[0]
        flags: Sequence[str] = KERNEL_FLAGS
        if len(names) > 1:
            name, flags = "unit.c", QUICK_FLAGS
            texts[name] = "".join(f'#include "{each}"\n' for each in names).encode()
        where = listing([entry.where for entry in unit])
        return self.make(f"{unit[0].symbol}.o", texts, [*flags, *self.native, "-c", name], where)

    def runtime(self) -> bytes:
        """The runtime's library."""
        folder = files("rammer.devices.cpu") / "runtime"
        texts = {name: (folder / name).read_bytes() for name in RUNTIME_FILES}
        units = [name for name in texts if name.endswith(".c")]
        return self.make(RUNTIME_LIBRARY, texts, [*RUNTIME_FLAGS, *self.native, *units, *LINK_FLAGS])

    def make(self, name: str, inputs: Mapping[str, bytes], arguments: Sequence[str], where: str = "") -> bytes:
        """The file `name` that the compiler makes from input files, or made before."""
        contents = [part for path, content in inputs.items() for part in (path.encode(), content)]
        key = content_key(self.identity, name, *arguments, *contents)
        blob = self.cache.get(key)
        if blob is not None:
            _log.debug("%s is in the cache", name)
        else:
            _log.info("compiling %s", name)

            def compiled(folder: Path) -> bytes:
                for path, content in inputs.items():
                    (folder / path).write_bytes(content)
                self.toolchain.run([*arguments, "-o", name], folder=folder, timeout_s=self.timeout_s, where=where)
                return (folder / name).read_bytes()

            blob = in_scratch_folder(self.cache_dir, compiled)
            self.cache.put(key, blob)
        return blob
