"""What the machine says about itself: cores this process may use, instruction sets, caches.

Everything is read from the system's files below `root`, so that tests can bring a machine of their own. Fluctuating
figures (the present clock, the load) are left out: a machine reads the same each time.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SYSTEM_ROOT = Path("/")
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18  # of Linux on x86-64
_CPUINFO_BYTES = 8192  # the first core's entry; reading all of them asks every core for its clock
# Flags that decide which instructions a compiler may use; the kernel lists many that do not.
_CODE_FLAGS = re.compile(
    r"s?sse\w*|pni|avx\w*|amx\w*|fma\w*|f16c|xop|bmi\d|abm|lzcnt|tbm|movbe|popcnt|adx|gfni|aes|vaes|v?pclmulqdq|sha\w*"
    r"|rdrand|rdseed|rdpid|fsgsbase|clflushopt|clwb|clzero|mwaitx|xsave\w*|cx16|prfchw|3dnowprefetch|lahf_lm"
)
WIDE = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq"})
"""The features that vectors of 64 bytes take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """A data cache; `sharers` is the number of hardware threads that use it, on the whole machine."""

    level: int
    capacity_bytes: int
    line_bytes: int
    sharers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Facts about a machine, as far as this process may use it.

    `features` has tiles (`amx_*`) only where the system grants them. `cores` are hardware threads, one of each physical
    core first (`physical_cores` of them), then their siblings. `quota_cores` is what the control
    group grants, None without a limit; `clock_ghz` the rated clock, None unknown.
    """

    system: str
    architecture: str
    name: str
    features: tuple[str, ...]
    cores: tuple[int, ...]
    physical_cores: int
    quota_cores: float | None
    clock_ghz: float | None
    caches: tuple[Cache, ...]
    memory_bytes: int

    @property
    def usable_cores(self) -> int:
        """Cores that can compute at the same time: physical ones in the affinity mask, within the quota."""
        granted = self.physical_cores if self.quota_cores is None else int(self.quota_cores)
        return max(1, min(self.physical_cores, granted))

    @property
    def computing_cores(self) -> int:
        """Hardware threads that can compute at the same time, within the quota."""
        granted = len(self.cores) if self.quota_cores is None else math.ceil(self.quota_cores)
        return max(1, min(len(self.cores), granted))

    def core_of(self, veu: int) -> int:
        """The hardware thread for an execution unit; more units than threads share them."""
        return self.cores[veu % len(self.cores)]


def read_machine(root: Path = _SYSTEM_ROOT, affinity: Iterable[int] | None = None) -> Machine:
    """The machine under `root`; `affinity` are hardware threads this process may use, None asks the system."""
    threads = sorted(_affinity() if affinity is None else affinity)
    cores, physical = _order(root, threads)
    entry = _cpuinfo(root)
    features = _features(entry)
    if root == _SYSTEM_ROOT and any(_is_of_tiles(feature) for feature in features) and not _grants_tiles():
        features = tuple(feature for feature in features if not _is_of_tiles(feature))
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        name=_name(entry),
        features=features,
        cores=cores,
        physical_cores=physical,
        quota_cores=_quota(root),
        clock_ghz=_clock_ghz(root, threads[0], entry),
        caches=_caches(root, threads[0]),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )


def _affinity() -> Iterable[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return range(os.cpu_count() or 1)


def _text(path: Path) -> str | None:
    """A small system file; None where the system does not have it."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


@functools.cache
def _cpuinfo(root: Path) -> dict[str, str]:
    try:
        with (root / "proc/cpuinfo").open("rb", buffering=0) as file:
            text = file.read(_CPUINFO_BYTES).decode(errors="replace")
    except OSError:
        return {}
    first, _, _ = text.partition("\n\n")
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _name(entry: dict[str, str]) -> str:
    """What tells processors of one architecture apart; Arm's have numbers."""
    if "CPU part" in entry:
        return f"{platform.machine()}, implementer {entry.get('CPU implementer')}, part {entry['CPU part']}"
    return entry.get("model name", platform.machine())


def _features(entry: dict[str, str]) -> tuple[str, ...]:
    if "Features" in entry:  # Arm: all of them are instruction sets
        return tuple(sorted(entry["Features"].split()))
    return tuple(sorted(flag for flag in entry.get("flags", "").split() if _CODE_FLAGS.fullmatch(flag)))


def _is_of_tiles(feature: str) -> bool:
    return feature.startswith("amx")


@functools.cache
def _grants_tiles() -> bool:
    """Whether this process may use tile registers: Linux wants to be asked, once for all threads, now and later ones.

    Whoever loads a model reads the machine first, so that code with tiles never runs unasked.
    """
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes, call.restype = [ctypes.c_long] * 3, ctypes.c_long
    return bool(call(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0)


def _order(root: Path, threads: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Hardware threads with one of each physical core first, and how many those are."""
    leaders: dict[str, int] = {}
    siblings = []
    for thread in threads:
        # Not by the number of the core: clusters of Arm's number theirs alike.
        together = _text(root / f"sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list") or str(thread)
        if leaders.setdefault(together, thread) != thread:
            siblings.append(thread)
    return (*leaders.values(), *siblings), len(leaders)


def _quota(root: Path) -> float | None:
    """Cores granted by the control groups this process is in: the least of all levels, of either version."""
    grants = []
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            grants += [_grant_v2(folder) for folder in _levels(root / "sys/fs/cgroup", path)]
        elif "cpu" in controllers.split(","):
            grants += [_grant_v1(folder) for folder in _levels(root / "sys/fs/cgroup/cpu", path)]
    return min((grant for grant in grants if grant is not None), default=None)


def _levels(top: Path, path: str) -> list[Path]:
    folder = top / path.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]


def _grant_v2(folder: Path) -> float | None:
    quota, _, period = (_text(folder / "cpu.max") or "max").partition(" ")
    return None if quota == "max" else int(quota) / int(period)


def _grant_v1(folder: Path) -> float | None:
    quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    return None if quota is None or period is None or int(quota) <= 0 else int(quota) / int(period)


def _clock_ghz(root: Path, thread: int, entry: dict[str, str]) -> float | None:
    khz = _text(root / f"sys/devices/system/cpu/cpu{thread}/cpufreq/cpuinfo_max_freq")
    if khz is not None:
        return int(khz) / 1e6
    named = re.search(r"@ ([\d.]+)GHz", entry.get("model name", ""))
    return float(named[1]) if named else None


@functools.cache
def _caches(root: Path, thread: int) -> tuple[Cache, ...]:
    """Data caches of one hardware thread, innermost first."""
    found = []
    for folder in (root / f"sys/devices/system/cpu/cpu{thread}/cache").glob("index*"):
        level, size, line = (_text(folder / name) for name in ("level", "size", "coherency_line_size"))
        if not level or not size or _text(folder / "type") == "Instruction":
            continue
        found.append(
            Cache(
                level=int(level),
                capacity_bytes=int(size.rstrip("K")) * 1024,
                line_bytes=int(line or 64),
                sharers=_count(_text(folder / "shared_cpu_list") or str(thread)),
            )
        )
    return tuple(sorted(found, key=lambda cache: cache.level))


def _count(ranges: str) -> int:
    """Members of a list such as `0-3,8`."""
    total = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return total
