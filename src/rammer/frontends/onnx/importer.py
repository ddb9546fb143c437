"""The walk over a model's nodes: each is checked, handed to its converter, and its results named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import checker

from rammer.errors import InvalidModelError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.onnx.checking import default_opset, domain_of, node_names, node_order
from rammer.frontends.onnx.converters import CONVERTERS
from rammer.frontends.onnx.functions import FunctionId, function_id, instantiate, standard_function
from rammer.frontends.onnx.node import Node
from rammer.frontends.onnx.reading import Model
from rammer.frontends.onnx.signatures import check_operands
from rammer.ir.graph import SourceLocation

Scope = dict[str, Operand | None]
"""Operands by name; None for an operand that a function's caller left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """Converts nodes into operators of the builder's graph."""

    model: Model
    functions: Mapping[FunctionId, onnx.FunctionProto]
    builder: FoldingBuilder

    def convert(
        self,
        nodes: Sequence[onnx.NodeProto],
        scope: Scope,
        outputs: Sequence[str],
        imports: Sequence[onnx.OperatorSetIdProto],
        prefix: str = "",
    ) -> dict[str, SourceLocation]:
        """Convert a graph's or a function's nodes and add their results to `scope`.

        Args:
            nodes: in any order.
            scope: inputs and initialisers.
            outputs: names that must be in the scope afterwards.
            imports: the operator sets in force.
            prefix: put before the nodes' names; the path of calls.

        Returns:
            the node that made each value.

        Raises:
            ModelError: the nodes break a rule or use a form that Rammer does not have.
        """
        where = f"{prefix.rstrip('/')} of {self.model.name}" if prefix else self.model.name
        opset = default_opset(imports, where)
        context = checker.C.CheckerContext()
        context.ir_version = onnx.IR_VERSION
        context.opset_imports = {entry.domain: entry.version for entry in imports} | {"": opset}
        names = node_names(nodes, prefix)
        makers: dict[str, SourceLocation] = {}
        for position in node_order(nodes, names, scope, outputs, where):
            node = nodes[position]
            location = SourceLocation(model=self.model.name, node=names[position], op_type=node.op_type)
            operands = tuple(scope[name] if name else None for name in node.input)
            results = self._results(node, operands, location, opset, context)
            for output, (name, result) in enumerate(zip(node.output, results, strict=False)):
                if name and result is None:
                    raise InvalidModelError(f"its output {output} is not computed", where=str(location))
                if name and result is not None:
                    self.builder.name(result, prefix + name)
                    scope[name] = result
                    makers[name] = location
        return makers

    def _results(
        self,
        proto: onnx.NodeProto,
        operands: tuple[Operand | None, ...],
        location: SourceLocation,
        opset: int,
        context: checker.C.CheckerContext,
    ) -> Sequence[Operand | None]:
        function = self.functions.get(function_id(proto))
        if function is not None:
            defaults = {attribute.name: attribute for attribute in function.attribute_proto}
            return self._call(function, proto, operands, defaults, location)
        try:
            checker.check_node(_without_data(proto), context)
        except checker.ValidationError as error:
            raise InvalidModelError(_first_line(error), where=str(location)) from error
        node = Node(
            proto=proto,
            schema=onnx.defs.get_schema(proto.op_type, opset),
            opset=opset,
            location=location,
            inputs=operands,
            builder=self.builder,
            folder=self.model.folder,
        )
        check_operands(node)
        converter = CONVERTERS.get(proto.op_type)
        results = self._standard(node) if converter is None else converter(node)
        for position in range(len(results), len(proto.output)):
            if node.wants(position):
                raise node.unsupported(f"output {position} ('{proto.output[position]}') is not computed")
        return results

    def _standard(self, node: Node) -> Sequence[Operand | None]:
        """The results of an operator by ONNX's definition of it."""
        types = [None if operand is None else operand.type for operand in node.inputs]
        function = standard_function(node.proto, node.schema, node.opset, types)
        if function is None:
            raise node.unsupported("ONNX gives it no definition in simpler operators for these operands")
        defaults = {name: a.default_value for name, a in node.schema.attributes.items() if a.default_value.name}
        return self._call(function, node.proto, node.inputs, defaults, node.location)

    def _call(
        self,
        function: onnx.FunctionProto,
        call: onnx.NodeProto,
        operands: Sequence[Operand | None],
        defaults: Mapping[str, onnx.AttributeProto],
        location: SourceLocation,
    ) -> Sequence[Operand | None]:
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
        else:
            bare.attribute.add().CopyFrom(attribute)
    return bare


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), "it breaks a rule of ONNX")
