"""Which tensors carry their own hand-over, where the device can wait for data by tags.

A vector that several rTasks make and the next product of a vector and weights reads, as the state of a recurrent layer
is, costs more to announce than to compute: each of its readers needs all of it, so a counter would say no more than the
elements themselves. Such tensors get a tagged layout; nobody signals them. Whoever else reads them and reduces nothing
takes their elements, too. What may be skipped has no tags: whoever takes its results would wait for what nobody wrote.
Of a batch, that is so where the weights that several products share stay on their units.

Nor would a counter do for what a product needs when its sums are there, such as the factors of rows that a
normalisation finds: it would have to wait for them before it begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from rammer.ir.expr import TensorExpr
from rammer.ir.task import RKernel, Tensor, TensorRole
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.lowering.work import Work, root_id
from rammer.tiling.gemv import vector_slots
from rammer.tiling.persistent_rnn import plan_of

_MAX_ELEMENTS = 1024  # of a vector, that every reader polls


def tagged_tensors(
    works: Sequence[Work],
    tensors: Sequence[Tensor],
    fixed: Collection[int],
    device: VDevice,
    workload_of: Callable[[Work], Workload],
) -> frozenset[int]:
    """The tensors, aliases included, whose elements are tagged.

    Args:
        works: all rOperators.
        tensors: what they are bound to.
        fixed: those of them that nobody writes and that may be kept.
        device: says what hand-overs cost, which weights stay, and what is looked at late.
        workload_of: the workload of an rOperator as long as nothing is tagged.
    """
    if device.tagged_handover_us is None or device.tagged_handover_us.value >= device.handover_us.value:
        return frozenset()
    staying = _Staying(works, tensors, fixed, device)
    late = _taken_late(works, tensors, device, workload_of)
    wanted: set[int] = set()
    others: set[int] = set()
    for work in works:
        vectors = _vector_lengths(work.expr)
        stay = staying.lengths(work) if vectors is None else None
        vectors = stay if vectors is None else vectors
        for slot, (binding, type_) in enumerate(zip(work.reads, work.expr.inputs, strict=True)):
            if vectors is None:
                if work.expr.reductions:
                    others.add(root_id(tensors, binding))
            elif vectors.get(slot, type_.size) > _MAX_ELEMENTS:
                others.add(root_id(tensors, binding))
            elif slot in vectors and (stay or type_.dtype is DType.FLOAT32 or staying.can_keep(work)):
                wanted.add(root_id(tensors, binding))
        if vectors is None:
            others.update(root_id(tensors, binding) for binding in work.writes)
    skipped = {
        root_id(tensors, binding)
        for work in works
        if work.predicate is not None
        for binding in (*work.reads, *work.writes)
    }
    chosen = {
        tensor
        for tensor in ((wanted - others) | late) - skipped
        if tensors[tensor].role is TensorRole.INTERMEDIATE and tensors[tensor].type.dtype.can_be_tagged
    }
    return frozenset(t.id for t in tensors if (t.id if t.alias_of is None else t.alias_of) in chosen)


def _taken_late(
    works: Sequence[Work], tensors: Sequence[Tensor], device: VDevice, workload_of: Callable[[Work], Workload]
) -> set[int]:
    """What rOperators with sums make that others look at late alone, so that they start before it is there."""
    made = {root_id(tensors, binding) for work in works if work.expr.reductions for binding in work.writes}
    made -= {root_id(tensors, binding) for work in works if not work.expr.reductions for binding in work.writes}
    late_of: dict[Workload, frozenset[int]] = {}
    found: set[int] = set()
    otherwise: set[int] = set()
    for work in works:
        if any(root_id(tensors, binding) in made for binding in work.reads):
            workload = workload_of(work)
            if workload not in late_of:
                late_of[workload] = device.rules.late_slots(workload, device)
            for slot, binding in enumerate(work.reads):
                (found if slot in late_of[workload] else otherwise).add(root_id(tensors, binding))
    return (found & made) - otherwise


def _vector_lengths(expr: TensorExpr) -> Mapping[int, int] | None:
    """The elements of each vector that is multiplied with weights, by slot; None if nothing is such a product."""
    slots = vector_slots(expr)
    return None if slots is None else {slot: expr.inputs[slot].size for slot in slots}


class _Layer(NamedTuple):
    """How many units keep the weights of rOperators, and the depths of the first and the last of these."""

    units: int
    first: int
    last: int


def _depths(works: Sequence[Work], tensors: Sequence[Tensor]) -> Iterator[int]:
    """For each rOperator how many others there are on the longest way to it."""
    depths: dict[int, int] = {}
    for work in works:
        depth = max((depths.get(root_id(tensors, binding), 0) for binding in work.reads), default=0)
        yield depth
        for binding in work.writes:
            root = root_id(tensors, binding)
            depths[root] = max(depths.get(root, 0), depth + 1)


def _most_units(layers: Collection[_Layer]) -> int:
    """The most units that layers keep at the same time."""
    return max((sum(one.units for one in layers if one.first <= at.first <= one.last) for at in layers), default=0)


class _Staying:
    """The products of a batch whose weights stay on their units from rOperator to rOperator."""

    def __init__(
        self, works: Sequence[Work], tensors: Sequence[Tensor], fixed: Collection[int], device: VDevice
    ) -> None:
        self._tensors = tensors
        self._fixed = fixed
        self._device = device
        self._kernels: dict[Workload, RKernel | None] = {}
        readers = Counter(tensor for work in works for tensor in self._constants(work))
        self._shared = {tensor for tensor, count in readers.items() if count > 1}
        layers: dict[int, _Layer] = {}
        for work, depth in zip(works, _depths(works, tensors), strict=True):
            kernel = None if vector_slots(work.expr) is not None else self._kernel(work)
            if kernel is not None:
                heaviest = max(sorted(self._constants(work) & self._shared), key=lambda tensor: tensors[tensor].nbytes)
                first = layers[heaviest].first if heaviest in layers else depth
                layers[heaviest] = _Layer(kernel.task_count, first, depth)
        self._has_room = _most_units(layers.values()) <= device.veu_count

    def lengths(self, work: Work) -> Mapping[int, int] | None:
        """As `_vector_lengths`; None where the weights do not stay."""
        kernel = self._kernel(work) if self._has_room else None
        return (
            None
            if kernel is None
            else {load.slot: part.length for part in plan_of(kernel).parts for load in part.loads}
        )

    def can_keep(self, work: Work) -> bool:
        """Whether there is an rKernel that keeps the weights, be there room for all or not."""
        return self._kernel(work) is not None

    def _constants(self, work: Work) -> set[int]:
        """The constants that an rOperator reads."""
        roots = {root_id(self._tensors, binding) for binding in work.reads}
        return roots.intersection(self._fixed)

    def _kernel(self, work: Work) -> RKernel | None:
        """The rKernel whose weights stay, if several rOperators use them."""
        slots = (slot for slot, binding in enumerate(work.reads) if root_id(self._tensors, binding) in self._shared)
        workload = Workload(
            expr=work.expr,
            layouts=tuple(self._tensors[binding.tensor].layout for binding in (*work.reads, *work.writes)),
            constants=frozenset(slots),
        )
        if workload not in self._kernels:
            kernels = self._device.rules.persistent(workload.tagged(), self._device)
            self._kernels[workload] = kernels[0] if kernels else None
        return self._kernels[workload]
