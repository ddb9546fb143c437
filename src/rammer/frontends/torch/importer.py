"""The walk over a captured program: each call is handed to its converter, and its results are checked and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch.fx import Node as FxNode

from rammer.errors import DataDependentError, ShapeDisagreementError, UnsupportedOperatorsError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.fourier import Complex
from rammer.frontends.randomness import RandomStreams
from rammer.frontends.torch.converters import CONVERTERS
from rammer.frontends.torch.converters.complex import CONVERTERS as OF_COMPLEX
from rammer.frontends.torch.converters.complex import of_complex
from rammer.frontends.torch.lstm_layers import NAMESPACE
from rammer.frontends.torch.node import Node, Result
from rammer.frontends.torch.private import schema_arguments
from rammer.frontends.torch.sources import location_of
from rammer.frontends.torch.types import array_of, part_type_of
from rammer.ir.types import TensorType

_OF_LIBRARIES: Mapping[str, str] = {"transformers::grouped_mm_fallback": "_grouped_mm"}
"""Operators that libraries define, and which of PyTorch's they stand in for."""

_CHECKS = frozenset(
    {"_assert_async", "_assert_scalar", "_assert_tensor_metadata", "_linalg_check_errors", "sym_constrain_range"}
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
    sums: dict[tuple[Operand, int], Operand] = field(default_factory=dict)

    def convert(self, nodes: Sequence[FxNode], attribute: Callable[[str], Any]) -> None:
        """Convert all calls and attributes.

        Args:
            nodes: in topological order; placeholders have their values already.
            attribute: the program's own tensors by name.

        Raises:
            UnsupportedOperatorsError: some operators have no converter; all are listed.
            DataDependentError: a shape depends on the values of tensors.
            ModelError: a call has a form that Rammer does not have.
        """
        refuse(missing_operators(nodes, self.model), self.model)
        unread = _read_by_checks(nodes)
        for node in nodes:
            if node in unread:
                continue
            _check_known(node, self.model)
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
        types = tuple(part_type_of(r, str(location)) if isinstance(r, torch.Tensor) else None for r in results)
        call = Node(
            location=location,
            builder=self.builder,
            operator=_name(target),
            arguments={name: self._value(value) for name, value in captured.items()},
            captured={name: _captured(value) for name, value in captured.items()},
            results=types,
            used=_used(node, len(results)),
            random=self.random,
            sums=self.sums,
        )
        given = _given(call, complex_results=[isinstance(r, torch.Tensor) and r.is_complex() for r in results])
        if isinstance(given, Operand | Complex):
            self._check_type(given, types[0], location)
            return given
        for operand, type_ in zip(given, types, strict=True):
            if operand is not None:
                self._check_type(operand, type_, location)
        return list(given)

    def _check_type(self, operand: Operand | Complex, expected: TensorType | None, location: object) -> None:
        operand = operand.real if isinstance(operand, Complex) else operand
        if operand.type != expected:
            raise ShapeDisagreementError(
                f"PyTorch makes {expected} here, Rammer's operators {operand.type}",
                where=str(location),
                hint="this is a defect of Rammer; please report it with the model",
            )

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
    if not has_complex or call.operator in OF_COMPLEX:
        return convert(call)
    return of_complex(call, convert, gives_complex=any(complex_results))


def _holds_complex(value: object) -> bool:
    return isinstance(value, Complex) or (isinstance(value, list) and any(map(_holds_complex, value)))


def missing_operators(nodes: Sequence[FxNode], model: str) -> list[tuple[str, str]]:
    """The operators among the nodes that have no converter, each with its place in the model."""
    unread = _read_by_checks(nodes)
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


def _read_by_checks(nodes: Sequence[FxNode]) -> set[FxNode]:
    """Checks, and what is computed for them alone."""
    unread: set[FxNode] = set()
    for node in reversed(nodes):
        if node.op == "call_function" and (_is_check(node) or (node.users and unread.issuperset(node.users))):
            unread.add(node)
    return unread


def _is_check(node: FxNode) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and _name(node.target) in _CHECKS


def _check_known(node: FxNode, model: str) -> None:
    """Check that a call's numbers and shapes do not depend on the values of tensors.

    Raises:
        DataDependentError: they do.
    """
    found = node.meta.get("val")
    results = found if isinstance(found, tuple | list) else (found,)
    extents = [extent for result in results if isinstance(result, torch.Tensor) for extent in result.shape]
    if any(isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) for value in (*results, *extents)):
        place = location_of(node, model)
        raise DataDependentError(
            "a shape or a number in Python depends on the values of tensors",
            where=str(place),
            hint="choose with torch.where or masks, or compute it outside of the module and pass it as an argument",
        )


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
    return argument.meta.get("val") if isinstance(argument, FxNode) else argument


def _used(node: FxNode, count: int) -> tuple[bool, ...]:
    """Whether each of a call's results is read."""
    if count == 1:
        return (bool(node.users),)
    read = {user.args[1] for user in node.users if getattr(user.target, "__name__", "") == "getitem" and user.users}
    whole = any(getattr(user.target, "__name__", "") != "getitem" for user in node.users)
    return tuple(whole or position in read for position in range(count))
