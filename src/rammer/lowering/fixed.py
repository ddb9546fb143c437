"""Which tensors are the same throughout a run, so that an rTask may read them before it waits, and keep them.

Constants are. So is what a run reads of a state that is not updated in place: it counts where equal work reads it again
and again, as the steps of a layer that is trained read its weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from rammer.ir.task import Tensor, TensorRole
from rammer.ir.vdevice import VDevice
from rammer.lowering.work import Work, root_id


def fixed_tensors(
    works: Sequence[Work], tensors: Sequence[Tensor], states: Collection[int], device: VDevice
) -> frozenset[int]:
    """The tensors, none of them an alias.

    Args:
        works: all rOperators.
        tensors: what they are bound to.
        states: the tensors of states that are not updated in place.
        device: says whether anything is kept.
    """
    constants = frozenset(tensor.id for tensor in tensors if tensor.role is TensorRole.CONSTANT)
    if not device.stationary_bytes:
        return constants
    readers = Counter(
        (root, work.expr)
        for work in works
        if work.expr.reductions
        for root in {root_id(tensors, binding) for binding in work.reads if not any(binding.origin)}
    )
    return constants.union(root for (root, _), count in readers.items() if count > 1 and root in states)
