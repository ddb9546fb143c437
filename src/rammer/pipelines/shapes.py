"""Which dimensions of a model calls may be padded along: shown on its graphs, before any program is compiled."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.errors import OptionError, UnsupportedFeatureError
from rammer.frontends.dispatch import Family, Imported
from rammer.ir.dimensions import Dim, Dynamic
from rammer.ir.graph import Graph
from rammer.passes import unroll
from rammer.runtime.dynamic import Place, ShapePlan
from rammer.runtime.programs import Shapes
from rammer.verify.rows import Batch, DependentRowsError, independent_rows

_LEAST = 2
"""Extents of 1 may broadcast: what is shown for others says nothing of them, and nothing is padded up to 1."""


def plan_shapes(family: Family, dynamic: Dynamic) -> tuple[ShapePlan, Imported]:
    """Find out which dimensions can be padded, and where they are in the results; with the model for some shapes.

    Raises:
        ModelError: the model cannot be used.
        OptionError: a mask is no input along its dimension, or a result's dimension is computed from a masked one.
    """
    dims = {dim.name: dim for axes in dynamic.values() for dim in axes.values()}
    inputs = tuple(
        tuple(Place(axis, dim.name) for axis, dim in sorted(dynamic.get(name, {}).items())) for name in family.names
    )
    plan = ShapePlan(
        dimensions=tuple(dims.values()),
        padded=frozenset(),
        shapes=family.shapes,
        inputs=inputs,
        outputs=(),
        reasons={},
    )
    small = {name: max(dim.low, _LEAST) for name, dim in dims.items()}
    base = family.at(plan.shapes_for(small))
    if base.graph.states:
        raise UnsupportedFeatureError(
            f"several shapes for a model that keeps '{base.graph.states[0].name}'", hint="compile it for one shape"
        )
    outputs: list[list[Place]] = [[] for _ in base.graph.outputs]
    reasons: dict[str, str] = {}
    for name, dim in dims.items():
        if not family.uniform:
            reasons[name] = "what is computed may be chosen by the shape"
            continue
        try:
            found = _padded_outputs(family, plan, dim, small, base)
        except DependentRowsError as error:
            reasons[name] = str(error)
            continue
        for position, axis in found.items():
            outputs[position].append(Place(axis, name))
    found_plan = ShapePlan(
        dimensions=plan.dimensions,
        padded=frozenset(dims) - frozenset(reasons),
        shapes=plan.shapes,
        inputs=inputs,
        outputs=tuple(map(tuple, outputs)),
        reasons=reasons,
    )
    return found_plan, base


def check_rows(family: Family, plan: ShapePlan, shapes: Shapes, imported: Imported) -> None:
    """Show for a program's own graph what `plan_shapes` has shown for a small one.

    Raises:
        UnsupportedFeatureError: the rows of this program cannot be shown to be independent.
    """
    extents = {name: shape[axis] for shape, places in zip(shapes, plan.inputs, strict=True) for axis, name in places}
    for dim in plan.dimensions:
        rows = extents[dim.name]
        if dim.name not in plan.padded or dim.mask is not None or rows < _LEAST:
            continue
        try:
            _padded_outputs(family, plan, dim, extents, imported)
        except DependentRowsError as error:
            raise UnsupportedFeatureError(
                f"{rows} rows along '{dim.name}': {error}", hint="give buckets that are smaller, or an exact shape"
            ) from error


def _padded_outputs(
    family: Family, plan: ShapePlan, dim: Dim, extents: Mapping[str, int], imported: Imported
) -> dict[int, int]:
    """The axis of a dimension in each result that has it, for a model that may be padded along it.

    Args:
        family: gives the model for one more extent.
        plan: the inputs' shapes.
        dim: the dimension.
        extents: those of `imported`.
        imported: the model.

    Raises:
        DependentRowsError: what is computed may depend on the padding.
        OptionError: as for `plan_shapes`.
    """
    here = extents[dim.name]
    there = here + 1 if here == _LEAST else max(_LEAST, min(dim.low, here - 1))
    other = family.at(plan.shapes_for({**extents, dim.name: there}))
    if other.form != imported.form:
        raise DependentRowsError("the results nest in another way, or have another number in them")
    if dim.mask is not None:
        return _masked_outputs(plan, dim, imported.graph, other.graph, (here, there))
    places: dict[int, int] = {}
    for position, along in enumerate(plan.inputs):
        axes = [axis for axis, name in along if name == dim.name]
        if len(axes) > 1:
            raise DependentRowsError("an input has it twice")
        if axes:
            places[position] = axes[0]
    batches = sorted(
        (Batch(graph=unroll.run(graph), rows=rows) for graph, rows in ((imported.graph, here), (other.graph, there))),
        key=lambda batch: batch.rows,
    )
    return independent_rows(batches[0], batches[1], places)


def _masked_outputs(plan: ShapePlan, dim: Dim, graph: Graph, other: Graph, extents: tuple[int, int]) -> dict[int, int]:
    """The axis in each result that is as long as the dimension."""
    inputs = {graph.values[value].name: places for value, places in zip(graph.inputs, plan.inputs, strict=True)}
    if not any(name == dim.name for _, name in inputs.get(str(dim.mask), ())):
        raise OptionError(f"mask '{dim.mask}' of '{dim.name}'", hint="name an input that has this dimension")
    found: dict[int, int] = {}
    for position, (a, b) in enumerate(zip(graph.outputs, other.outputs, strict=True)):
        value, shape = graph.values[a], other.values[b].type.shape
        longer = [axis for axis, (x, y) in enumerate(zip(value.type.shape, shape, strict=True)) if x != y]
        if not longer:
            continue
        if len(longer) > 1 or (value.type.shape[longer[0]], shape[longer[0]]) != extents:
            raise OptionError(
                f"output '{value.name}' has a dimension that is computed from '{dim.name}'", hint="leave out the mask"
            )
        found[position] = longer[0]
    return found
