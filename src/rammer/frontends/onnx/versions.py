"""Models of operator sets before the oldest that converters know are brought up to it by ONNX's own converter."""

from __future__ import annotations

import logging
from dataclasses import replace

import onnx
from onnx import version_converter

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.onnx.checking import OLDEST_OPSET, domain_of, subgraphs
from rammer.frontends.onnx.reading import Model

_log = logging.getLogger(__name__)

_FIRST_SCAN_OF_TODAY = 9
_FIRST_PRELU_OF_TODAY = 7
_FIRST_RESIZE_OF_TODAY = 11
_CHANNELS_LAST_RANK = 2  # of up to so many dimensions the channels are the last


def brought_up(model: Model) -> Model:
    """The model, of operator set 13 where its own is older; operators that still mean the same are not touched.

    Raises:
        UnsupportedFeatureError: ONNX's converter cannot convert it.
    """
    versions = [entry.version for entry in model.proto.opset_import if entry.domain in ("", "ai.onnx")]
    if len(versions) != 1 or not 0 < versions[0] < OLDEST_OPSET or model.proto.functions:
        return model
    if all(_means_the_same(node, versions[0]) for node in model.proto.graph.node):
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        for entry in proto.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = OLDEST_OPSET
        _log.info("%s: read as of operator set %d instead of %d", model.name, OLDEST_OPSET, versions[0])
        return replace(model, proto=proto)
    if any(node.op_type == "Scan" for node in model.proto.graph.node) and versions[0] < _FIRST_SCAN_OF_TODAY:
        raise UnsupportedFeatureError(
            f"Scan of opset {versions[0]}, which has a batch dimension", where=model.name, hint="export it anew"
        )
    older = _with_slopes_of_channels(model.proto) if versions[0] < _FIRST_PRELU_OF_TODAY else model.proto
    try:
        # What it raises depends on the adapter, so that nothing narrower than Exception is known.
        proto = version_converter.convert_version(older, OLDEST_OPSET)
    except Exception as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise UnsupportedFeatureError(
            f"opset {versions[0]}, which ONNX's version converter cannot bring up to {OLDEST_OPSET}: {reason}",
            where=model.name,
            hint=f"export with opset {OLDEST_OPSET} or later",
        ) from error
    if versions[0] < _FIRST_RESIZE_OF_TODAY:
        _resize_as_before(proto.graph)
    _log.warning("%s: ONNX's converter brought it from operator set %d up to %d", model.name, versions[0], OLDEST_OPSET)
    return replace(model, proto=proto)


def _with_slopes_of_channels(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Slopes of PRelu, one for each channel, along the channels' axis: ONNX's converter leaves them along the last."""
    if all(node.op_type != "PRelu" for node in proto.graph.node):
        return proto
    changed = onnx.shape_inference.infer_shapes(proto)
    graph = changed.graph
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer} | {
        value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.input, *graph.value_info)
    }
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        if node.op_type == "PRelu":
            values, slopes = node.input
            if ranks.get(slopes) == 1 and ranks.get(values, 0) > _CHANNELS_LAST_RANK:
                node.input[1] = f"{node.output[0]}.slopes"
                axes = list(range(1, ranks[values] - 1))
                graph.node.append(onnx.helper.make_node("Unsqueeze", [slopes], [node.input[1]], axes=axes))
        graph.node.append(node)
    return changed


def _resize_as_before(graph: onnx.GraphProto) -> None:
    """Coordinates of Resize, and of Upsample, that ONNX's converter leaves to defaults which they did not have."""
    for node in graph.node:
        if node.op_type == "Resize":
            for name, value in (("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")):
                node.attribute.append(onnx.helper.make_attribute(name, value))
        for inner in subgraphs(node):
            _resize_as_before(inner)


def _means_the_same(node: onnx.NodeProto, version: int) -> bool:
    """Whether a node's operator has not changed from a version to the oldest that is read."""
    if domain_of(node):
        return True
    if not onnx.defs.has(node.op_type) or any(attribute.HasField("g") for attribute in node.attribute):
        return False
    try:
        then, now = (onnx.defs.get_schema(node.op_type, opset).since_version for opset in (version, OLDEST_OPSET))
    except onnx.defs.SchemaError:
        return False
    return then == now
