"""From a captured program to a graph: what its inputs and outputs stand for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument
from torch.fx import Node as FxNode

from rammer.errors import DataDependentError, MutatedInputError, UnsupportedFeatureError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.counts.count import cleared
from rammer.frontends.dispatch import Imported
from rammer.frontends.fourier import Complex
from rammer.frontends.randomness import RandomStreams
from rammer.frontends.torch.forms import form_of
from rammer.frontends.torch.importer import Importer, has_effects, missing_operators, refuse
from rammer.frontends.torch.types import array_of, type_of
from rammer.ir.calling import Counted, Fixed, Leaf, Number, Structure
from rammer.ir.graph import SourceLocation, State


def import_program(program: ExportedProgram, name: str, forward: Callable[..., object] | None) -> Imported:
    """A captured program without mutation as a graph, and the form of its calls.

    Args:
        program: what PyTorch captured.
        name: what messages and reports call the model.
        forward: the module's own function, which names arguments by position; None where it is not known.

    Raises:
        ModelError: it uses what Rammer does not have.
    """
    builder = FoldingBuilder(name)
    random = RandomStreams(builder, name)
    importer = Importer(model=name, builder=builder, random=random)
    nodes = list(program.graph.nodes)
    if has_effects(nodes):
        refuse(missing_operators(nodes, name), name)
    kept = {name: name for name in written_buffers(program)}
    arguments = add_inputs(program, importer, kept)
    states = [state for state, _ in add_states(program, importer, kept).values()]
    importer.convert(nodes, lambda path: attribute_of(program, path))
    outputs, leaves, written = _outputs(program, importer, nodes[-1])
    call_spec = program.call_spec
    form, names = form_of(call_spec.in_spec, call_spec.out_spec, arguments, leaves, forward)
    states += random.states()
    written |= random.following()
    source = SourceLocation(model=name, node="outputs", op_type="output")
    named = [*zip(names, outputs, strict=True), *((f"next {state.name}", written[state.name]) for state in states)]
    graph = builder.finish(named, source, states)
    return Imported(graph=graph, form=form)


def add_inputs(
    program: ExportedProgram, importer: Importer, kept: Collection[str], names: Sequence[str] = ()
) -> list[Structure]:
    """Give placeholders their values; returns what stands for each of the caller's arguments.

    Args:
        program: what PyTorch captured.
        importer: takes the values.
        kept: parameters and buffers that are state, by name; `add_states` gives them theirs.
        names: those of the tensors among the arguments, in order; PyTorch's where none are given.

    Raises:
        UnsupportedFeatureError: an argument is of a kind or type that Rammer does not have.
    """
    arguments: list[Structure] = []
    own_names = iter(names)
    for node, spec in _placeholders(program):
        match spec.kind:
            case InputKind.PARAMETER | InputKind.BUFFER if spec.target in kept:
                continue
            case InputKind.PARAMETER | InputKind.BUFFER | InputKind.CONSTANT_TENSOR:
                where = f"'{spec.target}' of {importer.model}"
                importer.values[node] = importer.constant(_tensor(program, spec), where, str(spec.target))
            case InputKind.USER_INPUT if isinstance(spec.arg, TensorArgument):
                type_ = type_of(node.meta["val"], f"input '{node.name}' of {importer.model}")
                name = next(own_names, node.name)
                importer.values[node] = importer.builder.input(name, type_)
                arguments.append(Leaf(name))
            case InputKind.USER_INPUT if isinstance(spec.arg, ConstantArgument):
                importer.values[node] = spec.arg.value
                arguments.append(Fixed(constant_of(spec.arg.value, f"argument '{node.name}' of {importer.model}")))
            case _:
                raise UnsupportedFeatureError(
                    f"an argument that is {spec.kind.name.lower()}", where=f"'{node.name}' of {importer.model}"
                )
    return arguments


def written_buffers(program: ExportedProgram) -> list[str]:
    """The names of the buffers that the module writes to."""
    return list(program.graph_signature.buffers_to_mutate.values())


def add_states(
    program: ExportedProgram, importer: Importer, kept: Mapping[str, str]
) -> dict[str, tuple[State, Operand]]:
    """Make inputs, behind all others, of parameters and buffers that are state.

    Args:
        program: what PyTorch captured.
        importer: takes the values.
        kept: the states' names by those in the program; parameters that are one tensor share a name.
    """
    states: dict[str, tuple[State, Operand]] = {}
    for node, spec in _placeholders(program):
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER) or spec.target not in kept:
            continue
        name = kept[spec.target]
        if name not in states:
            where = f"'{name}' of {importer.model}"
            value = importer.builder.input(name, type_of(node.meta["val"], where))
            states[name] = (State(name=name, initial=array_of(_tensor(program, spec), where).copy()), value)
        importer.values[node] = states[name][1]
    return states


def _placeholders(program: ExportedProgram) -> Iterator[tuple[FxNode, InputSpec]]:
    nodes = (node for node in program.graph.nodes if node.op == "placeholder")
    return zip(nodes, program.graph_signature.input_specs, strict=True)


def _tensor(program: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    """A parameter, buffer or constant; buffers that are not persistent are among the constants."""
    found: torch.Tensor | None = program.state_dict.get(spec.target)
    return program.constants[spec.target] if found is None else found


def attribute_of(program: ExportedProgram, path: str) -> Any:
    """The program's own object at a path of names."""
    found: Any = program.graph_module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _outputs(
    program: ExportedProgram, importer: Importer, output: FxNode
) -> tuple[list[Operand], list[Structure], dict[str, Operand]]:
    """The operands of the results, what stands for each leaf of these, and the buffers' new values."""
    outputs: list[Operand] = []
    written: dict[str, Operand] = {}
    leaves: list[Structure] = []
    for node, spec in zip(output.args[0], program.graph_signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            raise MutatedInputError(
                f"the module writes to its argument '{spec.target}'",
                where=importer.model,
                hint="return the new value instead, or register a buffer, which becomes state",
            )
        if spec.kind is OutputKind.BUFFER_MUTATION and isinstance(found := importer.values[node], Operand):
            check_size(found, f"buffer '{spec.target}' of {importer.model}")
            written[str(spec.target)] = found
            continue
        if spec.kind is not OutputKind.USER_OUTPUT:
            raise UnsupportedFeatureError(f"the module writes to '{spec.target}'", where=importer.model)
        value = importer.values[node] if isinstance(node, FxNode) else node
        if isinstance(value, Operand) and value.count is not None:
            outputs += (cleared(importer.builder, str(node), value, importer.model), value.count.value)
            leaves.append(Counted("", value.count.axis, ""))
        elif isinstance(value, Operand):
            outputs.append(value)
            leaves.append(Leaf("") if isinstance(node.meta["val"], torch.Tensor) else Number(""))
        elif isinstance(value, Complex):
            type_of(node.meta["val"], f"a result of {importer.model}")  # which says that there are none
        else:
            leaves.append(Fixed(constant_of(value, f"a result of {importer.model}")))
    return outputs, leaves, written


def check_size(operand: Operand, where: str, hint: str = "give it one size, by torch.where and masks") -> None:
    """Check that a tensor that is kept, or given where nobody can cut it, has a known size.

    Raises:
        DataDependentError: it depends on the values of tensors.
    """
    if operand.count is not None:
        raise DataDependentError("its size depends on the values of tensors", where=where, hint=hint)


def constant_of(value: object, where: str) -> bool | int | float | str | None:
    """What is no tensor, and part of the program.

    Raises:
        UnsupportedFeatureError: it is neither a number nor text nor None.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UnsupportedFeatureError(f"{value!r} in place of a tensor", where=where, hint="use numbers, text or None")
