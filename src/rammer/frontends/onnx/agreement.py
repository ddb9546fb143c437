"""The file's declared types against those that the operators give."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from rammer.errors import ShapeDisagreementError
from rammer.frontends.builder import Operand
from rammer.frontends.onnx.binding import Declaration, Extent, Symbols
from rammer.frontends.onnx.sequences import Value, described, form_of, tensors_of
from rammer.ir.graph import SourceLocation

_log = logging.getLogger(__name__)


def check_declared(
    declared: Iterable[Declaration],
    scope: Mapping[str, Value | None],
    makers: Mapping[str, SourceLocation],
    symbols: Symbols,
    where: str,
) -> None:
    """Compare declared types with those of the values; a symbol of the inputs has to stand for one extent.

    Shapes of what operators compute follow from these: where exporters declare others, a warning says so. They invent
    names for further extents, and may give one to several: such names say nothing, and where there is nothing else,
    their number does not, either.

    Args:
        declared: what the file says about inner values and outputs.
        scope: the values; those that do not exist are passed over.
        makers: the node that made each.
        symbols: values of the inputs' symbols.
        where: the model, for messages.

    Raises:
        ShapeDisagreementError: element types differ, or shapes of what no operator computes.
    """
    others: list[str] = []
    for declaration in declared:
        value = scope.get(declaration.name)
        if value is None:
            continue
        kind, shape = _difference(declaration, value), _shape_difference(declaration, value, symbols)
        reason = kind or shape
        if reason is None:
            continue
        said = f"the file declares '{declaration.name}' as {declaration}, its operators give {described(value)}"
        if kind is None and declaration.name in makers:
            others.append(f"{said} ({reason})")
        else:
            raise ShapeDisagreementError(
                f"{said} ({reason})",
                where=str(makers.get(declaration.name, where)),
                hint="export the model again, or drop its value_info and run onnx.shape_inference",
            )
    if others:
        more = f", and so of {len(others) - 1} more value(s)" if len(others) > 1 else ""
        _log.warning("%s: %s%s: what operators give counts", where, others[0], more)


def _difference(declaration: Declaration, value: Value) -> str | None:
    if declaration.form != form_of(value):
        return "one is no tensor, or holds other things"
    return None if declaration.dtype is value.dtype else "element types differ"


def _shape_difference(declaration: Declaration, value: Value, symbols: Symbols) -> str | None:
    differences = (_difference_of_tensor(declaration, tensor, symbols) for _, tensor in tensors_of("", value))
    return next(filter(None, differences), None)


def _difference_of_tensor(declaration: Declaration, operand: Operand, symbols: Symbols) -> str | None:
    if declaration.shape is None or not _says_something(declaration.shape, symbols):
        return None
    if len(declaration.shape) != operand.rank:
        return "ranks differ"
    for dim, (extent, ours) in enumerate(zip(declaration.shape, operand.shape, strict=True)):
        if operand.count is not None and operand.count.axis == dim:
            continue
        if isinstance(extent, int) and extent != ours:
            return f"dimension {dim} differs"
        if isinstance(extent, str) and symbols.value(extent) is not None:
            other = symbols.bind(extent, ours, f"'{declaration.name}'")
            if other is not None:
                return f"dimension {dim} differs: {other}"
    return None


def _says_something(shape: Sequence[Extent], symbols: Symbols) -> bool:
    """Whether a shape has no dimensions, or one with an extent or a name of the inputs."""
    return not shape or any(isinstance(e, int) or (isinstance(e, str) and symbols.value(e) is not None) for e in shape)
