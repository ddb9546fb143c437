"""Costs that policies take: measured where there is a figure, predicted elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.ir.task import RKernel
from rammer.ir.vdevice import CostModel, Figure


class MeasuredCosts:
    """`CostModel` by measured figures, and by a model for rKernels that have none."""

    def __init__(self, measured: Mapping[RKernel, Figure], model: CostModel) -> None:
        self._measured = measured
        self._model = model

    def task_us(self, kernel: RKernel) -> Figure:
        """Time of one full rTask alone on a vEU, in microseconds."""
        return self._measured.get(kernel) or self._model.task_us(kernel)
