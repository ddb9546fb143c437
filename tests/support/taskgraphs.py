"""Hand-made task graphs, vDevices and costs: what scheduling, verification and devices are tested with.

`TaskGraphMaker` builds a `TaskGraph` rOperator by rOperator, with canonical expressions and any tile sizes:

    maker = TaskGraphMaker()
    x = maker.input((8, 8))
    y = maker.elementwise([x], tiles=[(4, 8), (2, 4)])  # two candidate rKernels
    graph = maker.finish([y])

`random_task_graph` makes one of every shape of data flow from a `random.Random`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rammer.devices.vector.rules import VectorRules
from rammer.ir.expr import Axis, Expr, Output, Reduce, ReduceFn, TensorExpr, const, load
from rammer.ir.graph import Array
from rammer.ir.kernel_form import Instruction, MapForm, PersistentRnnForm, ReduceForm
from rammer.ir.task import Binding, RKernel, ROperator, RTile, TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import VEU, Figure, MemoryLevel, VDevice

RESIDENT = PersistentRnnForm(
    threads=512,
    instruction=Instruction.FFMA,
    across=8,
    slices=16,
    columns=1,
    weight_registers=4,
    weight_bytes=4 * 512 * 4,
)
"""Weights that stay, of one vector."""

Tiles = Sequence[Sequence[int]]
F32 = DType.FLOAT32


def device(
    veus: int,
    *,
    handover_us: float = 0.5,
    task_overhead_us: float = 0.0,
    own_cache_bytes: int = 0,
    remote_handover_us: float | None = None,
    start_us: float = 0.0,
    starts_early: bool = False,
) -> VDevice:
    """A vDevice of `veus` equal units; with `remote_handover_us` half of them are at home in a second memory."""

    def figure(value: float) -> Figure:
        return Figure(value, "assumed")

    return VDevice(
        kind="test",
        name=f"test-{veus}",
        veus=tuple(VEU(index=i, home=0 if remote_handover_us is None else 2 * i // veus) for i in range(veus)),
        vector_bytes=32,
        vector_registers=16,
        levels=(
            MemoryLevel(
                name="cache",
                capacity_bytes=1 << 20,
                bandwidth_bytes_per_us=figure(1e5),
                transaction_bytes=64,
                shared=False,
            ),
            MemoryLevel(
                name="memory",
                capacity_bytes=1 << 30,
                bandwidth_bytes_per_us=figure(1e4),
                transaction_bytes=64,
                shared=True,
            ),
        ),
        flops_per_us={F32: figure(1e5)},
        handover_us=figure(handover_us),
        task_overhead_us=figure(task_overhead_us),
        skeletons=("map", "reduce"),
        rules=VectorRules(),
        own_cache_bytes=own_cache_bytes,
        start_us=figure(start_us),
        starts_early=starts_early,
        remote_handover_us=((figure(remote_handover_us or 0.0),) * 2,) * 2,
    )


@dataclass(frozen=True)
class TileCosts:
    """An rTask takes `fixed_us` and `element_us` for each point of its tile, or what `by_tile` says of its tile."""

    fixed_us: float = 0.0
    element_us: float = 0.01
    by_tile: Mapping[tuple[int, ...], float] = field(default_factory=dict)

    def task_us(self, kernel: RKernel) -> Figure:
        spans = zip(kernel.expr.axes, kernel.tile.task, strict=True)
        points = math.prod(min(axis.extent, size) for axis, size in spans)
        return Figure(self.by_tile.get(kernel.tile.task, self.fixed_us + self.element_us * points), "assumed")


class TaskGraphMaker:
    """A task graph under construction. Tensors are ints; all hold float32."""

    def __init__(self, name: str = "made") -> None:
        self._name = name
        self._tensors: list[Tensor] = []
        self._constants: dict[int, Array] = {}
        self._operators: list[ROperator] = []
        self._inputs: list[int] = []

    def input(self, shape: Sequence[int]) -> int:
        tensor = self._tensor(shape, TensorRole.INPUT)
        self._inputs.append(tensor)
        return tensor

    def constant(self, shape: Sequence[int]) -> int:
        """A constant of small random values."""
        tensor = self._tensor(shape, TensorRole.CONSTANT)
        generator = np.random.default_rng(tensor)
        self._constants[tensor] = generator.standard_normal(tuple(shape)).astype(np.float32) / 4
        return tensor

    def intermediate(self, shape: Sequence[int]) -> int:
        """A tensor to be written in parts."""
        return self._tensor(shape, TensorRole.INTERMEDIATE)

    def alias(self, tensor: int, shape: Sequence[int]) -> int:
        """The same storage under another shape."""
        root = self._tensors[tensor].alias_of
        result = self._tensor(shape, self._tensors[tensor].role)
        self._tensors[result] = replace(self._tensors[result], alias_of=tensor if root is None else root)
        return result

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self._tensors[tensor].type.shape

    def elementwise(
        self,
        inputs: Sequence[int],
        *,
        tiles: Tiles = (),
        origins: Sequence[Sequence[int]] = (),
        shape: Sequence[int] | None = None,
        into: int | None = None,
        at: Sequence[int] | None = None,
    ) -> int:
        """The sum of parts of the inputs, plus one.

        The part of input i starts at `origins[i]` (its first element by default) and has `shape` (that of the first
        input by default); the result is a new tensor, or a part of `into` that starts at `at`.
        """
        extents = tuple(self.shape(inputs[0]) if shape is None else shape)
        axes = _axes(extents)
        types = tuple(TensorType(F32, extents) for _ in inputs)
        body: Expr = const(1.0, F32)
        for slot, type_ in enumerate(types):
            body = load(slot, type_, axes) + body
        output = self.intermediate(extents) if into is None else into
        zero = (0,) * len(extents)
        reads = list(zip(inputs, origins or [zero] * len(inputs), strict=True))
        return self._add("map", _expr(axes, types, extents, body), tiles, reads, (output, zero if at is None else at))

    def window(self, source: int, reach: int, *, tiles: Tiles = ()) -> int:
        """The sum of each element and its neighbours at distance `reach` along the last dimension, zero outside."""
        type_ = self._tensors[source].type
        axes = _axes(type_.shape)
        *outer, last = axes
        body: Expr = load(0, type_, axes)
        for offset in (-reach, reach):
            body = body + load(0, type_, [*outer, last + offset], fill=0.0)
        zero = (0,) * type_.rank
        output = self.intermediate(type_.shape)
        return self._add("map", _expr(axes, (type_,), type_.shape, body), tiles, [(source, zero)], (output, zero))

    def transpose(self, source: int, *, tiles: Tiles = ()) -> int:
        """The matrix with its dimensions exchanged, plus one."""
        type_ = self._tensors[source].type
        axes = _axes(type_.shape[::-1])
        body = load(0, type_, axes[::-1]) + 1.0
        output = self.intermediate(type_.shape[::-1])
        return self._add(
            "map", _expr(axes, (type_,), type_.shape[::-1], body), tiles, [(source, (0, 0))], (output, (0, 0))
        )

    def matmul(self, left: int, right: int, *, tiles: Tiles = ()) -> int:
        """The matrix product."""
        left_type, right_type = self._tensors[left].type, self._tensors[right].type
        shape = (left_type.shape[0], right_type.shape[1])
        row, column = axes = _axes(shape)
        inner = Axis("r0", left_type.shape[1])
        product = load(0, left_type, [row, inner]) * load(1, right_type, [inner, column])
        body = Reduce(ReduceFn.SUM, (inner,), product)
        expr = _expr(axes, (left_type, right_type), shape, body)
        output = self.intermediate(shape)
        return self._add("contract", expr, tiles, [(left, (0, 0)), (right, (0, 0))], (output, (0, 0)))

    def finish(self, outputs: Sequence[int]) -> TaskGraph:
        """The task graph; `outputs` must own their storage."""
        tensors = list(self._tensors)
        for output in outputs:
            for tensor in tensors:
                if output in (tensor.id, tensor.alias_of):
                    tensors[tensor.id] = replace(tensor, role=TensorRole.OUTPUT)
        return TaskGraph(
            name=self._name,
            tensors=tuple(tensors),
            constants=dict(self._constants),
            operators=tuple(self._operators),
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
        )

    def _tensor(self, shape: Sequence[int], role: TensorRole) -> int:
        number = len(self._tensors)
        self._tensors.append(
            Tensor(
                id=number,
                name=f"{role.value}{number}",
                type=TensorType(F32, tuple(shape)),
                layout=Layout.row_major(shape),
                role=role,
            )
        )
        return number

    def _add(
        self,
        skeleton: str,
        expr: TensorExpr,
        tiles: Tiles,
        reads: Sequence[tuple[int, Sequence[int]]],
        write: tuple[int, Sequence[int]],
    ) -> int:
        bindings = tuple(Binding(tensor=tensor, origin=tuple(origin)) for tensor, origin in (*reads, write))
        layouts = tuple(self._tensors[binding.tensor].layout for binding in bindings)
        sizes = [tuple(tile) for tile in tiles] or [tuple(max(1, axis.extent) for axis in expr.axes)]
        number = len(self._operators)
        form = ReduceForm() if expr.reductions else MapForm()
        self._operators.append(
            ROperator(
                id=number,
                name=f"{skeleton}{number}",
                kind=skeleton,
                kernels=tuple(RKernel(expr=expr, layouts=layouts, tile=RTile(task=size), form=form) for size in sizes),
                reads=bindings[:-1],
                writes=bindings[-1:],
            )
        )
        return write[0]


def _axes(shape: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(Axis(f"s{place}", extent) for place, extent in enumerate(shape))


def _expr(axes: tuple[Axis, ...], inputs: tuple[TensorType, ...], shape: Sequence[int], body: Expr) -> TensorExpr:
    return TensorExpr(
        axes=axes, inputs=inputs, outputs=(Output(type=TensorType(F32, tuple(shape)), indices=axes, body=body),)
    )


def chain(length: int, *, shape: Sequence[int] = (8, 8), tiles: Tiles = ((4, 8),)) -> TaskGraph:
    """Elementwise rOperators one after another."""
    maker = TaskGraphMaker("chain")
    tensor = maker.input(shape)
    for _ in range(length):
        tensor = maker.elementwise([tensor], tiles=tiles)
    return maker.finish([tensor])


def diamond(*, shape: Sequence[int] = (8, 8), tiles: Tiles = ((4, 8),)) -> TaskGraph:
    """Two rOperators between a first and a last."""
    maker = TaskGraphMaker("diamond")
    top = maker.elementwise([maker.input(shape)], tiles=tiles)
    sides = [maker.elementwise([top], tiles=tiles), maker.elementwise([top, top], tiles=tiles)]
    return maker.finish([maker.elementwise(sides, tiles=tiles)])


def branches(count: int, length: int, *, size: int = 8, tiles: Tiles = ((8, 8),)) -> TaskGraph:
    """Chains of matrix products by constants, side by side; one rTask reads their results, concatenated by columns."""
    maker = TaskGraphMaker("branches")
    source = maker.input((size, size))
    joined = maker.intermediate((size, count * size))
    for branch in range(count):
        tensor = source
        for _ in range(length):
            tensor = maker.matmul(tensor, maker.constant((size, size)), tiles=tiles)
        maker.elementwise([tensor], tiles=tiles, into=joined, at=(0, branch * size))
    return maker.finish([maker.elementwise([joined])])


def recurrent(layers: int, steps: int, *, size: int = 8, tiles: Tiles = ((1, 4),)) -> TaskGraph:
    """Layers of cells h' = W (x + h), x the state of the layer below: the data flow of a recurrent network."""
    maker = TaskGraphMaker("recurrent")
    sequence = maker.input((steps, size))
    states = [maker.input((1, size)) for _ in range(layers)]
    weights = [maker.constant((size, size)) for _ in range(layers)]
    whole = (1, size)
    for step in range(steps):
        below, origin = sequence, (step, 0)
        for layer in range(layers):
            mixed = maker.elementwise([below, states[layer]], origins=[origin, (0, 0)], shape=whole, tiles=tiles)
            states[layer] = maker.matmul(mixed, weights[layer], tiles=tiles)
            below, origin = states[layer], (0, 0)
    return maker.finish([states[-1]])


def random_task_graph(generator: random.Random, operators: int) -> TaskGraph:
    """Chains, diamonds, branches, slices, concatenations, reshapes, windows and products, with several outputs.

    Every tensor is a matrix; each rOperator has one to three candidates of random tile sizes.
    """
    maker = TaskGraphMaker("random")
    pool = [maker.input((generator.randint(2, 9), generator.randint(2, 9))) for _ in range(generator.randint(1, 2))]
    used: set[int] = set()
    made: list[int] = []

    def tiles(shape: Sequence[int]) -> list[tuple[int, ...]]:
        return [tuple(generator.randint(1, extent) for extent in shape) for _ in range(generator.randint(1, 3))]

    def pick() -> int:
        chosen = generator.choice(pool[-6:])
        used.add(chosen)
        return chosen

    for _ in range(operators):
        source = pick()
        rows, columns = maker.shape(source)
        match generator.choice(["unary", "binary", "matmul", "slice", "concatenate", "window", "transpose", "reshape"]):
            case "unary":
                result = maker.elementwise([source], tiles=tiles((rows, columns)))
            case "binary":
                other = generator.choice([other for other in pool if maker.shape(other) == (rows, columns)])
                used.add(other)
                result = maker.elementwise([source, other], tiles=tiles((rows, columns)))
            case "matmul":
                width = generator.randint(1, 9)
                right = maker.constant((columns, width))
                result = maker.matmul(source, right, tiles=tiles((rows, width)))
            case "slice":
                shape = (generator.randint(1, rows), generator.randint(1, columns))
                origin = tuple(
                    generator.randint(0, whole - part) for whole, part in zip((rows, columns), shape, strict=True)
                )
                result = maker.elementwise([source], origins=[origin], shape=shape, tiles=tiles(shape))
            case "concatenate":
                parts = [source, *(other for other in pool[-6:] if maker.shape(other)[0] == rows)][:3]
                used.update(parts)
                result = maker.intermediate((rows, sum(maker.shape(part)[1] for part in parts)))
                column = 0
                for part in parts:
                    maker.elementwise([part], into=result, at=(0, column), tiles=tiles(maker.shape(part)))
                    column += maker.shape(part)[1]
            case "window":
                result = maker.window(source, generator.randint(1, 3), tiles=tiles((rows, columns)))
            case "transpose":
                result = maker.transpose(source, tiles=tiles((columns, rows)))
            case _:
                divisors = [extent for extent in range(1, rows * columns + 1) if rows * columns % extent == 0]
                height = generator.choice(divisors)
                result = maker.alias(source, (height, rows * columns // height))
                pool.append(result)
                continue
        made.append(result)
        pool.append(result)
    outputs = [tensor for tensor in made if tensor not in used]
    return maker.finish(outputs or made[-1:])
