"""Plans on the GPU of this machine."""

from __future__ import annotations

from pathlib import Path

from rammer.devices.cuda.build import build
from rammer.devices.cuda.driver import find_driver, read_gpu
from rammer.devices.cuda.launch import LoadedModel
from rammer.devices.cuda.source import source_of
from rammer.devices.registry import find_device
from rammer.ir.program import Plan
from rammer.options import CompileOptions


def compiled(plan: Plan, cache: Path, **options: object) -> LoadedModel:
    """A plan, built and loaded; what is built is kept in `cache`."""
    chosen = CompileOptions(cache_dir=cache, **options)  # type: ignore[arg-type]
    source = source_of(plan, find_device("cuda").describe(chosen))
    return LoadedModel(source, build(source, read_gpu(find_driver()).architecture, chosen, lambda *_: None), chosen)
