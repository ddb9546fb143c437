"""The walk over a captured program: each call is handed to its converter, and its results are checked and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch.fx import Node as FxNode

from rammer.errors import DataDependentError, ShapeDisagreementError, UnsupportedOperatorsError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.fourier import Complex
from rammer.frontends.node import ModelNode
from rammer.frontends.randomness import RandomStreams
from rammer.frontends.torch import flow
from rammer.frontends.torch.converters import CONVERTERS
from rammer.frontends.torch.converters.complex import CONVERTERS as OF_COMPLEX
from rammer.frontends.torch.converters.complex import of_complex
from rammer.frontends.torch.lstm_layers import NAMESPACE
from rammer.frontends.torch.node import Node, Result
from rammer.frontends.torch.private import schema_arguments
from rammer.frontends.torch.sizes import Sizes
from rammer.frontends.torch.sources import location_of
from rammer.frontends.torch.types import array_of, part_type_of
from rammer.ir.types import TensorType

_OF_LIBRARIES: Mapping[str, str] = {
    "torchvision::nms": "nms",
    "transformers::grouped_mm_fallback": "_grouped_mm",
}
"""Operators that libraries define, and which of PyTorch's they stand in for."""

_CHECKS = frozenset(
    {
        *("_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_linalg_check_errors", "sym_constrain_range"),
        "sym_constrain_range_for_size",
    }
)
"""Operators that compute nothing: a static program checks no values, and shapes were checked as they were captured."""

Value = object
"""What stands for a node of the program: an operand, a list of them, or a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Converts the nodes of a captured program into operators of the builder's graph."""

    model: str
    builder: FoldingBuilder
    random: RandomStreams
    values: dict[FxNode, Value] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    sums: dict[tuple[Operand, int], Operand] = field(default_factory=dict)

    def convert(self, nodes: Sequence[FxNode], attribute: Callable[[str], Any]) -> None:
        """Convert all calls and attributes.

        Args:
            nodes: in topological order; placeholders have their values already.
            attribute: the program's own tensors by name.

        Raises:
            UnsupportedOperatorsError: some operators have no converter; all are listed.
            DataDependentError: a choice depends on the values of tensors, or a shape, in a way that is not possible.
            ModelError: a call has a form that Rammer does not have.
        """
        refuse(missing_operators(nodes, self.model), self.model)
        unread = read_by_checks(nodes)
        for node in nodes:
            if node in unread:
                continue
            _check_choice(node, self.model)
            if node.op == "get_attr":
                name = str(node.target)
                self.values[node] = self.constant(attribute(name), f"'{name}' of {self.model}", name)
            elif node.op == "call_function":
                self.values[node] = self._call(node)

    def constant(self, tensor: torch.Tensor, where: str, name: str) -> Operand | Complex:
        """A tensor of the program as a constant, or the parts of a complex one.

        Raises:
            UnsupportedFeatureError: its element type or layout is none of ours.
        """
        if not tensor.is_complex():
            return self.builder.constant(array_of(tensor, where), name)
        parts = {"real": tensor.detach().real, "imag": tensor.detach().imag}
        return Complex(
            *(self.builder.constant(array_of(part, where), f"{name}.{side}") for side, part in parts.items())
        )

    def _call(self, node: FxNode) -> Value:
        known = node.meta.get("val")
        if isinstance(known, bool | int | float):  # a shape, or what is computed of some
            return known
        if isinstance(known, torch.SymInt | torch.SymFloat) and not _reads_tensor(node):
            return self._number(ModelNode(location=location_of(node, self.model), builder=self.builder), known)
        if not isinstance(node.target, torch._ops.OpOverload):
            values = [self._value(argument) for argument in node.args]
            result: Value = node.target(*values)
            return result
        return self._converted(node, node.target)

    def _converted(self, node: FxNode, target: Any) -> Value:
        location = location_of(node, self.model)
        captured = _arguments(target, node.args, node.kwargs)
        found = node.meta.get("val")
        results = tuple(found) if isinstance(found, tuple | list) else (found,)
        call = Node(
            location=location,
            builder=self.builder,
            operator=_name(target),
            arguments={name: self._value(value) for name, value in captured.items()},
            captured={name: _captured(value) for name, value in captured.items()},
            results=(),
            made=results,
            used=_used(node, len(results)),
            rows=partial(_rows, node),
            random=self.random,
            is_open=_depends(results) or any(map(self._is_computed, node.all_input_nodes)),
            sizes=self.sizes,
            sums=self.sums,
        )
        call.results = tuple(self._type(call, each) for each in results)
        given = _given(call, complex_results=[isinstance(r, torch.Tensor) and r.is_complex() for r in results])
        if isinstance(given, Operand | Complex):
            return self._kept(call, given, results[0])
        return [self._kept(call, each, result) for each, result in zip(given, results, strict=True)]

    def _type(self, call: Node, result: object) -> TensorType | None:
        """The type of a result, as large as it can be; None for what is no tensor, or has no known bound."""
        if not isinstance(result, torch.Tensor):
            return None
        shape = self.sizes.shape(call, result)
        return None if shape is None else part_type_of(result, shape, str(call.location))

    def _kept(self, call: Node, given: Operand | Complex | None, result: object) -> Value:
        """A result of a call, with what counts of it."""
        if isinstance(given, Operand) and isinstance(result, torch.Tensor):
            given = self.sizes.counted(call, given, result)
        elif isinstance(given, Operand):
            self.sizes.define(call, result, given)
            return self._number(call, result)
        if given is not None:
            self._check_type(given, self._type(call, result), call.location)
        return given

    def _check_type(self, operand: Operand | Complex, expected: TensorType | None, location: object) -> None:
        operand = operand.real if isinstance(operand, Complex) else operand
        if operand.type != expected:
            raise ShapeDisagreementError(
                f"PyTorch makes {expected} here, Rammer's operators {operand.type}",
                where=str(location),
                hint="this is a defect of Rammer; please report it with the model",
            )

    def _number(self, node: ModelNode, number: Any) -> Operand | int | float:
        """A number that depends on the values of tensors, as far as these are not known."""
        operand = self.sizes.number(node, number)
        known: Operand | int | float = operand if operand.array is None else operand.array.item()
        return known

    def _is_computed(self, argument: FxNode) -> bool:
        """Whether an argument has a size, or is a number of Python, that depends on the values of tensors."""
        value = self.values[argument]
        is_number = isinstance(argument.meta.get("val"), torch.SymInt | torch.SymFloat)
        return isinstance(value, Operand) and (is_number or value.count is not None)

    def _value(self, argument: object) -> Value:
        if isinstance(argument, FxNode):
            return self.values[argument]
        if isinstance(argument, list | tuple):
            return [self._value(element) for element in argument]
        return argument


def _given(call: Node, complex_results: Sequence[bool]) -> Result:
    """The results of a call."""
    convert = CONVERTERS[call.operator]
    has_complex = any(complex_results) or any(_holds_complex(value) for value in call.arguments.values())
    if not has_complex:
        return flow.convert(call, convert)
    if call.is_open:
        raise call.refusal("complex numbers have known sizes")
    if call.operator in OF_COMPLEX:
        return convert(call)
    return of_complex(call, convert, gives_complex=any(complex_results))


def _holds_complex(value: object) -> bool:
    return isinstance(value, Complex) or (isinstance(value, list) and any(map(_holds_complex, value)))


def missing_operators(nodes: Sequence[FxNode], model: str) -> list[tuple[str, str]]:
    """The operators among the nodes that have no converter, each with its place in the model."""
    unread = read_by_checks(nodes)
    calls = [node for node in nodes if node.op == "call_function" and node not in unread]
    missing = [(node, location_of(node, model)) for node in calls if not _is_known(node)]
    return [(str(node.args[1]) if _has_effect(node) else place.op_type, place.node) for node, place in missing]


def has_effects(nodes: Sequence[FxNode]) -> bool:
    """Whether there are operators that PyTorch keeps in order by tokens, among the program's inputs."""
    return any(_has_effect(node) for node in nodes)


def _has_effect(node: FxNode) -> bool:
    return getattr(node.target, "__name__", "") == "with_effects"


def refuse(missing: Sequence[tuple[str, str]], model: str) -> None:
    """Raise the error for operators that have no converter, if there are any.

    Raises:
        UnsupportedOperatorsError: there are; all are listed.
    """
    if missing:
        raise UnsupportedOperatorsError(missing, where=model, hint="rewrite these parts with other operators")


def read_by_checks(nodes: Sequence[FxNode]) -> set[FxNode]:
    """Checks, and what is computed for them alone; and truth values of Python that PyTorch leaves behind."""
    unread: set[FxNode] = set()
    for node in reversed(nodes):
        is_read = not unread.issuperset(node.users) or not (node.users or _is_choice(node))
        if node.op == "call_function" and (is_call_of(node, *_CHECKS) or not is_read):
            unread.add(node)
    return unread


def is_call_of(node: FxNode, *names: str) -> bool:
    """Whether a node calls one of PyTorch's operators."""
    return isinstance(node.target, torch._ops.OpOverload) and _name(node.target) in names


def _is_choice(node: FxNode) -> bool:
    return isinstance(node.meta.get("val"), torch.SymBool)


def _check_choice(node: FxNode, model: str) -> None:
    """Check that no truth value of Python depends on the values of tensors.

    Raises:
        DataDependentError: it does.
    """
    if _is_choice(node):
        raise DataDependentError(
            "a truth value in Python depends on the values of tensors",
            where=str(location_of(node, model)),
            hint="choose with torch.where or masks, or compute it outside of the module and pass it as an argument",
        )


def _depends(results: Sequence[object]) -> bool:
    """Whether results have sizes, or are numbers, that depend on the values of tensors."""
    values = [*results, *(extent for each in results if isinstance(each, torch.Tensor) for extent in each.shape)]
    return any(isinstance(value, torch.SymInt | torch.SymFloat) for value in values)


def _reads_tensor(node: FxNode) -> bool:
    """Whether a number is an element of a tensor, not one of its extents."""
    return is_call_of(node, "_local_scalar_dense")


def _is_known(node: FxNode) -> bool:
    target = node.target
    if isinstance(node.meta.get("val"), bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    if isinstance(target, torch._ops.OpOverload):
        name = _name(target)
        known = target.namespace in ("aten", "prims", NAMESPACE) or _full_name(target) in _OF_LIBRARIES
        return known and (name in CONVERTERS or name in _CHECKS)
    return getattr(target, "__module__", "") in ("_operator", "math")


@cache
def _name(target: Any) -> str:
    """The operator's name without namespace and overload."""
    full = _full_name(target)
    return _OF_LIBRARIES.get(full, full.partition("::")[2])


def _full_name(target: Any) -> str:
    name: str = target.name()
    return name.partition(".")[0]


def _arguments(target: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a call by name, defaults included."""
    names = schema_arguments(target)
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return {**names, **given}


def _captured(argument: object) -> object:
    """An argument as PyTorch captured it."""
    if isinstance(argument, list | tuple):
        return [_captured(element) for element in argument]
    return argument.meta.get("val") if isinstance(argument, FxNode) else argument


def _used(node: FxNode, count: int) -> tuple[bool, ...]:
    """Whether each of a call's results is read."""
    if count == 1:
        return (bool(node.users),)
    read = {user.args[1] for user in node.users if getattr(user.target, "__name__", "") == "getitem" and user.users}
    whole = any(getattr(user.target, "__name__", "") != "getitem" for user in node.users)
    return tuple(whole or position in read for position in range(count))


def _rows(node: FxNode) -> int | None:
    """How many of a call's results are read at most, from the first on, by slices; None where all may be."""
    ends: list[int] = []
    for user in node.users.keys() - read_by_checks(list(node.graph.nodes)):
        given = _arguments(user.target, user.args, user.kwargs) if is_call_of(user, "slice") else {}
        end = given.get("end")
        if given.get("dim") != 0 or given.get("start") not in (None, 0) or not isinstance(end, int) or end < 0:
            return None
        ends.append(end)
    return max(ends, default=0)
