"""Which values share storage: concatenations, slices and reshapes without a copy where none is needed.

The graph is walked backwards, so a value learns what its consumers wish before it gets storage of its own:

- a `Concat` asks each operand to be written straight into its part of the result;
- a `Reshape` that only adds or drops dimensions of extent 1, and a `Slice` with step 1, are views of their operand;
- any other `Reshape` is the same bytes under another shape, where its operand is a whole dense tensor.

What cannot be shared is copied. Inputs and outputs of the model belong to the caller, so an output that is also an
input, a constant or another output gets a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rammer.ir.graph import Graph, Operator
from rammer.ir.region import Interval, box_size, reshape_box
from rammer.ir.task import Tensor, TensorRole
from rammer.ir.types import TensorType
from rammer.lowering.canonical import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Value `source` written once more, at `target`: an operand of a concatenation, or an output."""

    source: int
    target: View


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Tensors, the view of each value and what is left to do for operators that were resolved here.

    `copies` maps the position of a resolved operator to the copies that stand for it, often none; operators not in
    it compute. `outputs` are the tensors of the graph's outputs, `output_copies` fill those that nothing computes.
    """

    tensors: tuple[Tensor, ...]
    views: dict[int, View]
    copies: dict[int, tuple[Copy, ...]]
    outputs: tuple[int, ...]
    output_copies: tuple[Copy, ...]


def assign(graph: Graph) -> Storage:
    """Give every value of a graph its place.

    Args:
        graph: after all passes; operators of kind "Concat", "Reshape" and "Slice" carry their attributes.
    """
    return _Assignment(graph).run()


class _Assignment:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self._tensors: list[Tensor] = []
        self._views: dict[int, View] = {}
        self._follows: dict[int, tuple[int, Callable[[View], View]]] = {}
        self._copies: dict[int, tuple[Copy, ...]] = {}

    def run(self) -> Storage:
        """Walk the graph backwards."""
        graph = self._graph
        for value in graph.inputs:
            self._own(value, TensorRole.INPUT)
        for value in graph.constants:
            self._own(value, TensorRole.CONSTANT)
        outputs, output_copies = [], []
        for value in graph.outputs:
            view = self._output(value)
            if self._views.setdefault(value, view) is not view:
                output_copies.append(Copy(source=value, target=view))
            outputs.append(view.tensor)
        for position in reversed(range(len(graph.operators))):
            operator = graph.operators[position]
            copies = self._resolved(operator)
            if copies is not None:
                self._copies[position] = copies
            for output in operator.outputs:
                if output not in self._follows:
                    self._placed(output)
        for value in sorted(self._follows):
            self._resolve(value)
        return Storage(
            tensors=tuple(self._tensors),
            views=self._views,
            copies=self._copies,
            outputs=tuple(outputs),
            output_copies=tuple(output_copies),
        )

    def _resolved(self, operator: Operator) -> tuple[Copy, ...] | None:
        """The copies that stand for a view operator, or None where the operator has to compute."""
        match operator.kind:
            case "Concat":
                return self._concat(operator)
            case "Reshape":
                return () if self._reshape(operator) else None
            case "Slice" if all(step == 1 for step in _ints(operator, "steps")):
                return () if self._slice(operator) else None
        return None

    def _output(self, value: int) -> View:
        """A tensor of the caller's for a graph output."""
        tensor = self._new_tensor(value, TensorRole.OUTPUT)
        return View.whole(tensor.id, tensor.type.rank)

    def _new_tensor(self, value: int, role: TensorRole, alias_of: int | None = None) -> Tensor:
        entry = self._graph.values[value]
        tensor = Tensor(
            id=len(self._tensors), name=entry.name, type=entry.type, layout=entry.storage, role=role, alias_of=alias_of
        )
        self._tensors.append(tensor)
        return tensor

    def _own(self, value: int, role: TensorRole, alias_of: int | None = None) -> View:
        """A tensor of its own for a value."""
        tensor = self._new_tensor(value, role, alias_of)
        self._views[value] = View.whole(tensor.id, tensor.type.rank)
        return self._views[value]

    def _free(self, value: int) -> bool:
        """Whether a value is computed here and has no place yet."""
        return value in self._producers and value not in self._views and value not in self._follows

    def _placed(self, value: int) -> View:
        """The view of an operator's result, made now if no consumer asked for one."""
        return self._views[value] if value in self._views else self._own(value, TensorRole.INTERMEDIATE)

    def _concat(self, operator: Operator) -> tuple[Copy, ...]:
        (result,) = operator.outputs
        target = self._placed(result)
        axis = operator.attributes["axis"]
        if not isinstance(axis, int):
            raise TypeError(f"Concat '{operator.name}': axis is no integer")
        copies, offset = [], 0
        for value in operator.inputs:
            shape = self._type(value).shape
            part = target.shifted([offset if d == axis else 0 for d in range(len(shape))])
            offset += shape[axis]
            if self._free(value) and operator.inputs.count(value) == 1 and self._is_box(part, shape):
                self._views[value] = part
            else:
                copies.append(Copy(source=value, target=part))
        return tuple(copies)

    def _is_box(self, view: View, shape: Sequence[int]) -> bool:
        """Whether a part of `shape` is a box of its tensor's root, too.

        Boxes around parts that are none overlap: an operator that reads one and writes another would wait for itself.
        """
        tensor = self._tensors[view.tensor]
        extents = [1] * tensor.type.rank
        for dim, extent in zip(view.dims, shape, strict=True):
            if dim is not None:
                extents[dim] = extent
        box = tuple(Interval(start, start + extent) for start, extent in zip(view.origin, extents, strict=True))
        root_shape = self._tensors[self._root(tensor.id)].type.shape
        return box_size(reshape_box(box, tensor.type.shape, root_shape)) == box_size(box)

    def _slice(self, operator: Operator) -> bool:
        """Make a slice a view of its operand; False where its result already has a place elsewhere."""
        (source,), (result,) = operator.inputs, operator.outputs
        if result in self._views:
            return False
        starts = _ints(operator, "starts")
        self._follows[result] = (source, lambda view: view.shifted(starts))
        return True

    def _reshape(self, operator: Operator) -> bool:
        """Make a reshape share storage with its operand; False where it has to be computed."""
        (source,), (result,) = operator.inputs, operator.outputs
        matched = _unit_reshape(self._type(source), self._type(result))
        if matched is None:
            return self._reshape_alias(source, result)
        forward, backward = matched
        if result not in self._views:
            self._follows[result] = (source, lambda view: _redim(view, forward))
            return True
        if self._free(source):
            self._views[source] = _redim(self._views[result], backward)
            return True
        return False

    def _reshape_alias(self, source: int, result: int) -> bool:
        """A reshape that regroups dimensions: the same bytes under another shape."""
        if result in self._views:
            view = self._views[result]
            shares = self._free(source) and self._is_whole_dense(view, result) and self._is_plain(source)
            if shares:
                self._own(source, self._tensors[view.tensor].role, alias_of=self._root(view.tensor))
            return shares
        view = self._resolve(source)
        shares = self._is_whole_dense(view, source) and self._is_plain(result)
        if shares:
            self._own(result, self._tensors[view.tensor].role, alias_of=self._root(view.tensor))
        return shares

    def _resolve(self, value: int) -> View:
        """The view of a value that follows another one."""
        chain = []
        while value in self._follows and value not in self._views:
            chain.append(value)
            value = self._follows[value][0]
        view = self._placed(value)
        for follower in reversed(chain):
            view = self._views[follower] = self._follows[follower][1](view)
        return view

    def _root(self, tensor: int) -> int:
        alias = self._tensors[tensor].alias_of
        return tensor if alias is None else alias

    def _is_plain(self, value: int) -> bool:
        """Whether no layout was chosen for a value."""
        return self._graph.values[value].layout is None

    def _is_whole_dense(self, view: View, value: int) -> bool:
        type_ = self._type(value)
        tensor = self._tensors[view.tensor]
        whole = View.whole(tensor.id, tensor.type.rank)
        return view == whole and tensor.type.shape == type_.shape and tensor.layout.is_row_major(type_.shape)

    def _type(self, value: int) -> TensorType:
        return self._graph.values[value].type


def _ints(operator: Operator, key: str) -> tuple[int, ...]:
    found = operator.attributes[key]
    if not isinstance(found, tuple):
        raise TypeError(f"{operator.kind} '{operator.name}': {key} is no tuple")
    return tuple(int(i) for i in found)


def _unit_reshape(old: TensorType, new: TensorType) -> tuple[tuple[int | None, ...], tuple[int | None, ...]] | None:
    """Where two shapes differ only by dimensions of extent 1: each one's dimensions in the other, else None."""
    long_old = [d for d, extent in enumerate(old.shape) if extent != 1]
    long_new = [d for d, extent in enumerate(new.shape) if extent != 1]
    if [old.shape[d] for d in long_old] != [new.shape[d] for d in long_new]:
        return None
    to_old = dict(zip(long_new, long_old, strict=True))
    to_new = dict(zip(long_old, long_new, strict=True))
    return tuple(to_old.get(d) for d in range(new.rank)), tuple(to_new.get(d) for d in range(old.rank))


def _redim(view: View, dims: tuple[int | None, ...]) -> View:
    """The view of a value whose dimension d is dimension `dims[d]` of the value that `view` places."""
    return View(
        tensor=view.tensor,
        origin=view.origin,
        dims=tuple(None if dim is None else view.dims[dim] for dim in dims),
    )
