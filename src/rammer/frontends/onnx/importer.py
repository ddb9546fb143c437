"""The walk over a model's nodes: each is checked, handed to its converter, and its results named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import onnx
from onnx import checker

from rammer.errors import InvalidModelError, UnsupportedFeatureError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.onnx import custom, flow, microsoft
from rammer.frontends.onnx.checking import (
    STRAYS,
    domain_of,
    full_name,
    imported_opsets,
    names_read,
    node_names,
    node_order,
)
from rammer.frontends.onnx.converters import CONVERTERS
from rammer.frontends.onnx.functions import FunctionId, function_id, instantiate, standard_function
from rammer.frontends.onnx.node import Node
from rammer.frontends.onnx.reach import Reach
from rammer.frontends.onnx.reading import Model
from rammer.frontends.onnx.sequences import Value, mapped, optional_of, tensors_of
from rammer.frontends.onnx.signatures import check_operands
from rammer.frontends.onnx.tensors import array_of
from rammer.frontends.randomness import RandomStreams
from rammer.ir.graph import Graph, SourceLocation
from rammer.operators.registry import CustomDef, custom_definitions

Scope = dict[str, Value | None]
"""Values by name; None for an operand that a function's caller left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What the nodes of one graph share: the values in sight, the operator sets in force."""

    scope: Scope
    imports: Sequence[onnx.OperatorSetIdProto]
    versions: Mapping[str, int]
    context: checker.C.CheckerContext
    reach: Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Converts nodes into operators of the builder's graph."""

    model: Model
    functions: Mapping[FunctionId, onnx.FunctionProto]
    builder: FoldingBuilder
    random: RandomStreams | None

    def convert(
        self,
        nodes: Sequence[onnx.NodeProto],
        scope: Scope,
        outputs: Sequence[str],
        imports: Sequence[onnx.OperatorSetIdProto],
        prefix: str = "",
        rows: Mapping[str, int | None] = MappingProxyType({}),
    ) -> dict[str, SourceLocation]:
        """Convert a graph's or a function's nodes and add their results to `scope`.

        Args:
            nodes: in any order.
            scope: inputs and initialisers.
            outputs: names that must be in the scope afterwards.
            imports: the operator sets in force.
            prefix: put before the nodes' names; the path of calls.
            rows: how many are read of outputs of which not all are.

        Returns:
            the node that made each value.

        Raises:
            ModelError: the nodes break a rule or use a form that Rammer does not have.
        """
        where = f"{prefix.rstrip('/')} of {self.model.name}" if prefix else self.model.name
        versions = imported_opsets(imports, {domain_of(node) for node in nodes}, where)
        if any(node.op_type in STRAYS for node in nodes):
            versions = {microsoft.DOMAIN: 1} | versions
        context = checker.C.CheckerContext()
        context.ir_version = onnx.IR_VERSION
        context.opset_imports = versions
        read = dict.fromkeys(outputs) | dict(rows)
        reach = Reach(nodes=nodes, outputs=read, scope=scope, folder=self.model.folder)
        frame = _Frame(scope=scope, imports=imports, versions=versions, context=context, reach=reach)
        names = node_names(nodes, prefix)
        makers: dict[str, SourceLocation] = {}
        for position in node_order(nodes, names, scope, outputs, where):
            node = nodes[position]
            location = SourceLocation(model=self.model.name, node=names[position], op_type=node.op_type)
            operands = tuple(scope[name] if name else None for name in node.input)
            results = self._results(node, operands, location, frame)
            for output, (name, result) in enumerate(zip(node.output, results, strict=False)):
                if name and result is None:
                    raise InvalidModelError(f"its output {output} is not computed", where=str(location))
                if name and result is not None:
                    for own, tensor in tensors_of(prefix + name, result):
                        self.builder.name(tensor, own)
                    scope[name] = result
                    makers[name] = location
        return makers

    def _results(
        self,
        proto: onnx.NodeProto,
        operands: tuple[Value | None, ...],
        location: SourceLocation,
        frame: _Frame,
    ) -> Sequence[Value | None]:
        function = self.functions.get(function_id(proto))
        if function is not None:
            defaults = {attribute.name: attribute for attribute in function.attribute_proto}
            return self._call(function, proto, operands, defaults, location)
        try:
            checker.check_node(_without_data(proto), frame.context)
        except checker.ValidationError as error:
            raise InvalidModelError(_first_line(error), where=str(location)) from error
        domain = domain_of(proto)
        if domain not in frame.versions:
            raise InvalidModelError(f"no version of the operators of '{domain}' is imported", where=str(location))
        opset = frame.versions[domain]
        own = custom_definitions().get(full_name(proto))
        node = Node(
            proto=proto,
            schema=_schema(proto, opset, own),
            opset=opset,
            location=location,
            inputs=operands,
            builder=self.builder,
            folder=self.model.folder,
            random=self.random,
            rows=partial(frame.reach.rows, proto.output[0]),
            enter=partial(self.enter, frame, location, outputs=proto.output),
            apart=lambda graph: _Alone(self, frame, location, graph),
        )
        check_operands(node)
        converter = CONVERTERS.get(full_name(proto)) if own is None else partial(custom.convert, own)
        results = flow.convert(node, converter or self._standard)
        for position in range(len(results), len(proto.output)):
            if node.wants(position):
                raise node.unsupported(f"output {position} ('{proto.output[position]}') is not computed")
        return results

    def enter(
        self,
        frame: _Frame,
        location: SourceLocation,
        graph: onnx.GraphProto,
        inputs: Sequence[Value],
        part: str,
        outputs: Sequence[str] = (),
    ) -> Sequence[Value]:
        """The outputs of a graph in an attribute, which sees the values around its node.

        Of an `If` that has these outputs, they are its own, and their sizes may depend on the data.
        """
        where = str(location)
        if len(inputs) != len(graph.input):
            raise InvalidModelError(
                f"its graph '{graph.name}' has {len(graph.input)} input(s), not {len(inputs)}", where=where
            )
        if graph.sparse_initializer:
            raise UnsupportedFeatureError("sparse initialiser(s)", where=where, hint="store them dense")
        read = names_read(graph)
        scope: Scope = {name: operand for name, operand in frame.scope.items() if name in read}
        prefix = f"{location.node}/{part}/"
        for tensor in graph.initializer:
            array = array_of(tensor, self.model.folder, f"initialiser '{tensor.name}' of {where}")
            scope[tensor.name] = self.builder.constant(array, prefix + tensor.name)
        for info, value in zip(graph.input, inputs, strict=True):  # a trip may have made what an optional holds
            scope[info.name] = optional_of(value) if info.type.HasField("optional_type") else value
        names = [value.name for value in graph.output]
        is_branch = location.op_type == "If"
        is_alone = is_branch and len({*names}) == len(names)  # what is given twice, several read
        rows = {own: frame.reach.rows(name) for own, name in zip(names, outputs, strict=False)} if is_alone else {}
        self.convert(graph.node, scope, names, frame.imports, prefix, rows)
        results = [scope[name] for name in names]
        if None in results:
            raise InvalidModelError(f"an output of its graph '{graph.name}' is left out", where=where)
        for name, result in zip(names, results, strict=True):
            if not is_branch and isinstance(result, Operand) and result.count is not None:
                raise UnsupportedFeatureError(f"'{name}' has a size that depends on the data", where=where)
        return [result for result in results if result is not None]

    def _standard(self, node: Node) -> Sequence[Value | None]:
        """The results of an operator by ONNX's definition of it."""
        operands = map(node.optional, range(len(node.inputs)))
        types = [None if operand is None else operand.type for operand in operands]
        function = standard_function(node.proto, node.schema, node.opset, types)
        if function is None:
            raise node.unsupported("ONNX gives it no definition in simpler operators for these operands")
        defaults = {name: a.default_value for name, a in node.schema.attributes.items() if a.default_value.name}
        return self._call(function, node.proto, node.inputs, defaults, node.location)

    def _call(
        self,
        function: onnx.FunctionProto,
        call: onnx.NodeProto,
        operands: Sequence[Value | None],
        defaults: Mapping[str, onnx.AttributeProto],
        location: SourceLocation,
    ) -> Sequence[Value | None]:
        """The results of a function's body."""
        if len(operands) > len(function.input) or len(call.output) > len(function.output):
            raise InvalidModelError(
                f"the function {function.name} has {len(function.input)} input(s) and {len(function.output)} "
                f"output(s), the node {len(operands)} and {len(call.output)}",
                where=str(location),
            )
        scope: Scope = dict.fromkeys(function.input)
        scope.update(zip(function.input, operands, strict=False))
        nodes = instantiate(function, call, defaults)
        wanted = [own for own, outside in zip(function.output, call.output, strict=False) if outside]
        self.convert(nodes, scope, wanted, function.opset_import, f"{location.node}/")
        return [scope.get(name) for name in function.output]


class _Alone:
    """See `rammer.frontends.onnx.node.Alone`. Constants around the node are constants of the graph, too."""

    def __init__(self, importer: Importer, frame: _Frame, location: SourceLocation, graph: onnx.GraphProto) -> None:
        self.builder = FoldingBuilder(location.node)
        self._importer, self._frame = replace(importer, builder=self.builder, random=None), frame
        self._location, self._graph = location, graph
        self._around: list[Operand] = []

    def convert(self, inputs: Sequence[Operand]) -> Sequence[Value]:
        """Add the operators, and before them an input for each value around the node that they read."""
        graph, known = self._graph, dict[Operand, Operand]()
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        read = names_read(graph) - own - {output for node in graph.node for output in node.output}
        around = {name: value for name, value in self._frame.scope.items() if name in read and value is not None}
        tensors = [each for name, value in around.items() for each in tensors_of(name, value)]
        for name, operand in tensors:
            if operand.array is None and operand not in known:
                if operand.count is not None:
                    raise UnsupportedFeatureError(
                        f"'{name}' has a size that depends on data", where=str(self._location)
                    )
                known[operand] = self.builder.input(operand.name, operand.type)
                self._around.append(operand)
        inside = {name: mapped(lambda operand: known.get(operand, operand), value) for name, value in around.items()}
        scope: Scope = {**self._frame.scope, **inside}
        frame = replace(self._frame, scope=scope)
        return self._importer.enter(frame, self._location, graph, inputs, "trip")

    def finish(self, outputs: Sequence[Operand]) -> tuple[Graph, Sequence[Operand]]:
        """The graph and the values around it."""
        named = [(operand.name, operand) for operand in outputs]
        return self.builder.finish(named, self._location), self._around


def _schema(proto: onnx.NodeProto, opset: int, own: CustomDef | None) -> onnx.defs.OpSchema:
    """The schema of a node's operator."""
    if own is not None:
        return custom.schema(own, proto)
    domain = domain_of(proto)
    if domain == microsoft.DOMAIN:
        return microsoft.schema(proto.op_type)
    return onnx.defs.get_schema(proto.op_type, opset, domain)


def _without_data(node: onnx.NodeProto) -> onnx.NodeProto:
    """The node as ONNX's checker takes it: its domain spelled as in the schemas, tensors empty.

    Their data are checked when they are read; the checker would look for data files in the working directory.
    """
    bare = onnx.NodeProto(op_type=node.op_type, domain=domain_of(node), name=node.name)
    bare.input.extend(node.input)
    bare.output.extend(node.output)
    for attribute in node.attribute:
        if attribute.HasField("t"):
            empty = onnx.TensorProto(data_type=attribute.t.data_type, dims=[0])
            bare.attribute.add(name=attribute.name, type=attribute.type, t=empty)
        elif attribute.HasField("g"):  # its nodes are checked one by one
            bare.attribute.add(name=attribute.name, type=attribute.type, g=onnx.GraphProto(name="graph"))
        else:
            bare.attribute.add().CopyFrom(attribute)
    return bare


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "it breaks a rule of ONNX")
