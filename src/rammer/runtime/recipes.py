"""Recipes of constants as bytes of a file, read back with every size checked before memory is touched."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from rammer.ir.recipe import FilteredWeights, FilterLine, Recipe, Scaled, Step, Transposed
from rammer.ir.schema import OrNull, Schema, SchemaError, check_schema, read_json
from rammer.ir.types import DType, Layout, Panel

_LINE: Schema = {"stride": int, "groups": int, "matrix": [[float]]}
_STEPS: Mapping[str, Schema] = {
    "scaled": {"shape": [int], "factor": str},
    "transposed": {"order": [int]},
    "filtered": {"rows": _LINE, "columns": _LINE},
}
_LAYOUT: Schema = {"strides": [int], "span": int, "panel": OrNull({"dim": int, "width": int, "stride": int})}
_RECIPE: Schema = {"base": str, "dtype": str, "shape": [int], "steps": [(str, {})], "layout": OrNull(_LAYOUT)}
_MOST_STRIDE = 1 << 48
_MOST_GROWTH = 4096  # times the elements of what a constant is made of, padding included


def recipe_bytes(recipe: Recipe, base: str) -> bytes:
    """A recipe whose base is the section of that name, as JSON, the same each time."""
    return json.dumps(
        {
            "base": base,
            "dtype": DType.of(recipe.base).value,
            "shape": recipe.base.shape,
            "steps": [_step_json(step) for step in recipe.steps],
            "layout": None if recipe.layout is None else asdict(recipe.layout),
        }
    ).encode()


def read_recipe(data: memoryview, sections: Mapping[str, memoryview]) -> Recipe:
    """The recipe that `recipe_bytes` wrote, over sections that are there.

    Raises:
        SchemaError: it has another form, names a section that is missing, or does not fit together.
    """
    fields = read_json(data, _RECIPE, "its recipe")
    shape = tuple(fields["shape"])
    try:
        base = np.frombuffer(sections[fields["base"]], DType(fields["dtype"]).numpy).reshape(shape)
        steps = tuple(_step(kind, body) for kind, body in fields["steps"])
        for step in steps:
            shape = _shape(step, shape)
        layout = Layout.row_major(shape) if fields["layout"] is None else _layout(fields["layout"])
        if not math.prod(shape) <= layout.reach(shape) <= layout.span <= _MOST_GROWTH * base.size:
            raise SchemaError("its recipe does not fit its storage")
    except (KeyError, ValueError, OverflowError, TypeError) as error:
        raise SchemaError(f"its recipe does not fit together: {error}") from error
    return Recipe(base=base, steps=steps, layout=layout)


def _step_json(step: Step) -> tuple[str, Mapping[str, Any]]:
    match step:
        case Scaled(factor):
            text = base64.b64encode(np.ascontiguousarray(factor, "<f8").tobytes()).decode()
            return "scaled", {"shape": factor.shape, "factor": text}
        case Transposed(order):
            return "transposed", {"order": order}
        case FilteredWeights(rows=rows, columns=columns):
            return "filtered", {"rows": _line_json(rows), "columns": _line_json(columns)}


def _line_json(line: FilterLine) -> Mapping[str, Any]:
    return {"stride": line.stride, "groups": line.groups, "matrix": line.matrix}


def _step(kind: str, body: Mapping[str, Any]) -> Step:
    check_schema(body, _STEPS[kind], f"its recipe's step '{kind}'")
    match kind:
        case "scaled":
            factor = np.frombuffer(base64.b64decode(body["factor"], validate=True), "<f8")
            return Scaled(factor.reshape(body["shape"]))
        case "transposed":
            return Transposed(tuple(body["order"]))
        case _:
            return FilteredWeights(rows=_line(body["rows"]), columns=_line(body["columns"]))


def _line(body: Mapping[str, Any]) -> FilterLine:
    matrix = tuple(tuple(map(float, row)) for row in body["matrix"])
    if not matrix or not matrix[0] or len(set(map(len, matrix))) > 1 or not body["stride"]:
        raise ValueError("a filter without points, taps or stride")
    return FilterLine(stride=body["stride"], groups=body["groups"], matrix=matrix)


def _layout(body: Mapping[str, Any]) -> Layout:
    panel = body["panel"]
    if panel is not None and not panel["width"]:
        raise ValueError("panels of no width")
    if max([*body["strides"], 0 if panel is None else panel["stride"]], default=0) > _MOST_STRIDE:
        raise ValueError("strides beyond all memory")  # of a single index nobody takes a step
    return Layout(
        strides=tuple(body["strides"]),
        span=body["span"],
        panel=None if panel is None else Panel(dim=panel["dim"], width=panel["width"], stride=panel["stride"]),
    )


def _shape(step: Step, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape after a step."""
    match step:
        case Scaled(factor):
            if np.broadcast_shapes(shape, factor.shape) != shape:
                raise ValueError(f"factors {factor.shape} for {shape}")
            return shape
        case Transposed(order):
            if sorted(order) != list(range(len(shape))):
                raise ValueError(f"the order {order} for {shape}")
            return tuple(shape[dim] for dim in order)
        case FilteredWeights(rows=rows, columns=columns):
            features, channels, *taps = shape
            sums = [_sums(line, count) for line, count in zip((rows, columns), taps, strict=True)]
            return len(rows.matrix) * len(columns.matrix), features, channels, *sums


def _sums(line: FilterLine, taps: int) -> int:
    """Phases times groups of a line of so many taps."""
    if line.groups != -(-taps // (line.stride * len(line.matrix[0]))):
        raise ValueError(f"{line.groups} groups for {taps} taps")
    return min(line.stride, taps) * line.groups
