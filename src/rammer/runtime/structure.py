"""Arguments of a module's call taken apart into arrays, results put together, and both forms as JSON data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rammer.errors import ArgumentError
from rammer.ir.calling import CallForm, Constant, Counted, Fixed, Leaf, Nest, Number, Structure, has_sizes, leaves
from rammer.ir.schema import SchemaError
from rammer.ir.types import DType, TensorType
from rammer.runtime.container import Json
from rammer.runtime.signature import Signature

_DEEPEST = 64


def arrays_of(form: CallForm, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Any]:
    """The arrays in a call's arguments, in the order of the model's inputs.

    Raises:
        ArgumentError: the arguments are not those that the module was compiled for.
    """
    if len(args) > len(form.positional):
        raise ArgumentError(
            f"{len(args)} arguments by position for a module compiled for {len(form.positional)}", hint=_hint(form)
        )
    names = [name for name, _ in form.arguments]
    unknown = [name for name in kwargs if name not in names]
    twice = [name for name in names[: len(args)] if name in kwargs]
    if unknown or twice:
        reason = (
            f"argument '{unknown[0]}' is none that the module was compiled with"
            if unknown
            else f"argument '{twice[0]}' is given twice"
        )
        raise ArgumentError(reason, hint=_hint(form))
    found: list[Any] = []
    for position, (name, structure) in enumerate(form.arguments):
        if position < len(args):
            _take(structure, args[position], name, found)
        elif name in kwargs:
            _take(structure, kwargs[name], name, found)
        elif _has_arrays(structure):
            raise ArgumentError(f"argument '{name}' is missing", hint=_hint(form))
    return found


def _take(structure: Structure, given: object, place: str, found: list[Any]) -> None:
    """Add the arrays of an argument to those found."""
    match structure:
        case Leaf():
            found.append(given)
        case Fixed(value):
            if type(given) is not type(value) or given != value:
                raise ArgumentError(
                    f"argument '{place}' is {given!r}, the module was compiled with {value!r}",
                    hint="compile it once more with this value; values that are no tensors are part of the program",
                )
        case Nest(kind=kind, keys=keys, parts=parts):
            inside = _parts(kind, keys, parts, given, place)
            for key, part, inner in zip(keys or range(len(parts)), parts, inside, strict=True):
                _take(part, inner, f"{place}.{key}", found)


def _parts(
    kind: str, keys: Sequence[Constant], parts: Sequence[Structure], given: object, place: str
) -> Sequence[object]:
    """What an argument has in place of each part of a container."""
    if kind in ("tuple", "list"):
        if isinstance(given, list | tuple) and len(given) == len(parts):
            return given
    elif isinstance(given, Mapping):
        if set(given) == set(keys):
            return [given[key] for key in keys]
    elif kind != "dict" and all(isinstance(key, str) and hasattr(given, key) for key in keys):
        return [getattr(given, str(key)) for key in keys]
    raise ArgumentError(
        f"argument '{place}' is {_described(given)}, the module was compiled with {kind} of {list(keys) or len(parts)}",
        hint="give what has the same form as the example that the module was compiled with",
    )


def _described(given: object) -> str:
    if isinstance(given, Mapping):
        return f"{type(given).__name__} of {list(given)}"
    return f"{type(given).__name__} of {len(given)}" if isinstance(given, list | tuple) else type(given).__name__


def _has_arrays(structure: Structure) -> bool:
    return isinstance(structure, Leaf) or (isinstance(structure, Nest) and any(map(_has_arrays, structure.parts)))


def _hint(form: CallForm) -> str:
    return f"the module takes ({', '.join(name for name, _ in form.arguments)})"


def form_to_json(form: CallForm) -> Json:
    """A form as JSON data."""
    return {
        "positional": [[name, _to_json(part)] for name, part in form.positional],
        "named": [[name, _to_json(part)] for name, part in form.named],
        "result": _to_json(form.result),
    }


def _to_json(structure: Structure) -> Json:
    match structure:
        case Leaf(name):
            return {"array": name}
        case Counted(name, axis, count):
            return {"counted": name, "axis": axis, "count": count}
        case Number(name):
            return {"number": name}
        case Fixed(value):
            return {"fixed": value}
        case Nest(kind=kind, keys=keys, parts=parts, context=context):
            return {"kind": kind, "keys": list(keys), "parts": [_to_json(part) for part in parts], "context": context}


def form_from_json(data: Any, signature: Signature) -> CallForm:  # noqa: ANN401 - whatever a file holds
    """The form that `form_to_json` wrote.

    Raises:
        SchemaError: it has another form, or its arrays are not those of the signature.
    """
    try:
        positional, named = (
            tuple((_text(name), _from_json(part, 0)) for name, part in data[side]) for side in ("positional", "named")
        )
        form = CallForm(positional=positional, named=named, result=_from_json(data["result"], 0))
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"its call form is none: {error}") from error
    taken = [name for _, part in form.arguments for name in leaves(part)]
    given = list(leaves(form.result))
    if taken != [port.name for port in signature.inputs] or given != [port.name for port in signature.outputs]:
        raise SchemaError("its call form has other arrays than its signature")
    types = {port.name: port.type for port in signature.outputs}
    if any(has_sizes(part) for _, part in form.arguments) or not _is_sized(form.result, types):
        raise SchemaError("its call form has sizes or numbers that are none")
    return form


def _is_sized(structure: Structure, types: Mapping[str, TensorType]) -> bool:
    """Whether numbers are one element each, and dimensions that are cut are there."""
    match structure:
        case Nest(parts=parts):
            return all(_is_sized(part, types) for part in parts)
        case Counted(name, axis, count):
            number = types[count]
            return axis < types[name].rank and number.size == 1 and number.dtype is DType.INT64
        case Number(name):
            return types[name].size == 1
    return True


def _from_json(data: Any, depth: int) -> Structure:  # noqa: ANN401 - as `form_from_json`
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if "array" in data:
        return Leaf(_text(data["array"]))
    if "counted" in data:
        return Counted(_text(data["counted"]), _position(data["axis"]), _text(data["count"]))
    if "number" in data:
        return Number(_text(data["number"]))
    if "fixed" in data:
        return Fixed(_constant(data["fixed"]))
    keys, parts = tuple(map(_constant, data["keys"])), tuple(_from_json(part, depth + 1) for part in data["parts"])
    kind = _text(data["kind"])
    if len(keys) != (0 if kind in ("tuple", "list") else len(parts)):
        raise ValueError(f"{len(keys)} keys for {len(parts)} parts")
    return Nest(kind=kind, keys=keys, parts=parts, context=_text(data["context"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no name")
    return value


def _position(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _DEEPEST:
        raise TypeError(f"{value!r} is no axis")
    return value


def _constant(value: object) -> Constant:
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TypeError(f"{value!r} is no constant")
    return value
