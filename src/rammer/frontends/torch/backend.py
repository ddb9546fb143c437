"""What `torch.compile(module, backend="rammer")` compiles: graphs that Dynamo finds, made functional by AOTAutograd."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.nn.attention import SDPBackend, sdpa_kernel

from rammer.errors import (
    AutogradError,
    DataDependentError,
    DynamicShapeError,
    LayoutError,
    RefreshError,
    StreamCaptureError,
    UnsupportedFeatureError,
)
from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.dispatch import Imported
from rammer.frontends.fourier import Complex
from rammer.frontends.moves import transposed
from rammer.frontends.node import ModelNode
from rammer.frontends.randomness import RandomStreams
from rammer.frontends.torch.assumptions import check_assumptions
from rammer.frontends.torch.calls import trusting
from rammer.frontends.torch.converters import CONVERTERS
from rammer.frontends.torch.importer import Importer
from rammer.frontends.torch.private import check_version, constant_inputs, for_inference, has_tangent
from rammer.frontends.torch.program import check_size
from rammer.frontends.torch.types import tensor_of, type_of
from rammer.ir.calling import CallForm, Leaf, Nest
from rammer.ir.graph import SourceLocation
from rammer.ir.types import TensorType

_NAME = "module"
_BREAK_HINT = "let Dynamo end the graph before: leave torch._dynamo.config.capture_dynamic_output_shape_ops off"
_VERSION, _ADDRESS, _WANTS_GRADIENT = attrgetter("_version"), torch.Tensor.data_ptr, attrgetter("requires_grad")


class Built(Protocol):
    """A compiled graph, a `runtime.module.CompiledModule`."""

    def call_arrays(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs for tensors, which are looked at; arrays where the graph has no inputs."""
        ...

    def addressed(self) -> Any:
        """It as it runs on addresses."""
        ...


Build = Callable[[Imported], Built]
"""Compiles a graph."""


def compile_graph_module(graph: GraphModule, inputs: Sequence[Any], build: Build) -> Callable[..., Any]:
    """What Dynamo calls in place of a graph that it found. It is compiled when it is first called.

    Args:
        graph: in PyTorch's operators, with mutation and views.
        inputs: tensors without data.
        build: compiles it.

    Raises:
        DynamicShapeError: a shape is a symbol.
        AutogradError: gradients are wanted.
        DeviceUnavailableError: PyTorch is too old.
    """
    check_version()
    if not all(isinstance(each, torch.Tensor) for each in inputs):
        raise DynamicShapeError(
            "a graph with symbolic shapes", where=_NAME, hint="call torch.compile(..., backend='rammer', dynamic=False)"
        )

    made: list[_Lazy] = []

    def inference(functional: GraphModule, fake: Sequence[Any]) -> Callable[..., Any]:
        made.append(_Lazy(functional, constant_inputs(), build))
        return made[-1]

    # Other kinds of attention are operators of their own for each device.
    with sdpa_kernel(SDPBackend.MATH):
        called, adds_nothing = for_inference(graph, inputs, inference, _refuse_gradients, CONVERTERS)
    return made[-1].unboxed() if adds_nothing else called


def _refuse_gradients(*_: object) -> Callable[..., Any]:
    raise AutogradError(
        "gradients of a module that is compiled for inference",
        hint="call it under torch.no_grad(), or compile the whole training step: rammer.compile_step",
    )


def _refuse_while_capturing() -> None:
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise StreamCaptureError(
            "a module cannot be compiled while PyTorch captures a CUDA graph", hint="call it once before the capture"
        )


class _Lazy:
    """A functional graph, compiled with the parameters of its first call as constants.

    Modules of one class may share a graph: each set of parameters has a program of its own.
    """

    _boxed_call = True  # AOTAutograd hands over the arguments in a list, to be emptied

    def __init__(self, graph: GraphModule, constant: Sequence[int], build: Build) -> None:
        self._graph = graph
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        written = {placeholders.index(node.args[0]) for node in graph.graph.nodes if _is_write(node)}
        self._constant = tuple(position for position in constant if position not in written)
        self._build = build
        self._programs: dict[tuple[int, ...], _Program] = {}
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if has_tangent(args):  # unlike `requires_grad`, nothing that Dynamo compiles anew for
            _refuse_gradients()
        key = tuple([id(args[i]) for i in self._constant])
        results = (self._programs.get(key) or self._compiled(key, args)).run(args)
        args.clear()
        return results

    def unboxed(self) -> Callable[..., Sequence[Any]]:
        """What takes the arguments one by one, as Dynamo calls it, whose guards have seen that they are as compiled.

        Between two calls Dynamo runs so much other code that all that is touched here has left the processor's caches:
        it takes several times what it takes in a loop of its own. So little is called.
        """
        constant, programs = self._constant, dict[int, _Program]()

        def call(*args: Any) -> Sequence[Any]:
            if has_tangent(args):
                _refuse_gradients()
            constants = [args[i] for i in constant]
            key = id(constants[0]) if constants else 0
            program = programs.get(key)
            if program is not None and [*map(_VERSION, constants), *map(_ADDRESS, constants)] == program.known:
                return program.trusting(args)
            program = self._compiled(tuple(map(id, constants)), args)
            results = program.run(args)  # which looks at the arguments
            programs[key] = program
            return results

        return call

    def _compiled(self, key: tuple[int, ...], args: Sequence[Any]) -> _Program:
        with self._lock:
            if key not in self._programs:
                _refuse_while_capturing()
                self._programs[key] = _Program(self._graph, args, self._constant, self._build)
            return self._programs[key]


@dataclass(frozen=True, slots=True)
class _Strides:
    """A tensor whose dimensions lie in another order: `order[0]` varies slowest.

    `spread` has the strides of one whose elements leave gaps or share memory, as a part of another tensor's may; the
    program's own then lies row by row.
    """

    order: tuple[int, ...]
    spread: tuple[int, ...] | None = None

    @property
    def inverse(self) -> tuple[int, ...]:
        return tuple(self.order.index(dim) for dim in range(len(self.order)))

    @property
    def is_row_major(self) -> bool:
        return self.spread is None and self.order == tuple(range(len(self.order)))

    def laid_out(self, tensor: torch.Tensor) -> torch.Tensor:
        """The program's tensor as the graph's."""
        if self.spread is None:
            return tensor.permute(self.inverse)
        once = tuple(1 if stride == 0 else extent for extent, stride in zip(tensor.shape, self.spread, strict=True))
        result = torch.empty_strided(once, self.spread, dtype=tensor.dtype, device=tensor.device)
        result.copy_(tensor[tuple(map(slice, once))])
        return result.expand(tensor.shape)


@dataclass(frozen=True, slots=True)
class _Given:
    """A result that is an input itself, by its position."""

    position: int


@dataclass(frozen=True, slots=True)
class _Number:
    """A result that is no tensor."""

    value: object


class _Program:
    """A graph compiled with some of its inputs as constants."""

    def __init__(self, graph: GraphModule, args: Sequence[Any], constant: Sequence[int], build: Build) -> None:
        self._constants = [args[i] for i in constant]  # kept alive, so that no other tensor takes their place
        self.known, self._wants = self._seen()  # no other living tensors have these versions and addresses
        nodes = list(graph.graph.nodes)
        check_assumptions(nodes, _NAME)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        builder = FoldingBuilder(_NAME)
        source = SourceLocation(model=_NAME, node="layouts", op_type="Transpose")
        random, layout = RandomStreams(builder, _NAME), ModelNode(location=source, builder=builder)
        importer = Importer(model=_NAME, builder=builder, random=random)
        self._inputs: list[int] = []
        self._turned: list[tuple[int, tuple[int, ...]]] = []  # inputs that do not lie row by row
        are_copied = False  # inputs that leave gaps, or have the other sign in memory
        names: list[str] = []
        for position, node in enumerate(placeholders):
            if position in constant:
                importer.values[node] = importer.constant(args[position], f"'{node.name}'", node.name)
            else:
                strides = _strides_of(args[position], node.name)
                importer.values[node] = _input(layout, node, strides)
                are_copied |= strides.spread is not None or args[position].is_neg()
                if strides.spread is None and not strides.is_row_major:
                    self._turned.append((len(self._inputs), strides.order))
                self._inputs.append(position)
                names.append(node.name)
        writes = [node for node in nodes if _is_write(node)]
        importer.convert([node for node in nodes if node not in writes], lambda path: getattr(graph, path))
        self._written = {write: placeholders.index(write.args[0]) for write in writes}
        (given,) = nodes[-1].args
        outputs: list[tuple[str, Operand]] = []
        self._results = [
            self._result(importer, layout, node, placeholders, outputs)
            for node in (*(write.args[1] for write in writes), *given)
        ]
        if not outputs:
            raise UnsupportedFeatureError("a graph that gives no tensor", where=_NAME)
        result = Nest(kind="tuple", keys=(), parts=tuple(Leaf(name) for name, _ in outputs))
        form = CallForm(positional=tuple((name, Leaf(name)) for name in names), named=(), result=result)
        following = [(f"next {name}", operand) for name, operand in random.following().items()]
        graph = builder.finish([*outputs, *following], source, random.states())
        built = build(Imported(graph=graph, form=form))
        self._call = built.call_arrays
        self._are_results = all(isinstance(each, _Strides) and each.is_row_major for each in self._results)
        self.trusting: Callable[[Sequence[Any]], Sequence[Any]] = self.run
        lie = all(isinstance(each, _Strides) and each.spread is None for each in self._results)
        if self._inputs and lie and not writes and not are_copied and not graph.states:
            self.trusting = trusting(built.addressed(), self._inputs, [node.meta["val"] for node in given])

    def _result(
        self,
        importer: Importer,
        layout: ModelNode,
        node: object,
        placeholders: Sequence[FxNode],
        outputs: list[tuple[str, Operand]],
    ) -> _Strides | _Given | _Number:
        """What becomes of a result; if it is computed, an output is added."""
        if not isinstance(node, FxNode):
            return _Number(node)
        if node in self._written:
            return _Given(self._written[node])
        if node in placeholders:
            return _Given(placeholders.index(node))
        value = importer.values[node]
        if isinstance(value, Complex):
            type_of(node.meta["val"], f"result '{node}'")  # which says that there are none
        if not isinstance(value, Operand):
            return _Number(value)
        if not isinstance(node.meta["val"], torch.Tensor):
            raise DataDependentError(
                "a number of Python that depends on the values of tensors", where=f"result '{node}'", hint=_BREAK_HINT
            )
        check_size(value, f"result '{node}'", _BREAK_HINT)
        strides = _strides_of(node.meta["val"], str(node))
        outputs.append((f"{node}.{len(outputs)}", transposed(layout, value, strides.order)))
        return strides

    def run(self, args: Sequence[Any]) -> list[Any]:
        """The results, fresh tensors; inputs that the graph writes to are written.

        Raises:
            RefreshError: a parameter was written to since it was compiled.
            AutogradError: a parameter wants a gradient since then.
        """
        self._check_constants()
        tensors = [args[i].detach() if args[i].requires_grad else args[i] for i in self._inputs]
        for i, order in self._turned:
            tensors[i] = tensors[i].permute(order)
        found = self._call(tensors)
        if not tensors:
            found = [tensor_of(array) for array in found]
        if not self._written and self._are_results:
            return list(found)
        return self._assembled(args, iter(found))

    def _check_constants(self) -> None:
        known, wants = self._seen()
        if known == self.known and wants == self._wants:
            return
        if any(now and not then for now, then in zip(wants, self._wants, strict=True)):
            _refuse_gradients()
        raise RefreshError(
            "parameters of a compiled module were written to",
            hint="call torch.compiler.reset() after that: the next call compiles the module anew",
        )

    def _seen(self) -> tuple[list[int], list[bool]]:
        """What tells whether the constants were written to, or given other memory, or are to have gradients."""
        constants = self._constants
        return [*map(_VERSION, constants), *map(_ADDRESS, constants)], list(map(_WANTS_GRADIENT, constants))

    def _assembled(self, args: Sequence[Any], tensors: Iterator[torch.Tensor]) -> list[Any]:
        """The results in their order; inputs that the graph writes to are written."""
        results: list[Any] = []
        for result in self._results:
            match result:
                case _Strides():
                    results.append(result.laid_out(next(tensors)))
                case _Given():
                    results.append(args[result.position])
                case _:
                    results.append(result.value)
        count = len(self._written)
        for position, value in zip(self._written.values(), results[:count], strict=True):
            args[position].copy_(value)
        return results[count:]


def _is_write(node: FxNode) -> bool:
    """Whether a node writes a new value into an input, at the end of the graph."""
    return node.op == "call_function" and node.target is torch.ops.aten.copy_.default


def _input(layout: ModelNode, node: FxNode, strides: _Strides) -> Operand:
    """An input as it lies, seen as the graph sees it."""
    type_ = type_of(node.meta["val"], f"input '{node.name}'")
    lying = TensorType(type_.dtype, tuple(type_.shape[dim] for dim in strides.order))
    return transposed(layout, layout.builder.input(node.name, lying), strides.inverse)


def _strides_of(tensor: torch.Tensor, name: str) -> _Strides:
    """The order of a tensor's dimensions in memory.

    Raises:
        LayoutError: elements of different indices may share memory.
    """
    order = tuple(sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), dim)))
    if tensor.permute(order).is_contiguous():
        return _Strides(order)
    reach = 1
    for dim in reversed(order):
        if tensor.stride(dim) and tensor.shape[dim] > 1:
            if tensor.stride(dim) < reach:
                raise LayoutError(
                    f"'{name}' of shape {list(tensor.shape)} has strides {tensor.stride()}, its elements overlap",
                    hint="call .contiguous() on it",
                )
            reach += tensor.stride(dim) * (tensor.shape[dim] - 1)
    return _Strides(tuple(range(tensor.dim())), spread=tuple(tensor.stride()))
