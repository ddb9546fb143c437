"""From a loss of a module and an optimiser to a graph: forward, backward and update, on states that it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node as FxNode

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.dispatch import Example, Imported
from rammer.frontends.node import ModelNode
from rammer.frontends.randomness import RandomStreams
from rammer.frontends.torch.capture import capture_step
from rammer.frontends.torch.culprits import placed
from rammer.frontends.torch.forms import form_of, positional_names
from rammer.frontends.torch.importer import Importer, missing_operators, refuse
from rammer.frontends.torch.optimizers import Moment, Term
from rammer.frontends.torch.owner import COUNT, KEPT, RATE, Owner
from rammer.frontends.torch.private import check_version, flattened, nested
from rammer.frontends.torch.program import (
    add_inputs,
    add_states,
    attribute_of,
    check_size,
    constant_of,
    written_buffers,
)
from rammer.ir.calling import Fixed, Leaf, Structure
from rammer.ir.graph import SourceLocation, State
from rammer.ir.types import DType, TensorType

_MODULE = "module."
"""The prefix of names in a program that was captured from `_Step`."""


class _Step(torch.nn.Module):  # type: ignore[misc]  # PyTorch is untyped here
    """A function of a module and other arguments, as a module that takes the tensors among them alone.

    Attributes:
        arguments: what stands for each leaf of the arguments.
        spec: how the arguments nest.
        tensors: those that the step is captured with.
    """

    def __init__(self, function: Callable[..., Any], module: torch.nn.Module, example: Example) -> None:
        super().__init__()
        self.function = function
        self.module = module
        self._leaves, paths, self.spec = flattened((example.args, dict(example.kwargs)))
        positional = positional_names(partial(function, module), len(example.args))
        self.arguments: list[Structure] = []
        for leaf, (named, first, *rest) in zip(self._leaves, paths, strict=True):
            place = ".".join(map(str, (first if named else positional[int(str(first))], *rest)))
            fixed = None if isinstance(leaf, torch.Tensor) else Fixed(constant_of(leaf, f"argument '{place}'"))
            self.arguments.append(fixed or Leaf(place))
        self.tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]

    def forward(self, *tensors: Any) -> Any:
        given = iter(tensors)
        leaves = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        args, kwargs = nested(leaves, self.spec)
        return self.function(self.module, *args, **kwargs)


def load_step(
    function: Callable[..., Any],
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    example: Example,
) -> Imported:
    """A training step as a graph, whose states are parameters, buffers and what the optimiser keeps.

    Args:
        function: gives the loss, a scalar, of the module and the example's arguments; further results may follow it.
        module: whose parameters are trained.
        optimizer: SGD, Adam or AdamW of them.
        example: the arguments that the step is captured with.

    Raises:
        ModelError: the step cannot be captured, or uses what Rammer does not have.
        DeviceUnavailableError: PyTorch is too old.
    """
    check_version()
    name = type(module).__name__
    step = _Step(function, module, example)
    program, forward = capture_step(step, step.tensors, {}, name)
    if missing := missing_operators(list(program.graph.nodes), name):
        refuse(placed(missing, forward, name), name)
    names = _names(program, module)
    gradients = {names[target]: node for target, node in _outputs(program, OutputKind.GRADIENT_TO_PARAMETER)}
    owner = Owner(module, optimizer, gradients)
    trained = {parameter for parameters, _ in owner.groups for parameter in parameters}
    written = set(written_buffers(program))
    kept = {target: own for target, own in names.items() if own in trained or target in written}
    builder = FoldingBuilder(name)
    random = RandomStreams(builder, name)
    importer = Importer(model=name, builder=builder, random=random)
    add_inputs(program, importer, kept, [leaf.name for leaf in step.arguments if isinstance(leaf, Leaf)])
    states = add_states(program, importer, kept)
    update = _Update(builder, owner, name)
    importer.convert(list(program.graph.nodes), lambda path: attribute_of(program, path))
    following = {
        names[target]: _tensor(importer, node) for target, node in _outputs(program, OutputKind.BUFFER_MUTATION)
    }
    values = {parameter: value for parameter, (_, value) in states.items()}
    following |= update.add(values, {parameter: _tensor(importer, node) for parameter, node in gradients.items()})
    following |= random.following()
    results = [node for kind in (OutputKind.LOSS_OUTPUT, OutputKind.USER_OUTPUT) for _, node in _outputs(program, kind)]
    out_spec, leaves = program.call_spec.out_spec, [Leaf("")] * len(results)
    form, outputs = form_of(step.spec, out_spec, step.arguments, leaves, partial(function, module))
    all_states = [*(state for state, _ in states.values()), *update.states, *random.states()]
    source = SourceLocation(model=name, node="outputs", op_type="output")
    named = [*zip(outputs, (_tensor(importer, node) for node in results), strict=True)]
    named += ((f"next {state.name}", following[state.name]) for state in all_states)
    return Imported(graph=builder.finish(named, source, all_states), form=form, owner=owner)


def _names(program: ExportedProgram, module: torch.nn.Module) -> dict[str, str]:
    """The module's names of parameters and buffers by those in the program; a shared tensor has its first name."""
    signature = program.graph_signature
    tensors = {**dict(module.named_parameters(remove_duplicate=False)), **dict(module.named_buffers())}
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(id(tensor), name)
    targets = [target for target in (*signature.parameters, *signature.buffers) if target.startswith(_MODULE)]
    return {target: first[id(tensors[target.removeprefix(_MODULE)])] for target in targets}


def _outputs(program: ExportedProgram, kind: OutputKind) -> Iterator[tuple[str, FxNode]]:
    """What the outputs of a kind are for, and the nodes that make them."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    for node, spec in zip(output.args[0], program.graph_signature.output_specs, strict=True):
        if spec.kind is kind:
            yield str(spec.target), node


def _tensor(importer: Importer, node: FxNode) -> Operand:
    value = importer.values[node]
    if not isinstance(value, Operand):
        raise UnsupportedFeatureError(f"the result {value!r}, which is no tensor", where=importer.model)
    check_size(value, f"result '{node}' of {importer.model}")
    return value


class _Update:
    """Adds what the optimiser does. Its states become inputs at once, their next values once there are gradients.

    Attributes:
        states: learning rates and numbers of steps by group, then what is kept for each parameter.
    """

    def __init__(self, builder: FoldingBuilder, owner: Owner, model: str) -> None:
        self._builder = builder
        self._owner = owner
        self._model = model
        self._values: dict[str, Operand] = {}
        self.states: list[State] = []
        for name, initial in owner.read(owner.optimizer_states()).items():
            self._values[name] = builder.input(name, TensorType(DType.of(initial), initial.shape))
            self.states.append(State(name=name, initial=initial))

    def add(self, parameters: Mapping[str, Operand], gradients: Mapping[str, Operand]) -> dict[str, Operand]:
        """The next values of the parameters, and of all states of the optimiser."""
        following: dict[str, Operand] = {}
        for group, (names, options) in enumerate(self._owner.groups):
            node = self._node(f"group {group}")
            rate = count = Term(node, self._values[RATE.format(group)])
            following[RATE.format(group)] = rate.operand
            if self._owner.rule.counts:
                count = Term(node, self._values[COUNT.format(group)]) + 1
                following[COUNT.format(group)] = count.operand
            for name in names:
                node = self._node(name)
                moment = Moment(
                    parameter=Term(node, parameters[name]),
                    gradient=Term(node, gradients[name]),
                    kept={
                        kept: Term(node, self._values[KEPT.format(name, kept)])
                        for kept in self._owner.rule.kept(options)
                    },
                    rate=rate,
                    count=count,
                    options=options,
                )
                parameter, kept_next = self._owner.rule.update(moment)
                following[name] = parameter.operand
                following |= {KEPT.format(name, kept): term.operand for kept, term in kept_next.items()}
        return following

    def _node(self, place: str) -> ModelNode:
        source = SourceLocation(model=self._model, node=f"update of {place}", op_type="optimizer")
        return ModelNode(location=source, builder=self._builder)
