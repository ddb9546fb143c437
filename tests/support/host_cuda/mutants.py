"""What threads and vEUs wait for one another by, left out piece by piece: a test is worth something if that shows.

A library has all mutants of a text; a launch chooses the statement that it leaves out.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Source
from rammer.devices.cuda.launch import LoadedModel
from rammer.devices.cuda.source_files import CODE
from rammer.errors import RammerError
from tests.support.host_cuda import HostGpu
from tests.support.host_cuda.driver import LaunchError

_STATEMENTS = re.compile(
    r"^( +)((?:(?:__syncthreads|__syncwarp|rammer_meet|rammer_cp_async_wait(?:_all|<[\w:\- ]+>))\(\)"
    r"|rammer_barrier_sync_named<[^>]+>\([^;]+\));)(.*)$",
    re.MULTILINE,
)
_FUNCTION = re.compile(
    r"^(?:\S.*\W|    (?:template <.*> )?(?:static )?RAMMER_MEMBER .*\W)?(\w+)\((?:.*\) (?:const )?\{)?$",
    re.MULTILINE,
)
_NUMBER = re.compile(r"_(?:[0-9a-f]{16}|\d+)")


@dataclass(frozen=True, slots=True)
class Findings:
    """Statements by function, number in it and text: of a program, of those it comes to, of those whose absence shows.

    Functions of one kind count as one: what they share may matter in some of them only.
    """

    all: frozenset[str] = frozenset()
    came_to: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()

    def __or__(self, other: Findings) -> Findings:
        return Findings(self.all | other.all, self.came_to | other.came_to, self.missed | other.missed)


def with_mutants(source: Source) -> tuple[Source, Sequence[str]]:
    """A source whose launches may leave out a statement, and what these are, by number."""
    text = bytes(source.files[CODE]).decode()
    counts: Counter[str] = Counter()
    found: list[str] = []

    def guarded(match: re.Match[str]) -> str:
        *_, function = (one[1] for one in _FUNCTION.finditer(text, 0, match.start()))
        counts[function] += 1
        found.append(f"{_NUMBER.sub('', function)} {counts[function]}: {match[2]}")
        return f"{match[1]}{{ if (host_runs({len(found) - 1})) {match[2]} }}{match[3]}"

    changed = 'extern "C" bool host_runs(int statement);\n' + _STATEMENTS.sub(guarded, text)
    return replace(source, files={**source.files, CODE: changed.encode()}), found


def try_statements(
    gpu: HostGpu, source: Source, is_right: Callable[[LoadedModel], bool], known: Collection[str] = ()
) -> Findings:
    """Leave out each statement of a program by turns.

    Args:
        gpu: the host's.
        source: the program.
        is_right: whether all runs that matter give what they should.
        known: statements that another program misses, which are not left out again.
    """
    changed, statements = with_mutants(source)
    loaded = gpu.load(changed)
    assert is_right(loaded)
    came_to = [number for number in range(len(statements)) if gpu.api.reached(number)]
    missed = set()
    for number in came_to:
        if statements[number] not in missed and statements[number] not in known:
            gpu.api.mutant = number
            if _shows(loaded, is_right):
                missed.add(statements[number])
    gpu.api.mutant = -1
    return Findings(frozenset(statements), frozenset(statements[number] for number in came_to), frozenset(missed))


def unmissed_waits(gpu: HostGpu, loaded: LoadedModel, is_right: Callable[[LoadedModel], bool]) -> tuple[int, list[int]]:
    """Leave out each Wait of a program by turns: how many there are, and the records of those that it does not miss."""
    assert is_right(loaded)
    records = _records_on(loaded)
    tried, unmissed = 0, []
    for number, record in _waits(records):
        kept = records[number].copy()
        records["waits"][number, :-1] = np.delete(kept["waits"], record)
        records["wait_count"][number] -= 1
        tried += 1
        if not _shows(loaded, is_right):
            unmissed.append(number)
        records[number] = kept
    assert is_right(loaded)
    return tried, unmissed


def _records_on(loaded: LoadedModel) -> npt.NDArray[np.void]:
    """The records where the kernel reads them."""
    size = loaded._records.nbytes
    memory = memoryview((ctypes.c_uint8 * size).from_address(loaded._program.records))
    return np.frombuffer(memory, loaded._records.dtype)


def _waits(records: npt.NDArray[np.void]) -> Iterator[tuple[int, int]]:
    for number, count in enumerate(records["wait_count"].tolist()):
        for wait in range(count):
            yield number, wait


def _shows(loaded: LoadedModel, is_right: Callable[[LoadedModel], bool]) -> bool:
    """Whether runs are not right, or end the process, which is another one: they may write anywhere."""
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(LaunchError, RammerError):
            status = 0 if is_right(loaded) else 1
        os._exit(status)
    return os.waitpid(child, 0)[1] != 0
