"""The parts of PyTorch that it does not promise to keep, each behind a name of ours, for the versions named here.

All else that the front end uses is documented by PyTorch.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest import mock

import torch
from torch._C._dynamo import guards
from torch._decomp import core_aten_decompositions, decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import UserError, UserErrorType
from torch._guards import TracingContext
from torch._higher_order_ops import effects
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.export import ExportedProgram
from torch.export.exported_program import _decompose_exported_program
from torch.export.graph_signature import InputKind
from torch.fx import Interpreter
from torch.fx import Node as FxNode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from rammer.errors import DeviceUnavailableError
from rammer.frontends.torch import lstm_layers

OLDEST = (2, 6)
"""The first version that has all that is used, `torch.export.default_decompositions` among it."""

_named_tuples: dict[str, type] = {}
"""Classes of named tuples that modules of this process return; PyTorch does not register them."""


def check_version() -> None:
    """Check that the PyTorch that is installed is one that the front end knows.

    Raises:
        DeviceUnavailableError: it is too old.
    """
    if _version() < OLDEST:
        raise DeviceUnavailableError(
            f"PyTorch {torch.__version__} is too old", hint=f"install {'.'.join(map(str, OLDEST))} or newer"
        )


def _version() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])


class _Weights(list[torch.Tensor]):
    """A list that PyTorch does not look into."""


def _lstm_of_old(layer: Callable[..., Any], x: Any, states: Sequence[Any], *rest: Any, **named: Any) -> tuple[Any, Any]:
    """A layer's outputs, and its last states in the shapes of the first ones."""
    out, last = layer(x, states, *rest, **named)
    return out, tuple(after.reshape(before.shape) for after, before in zip(last, states, strict=True))


@contextmanager
def recurrent_layers_of_old(module: torch.nn.Module) -> Iterator[None]:
    """Let PyTorch 2.6 capture a module with recurrent layers.

    It takes what its exporter itself puts into their lists of weights for something that the module assigns, and gives
    an LSTM's last states of several rows a dimension too many.
    """
    if _version() >= (2, 7):
        yield
        return
    layers = [part for part in module.modules() if isinstance(part, torch.nn.RNNBase)]
    for layer in layers:
        layer._flat_weights = _Weights(layer._flat_weights)
    try:
        with mock.patch(
            "torch._decomp.decompositions.one_layer_lstm", partial(_lstm_of_old, decompositions.one_layer_lstm)
        ):
            yield
    finally:
        for layer in layers:
            layer._flat_weights = list(layer._flat_weights)


@contextmanager
def lstm_layers_whole() -> Iterator[None]:
    """Let PyTorch take an LSTM apart into calls of `lstm_layers.layer`, where that has the form, not into steps."""
    select = decompositions.select_one_layer_lstm_function

    def selected(*args: Any) -> Callable[..., Any]:
        steps = select(*args)

        def of_layer(x: Any, states: Sequence[Any], weights: Sequence[Any], *rest: Any, **named: Any) -> Any:
            whole = lstm_layers.has_form(x, states, weights)
            return (lstm_layers.layer if whole else steps)(x, states, weights, *rest, **named)

        return of_layer

    with mock.patch.object(decompositions, "select_one_layer_lstm_function", selected):
        yield


@contextmanager
def checks_without_order() -> Iterator[None]:
    """Let PyTorch trace checks of factorisations as calls like others.

    PyTorch 2.13 keeps them in order by tokens, and then can make neither gradients nor a graph for backends of Dynamo.
    """
    if _version() < (2, 13):
        yield
        return
    name = "aten::_linalg_check_errors"
    before = effects._get_effect(name)
    effects._register_effectful_op(name, None)
    try:
        yield
    finally:
        effects._register_effectful_op(name, before)


def is_operator(target: object) -> bool:
    """Whether what a captured node calls is one of PyTorch's operators, in one of its overloads."""
    return isinstance(target, torch._ops.OpOverload)


@cache
def schema_arguments(target: Any) -> Mapping[str, object]:
    """The names of an operator's arguments with their defaults, in order; None where there is no default."""
    return {argument.name: argument.default_value for argument in target._schema.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """How PyTorch has taken a nested object apart. `type` is None for a leaf; `context` is what its class recorded."""

    type: object
    name: str
    context: Any
    parts: tuple[Tree, ...]


def tree_of(spec: Any) -> Tree:
    """PyTorch's description of a nested object."""
    if spec.is_leaf():
        return Tree(type=None, name="", context=None, parts=())
    parts = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    owner = spec.context if hasattr(spec.context, "_fields") else spec.type
    name = f"{owner.__module__}.{owner.__qualname__}"
    if hasattr(spec.context, "_fields"):
        _named_tuples[name] = spec.context
    return Tree(type=spec.type, name=name, context=spec.context, parts=tuple(map(tree_of, parts)))


def flattened(arguments: Any) -> tuple[list[object], list[list[object]], Any]:
    """The leaves of nested arguments, the path of positions and names to each, and PyTorch's description of it all."""
    found, spec = pytree.tree_flatten_with_path(arguments)
    return [leaf for _, leaf in found], [[_step_of(key) for key in path] for path, _ in found], spec


def nested(leaves: Sequence[object], spec: Any) -> Any:
    """The inverse of `flattened`."""
    return pytree.tree_unflatten(list(leaves), spec)


def _step_of(key: object) -> object:
    return getattr(key, next(name for name in ("idx", "key", "name") if hasattr(key, name)))


def made(name: str, parts: Sequence[object], context: object) -> object | None:
    """An object of a class that PyTorch can put together, by the class's full name; None where it knows none."""
    if name in _named_tuples:
        named: object = _named_tuples[name](*parts)
        return named
    for owner, definition in pytree.SUPPORTED_NODES.items():
        if f"{owner.__module__}.{owner.__qualname__}" == name:
            found: object = definition.unflatten_fn(list(parts), context)
            return found
    return None


def distinct(arguments: Any) -> Any:
    """Nested arguments without a tensor that occurs twice: PyTorch would capture both as one."""
    seen: set[int] = set()

    def once(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) in seen:
            return leaf.detach().clone()
        seen.add(id(leaf))
        return leaf

    return pytree.tree_map(once, arguments)


def is_data_dependent(error: BaseException | None) -> bool:
    """Whether the capture failed because a choice or a shape depends on the values of tensors."""
    while error is not None:
        if isinstance(error, GuardOnDataDependentSymNode):
            return True
        if isinstance(error, UserError) and error.error_type is UserErrorType.DYNAMIC_CONTROL_FLOW:
            return True
        error = error.__cause__
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """What PyTorch knows a size or a number to be: a number itself, a symbol by its name, or what is made of others.

    `kind` is "number", "symbol", or what PyTorch calls the operation.
    """

    kind: str
    value: int | float | str = ""
    operands: tuple[Formula, ...] = ()


def formula_of(number: int | float | torch.SymInt | torch.SymFloat) -> Formula:
    """How PyTorch computes a number that may depend on the values of tensors."""
    return _formula(number.node.expr) if isinstance(number, torch.SymInt | torch.SymFloat) else _formula(number)


def _formula(expression: Any) -> Formula:
    if getattr(expression, "is_Symbol", False):
        return Formula(kind="symbol", value=str(expression.name))
    if isinstance(expression, int | float):
        return Formula(kind="number", value=expression)
    if expression.is_number:
        return Formula(kind="number", value=int(expression) if expression.is_Integer else float(expression))
    operands = tuple(map(_formula, expression.args))
    return Formula(kind=str(expression.func.__name__), operands=operands)


def bounds_of(number: torch.SymInt) -> tuple[int | None, int | None]:
    """Between which integers PyTorch knows one to lie; None where there is no bound."""
    bounds = number.node.shape_env.bound_sympy(number.node.expr)
    low, high = (int(bound) if bound.is_Integer else None for bound in (bounds.lower, bounds.upper))
    return low, high


def with_gradients(program: ExportedProgram, kept: Collection[str]) -> ExportedProgram:
    """A program whose first result is a loss, followed by the gradients of all parameters; without mutation.

    Args:
        program: what PyTorch captured.
        kept: operators, by their names without overloads, that are not to be decomposed.
    """
    table = _decompositions_but(kept)
    options: dict[str, Any] = {"cia_to_decomp": {}, "python_decomp_table": table, "joint_loss_index": 0}
    if "decompose_custom_triton_ops" in inspect.signature(_decompose_exported_program).parameters:  # since 2.7
        options["decompose_custom_triton_ops"] = False
    _freeze_unused(program)
    with lstm_layers_whole(), checks_without_order():
        joint: ExportedProgram = _decompose_exported_program(program, **options)
    return joint


def operators_with_gradients(node: FxNode, kept: Collection[str]) -> set[str]:
    """The operators that a captured call and its gradients are made of, as `with_gradients` takes them apart.

    Nothing where PyTorch cannot differentiate it alone.
    """
    tensors = [each for each in node.all_input_nodes if isinstance(each.meta.get("val"), torch.Tensor)]

    def with_gradient(*given: torch.Tensor) -> Sequence[Any]:
        known = dict(zip(tensors, given, strict=True))
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: known.get(each, each.meta.get("val")))
        results = [each for each in pytree.tree_leaves(node.target(*args, **kwargs)) if _is_learning(each)]
        wanted, seeds = list(filter(_is_learning, given)), list(map(torch.ones_like, results))
        return torch.autograd.grad(results, wanted, seeds, allow_unused=True) if results else ()

    try:
        with torch.enable_grad(), lstm_layers_whole(), checks_without_order():
            leaves = [torch.empty(tuple(each.meta["val"].shape), dtype=each.meta["val"].dtype) for each in tensors]
            leaves = [leaf.requires_grad_(leaf.is_floating_point()) for leaf in leaves]
            traced = make_fx(with_gradient, _decompositions_but(kept), "fake")(*leaves)
    except Exception:  # noqa: BLE001 - whatever PyTorch raises, a call that cannot be traced alone has no place
        return set()
    return {str(each.target) for each in traced.graph.nodes if each.op == "call_function"}


def _is_learning(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def for_inference(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    compiler: Callable[..., Any],
    refuse: Callable[..., Any],
    kept: Collection[str],
) -> tuple[Callable[..., Any], bool]:
    """What AOTAutograd makes of a graph of Dynamo's, once a compiler has seen it without mutation and views.

    Also whether that does nothing but call what the compiler gave, on the same tensors. Its own part takes longer than
    a small model.

    Args:
        graph: what Dynamo found.
        inputs: its inputs, without data.
        compiler: is given the functional graph, which ends with `copy_` to inputs that are written to.
        refuse: is called where gradients are wanted.
        kept: as for `with_gradients`.
    """
    adds_nothing = False

    def compile_inference(functional: torch.fx.GraphModule, fake: Sequence[Any]) -> Callable[..., Any]:
        nonlocal adds_nothing
        adds_nothing = _adds_nothing(graph, inputs, functional)
        compiled: Callable[..., Any] = compiler(functional, fake)
        return compiled

    compile_functional = aot_autograd(
        fw_compiler=refuse,
        inference_compiler=compile_inference,
        decompositions=_decompositions_but(kept),
        keep_inference_input_mutations=True,
    )
    with checks_without_order():
        return compile_functional(graph, inputs), adds_nothing


def _adds_nothing(graph: torch.fx.GraphModule, inputs: Sequence[Any], functional: torch.fx.GraphModule) -> bool:
    """Whether AOTAutograd, which compiles a graph now, hands on inputs and results of the functional graph as they are.

    It does not where inputs are written to, results share memory with inputs or each other, or tensors are of classes
    of their own.
    """
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None or any(True for _ in (*graph.parameters(), *graph.buffers())):
        return False
    taken = sum(1 for node in functional.graph.nodes if node.op == "placeholder")
    usual = {
        "mutated_inp_runtime_indices": [],
        "num_outputs_aliased": 0,
        "num_intermediate_bases": 0,
        "num_mutated_graph_handled_indices": 0,
        "tokens": {},
        "grad_enabled_mutation": None,
        "is_rng_op_functionalized": False,
        "dynamic_outputs": False,
    }
    classes = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    return (
        taken == len(inputs)
        and all(getattr(metadata, name, ...) == value for name, value in usual.items())
        and not getattr(metadata, "num_graphsafe_rng_states", 0)  # since 2.7
        and not any(hasattr(each, "attrs") for each in classes)
    )


def constant_inputs() -> list[int]:
    """Which inputs of the graph that AOTAutograd compiles now are parameters and buffers."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    return [] if metadata is None else list(metadata.static_input_indices)


def _decompositions_but(kept: Collection[str]) -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of all operators but some."""
    return {
        operator: decomposition
        for operator, decomposition in core_aten_decompositions().items()
        if operator.name().partition("::")[2].partition(".")[0] not in kept
    }


def _freeze_unused(program: ExportedProgram) -> None:
    """PyTorch refuses parameters that the loss does not depend on, unless they want no gradient."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    reached, open_nodes = set(), [output]
    while open_nodes:
        node = open_nodes.pop()
        if node not in reached:
            reached.add(node)
            open_nodes += node.all_input_nodes
    for node in program.graph.nodes:
        if node.op == "placeholder" and node not in reached and getattr(node.meta.get("val"), "requires_grad", False):
            node.meta["val"].requires_grad_(requires_grad=False)


def has_tangent(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether forward-mode differentiation is under way and follows one of the tensors."""
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def room(
    shape: tuple[int, ...], dtype: torch.dtype, *, on_gpu: bool, strides: tuple[int, ...] | None = None
) -> Callable[[], torch.Tensor]:
    """What makes tensors of a kind, row by row or with given strides; in the first GPU's memory or the processor's."""
    if strides is None:
        strides = torch.empty(shape, device="meta").stride()
    make = getattr(guards, "_empty_strided_cuda" if on_gpu else "_empty_strided_cpu", None)
    if make is None or (on_gpu and torch.cuda.device_count() > 1):  # it takes the GPU that is PyTorch's current one
        place = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
        return partial(torch.empty_strided, shape, strides, dtype=dtype, device=place)
    return partial(make, shape, strides, dtype)


def current_stream(place: torch.device) -> Callable[[], int]:
    """What tells the handle of PyTorch's current stream on a GPU."""
    found: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if found is None:
        return lambda: torch.cuda.current_stream(place).cuda_stream
    return partial(found, place.index)


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """Let schedulers of the learning rate know that a step was made: they warn where they see none."""
    vars(optimizer)["_opt_called"] = True


def specialise(program: ExportedProgram, shapes: Sequence[Sequence[int]]) -> None:
    """Replace the symbols of a program, in place, by what they are for shapes of its tensor arguments.

    It may be done again for other shapes.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())
    wanted = iter(shapes)
    values: list[object] = []
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
        captured = node.meta.get("val")
        if not isinstance(captured, torch.Tensor):
            values.append(captured)
            continue
        shape = next(wanted) if spec.kind is InputKind.USER_INPUT else captured.shape
        with mode:
            values.append(torch.empty(tuple(shape), dtype=captured.dtype, device=captured.device))
    for node, value in zip(nodes, values, strict=True):
        node.meta["val"] = value
    with torch.no_grad():
        _Specialised(program.graph_module, mode).run(*values, enable_io_processing=False)


class _Specialised(Interpreter):  # type: ignore[misc]  # PyTorch is untyped here
    """Runs a program on tensors without data, and notes on each node what comes of it."""

    def __init__(self, module: torch.fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module)
        self._mode = mode

    def run_node(self, node: FxNode) -> object:
        with self._mode:
            found = super().run_node(node)
        if isinstance(found, torch.Tensor) and not isinstance(found, FakeTensor):
            found = self._mode.from_tensor(found)
        if node.op != "output":
            node.meta["val"] = found
        return found
