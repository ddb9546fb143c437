"""What must hold of a model before any node is read: versions, known operators, names, and an order of the nodes."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import onnx

from rammer.errors import InvalidModelError, UnsupportedFeatureError

OLDEST_OPSET = 13

_DEFAULT_DOMAINS = ("", "ai.onnx")
STRAYS = ("SimplifiedLayerNormalization",)
"""Operators of `com.microsoft` that ONNX Runtime's optimiser writes into ONNX's domain."""


def domain_of(node: onnx.NodeProto) -> str:
    """A node's domain; ONNX's own has two spellings, of which the empty one is given."""
    if node.op_type in STRAYS:
        return "com.microsoft"
    return "" if node.domain in _DEFAULT_DOMAINS else node.domain


def full_name(node: onnx.NodeProto) -> str:
    """An operator's name, with its domain where that is not ONNX's own."""
    domain = domain_of(node)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def subgraphs(node: onnx.NodeProto) -> tuple[onnx.GraphProto, ...]:
    """The graphs that a node's attributes hold."""
    return tuple(attribute.g for attribute in node.attribute if attribute.HasField("g"))


def values_read(node: onnx.NodeProto) -> tuple[str, ...]:
    """What a node reads: its inputs, and values from outside that its graphs use."""
    names = dict.fromkeys(filter(None, node.input))
    for graph in subgraphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        own.update(output for inner in graph.node for output in inner.output)
        read = [name for inner in graph.node for name in values_read(inner)]
        names.update(dict.fromkeys(name for name in (*read, *(v.name for v in graph.output)) if name not in own))
    return tuple(names)


def names_read(graph: onnx.GraphProto) -> set[str]:
    """The names that a graph's nodes and outputs use, its own among them."""
    return {name for node in graph.node for name in values_read(node)} | {value.name for value in graph.output}


def check_version(proto: onnx.ModelProto, where: str) -> None:
    """Check that the file format and the operator set are ones that Rammer reads.

    Raises:
        InvalidModelError: the model does not give its format.
        UnsupportedFeatureError: the format is newer than the installed onnx, or the operators too old or too new.
    """
    if not proto.ir_version:
        raise InvalidModelError("the model does not give its IR version", where=where)
    if proto.ir_version > onnx.IR_VERSION:
        raise UnsupportedFeatureError(
            f"IR version {proto.ir_version}; the installed onnx knows versions up to {onnx.IR_VERSION}",
            where=where,
            hint="install a newer onnx package, or export the model with an older one",
        )
    _opset_versions(proto.opset_import, where)


def imported_opsets(imports: Sequence[onnx.OperatorSetIdProto], domains: Collection[str], where: str) -> dict[str, int]:
    """The versions of the operators that a model or a function imports, by domain.

    Args:
        imports: as they are listed.
        domains: those that its nodes use.
        where: the model, for messages.

    Raises:
        InvalidModelError: ONNX's own operators are used, and there is no version of them, or there are two.
        UnsupportedFeatureError: their version is not one that Rammer reads.
    """
    found = {entry.domain: entry.version for entry in imports if entry.domain not in _DEFAULT_DOMAINS}
    versions = _opset_versions(imports, where)
    if len(versions) == 1:
        return found | {"": versions[0]}
    if "" in domains or versions:
        several = " and ".join(map(str, versions)) or "none"
        raise InvalidModelError(f"one version of ONNX's operators must be imported, found {several}", where=where)
    return found


def _opset_versions(imports: Iterable[onnx.OperatorSetIdProto], where: str) -> list[int]:
    """The imported versions of ONNX's own operators, each checked."""
    versions = sorted({opset.version for opset in imports if opset.domain in _DEFAULT_DOMAINS})
    newest = onnx.defs.onnx_opset_version()
    for version in versions:
        if version < OLDEST_OPSET:
            raise UnsupportedFeatureError(
                f"opset {version}; Rammer reads opsets {OLDEST_OPSET} to {newest}",
                where=where,
                hint=f"export with opset {OLDEST_OPSET} or later, or convert: "
                f"onnx.version_converter.convert_version(model, {OLDEST_OPSET})",
            )
        if version > newest:
            raise UnsupportedFeatureError(
                f"opset {version}; the installed onnx knows opsets up to {newest}",
                where=where,
                hint=f"install a newer onnx package, or export with opset {newest}",
            )
    return versions


def node_names(nodes: Sequence[onnx.NodeProto], prefix: str = "") -> tuple[str, ...]:
    """A unique name for each node: its own, `OpType_index` where it has none, `name_index` where it is taken."""
    names: dict[str, None] = {}
    for index, node in enumerate(nodes):
        name = prefix + (node.name or f"{node.op_type}_{index}")
        while name in names:
            name = f"{name}_{index}"
        names[name] = None
    return tuple(names)


def check_graph_names(graph: onnx.GraphProto, where: str) -> None:
    """Check that inputs, initialisers and outputs have names of their own.

    An initialiser may share its name with an input, whose value it then is.

    Raises:
        InvalidModelError: a name is missing or used twice, or there are no outputs.
        UnsupportedFeatureError: there are sparse initialisers.
    """
    if graph.sparse_initializer:
        raise UnsupportedFeatureError(
            f"{len(graph.sparse_initializer)} sparse initialiser(s)", where=where, hint="store them dense"
        )
    if not graph.output:
        raise InvalidModelError("the graph has no outputs", where=where)
    groups = {
        "input": [value.name for value in graph.input],
        "initialiser": [tensor.name for tensor in graph.initializer],
        "output": [value.name for value in graph.output],
    }
    for group, names in groups.items():
        for name, count in Counter(names).items():
            if not name:
                raise InvalidModelError(f"an {group} of the graph has no name", where=where)
            if count > 1:
                raise InvalidModelError(f"{count} {group}s of the graph are named '{name}'", where=where)


def node_order(
    nodes: Sequence[onnx.NodeProto], names: Sequence[str], given: Collection[str], outputs: Iterable[str], where: str
) -> tuple[int, ...]:
    """Positions of the nodes in a topological order, the file's own where it is one.

    Args:
        nodes: a graph's or a function's nodes.
        names: what messages call them.
        given: values that exist without a node: inputs and initialisers.
        outputs: values that must exist afterwards.
        where: the graph, for messages.

    Raises:
        InvalidModelError: a value has two producers or none, or the nodes form a cycle.
    """
    producers: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for output in filter(None, node.output):
            if output in given or output in producers:
                other = f"node '{names[producers[output]]}'" if output in producers else "an input or initialiser"
                raise InvalidModelError(
                    f"value '{output}' is made by node '{names[position]}' and by {other}", where=where
                )
            producers[output] = position
    needs = [_needs(node, name, given, producers, where) for node, name in zip(nodes, names, strict=True)]
    for output in outputs:
        if output not in given and output not in producers:
            raise InvalidModelError(f"no node makes the output '{output}'", where=where)
    order = _sorted(needs)
    if len(order) < len(nodes):
        raise InvalidModelError(f"the nodes form a cycle: {_cycle(needs, set(order), names)}", where=where)
    return order


def _needs(
    node: onnx.NodeProto, name: str, given: Collection[str], producers: dict[str, int], where: str
) -> tuple[int, ...]:
    """Positions of the nodes whose outputs a node reads."""
    read = values_read(node)
    for value in read:
        if value not in given and value not in producers:
            raise InvalidModelError(f"node '{name}' reads '{value}', which nothing makes", where=where)
    return tuple(dict.fromkeys(producers[value] for value in read if value in producers))


def _sorted(needs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The earliest position first among those whose needs are met; positions on or behind a cycle are left out."""
    waiting = [len(needed) for needed in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for position, needed in enumerate(needs):
        for producer in needed:
            readers[producer].append(position)
    ready = [position for position, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return tuple(order)


def _cycle(needs: Sequence[Sequence[int]], done: Collection[int], names: Sequence[str]) -> str:
    """The names along one cycle, in the direction of the data: among the rest, every node needs one of the rest."""
    trail = [next(position for position in range(len(needs)) if position not in done)]
    while True:
        producer = next(position for position in needs[trail[-1]] if position not in done)
        if producer in trail:
            loop = [producer, *reversed(trail[trail.index(producer) :])]
            return " -> ".join(f"'{names[position]}'" for position in loop)
        trail.append(producer)
