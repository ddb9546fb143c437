"""Reads ONNX models into a graph. The only room that imports `onnx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from rammer.errors import DynamicShapeError, OptionError, UnsupportedFeatureError
from rammer.frontends.builder import FoldingBuilder
from rammer.frontends.counts.count import with_counts
from rammer.frontends.dispatch import Example, Imported, Shapes
from rammer.frontends.onnx.agreement import check_declared
from rammer.frontends.onnx.binding import Declaration, Symbols, bind_inputs, declaration_of, declared_inputs
from rammer.frontends.onnx.checking import check_graph_names, check_version
from rammer.frontends.onnx.contents import read_contents
from rammer.frontends.onnx.converters import CONVERTERS
from rammer.frontends.onnx.fixed import fixed_inputs
from rammer.frontends.onnx.functions import model_functions
from rammer.frontends.onnx.importer import Importer, Scope
from rammer.frontends.onnx.operators import check_operators
from rammer.frontends.onnx.reading import Model, ModelSource, read_model
from rammer.frontends.onnx.sequences import made_of, tensors_of
from rammer.frontends.onnx.states import with_states
from rammer.frontends.onnx.tensors import array_of
from rammer.frontends.onnx.versions import brought_up
from rammer.frontends.randomness import RandomStreams
from rammer.ir.dimensions import Dynamic, Places
from rammer.ir.graph import Graph, SourceLocation
from rammer.options import GivenInputs
from rammer.printable import listing

__all__ = ["ModelSource", "load_family", "load_graph", "load_model", "open_dimensions", "read_contents"]


def load_model(model: ModelSource, example: Example, given: GivenInputs) -> Imported:
    """An ONNX model as a graph; see `load_graph`. Inputs that are states are kept, from zeros on.

    Raises:
        ModelError: the model cannot be used.
        OptionError: what is given does not fit the model, or arguments are, which an ONNX model has no use for.
    """
    if example.args or example.kwargs:
        raise OptionError("args= or kwargs= for an ONNX model", hint="they are for modules; leave them out")
    graph = load_graph(model, input_shapes=given.shapes, constants=given.constants)
    return Imported(graph=with_states(graph, given.states))


def load_family(model: ModelSource, example: Example, given: GivenInputs, dynamic: Dynamic) -> ModelFamily:
    """An ONNX model as graphs for many shapes, some of its inputs constants.

    Raises:
        ModelError: the model cannot be used.
        OptionError: it has no such dimensions, or arguments are given.
    """
    if example.args or example.kwargs:
        raise OptionError("args= or kwargs= for an ONNX model", hint="they are for modules; leave them out")
    return ModelFamily(model, given.constants, dynamic)


class ModelFamily:
    """An ONNX model as a graph for any shapes.

    Attributes:
        names: the names of inputs that are no constants.
        shapes: those that are declared, open dimensions at their least extents.
        uniform: whether there is no control flow, which shapes may decide.
    """

    def __init__(self, model: ModelSource, constants: Mapping[str, npt.NDArray[Any]], dynamic: Dynamic) -> None:
        self._model, self._constants = model, constants
        source = read_model(model)
        graph, where = source.proto.graph, source.name
        self.uniform = not any(node.op_type in ("If", "Loop", "Scan") for node in graph.node)
        declared = [each for each in _declared(source) if each.name not in constants]
        self.names = tuple(each.name for each in declared)
        for name, axes in dynamic.items():
            shape = next((each.shape for each in declared if each.name == name), None)
            if shape is None or not all(0 <= axis < len(shape) and not isinstance(shape[axis], int) for axis in axes):
                raise OptionError(
                    f"dynamic= names dimensions {sorted(axes)} of '{name}'",
                    hint="name open ones; the inputs are " + listing([f"{each.name}: {each}" for each in declared]),
                )
        self.shapes: Shapes = tuple(
            tuple(_extent(dynamic, each, axis, where) for axis in range(len(each.shape or ()))) for each in declared
        )

    def at(self, shapes: Shapes) -> Imported:
        """The graph for the shapes of all inputs.

        Raises:
            ModelError: the model cannot be used with them.
        """
        by_name = dict(zip(self.names, shapes, strict=True))
        return Imported(graph=load_graph(self._model, input_shapes=by_name, constants=self._constants))


def open_dimensions(model: ModelSource) -> Places:
    """Where the dimensions are that a model leaves open and has a name for.

    Raises:
        ModelError: the model cannot be used.
    """
    found: dict[str, list[tuple[str, int]]] = {}
    for each in _declared(read_model(model)):
        for axis, extent in enumerate(each.shape or ()):
            if isinstance(extent, str):
                found.setdefault(extent, []).append((each.name, axis))
    return found


def _declared(source: Model) -> list[Declaration]:
    """The inputs, which all have to be tensors."""
    inputs = declared_inputs(source.proto.graph, (), source.name)
    return [tensor for each in inputs for tensor in each.tensors]


def _extent(dynamic: Dynamic, declared: Declaration, axis: int, where: str) -> int:
    extent = (declared.shape or ())[axis]
    if isinstance(extent, int):
        return extent
    dim = dynamic.get(declared.name, {}).get(axis)
    if dim is None:
        raise DynamicShapeError(
            f"dimension {axis} of input '{declared.name}' is open", where=where, hint="name it in dynamic=, too"
        )
    return dim.low


def load_graph(
    model: ModelSource,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    constants: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Graph:
    """The graph of an ONNX model with static shapes throughout.

    Args:
        model: a path, the bytes of a file, or a message, which is not changed. External data are read from the
            folder of a path only.
        input_shapes: a full shape by input name, where the model leaves dimensions open.
        constants: values of inputs that are to be none, by name.

    Returns:
        a graph whose inputs and outputs have the model's names and order. Of one that is a sequence, each tensor is
        one, `name[0]`, `name[1]` and so on; for inputs, the given shapes say how many there are, and whether an
        optional is there. An empty optional is no output. Initialisers are constants, also where the model declares
        them as inputs with a default. What its random numbers follow from is state.

    Raises:
        ModelNotFoundError: there is no such file, or it cannot be read.
        NotAModelError: it is no ONNX model.
        InvalidModelError: the model breaks ONNX's rules.
        UnsupportedOperatorsError: it uses operators that Rammer does not have; all are listed.
        UnsupportedFeatureError: it uses a form that Rammer does not have.
        DynamicShapeError: dimensions of inputs are open and no shape is given.
        OptionError: a given shape or constant does not fit the model.
        ExternalDataError: a data file is missing, cut short or outside the model's folder.
        ShapeDisagreementError: the file declares other types than its operators give.
        TensorSizeError: a tensor has more dimensions or bytes than any can have.
        OutOfMemoryError: the external data are larger than the memory.
    """
    source = brought_up(read_model(model))
    proto, graph, where = source.proto, source.proto.graph, source.name
    check_version(proto, where)
    functions = model_functions(proto.functions, where)
    check_operators(graph.node, functions, CONVERTERS, where)
    check_graph_names(graph, where)

    builder, scope, symbols = FoldingBuilder(graph.name or where), Scope(), Symbols()
    held_bytes = 0
    for tensor in graph.initializer:
        array = array_of(tensor, source.folder, f"initialiser '{tensor.name}' of {where}", held_bytes)
        held_bytes += array.nbytes
        scope[tensor.name] = builder.constant(array, tensor.name)
    shapes, given = dict(input_shapes or {}), constants or {}
    inputs = declared_inputs(graph, {*shapes, *given}, where)
    tensors = [tensor for each in inputs for tensor in each.tensors]
    fixed = fixed_inputs(tensors, given, shapes, where)
    types = bind_inputs(tensors, shapes | {name: array.shape for name, array in fixed.items()}, symbols, where)
    operands = {
        tensor.name: builder.constant(fixed[tensor.name], tensor.name)
        if tensor.name in fixed
        else builder.input(tensor.name, type_)
        for tensor, type_ in zip(tensors, types, strict=True)
    }
    for each in inputs:
        scope[each.whole.name] = made_of(each.whole.form, [operands[tensor.name] for tensor in each.tensors])

    random = RandomStreams(builder, where)
    importer = Importer(model=source, functions=functions, builder=builder, random=random)
    names = [value.name for value in graph.output]
    makers = importer.convert(graph.node, scope, names, proto.opset_import)
    values = (*graph.input, *graph.value_info, *graph.output)
    typed = [declaration_of(value, where) for value in values if value.type.WhichOneof("value") is not None]
    check_declared(typed, scope, makers, symbols, where)
    results = [(name, value) for name in names if (value := scope[name]) is not None]
    outputs = [each for name, value in results for each in tensors_of(name, value)]
    if not outputs:
        raise UnsupportedFeatureError("all outputs are empty sequences or optionals", where=where)
    outputs = with_counts(builder, outputs, where)
    outputs += ((f"next {name}", operand) for name, operand in random.following().items())
    return builder.finish(outputs, SourceLocation(model=where, node="outputs", op_type="Identity"), random.states())
