"""Checks of a task graph's tensors: who owns storage, and where elements lie in it (rules T01 to T04, T19)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rammer.errors import VerificationError
from rammer.ir.graph import Array
from rammer.ir.task import TaskGraph, Tensor, TensorRole
from rammer.ir.types import Layout
from rammer.verify.naming import describe_operator, describe_tensor


def check_ids(graph: TaskGraph) -> None:
    """Ids are positions, and name something wherever they are used (T01)."""
    for place, tensor in enumerate(graph.tensors):
        if tensor.id != place:
            raise VerificationError("T01", f"tensor {place} '{tensor.name}' has id {tensor.id}")
    for place, operator in enumerate(graph.operators):
        if operator.id != place:
            raise VerificationError("T01", f"rOperator {place} '{operator.name}' has id {operator.id}")
    for number, user in _named_tensors(graph):
        if not 0 <= number < len(graph.tensors):
            raise VerificationError("T01", f"{user} names tensor {number} of {len(graph.tensors)}")


def _named_tensors(graph: TaskGraph) -> Iterator[tuple[int, str]]:
    """Every use of a tensor's id, with the user."""
    for kind, ids in (("an input", graph.inputs), ("an output", graph.outputs), ("a constant", graph.constants)):
        yield from ((tensor, kind) for tensor in ids)
    for tensor in graph.tensors:
        if tensor.alias_of is not None:
            yield tensor.alias_of, f"the alias {describe_tensor(tensor)}"
    for operator in graph.operators:
        for binding in operator.bindings:
            yield binding.tensor, describe_operator(operator)


def check_roles(graph: TaskGraph) -> None:
    """Inputs, outputs and constants are what their roles say (T02)."""
    for role, ids in (
        (TensorRole.INPUT, graph.inputs),
        (TensorRole.OUTPUT, graph.outputs),
        (TensorRole.CONSTANT, tuple(graph.constants)),
    ):
        roots = {tensor.id for tensor in graph.tensors if tensor.role is role and tensor.alias_of is None}
        if len(ids) != len(set(ids)):
            raise VerificationError("T02", f"a tensor is listed twice among the {role.value}s: {ids}")
        for wrong in sorted(roots.symmetric_difference(ids)):
            tensor = graph.tensors[wrong]
            verb = "is not" if wrong in roots else "is"
            message = (
                f"{describe_tensor(tensor)} has the role {tensor.role.value} and {verb} listed among the {role.value}s"
            )
            raise VerificationError("T02", message)
    for number, array in graph.constants.items():
        tensor = graph.tensors[number]
        if array.dtype != tensor.type.dtype.numpy or array.shape != tensor.type.shape:
            message = f"{describe_tensor(tensor)} is {tensor.type}, its data {array.dtype.name}{list(array.shape)}"
            raise VerificationError("T02", message)


def check_recipes(graph: TaskGraph) -> None:
    """What files hold instead of constants makes them again (T19)."""
    for number, recipe in graph.recipes.items():
        array, wanted = recipe.array(), graph.constants.get(number)
        if wanted is None or array.dtype != wanted.dtype or not _same_bits(array, wanted):
            raise VerificationError(
                "T19", f"the recipe of {describe_tensor(graph.tensors[number])} makes something else"
            )


def _same_bits(one: Array, other: Array) -> bool:
    first, second = (np.ascontiguousarray(array).view(np.uint8) for array in (one, other))
    return np.array_equal(first, second)


def check_layout(tensor: Tensor) -> None:
    """Every element has an address of its own within the span; the caller's memory is row-major (T03)."""
    layout, shape, name = tensor.layout, tensor.type.shape, describe_tensor(tensor)
    if not has_own_addresses(layout, shape):
        message = f"{name} {tensor.type} has a layout that mixes up elements or leaves its span: {layout}"
        raise VerificationError("T03", message)
    if tensor.role in (TensorRole.INPUT, TensorRole.OUTPUT) and not layout.is_row_major(shape):
        raise VerificationError("T03", f"{name} is the caller's and not row-major: {layout}")


def has_own_addresses(layout: Layout, shape: tuple[int, ...]) -> bool:
    """Whether the dimensions nest: each steps over all that the ones with lesser strides reach together."""
    panel = layout.panel
    if len(layout.strides) != len(shape) or not (panel is None or (0 <= panel.dim < len(shape) and panel.width > 0)):
        return False
    digits = []
    for dim, (stride, extent) in enumerate(zip(layout.strides, shape, strict=True)):
        if panel is not None and panel.dim == dim:
            digits.append((stride, min(extent, panel.width)))
            digits.append((panel.stride, -(-extent // panel.width)))
        else:
            digits.append((stride, extent))
    if any(extent == 0 for _, extent in digits):
        return layout.span >= 0
    reach = 0
    for stride, extent in sorted(digits):
        if extent > 1:
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
    return reach < layout.span


def check_alias(graph: TaskGraph, tensor: Tensor) -> None:
    """An alias names a root with the same bytes, role and element type, both row-major (T04)."""
    if tensor.alias_of is None:
        return
    root = graph.tensors[tensor.alias_of]
    faults = {
        "which is an alias itself": root.alias_of is not None,
        f"which has the role {root.role.value}": root.role is not tensor.role,
        f"which is {root.type}": root.type.dtype is not tensor.type.dtype or root.type.size != tensor.type.size,
        "and they are not both row-major": not (
            root.layout.is_row_major(root.type.shape) and tensor.layout.is_row_major(tensor.type.shape)
        ),
    }
    name = f"{describe_tensor(tensor)} ({tensor.role.value}, {tensor.type})"
    for fault, is_present in faults.items():
        if is_present:
            raise VerificationError("T04", f"{name} is an alias of {describe_tensor(root)}, {fault}")
