"""The form of a module's calls, from what PyTorch recorded of the example's."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.counts.count import COUNT_SUFFIX
from rammer.frontends.torch.private import Tree, made, tree_of
from rammer.ir.calling import CallForm, Constant, Counted, Fixed, Leaf, Nest, Number, Structure

_CONTAINERS: dict[object, str] = {tuple: "tuple", list: "list", dict: "dict"}


def form_of(
    inputs: Any,
    results: Any,
    arguments: Sequence[Structure],
    leaves: Sequence[Structure],
    forward: Callable[..., object] | None,
) -> tuple[CallForm, list[str]]:
    """The form of a call, and the names of the outputs.

    Args:
        inputs: PyTorch's description of (args, kwargs).
        results: that of the result.
        arguments: what stands for each leaf of the arguments.
        leaves: what stands for each leaf of the result, with names that are not used.
        forward: the module's own function, which names arguments by position; None where it is not known.

    Raises:
        UnsupportedFeatureError: they nest in objects of a class that PyTorch cannot take apart by names.
    """
    args, kwargs = tree_of(inputs).parts
    names = positional_names(forward, len(args.parts))
    leaf = iter(arguments)
    positional = tuple(
        (name, _structure(part, name, lambda _: next(leaf))) for name, part in zip(names, args.parts, strict=True)
    )
    by_name = tuple(
        (str(name), _structure(part, str(name), lambda _: next(leaf)))
        for name, part in zip(kwargs.context or (), kwargs.parts, strict=True)
    )
    outputs: list[str] = []
    value = iter(leaves)

    def named(name: str) -> str:
        outputs.append(_unused(name, outputs))
        return outputs[-1]

    def result_leaf(path: str) -> Structure:
        name = path or "output"
        match next(value):
            case Fixed(constant):
                return Fixed(constant)
            case Counted(axis=axis):
                return Counted(named(name), axis, named(name + COUNT_SUFFIX))
            case Number():
                return Number(named(name))
        return Leaf(named(name))

    result = _structure(tree_of(results), "", result_leaf)
    return CallForm(positional=positional, named=by_name, result=result), outputs


def make(nest: Nest, parts: Sequence[object]) -> object:
    """An object of the class that a container names; a dictionary where PyTorch does not know the class here."""
    found = made(nest.kind, parts, json.loads(nest.context))
    return dict(zip(nest.keys, parts, strict=True)) if found is None else found


def _structure(tree: Tree, path: str, leaf: Callable[[str], Structure]) -> Structure:
    if tree.type is None:
        return leaf(path)
    kind = _CONTAINERS.get(tree.type)
    keys = tuple(range(len(tree.parts))) if kind in ("tuple", "list") else _keys(tree)
    prefix = f"{path}." if path else ("output." if kind in ("tuple", "list") else "")
    parts = tuple(_structure(part, f"{prefix}{key}", leaf) for key, part in zip(keys, tree.parts, strict=True))
    if kind is not None:
        return Nest(kind=kind, keys=() if kind in ("tuple", "list") else keys, parts=parts)
    return Nest(kind=tree.name, keys=keys, parts=parts, context=_context(tree))


def _keys(tree: Tree) -> tuple[Constant, ...]:
    """The names of an object's parts: PyTorch records them in several ways; numbers where it does not."""
    for names in (tree.context, *(tree.context[:1] if isinstance(tree.context, list | tuple) else ())):
        fits = isinstance(names, list | tuple) and len(names) == len(tree.parts)
        if fits and all(isinstance(name, str | int) for name in names):
            return tuple(names)
    fields = getattr(tree.context, "_fields", None)
    return tuple(fields) if fields is not None else tuple(range(len(tree.parts)))


def _context(tree: Tree) -> str:
    if hasattr(tree.context, "_fields"):  # of a named tuple it is the class, which its name stands for
        return "null"
    try:
        return json.dumps(tree.context)
    except TypeError as error:
        raise UnsupportedFeatureError(
            f"arguments or results in {tree.name}, which PyTorch takes apart in a way that cannot be saved",
            hint="use tuples, lists, dictionaries, dataclasses or named tuples",
        ) from error


def positional_names(forward: Callable[..., object] | None, count: int) -> list[str]:
    """The names of the first parameters of a function; those of `*args` are numbered."""
    names: list[str] = []
    for parameter in inspect.signature(forward).parameters.values() if forward is not None else ():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return [names[i] if i < len(names) else f"args.{i}" for i in range(count)]


def _unused(name: str, taken: Sequence[str]) -> str:
    return next(n for i in range(len(taken) + 1) if (n := f"{name}.{i}" if i else name) not in taken)
