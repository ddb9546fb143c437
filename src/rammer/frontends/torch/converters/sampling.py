"""Elements between elements, at positions that another operand holds."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.frontends.torch.node import Converter, Node, Result

_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")
"""By PyTorch's numbers."""


def _grid_sample(node: Node) -> Result:
    mode, padding = _MODES[node.integer("interpolation_mode")], _PADDINGS[node.integer("padding_mode")]
    x, grid = node.operand("input"), node.operand("grid")
    return node.add("GridSample", x, grid, mode=mode, padding=padding, align_corners=node.flag("align_corners"))


CONVERTERS: Mapping[str, Converter] = {
    "grid_sampler_2d": _grid_sample,
    "grid_sampler_3d": _grid_sample,
}
