"""Static shapes for a model's inputs: what the file says, what the user says, and symbols that tie them together."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from rammer.errors import DynamicShapeError, InvalidModelError, OptionError, UnsupportedFeatureError
from rammer.frontends.onnx.sequences import TENSOR, Form, declared_form
from rammer.frontends.onnx.tensors import checked_shape, dtype_of
from rammer.ir.types import DType, TensorType
from rammer.printable import listing

Extent = int | str | None
"""A declared extent: known, a symbol, or nothing at all."""


_UNKNOWN = -1
_UNKNOWN_NAMES = ("", "?", "-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What the file says about a value; `shape` is None where not even the rank is known.

    Of sequences and optionals, dtype and shape are those of their tensors; names of extents are left out of sequences,
    whose tensors may differ.
    """

    name: str
    dtype: DType
    shape: tuple[Extent, ...] | None
    form: Form = TENSOR

    def __str__(self) -> str:
        extents = "..." if self.shape is None else ",".join("?" if e is None else str(e) for e in self.shape)
        return self.form.of(f"{self.dtype.value}[{extents}]")


class Symbols:
    """Values of symbolic dimensions, each with the place that gave it first."""

    def __init__(self) -> None:
        self._bound: dict[str, tuple[int, str]] = {}

    def value(self, symbol: str) -> int | None:
        """The value of a symbol, None where it has none yet."""
        return self._bound[symbol][0] if symbol in self._bound else None

    def bind(self, symbol: str, extent: int, place: str) -> str | None:
        """Give a symbol its value; a different value is not taken, and where the first came from is returned."""
        value, first = self._bound.setdefault(symbol, (extent, place))
        return None if value == extent else f"{symbol} = {value} from {first}"


def declaration_of(value: onnx.ValueInfoProto, where: str) -> Declaration:
    """The declared type of a value.

    Raises:
        InvalidModelError: it has none, or an extent is negative.
        UnsupportedFeatureError: it is made of no tensors, or of an element type that Rammer does not have.
    """
    kind = value.type.WhichOneof("value")
    if kind is None:
        raise InvalidModelError(f"'{value.name}' is declared without a type", where=where)
    declared = declared_form(value.type)
    if declared is None:
        raise UnsupportedFeatureError(
            f"'{value.name}' is a {kind.removesuffix('_type').replace('_', ' ')}, made of other things than tensors",
            where=where,
        )
    form, tensor = declared
    place = f"'{value.name}' of {where}"
    dtype = dtype_of(tensor.elem_type, place)
    if not tensor.HasField("shape"):
        return Declaration(name=value.name, dtype=dtype, shape=None, form=form)
    shape = tuple(_extent(dim) for dim in tensor.shape.dim)
    if form.is_sequence:
        shape = tuple(extent if isinstance(extent, int) else None for extent in shape)
    checked_shape((extent for extent in shape if isinstance(extent, int)), place)
    return Declaration(name=value.name, dtype=dtype, shape=shape, form=form)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredInput:
    """An input of the file, and the tensors that it is made of, each an input of the program."""

    whole: Declaration
    tensors: tuple[Declaration, ...]


def declared_inputs(graph: onnx.GraphProto, given: Collection[str], where: str) -> list[DeclaredInput]:
    """A graph's inputs, without initialisers that are declared as such.

    Args:
        graph: the graph.
        given: names that shapes are given for: of a sequence `x[0]`, `x[1]` and so on, of an optional its own.
        where: the model, for messages.

    Raises:
        InvalidModelError: an input has no type, an extent is negative, or a tensor is called as another input is.
        UnsupportedFeatureError: an input is made of no tensors, of an element type that Rammer does not have, or of
            tensors for which no shape is given.
    """
    constants = {tensor.name for tensor in graph.initializer}
    declared = [declaration_of(value, where) for value in graph.input if value.name not in constants]
    inputs = [DeclaredInput(whole=whole, tensors=_tensors(whole, given, where)) for whole in declared]
    for name, times in Counter(tensor.name for each in inputs for tensor in each.tensors).items():
        if times > 1:
            raise InvalidModelError(f"an input is called '{name}', as a tensor of another is", where=where)
    return inputs


def _tensors(declared: Declaration, given: Collection[str], where: str) -> tuple[Declaration, ...]:
    """The tensors of an input."""
    if declared.form == TENSOR:
        return (declared,)
    name, first, unknown = declared.name, declared.name, "whether it is there"
    names: tuple[str, ...] = (name,) if name in given else ()
    if declared.form.is_sequence:
        names = tuple(itertools.takewhile(given.__contains__, (f"{name}[{i}]" for i in itertools.count())))
        first, unknown = f"{name}[0]", "how many tensors it holds"
    if not names:
        raise UnsupportedFeatureError(
            f"input '{name}' is {declared}: {unknown} has to be known",
            where=where,
            hint=f"give shapes for what it holds, as in `--shape '{first}=2,3'` or input_shapes={{'{first}': (2, 3)}}; "
            "if that is nothing, let the model make it by SequenceEmpty or Optional",
        )
    return tuple(replace(declared, name=each, form=TENSOR) for each in names)


def bind_inputs(
    declared: Sequence[Declaration], given: Mapping[str, Sequence[int]], symbols: Symbols, where: str
) -> tuple[TensorType, ...]:
    """Static types of the inputs, in their order.

    Args:
        declared: the inputs, without those that are initialisers.
        given: the user's shapes by input name, and values of dimensions, each a shape of one, by theirs.
        symbols: gets the value of every symbol of the inputs.
        where: the model, for messages.

    Raises:
        OptionError: a given shape does not fit the input, the name is unknown, or a symbol gets two values.
        DynamicShapeError: dimensions are left without a value.
    """
    names = [declaration.name for declaration in declared]
    dimensions = sorted({extent for one in declared for extent in one.shape or () if isinstance(extent, str)})
    wanted = {name: _integers(shape, f"'{name}' of {where}") for name, shape in given.items()}
    for name, shape in wanted.items():
        if name in dimensions and name not in names and len(shape) == 1 and shape[0] >= 0:
            symbols.bind(name, shape[0], f"the value given for '{name}'")
        elif name not in names:
            known = f"inputs are {listing(names)}" + (f"; dimensions {listing(dimensions)}" if dimensions else "")
            raise OptionError(f"a shape is given for '{name}', which is no input", where=where, hint=known)
    for declaration in declared:
        if declaration.name in wanted:
            _bind(declaration, wanted[declaration.name], symbols, where)
    shapes = [wanted.get(declaration.name, _resolved(declaration, symbols)) for declaration in declared]
    unbound = [
        (declaration, shape)
        for declaration, shape in zip(declared, shapes, strict=True)
        if shape is None or not all(isinstance(extent, int) for extent in shape)
    ]
    if unbound:
        raise _dynamic(unbound, where)
    return tuple(
        TensorType(
            declaration.dtype,
            checked_shape((e for e in shape or () if isinstance(e, int)), f"input '{declaration.name}' of {where}"),
        )
        for declaration, shape in zip(declared, shapes, strict=True)
    )


def _extent(dim: onnx.TensorShapeProto.Dimension) -> Extent:
    """A declared extent; exporters write -1 and "?", too, where they know nothing of one."""
    match dim.WhichOneof("value"):
        case "dim_value":
            return None if dim.dim_value == _UNKNOWN else dim.dim_value
        case "dim_param":
            return dim.dim_param if dim.dim_param not in _UNKNOWN_NAMES else None
        case _:
            return None


def _integers(shape: Sequence[int], place: str) -> tuple[int, ...]:
    try:
        return tuple(operator.index(extent) for extent in shape)
    except TypeError as error:
        raise OptionError(
            f"the given shape {shape!r} is no sequence of integers", where=place, hint="give a tuple, as in (8, 3)"
        ) from error


def _bind(declaration: Declaration, shape: tuple[int, ...], symbols: Symbols, where: str) -> None:
    """Check a given shape against the declared one and bind its symbols."""
    place = f"input '{declaration.name}' of {where}"
    if any(extent < 0 for extent in shape):
        raise OptionError(
            f"the given shape {list(shape)} has a negative extent", where=place, hint="extents are 0 or more"
        )
    if declaration.shape is None:
        return
    if len(shape) != len(declaration.shape):
        raise OptionError(
            f"the given shape {list(shape)} has rank {len(shape)}, the model declares {declaration}",
            where=place,
            hint=f"give {len(declaration.shape)} extents",
        )
    for dim, (extent, known) in enumerate(zip(shape, declaration.shape, strict=True)):
        if isinstance(known, int) and extent != known:
            raise OptionError(
                f"the given shape {list(shape)} contradicts dimension {dim} of the declared {declaration}",
                where=place,
                hint=f"give {known} there; to have it open, export the model with a symbolic dimension",
            )
        if isinstance(known, str):
            other = symbols.bind(known, extent, f"input '{declaration.name}'")
            if other is not None:
                raise OptionError(
                    f"the given shape {list(shape)} makes {known} = {extent}, but {other}",
                    where=place,
                    hint="give dimensions of one name the same value",
                )


def _resolved(declaration: Declaration, symbols: Symbols) -> tuple[Extent, ...] | None:
    """The declared shape with the symbols that have a value replaced."""
    return None if declaration.shape is None else tuple(_known(extent, symbols) for extent in declaration.shape)


def _known(extent: Extent, symbols: Symbols) -> Extent:
    """A symbol's value where it has one, else the extent as it is."""
    if not isinstance(extent, str):
        return extent
    value = symbols.value(extent)
    return extent if value is None else value


def _dynamic(unbound: Sequence[tuple[Declaration, tuple[Extent, ...] | None]], where: str) -> DynamicShapeError:
    """The error that lists every open dimension and spells the option that closes them."""
    open_dims = []
    for declaration, shape in unbound:
        if shape is None:
            open_dims.append(f"input '{declaration.name}' has no declared shape")
        else:
            dims = {dim: extent for dim, extent in enumerate(shape) if not isinstance(extent, int)}
            told = ", ".join(f"{dim}" if extent is None else f"{dim} ({extent})" for dim, extent in dims.items())
            open_dims.append(f"input '{declaration.name}' {declaration} has no value for dimension {told}")
    # By their names, where all that are open have one.
    shapes = {one.name: shape or (None,) for one, shape in unbound if shape is None or None in shape}
    bound = {extent for shape in shapes.values() for extent in shape}
    names = {extent for _, shape in unbound for extent in shape or () if isinstance(extent, str)} - bound
    wanted: dict[str, int | tuple[int, ...]] = dict.fromkeys(sorted(map(str, names)), 1)
    for name, shape in shapes.items():
        wanted[name] = tuple(extent if isinstance(extent, int) else 1 for extent in shape)
    options = " ".join(f"--shape {name}={str(shape).strip('(,)').replace(' ', '')}" for name, shape in wanted.items())
    return DynamicShapeError(
        listing(open_dims, "; "),
        where=where,
        hint=f"Rammer compiles static shapes: give yours, as in `{options}` or input_shapes={wanted}; "
        "for several, see dynamic= and docs/shapes.md",
    )
