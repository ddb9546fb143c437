"""Resizing of images of which a number counts that depends on the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.counts.count import known, vector
from rammer.frontends.onnx.flow.rule import Rule, along, first_alone, ordinary, scalars
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


def _resize(node: Node, converter: Converter) -> Sequence[Value | None]:
    """The counted dimension is not named, or stays as it is: by a scale of 1, or a size that is the count."""
    x, count = first_alone(node)
    named = node.integers("axes") if node.has("axes") else None
    axes = tuple(range(x.rank)) if named is None else node.axes(named, x.rank)
    scales, sizes = node.optional(2), scalars(node, 3)
    if count.axis not in axes or sizes is None:
        return along(node, converter(node), count.axis, count.value)
    place = axes.index(count.axis)
    if sizes:
        policy = node.text("keep_aspect_ratio_policy") if node.has("keep_aspect_ratio_policy") else "stretch"
        stays = policy == "stretch" and place < len(sizes) and node.builder.are_equal(sizes[place], count.value)
    else:
        factors = () if scales is None or scales.array is None else tuple(scales.array.flat)
        stays = place < len(factors) and factors[place] == 1
    if not stays or node.text("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise node.refusal("it is resized along that dimension")
    if not sizes:
        return along(node, converter(node), count.axis, count.value)
    extents = [x.shape[count.axis] if own == place else known(size) for own, size in enumerate(sizes)]
    if None in extents:
        raise node.refusal("another dimension is resized, as far as the model computes")
    whole = vector(node, [extent or 0 for extent in extents])
    return along(node, ordinary(node, converter, None, None, None, whole), count.axis, count.value)


RULES: Mapping[str, Rule] = {"Resize": _resize}
