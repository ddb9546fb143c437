"""RandWire (Xie et al., ICCV 2019): stages of randomly wired nodes, in the small regime that IOS measures (MLSys 2021).

A stage is a random graph of Watts and Strogatz: a ring in which every node knows its nearest neighbours, some edges of
which lead elsewhere; an edge points from the lower to the higher number. A node weights and sums what it reads, then
ReLU, separable convolution and batch normalisation. Nodes without inputs read the stage's input at stride two, and the
stage's output is the mean of the nodes that nobody reads.
"""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder, Value

NEIGHBOURS = 4
REWIRED = 0.75
STAGES = 3
EPSILON = 1e-5


def edges(
    rng: np.random.Generator, nodes: int, neighbours: int = NEIGHBOURS, rewired: float = REWIRED
) -> set[tuple[int, int]]:
    """The edges of a random graph, each from its lower to its higher node.

    Args:
        rng: draws which edges lead elsewhere, and where to.
        nodes: at least `neighbours` + 2.
        neighbours: of a node on the ring, even.
        rewired: the probability of an edge to lead elsewhere.
    """
    linked = {(node, (node + step) % nodes) for node in range(nodes) for step in range(1, neighbours // 2 + 1)}
    for node, other in sorted(linked):
        if rng.random() < rewired:
            known = {b for a, b in linked if a == node} | {a for a, b in linked if b == node} | {node}
            free = [target for target in range(nodes) if target not in known]
            if free:
                linked.remove((node, other))
                linked.add((node, int(rng.choice(free))))
    return {(min(edge), max(edge)) for edge in linked}


def build(
    *, seed: int = 0, batch: int = 1, nodes: int = 32, channels: int = 78, image: int = 224, classes: int = 1000
) -> onnx.ModelProto:
    """A stem, three stages of `nodes` nodes, each with twice the channels of the one before, and a classifier.

    Input `image` (batch, 3, image, image), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("randwire")
    x = graph.input("image", (batch, 3, image, image))
    for name, outputs in (("stem.0", channels // 2), ("stem.1", channels)):
        x = operators.conv(
            graph, name, x, weights.scaled_normal(rng, (outputs, x.shape[1], 3, 3)), stride=(2, 2), pad=(1, 1)
        )
        x = operators.batch_norm(graph, f"{name}.bn", x, weights.batch_norm(rng, outputs), epsilon=EPSILON)
    for stage in range(STAGES):
        x = _stage(graph, rng, f"stages.{stage}", x, nodes, channels << stage)
    x = operators.relu(graph, "head.relu", x)
    x = operators.conv(graph, "head.conv", x, weights.scaled_normal(rng, (1280, x.shape[1], 1, 1)))
    x = operators.relu(
        graph, "head.last", operators.batch_norm(graph, "head.bn", x, weights.batch_norm(rng, 1280), epsilon=EPSILON)
    )
    x = operators.global_average(graph, "pool", x)
    fc = weights.scaled_normal(rng, (classes, x.shape[1]))
    return graph.build(operators.linear(graph, "fc", x, fc, bias=weights.bias(rng, classes)))


def _stage(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, nodes: int, channels: int) -> Value:
    wired = edges(rng, nodes)
    results: list[Value] = []
    for node in range(nodes):
        read = [results[source] for source, target in sorted(wired) if target == node]
        own = f"{name}.{node}"
        results.append(_node(graph, rng, own, _sum(graph, rng, own, read) if read else x, channels, 1 if read else 2))
    last = [results[node] for node in range(nodes) if all(source != node for source, _ in wired)]
    total = last[0]
    for number, other in enumerate(last[1:]):
        total = operators.add(graph, f"{name}.total{number}", total, other)
    share = graph.constant(np.array(1 / len(last), dtype=np.float32))
    return graph.node("Mul", f"{name}.mean", [total, share], total.shape)


def _sum(graph: GraphBuilder, rng: np.random.Generator, name: str, read: list[Value]) -> Value:
    """What a node reads, each by a weight between 0 and 1."""
    if len(read) == 1:
        return read[0]
    weighted = []
    for number, value in enumerate(read):
        weight = graph.constant(np.array(rng.uniform(0.3, 0.7), dtype=np.float32))
        weighted.append(graph.node("Mul", f"{name}.weighted{number}", [value, weight], value.shape))
    total = weighted[0]
    for number, other in enumerate(weighted[1:]):
        total = operators.add(graph, f"{name}.add{number}", total, other)
    return total


def _node(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, channels: int, stride: int) -> Value:
    x = operators.relu(graph, f"{name}.relu", x)
    depthwise = weights.scaled_normal(rng, (x.shape[1], 1, 3, 3))
    x = operators.conv(graph, f"{name}.depthwise", x, depthwise, stride=(stride, stride), pad=(1, 1), groups=x.shape[1])
    x = operators.conv(
        graph, f"{name}.pointwise", x, weights.scaled_normal(rng, (channels, x.shape[1], 1, 1), gain=1.0)
    )
    return operators.batch_norm(graph, f"{name}.bn", x, weights.batch_norm(rng, channels), epsilon=EPSILON)
