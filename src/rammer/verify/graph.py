"""Proof that a graph is sound: values, order, types and index maps. Run after the frontend and after every pass.

| code | rule |
|---|---|
| G01 | Values are numbered from 0 without gaps, and every number that is used names one. |
| G02 | Every value has one origin: it is an input, a constant, or the result of one operator. |
| G03 | An operator reads inputs, constants and results of earlier operators. |
| G04 | Outputs of the graph are results of operators, each listed once. |
| G05 | A constant's array has the type of its value. |
| G06 | An operator's operands and results have the types of its expression's slots and outputs. |
| G07 | An axis belongs to the domain or to a reduction around its use; nested axes have different names. |
| G08 | Scalar functions have operands of one computed type; indices are int64; what is stored has the result's type. |
| G09 | A load fits its slot; without a fill it stays within, unless the index is itself loaded. |
| G10 | An output is stored whole: each point of the domain at an element of its own, and every element at one. |
| G11 | A layout gives every element of its value an address of its own within its span. |
| G12 | A state has a name of its own; its initial value, its input and its output are of one type. |
| G13 | A predicate is one bool. |
| G14 | A state in place is stored, perhaps in part, by an operator of its own, behind all that read it as it was. |

Composite operators have no expression until they are unrolled; G06 to G10 are about expressions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from rammer.errors import VerificationError
from rammer.ir.expr import Axis, Call, Expr, Guarded, Load, Reduce, TensorExpr, all_nodes
from rammer.ir.functions import CHOICES
from rammer.ir.graph import Graph, Operator, Value
from rammer.ir.types import DType, TensorType
from rammer.verify.storage import has_own_addresses
from rammer.verify.updates import loads_of_indices, reads_what_it_stores
from rammer.verify.work import is_one_to_one, load_fault

_Fault = tuple[str, str]

_FAULTS: WeakKeyDictionary[TensorExpr, _Fault | None] = WeakKeyDictionary()


def verify(graph: Graph) -> None:
    """Prove a graph.

    Raises:
        VerificationError: a rule of the table above is broken; the message names the value or operator.
    """
    _check_ids(graph)
    _check_origins(graph)
    _check_order(graph)
    _check_outputs(graph)
    _check_states(graph)
    _check_updates(graph)
    for value in graph.values.values():
        _check_value(graph, value)
    for operator in graph.operators:
        _check_operator(graph, operator)


def _check_states(graph: Graph) -> None:
    count = len(graph.states)
    if count > min(len(graph.inputs), len(graph.outputs)):
        raise VerificationError(
            "G12", f"{count} states of a graph of {len(graph.inputs)} inputs and {len(graph.outputs)} outputs"
        )
    names = [state.name for state in graph.states]
    if len(set(names)) < count:
        raise VerificationError("G12", f"states are called {', '.join(names)}")
    read, written = graph.inputs[len(graph.inputs) - count :], graph.outputs[len(graph.outputs) - count :]
    for state, *ends in zip(graph.states, read, written, strict=True):
        held = TensorType(DType.of(state.initial), tuple(state.initial.shape))
        for value in ends:
            if graph.values[value].type != held:
                raise VerificationError(
                    "G12", f"state '{state.name}' begins as {held}, its value %{value} is {graph.values[value].type}"
                )


def _check_updates(graph: Graph) -> None:
    """Who writes a state in place comes last, reads of it what it stores, and writes nothing else."""
    for new, old in graph.updated.items():
        writer = graph.producers()[new]
        expr, old_slots = writer.expr, [slot for slot, value in enumerate(writer.inputs) if value == old]
        if expr is None or len(writer.outputs) != 1 or not all(reads_what_it_stores(expr, slot) for slot in old_slots):
            message = f"{_describe(writer)} writes {_name(graph, new)} in place and other values, or reads others of it"
            raise VerificationError("G14", message, where=_sources(writer))
        before, is_written = {old}, False
        for operator in graph.operators:
            read = before.intersection(operator.needs)
            if operator is writer:
                is_written, read = True, read - {old}
            elif operator.kind in ("Reshape", "Slice") and read:
                before.update(operator.outputs)
            if is_written and read:
                message = f"{_describe(operator)} reads {_name(graph, old)} when {_describe(writer)} may overwrite it"
                raise VerificationError("G14", message, where=_sources(operator))


def _check_ids(graph: Graph) -> None:
    for place, (key, value) in enumerate(sorted(graph.values.items())):
        if not place == key == value.id:
            raise VerificationError("G01", f"value {place} of the graph is number {key} and has id {value.id}")
    used: list[tuple[str | Operator, Iterable[int]]] = [
        ("an input", graph.inputs),
        ("an output", graph.outputs),
        ("a constant", graph.constants),
        *((operator, (*operator.needs, *operator.outputs)) for operator in graph.operators),
    ]
    for user, numbers in used:
        for number in numbers:
            if number not in graph.values:
                raise VerificationError("G01", f"{_called(user)} names value {number} of {len(graph.values)}")


def _check_origins(graph: Graph) -> None:
    origins: dict[int, str | Operator] = {}
    made: list[tuple[str | Operator, Iterable[int]]] = [
        ("the inputs", graph.inputs),
        ("the constants", graph.constants),
        *((operator, operator.outputs) for operator in graph.operators),
    ]
    for origin, values in made:
        for value in values:
            if value in origins:
                both = f"{_called(origins[value])} and from {_called(origin)}"
                raise VerificationError("G02", f"{_name(graph, value)} comes from {both}")
            origins[value] = origin
    for value in graph.values:
        if value not in origins:
            raise VerificationError("G02", f"{_name(graph, value)} comes from nowhere")


def _check_order(graph: Graph) -> None:
    known = {*graph.inputs, *graph.constants}
    for operator in graph.operators:
        for value in operator.needs:
            if value not in known:
                message = f"{_describe(operator)} reads {_name(graph, value)}, which is made later"
                raise VerificationError("G03", message, where=_sources(operator))
        known.update(operator.outputs)


def _check_outputs(graph: Graph) -> None:
    made = {output for operator in graph.operators for output in operator.outputs}
    seen: set[int] = set()
    for place, value in enumerate(graph.outputs):
        if value not in made:
            raise VerificationError("G04", f"output {place} is {_name(graph, value)}, which no operator makes")
        if value in seen:
            raise VerificationError("G04", f"output {place} is {_name(graph, value)}, which is an output already")
        seen.add(value)


def _check_value(graph: Graph, value: Value) -> None:
    array = graph.constants.get(value.id)
    if array is not None and (array.dtype != value.type.dtype.numpy or array.shape != value.type.shape):
        message = f"{_name(graph, value.id)} is {value.type}, its data {array.dtype.name}{list(array.shape)}"
        raise VerificationError("G05", message)
    if value.layout is not None and not has_own_addresses(value.layout, value.type.shape):
        message = f"{_name(graph, value.id)} {value.type} has a layout that mixes up elements: {value.layout}"
        raise VerificationError("G11", message)


def _check_operator(graph: Graph, operator: Operator) -> None:
    if operator.predicate is not None:
        type_ = graph.values[operator.predicate].type
        if type_.dtype is not DType.BOOL or type_.size != 1:
            message = f"{_describe(operator)} has the predicate {_name(graph, operator.predicate)} {type_}"
            raise VerificationError("G13", message, where=_sources(operator))
    if operator.expr is None:
        return
    fault = _types_fault(graph, operator, operator.expr) or _expression_fault(operator.expr)
    if fault is not None and fault[0] == "G10" and not graph.updated.keys().isdisjoint(operator.outputs):
        fault = _update_fault(operator.expr)
    if fault is not None:
        code, message = fault
        raise VerificationError(code, f"{_describe(operator)} {message}", where=_sources(operator))


def _types_fault(graph: Graph, operator: Operator, expr: TensorExpr) -> _Fault | None:
    """Whether the operator's values are what its expression says (G06)."""
    outputs = tuple(output.type for output in expr.outputs)
    sides = (("operands", operator.inputs, expr.inputs), ("results", operator.outputs, outputs))
    for side, values, types in sides:
        found = tuple(graph.values[value].type for value in values)
        if found != types or not outputs:
            return "G06", f"has {side} {_listed(found)}, its expression {_listed(types)}"
    return None


def _expression_fault(expr: TensorExpr) -> _Fault | None:
    """What is wrong with an expression by itself (G07 to G10), looked for once as long as it lives."""
    if expr not in _FAULTS:
        _FAULTS[expr] = _found_fault(expr)
    return _FAULTS[expr]


def _found_fault(expr: TensorExpr) -> _Fault | None:
    indices = tuple(index for output in expr.outputs for index in output.indices)
    return (
        _axes_fault(expr, indices)
        or _first("G08", (_type_fault(node) for node in all_nodes(*expr.roots, *indices)))
        or _first("G08", (_stored_fault(output.body, output.indices, output.type) for output in expr.outputs))
        or _first("G09", (_prefixed(load, load_fault(load, expr)) for load in expr.loads))
        or _stores_fault(expr)
    )


def _axes_fault(expr: TensorExpr, indices: tuple[Expr, ...]) -> _Fault | None:
    """Whether every axis is bound once, by the domain or a reduction around it (G07)."""
    domain = [axis.name for axis in expr.axes]
    if len(set(domain)) < len(domain) or any(axis.extent < 0 for axis in expr.axes):
        return "G07", f"has the domain {_listed(f'{axis.name}<{axis.extent}' for axis in expr.axes)}"
    free: dict[Expr, frozenset[Axis]] = {}
    bound: dict[Expr, frozenset[str]] = {}
    for node in all_nodes(*expr.roots, *indices):
        free[node] = frozenset[Axis]().union(*(free[part] for part in node.parts))
        bound[node] = frozenset[str]().union(*(bound[part] for part in node.parts))
        if isinstance(node, Axis):
            free[node] = frozenset({node})
        elif isinstance(node, Reduce):
            names = [axis.name for axis in node.axes]
            if not names or len(set(names)) < len(names) or not bound[node].union(domain).isdisjoint(names):
                return "G07", f"has a reduction over {_listed(names)} within others or the domain of that name: {node}"
            free[node] = free[node].difference(node.axes)
            bound[node] = bound[node].union(names)
    for root in (*expr.roots, *indices):
        strays = sorted(axis.name for axis in free[root].difference(expr.axes))
        if strays:
            return "G07", f"uses axes that nothing binds ({_listed(strays)}): {root}"
    return None


def _type_fault(node: Expr) -> str | None:
    """What is wrong with the types of a node's operands (G08)."""
    match node:
        case Call(fn, args):
            operands = args[1:] if fn in CHOICES else args
            mixed = len({operand.dtype for operand in operands}) > 1
            if mixed or operands[0].dtype.is_rounded or (fn in CHOICES and args[0].dtype is not DType.BOOL):
                return f"computes {fn.value} of {_listed(arg.dtype.value for arg in args)}"
        case Guarded(condition, value, fallback):
            if condition.dtype is not DType.BOOL or fallback.dtype is not value.dtype:
                return f"guards {value.dtype.value} by {condition.dtype.value}, else {fallback.dtype.value}"
        case Reduce(fn, _, body) if body.dtype.is_rounded:
            return f"reduces {body.dtype.value} by {fn.value}"
        case Load(_, indices, type_, fill, _):
            if any(index.dtype is not DType.INT64 for index in indices):
                return f"indexes by {_listed(index.dtype.value for index in indices)}"
            if fill is not None and fill.type is not type_:
                return f"fills {type_.value} with {fill.type.value}"
    return None


def _stored_fault(body: Expr, indices: tuple[Expr, ...], type_: TensorType) -> str | None:
    if body.dtype is not type_.dtype or any(index.dtype is not DType.INT64 for index in indices):
        return f"stores {body.dtype.value} at {_listed(index.dtype.value for index in indices)} as {type_}"
    return None


def _stores_fault(expr: TensorExpr) -> _Fault | None:
    """Whether the domain and each output's elements are one to one (G10)."""
    points = math.prod(axis.extent for axis in expr.axes)
    for place, output in enumerate(expr.outputs):
        shaped = len(output.indices) == output.type.rank and points == output.type.size
        if not shaped or not is_one_to_one(output, expr.axes):
            return "G10", f"stores {points} points as output {place}, {output.type}, at {_listed(output.indices)}"
    return None


def _update_fault(expr: TensorExpr) -> _Fault | None:
    """Whether what is stored in place is at elements of its own (G14)."""
    beside = loads_of_indices(expr)
    if beside:
        return "G14", f"stores where {_listed(beside)} say, which it does not load"
    if all(len(output.indices) == output.type.rank and is_one_to_one(output, expr.axes) for output in expr.outputs):
        return None
    return "G14", f"stores in place at {_listed(expr.outputs[0].indices)}, perhaps twice or out of bounds"


def _first(code: str, messages: Iterable[str | None]) -> _Fault | None:
    return next(((code, message) for message in messages if message is not None), None)


def _prefixed(load: Load, fault: str | None) -> str | None:
    return None if fault is None else f"has a load, {load}, that {fault}"


def _listed(items: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, items)) + "]"


def _name(graph: Graph, value: int) -> str:
    return f"value {value} '{graph.values[value].name}'"


def _describe(operator: Operator) -> str:
    return f"operator '{operator.name}' ({operator.kind})"


def _called(what: str | Operator) -> str:
    return what if isinstance(what, str) else _describe(what)


def _sources(operator: Operator) -> str:
    return "; ".join(dict.fromkeys(str(source) for source in operator.sources))
