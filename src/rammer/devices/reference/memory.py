"""All storage of one run, addressed through layouts exactly as a device does it.

Every byte that no rTask has written yet is poison: NaN in every floating-point type, -1 or the greatest value in
integers. A read that comes too early therefore shows in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rammer.ir.graph import Array
from rammer.ir.program import Plan
from rammer.ir.task import Access, Binding, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType

_POISON = 0xFF
_POISONS: Mapping[DType, Array] = {
    dtype: np.full(dtype.itemsize_bytes, _POISON, dtype=np.uint8).view(dtype.numpy)[0] for dtype in DType
}
IntArray = npt.NDArray[np.int64]


def place_constants(plan: Plan) -> dict[int, Array]:
    """The constants, laid out in storage and read back; nothing writes there, so once is enough."""
    placed = {}
    for number, array in plan.graph.constants.items():
        layout = plan.graph.tensors[number].layout
        placed[number] = layout.pack(array)[layout.addresses(array.shape)]
    return placed


class Memory:
    """Arenas, constants and the caller's arrays.

    Args:
        plan: says where the tensors lie.
        constants: what `place_constants` made; never written.
        inputs: the caller's arrays in order, C-contiguous; never written, but where a state in place is both.
        outputs: the caller's arrays in order, C-contiguous; poisoned here, but for states in place.
    """

    def __init__(
        self, plan: Plan, constants: Mapping[int, Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        self._tensors = plan.graph.tensors
        self._constants = constants
        self._storage: dict[int, Array] = {}
        for number, array in zip(plan.graph.inputs, inputs, strict=True):
            self._storage[number] = array.reshape(-1)
        for number, array in zip(plan.graph.outputs, outputs, strict=True):
            self._storage[number] = array.reshape(-1)
            if number in plan.graph.updated:
                before = plan.graph.updated[number]
                self._storage[number][...] = self._storage[before]  # nothing happens where they are one array
                self._storage[before] = self._storage[number]
            else:
                self._storage[number].fill(_POISONS[self._tensors[number].type.dtype])
        arenas = [np.full(arena_bytes, _POISON, dtype=np.uint8) for arena_bytes in plan.memory.arenas_bytes]
        for tensor in self._tensors:
            if tensor.role is TensorRole.INTERMEDIATE and tensor.alias_of is None:
                start, arena = plan.memory.offsets_bytes[tensor.id], arenas[plan.memory.memory_of(tensor.id)]
                self._storage[tensor.id] = arena[start : start + tensor.nbytes].view(tensor.type.dtype.numpy)

    def window(self, binding: Binding, type_: TensorType) -> Array:
        """The part of a tensor that a slot of `type_` is bound to; in place where the layout has no panels."""
        tensor = self._tensors[binding.tensor]
        part = tuple(slice(start, start + extent) for start, extent in zip(binding.origin, type_.shape, strict=True))
        shape = tensor.type.shape
        if tensor.role is TensorRole.CONSTANT:
            return self._constants[_root(tensor)].reshape(shape)[part]
        storage = self._storage[_root(tensor)]
        if tensor.layout.panel is not None:
            gathered: Array = storage[tensor.layout.addresses(shape)[part]]
            return gathered
        steps = [stride * storage.itemsize for stride in tensor.layout.strides]
        return np.ndarray(shape, storage.dtype, buffer=storage.view(np.uint8), strides=steps)[part]

    def holds(self, binding: Binding) -> bool:
        """The bool that a predicate is bound to."""
        return bool(self.window(binding, TensorType(DType.BOOL, (1,) * len(binding.origin))).item())

    def is_written(self, access: Access) -> bool:
        """Whether nothing of a root tensor's box is poison."""
        tensor = self._tensors[access.tensor]
        index = np.ix_(*(np.arange(interval.lo, interval.hi) for interval in access.box))
        elements = self._storage[tensor.id][_addresses(tensor.layout, index)]
        return bool((elements.view(np.uint8).reshape(-1, elements.itemsize) != _POISON).any(axis=1).all())

    def store(self, binding: Binding, index: Sequence[Array], values: Array | None) -> None:
        """Write `values` at the elements `index` of an output; None poisons them."""
        tensor = self._tensors[binding.tensor]
        moved = [part.astype(np.int64) + start for part, start in zip(index, binding.origin, strict=True)]
        stored = _POISONS[tensor.type.dtype] if values is None else values
        self._storage[_root(tensor)][_addresses(tensor.layout, moved)] = stored


def _root(tensor: Tensor) -> int:
    return tensor.id if tensor.alias_of is None else tensor.alias_of


def _addresses(layout: Layout, index: Sequence[IntArray]) -> IntArray:
    """Elements from the tensor's start to those at `index`."""
    total: IntArray = np.zeros((), dtype=np.int64)
    for dim, part in enumerate(index):
        if layout.panel is not None and layout.panel.dim == dim:
            total = total + part // layout.panel.width * layout.panel.stride
            part = part % layout.panel.width
        total = total + part * layout.strides[dim]
    return total
