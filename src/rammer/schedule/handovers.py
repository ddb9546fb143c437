"""When vEUs have what others made: a hand-over later, by the homes of both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.ir.vdevice import VDevice

Times = npt.NDArray[np.float64]
"""Per vEU, float64 [vEUs], in microseconds."""


class Handovers:
    """What hand-overs between vEUs take.

    Attributes:
        homes: the memory of each vEU.
        least_us: between the vEUs of the pair of homes that takes least.
        most_us: of the pair that takes most.
    """

    def __init__(self, device: VDevice, *, tagged: bool = False) -> None:
        """Those of `device` by counters, or by tags where it has them."""
        memories = range(device.memories)
        between = np.array([[device.handover_between(one, other).value for other in memories] for one in memories])
        if tagged and device.tagged_handover_us is not None:
            between = np.minimum(between, device.tagged_handover_us.value)
        self.homes = device.homes
        self.least_us = float(between.min())
        self.most_us = float(between.max())
        self._from: list[Times] = [row[list(self.homes)] for row in between]

    def from_home(self, home: int) -> Times:
        """Until each vEU has what another vEU of `home` made."""
        return self._from[home]

    def between_us(self, giver: int, taker: int) -> float:
        """Until a vEU has what another one made; nothing from a vEU to itself."""
        return 0.0 if giver == taker else float(self._from[self.homes[giver]][taker])


@dataclass(slots=True)
class _Last:
    """Of the results of one home: the last came from vEU `giver`, the last of any other of its vEUs at `others_us`."""

    giver: int = -1
    last_us: float = -math.inf
    others_us: float = -math.inf


class Arrivals:
    """When results that belong together are there, for each vEU: it has its own at once, others a hand-over later."""

    def __init__(self, handovers: Handovers) -> None:
        self._handovers = handovers
        self._lasts: dict[int, _Last] = {}

    def note(self, veu: int, end_us: float) -> None:
        """A vEU made one."""
        home = self._handovers.homes[veu]
        own = self._lasts.get(home)
        if own is None:
            own = self._lasts[home] = _Last()
        if veu == own.giver:
            own.last_us = max(own.last_us, end_us)
        elif end_us > own.last_us:
            own.giver, own.last_us, own.others_us = veu, end_us, own.last_us
        else:
            own.others_us = max(own.others_us, end_us)

    def seen_us(self, veu: int, late_us: float = 0.0) -> float:
        """When a vEU has them all; those of others come so much later."""
        times = []
        for home, own in self._lasts.items():
            handover_us = float(self._handovers.from_home(home)[veu])
            if veu == own.giver:
                times.append(max(own.last_us, own.others_us + handover_us + late_us))
            else:
                times.append(own.last_us + handover_us + late_us)
        return max(times)

    def seen_by_all_us(self) -> Times:
        """`seen_us` of every vEU."""
        parts: Sequence[Times] = [self._seen_of_home(home, own) for home, own in self._lasts.items()]
        return parts[0] if len(parts) == 1 else np.maximum.reduce(parts)

    def _seen_of_home(self, home: int, own: _Last) -> Times:
        handovers_us = self._handovers.from_home(home)
        seen_us: Times = handovers_us + own.last_us
        seen_us[own.giver] = max(own.last_us, own.others_us + float(handovers_us[own.giver]))
        return seen_us
