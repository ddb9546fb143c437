"""In which order runs of resident rKernels bring their weights.

The layers of a recurrent network begin together, but each waits for the first states of the one below it. All weights
at once come as fast as L2 gives them; those of the first layer alone come sooner. So each run brings its weights a
hand-over later than the run whose first rTask writes what its own first one reads: before it needs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rammer.devices.cuda.emit.residence import Resident

_HANDOVERS = 1  # between a run and the one that it reads from
_MOST_NS = 0xFFFF

_First = tuple[int, tuple[int, ...]]


def take_turns(
    records: npt.NDArray[np.void], firsts: Sequence[int], residents: Mapping[int, Resident], handover_us: float
) -> None:
    """Write into the first record of each run how long it leaves the memory to others: `later_ns`.

    Args:
        records: of all vEUs, with their runs marked.
        firsts: where each vEU's records begin and end.
        residents: the resident rKernels by number.
        handover_us: the time of a hand-over by tags.
    """
    begins: dict[_First, list[int]] = {}
    for first, end in pairwise(firsts):
        for i in range(first, end):
            is_within = i > first and (records["run"][i - 1] > 1 or records["joins"][i - 1])
            if int(records["kernel"][i]) in residents and not is_within:
                rtask = int(records["kernel"][i]), tuple(records["operands"][i].tolist())
                begins.setdefault(rtask, []).append(i)
    for rtask, depth in _depths(list(begins), residents).items():
        records["later_ns"][begins[rtask]] = min(round(1e3 * _HANDOVERS * handover_us * depth), _MOST_NS)


def _depths(begins: Sequence[_First], residents: Mapping[int, Resident]) -> dict[_First, int]:
    """Of the first rOperators of runs, how many of the others have to be done before, one after another."""
    writers = {rtask[1][slot]: rtask for rtask in begins for slot in residents[rtask[0]].writes}
    below = {
        rtask: {writers[rtask[1][slot]] for slot in residents[rtask[0]].reads if rtask[1][slot] in writers} - {rtask}
        for rtask in begins
    }
    depths = dict.fromkeys(begins, 0)
    for _ in begins:  # no chain is longer
        found = {rtask: max((depths[other] + 1 for other in below[rtask]), default=0) for rtask in begins}
        if found == depths:
            break
        depths = found
    return depths
