"""What rKernels are constructed for: canonical work, and what is known of its operands."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rammer.ir.expr import TensorExpr
from rammer.ir.kernel_form import KernelForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import Layout


@dataclass(frozen=True, slots=True)
class Workload:
    """An expression with the layouts, alignments and constants of its operands, as an `RKernel` has them."""

    expr: TensorExpr
    layouts: tuple[Layout, ...]
    alignments: tuple[int, ...] = ()
    constants: frozenset[int] = frozenset()

    def tagged(self) -> Workload:
        """The same, of operands that are tagged unless they are constants."""
        slots = range(len(self.expr.inputs))
        tagged = [replace(self.layouts[slot], tagged=slot not in self.constants) for slot in slots]
        return replace(self, layouts=(*tagged, *self.layouts[len(slots) :]))

    def kernel(self, tile: RTile, form: KernelForm) -> RKernel:
        """The rKernel of a tile and a form."""
        return RKernel(
            expr=self.expr,
            layouts=self.layouts,
            tile=tile,
            form=form,
            alignments=self.alignments,
            constants=self.constants,
        )
