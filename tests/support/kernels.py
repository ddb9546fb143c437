"""Construct, emit, compile and run rKernels of one expression, without the rest of the compiler."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rammer.devices import codegen, cpu
from rammer.devices.cpu.emit.kernel import emit_kernel
from rammer.devices.vector.rules import VectorRules
from rammer.ir.expr import Expr, Load, TensorExpr, cast, rebuild
from rammer.ir.graph import Array, Attribute
from rammer.ir.kernel_form import GemmForm
from rammer.ir.task import Binding, RKernel, RTile
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import VEU, ByteProducts, Figure, MemoryLevel, VDevice
from rammer.ir.workload import Workload
from rammer.lowering.canonical import View, canonical
from rammer.roller.construct import construct
from rammer.tiling.gemm import gemm_form, of_float32
from rammer.tiling.packing import preferred_layouts
from tests.support.operators import expression

_CPU = Path(cpu.__file__).parent
_PROGRAMS = Path(__file__).parents[1] / "devices" / "cpu" / "skeletons"
HEADERS = (_CPU / "kernels", _CPU / "skeletons", Path(codegen.__file__).parent)
GCC = (shutil.which("cc") or shutil.which("gcc") or "cc",)
CLANG = (sys.executable, "-m", "ziglang", "cc")
FLAGS = ("-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-Wall", "-Werror")


def machine(vector_bytes: int = 32, registers: int = 16, veus: int = 2) -> VDevice:
    """A processor with round figures."""

    def nominal(value: float) -> Figure:
        return Figure(value, "nominal: a test")

    levels = (("L1", 32 << 10, 200e3), ("L2", 1 << 20, 100e3), ("memory", 8 << 30, 15e3))
    return VDevice(
        kind="cpu",
        name="test machine",
        veus=tuple(VEU(index=i) for i in range(veus)),
        vector_bytes=vector_bytes,
        vector_registers=registers,
        levels=tuple(
            MemoryLevel(
                name=name,
                capacity_bytes=capacity,
                bandwidth_bytes_per_us=nominal(bandwidth),
                transaction_bytes=64,
                shared=name == "memory",
            )
            for name, capacity, bandwidth in levels
        ),
        flops_per_us={dtype: nominal(vector_bytes * 3e3) for dtype in DType},
        handover_us=nominal(0.2),
        task_overhead_us=nominal(0.02),
        stream_bytes=128,
        skeletons=("map", "reduce", "gemm", "implicit_gemm", "gemv", "depthwise"),
        rules=VectorRules(),
        byte_products=ByteProducts.QUADS,
    )


AVX512, AVX2, NEON = machine(64, 32), machine(32, 16, veus=3), machine(16, 32, veus=4)
TILES = replace(AVX512, tile_flops_per_us=Figure(1536e3, "nominal: a test"))
"""With tiles that multiply bytes, eight times as fast as vectors."""


def types(*shapes: tuple[int, ...], dtype: DType = DType.FLOAT32) -> list[TensorType]:
    """Tensor types of one element type."""
    return [TensorType(dtype, shape) for shape in shapes]


def conv(
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    bias: bool = False,
    dtype: DType = DType.FLOAT32,
    group: int = 1,
    **attributes: Attribute,
) -> TensorExpr:
    """A convolution by finite weights; unless said otherwise with stride 1 and as much padding as keeps the extents."""
    spatial = len(x) - 2
    chosen: dict[str, Attribute] = {
        "strides": (1,) * spatial,
        "dilations": (1,) * spatial,
        "pads": (w[-1] // 2,) * 2 * spatial,
        "group": group,
        "finite_weights": True,
    }
    shapes = (x, w, (w[0],)) if bias else (x, w)
    return expression("Conv", types(*shapes, dtype=dtype), **{**chosen, **attributes})


def lstm_cell(batch: int, width: int, n: int, weights: DType = DType.FLOAT32) -> TensorExpr:
    """One step of an LSTM of n units: slots x, h, c, w, r, b; w and r are stored as `weights`, x and h rounded."""
    cell = expression(
        "LSTMCell",
        types((batch, width), (batch, n), (batch, n), (4 * n, width), (4 * n, n), (8 * n,)),
        activations=("Sigmoid", "Tanh", "Tanh"),
        activation_alpha=(0.0,) * 3,
        activation_beta=(0.0,) * 3,
        input_forget=False,
        batched_inputs=False,
    )
    if weights is DType.FLOAT32:
        return cell
    inputs = [replace(one, dtype=weights) if slot in (3, 4) else one for slot, one in enumerate(cell.inputs)]

    def narrow(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.slot in (3, 4):
            return cast(DType.FLOAT32, Load(node.slot, node.indices, weights, node.fill))
        if isinstance(node, Load) and node.slot in (0, 1):
            return cast(DType.FLOAT32, cast(weights, node))
        return None

    bodies = rebuild(cell.roots, narrow)
    outputs = tuple(replace(output, body=body) for output, body in zip(cell.outputs, bodies, strict=True))
    return replace(cell, inputs=tuple(inputs), outputs=outputs)


class Compiler:
    """Compiles C texts into libraries in a folder, each distinct one once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def library(self, texts: Sequence[str], *, cc: Sequence[str] = GCC, flags: Sequence[str] = ("-Og",)) -> ctypes.CDLL:
        """The library of some functions."""
        return self._library("\n".join(texts), cc, flags)

    def program(
        self, name: str, macros: Mapping[str, object], *, cc: Sequence[str] = GCC, flags: Sequence[str] = ("-Og",)
    ) -> ctypes.CDLL:
        """The library of a skeleton alone: a program of tests/devices/cpu/skeletons, for the sizes of `macros`."""
        sizes = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
        return self._library(sizes + (_PROGRAMS / f"{name}.c").read_text(), cc, flags)

    def _library(self, source: str, cc: Sequence[str], flags: Sequence[str]) -> ctypes.CDLL:
        command = [*cc, *FLAGS, *flags, "-march=native", "-shared", "-fPIC", *(f"-I{folder}" for folder in HEADERS)]
        name = hashlib.sha256("\0".join([source, *command]).encode()).hexdigest()[:20]
        library = self._folder / f"{name}.so"
        if not library.exists():
            (self._folder / f"{name}.c").write_text(source)
            done = subprocess.run(
                [*command, str(self._folder / f"{name}.c"), "-o", str(library), "-lm"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr[:4000] + source
        return ctypes.CDLL(str(library))


class Bound:
    """A canonical expression with the layouts and bindings of its tensors: inputs, then outputs.

    Tensors are row-major, those in `channels_last` have dimension 1 innermost, `constants` what they prefer. All begin
    at a multiple of so many `elements` (0: nothing is known).
    """

    def __init__(
        self,
        expr: TensorExpr,
        constants: Collection[int],
        vdevice: VDevice,
        channels_last: Collection[int] = (),
        *,
        elements: int = 0,
    ) -> None:
        types = [*expr.inputs, *(output.type for output in expr.outputs)]
        chosen = [_layout(type_, i in channels_last) for i, type_ in enumerate(types)]
        packed = preferred_layouts(expr, constants, chosen[: len(expr.inputs)], vdevice)
        self.layouts = [packed.get(i, layout) for i, layout in enumerate(chosen)]
        views = [View.whole(i, type_.rank) for i, type_ in enumerate(types)]
        count = len(expr.inputs)
        self.expr, reads, writes = canonical(expr, views[:count], views[count:])
        self.bindings: tuple[Binding, ...] = (*reads, *writes)
        alignments = (elements,) * len(self.bindings) if elements else ()
        layouts = tuple(self.layouts[b.tensor] for b in self.bindings)
        slots = frozenset(slot for slot, binding in enumerate(reads) if binding.tensor in constants)
        self.workload = Workload(self.expr, layouts, alignments, slots)
        self.kernels = construct(self.workload, vdevice)
        self.types = types
        self._inputs = count

    def tensors(self, inputs: Sequence[Array]) -> list[Array]:
        """Inputs as they are stored, then room for outputs; every output element starts out wrong."""
        wrong = [np.full(t.shape, 77, t.dtype.numpy) for t in self.types[self._inputs :]]
        return [layout.pack(array) for layout, array in zip(self.layouts, [*inputs, *wrong], strict=True)]

    @property
    def operands(self) -> list[tuple[int, int]]:
        """What an rTask is called with: of each operand the tensor and where in it, in bytes."""
        items = [type_.dtype.numpy.itemsize for type_ in self.types]
        return [(b.tensor, self.layouts[b.tensor].address(b.origin) * items[b.tensor]) for b in self.bindings]

    def outputs(self, tensors: Sequence[Array]) -> list[Array]:
        """The outputs among stored tensors."""
        results = list(zip(tensors, self.layouts, self.types, strict=True))[self._inputs :]
        return [storage[layout.addresses(type_.shape)] for storage, layout, type_ in results]

    def run(self, kernel: RKernel, function: Any, inputs: Sequence[Array]) -> list[Array]:
        """All rTasks of a kernel, last one first."""
        tensors = self.tensors(inputs)
        addresses = [tensors[tensor].ctypes.data + offset for tensor, offset in self.operands]
        pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int32], None
        for tile in reversed(range(kernel.task_count)):
            function(pointers, tile)
        return self.outputs(tensors)


def _layout(type_: TensorType, channels_last: bool) -> Layout:
    order = (0, *range(2, type_.rank), 1) if channels_last else tuple(range(type_.rank))
    return Layout.ordered(type_.shape, order)


def with_task(kernel: RKernel, task: tuple[int, ...], room_bytes: int = 160 << 10) -> Any:
    """The rKernel with an rTask of another size, and so much shared memory."""
    tile = RTile(task=task, lane=kernel.tile.lane)
    assert isinstance(kernel.form, GemmForm)
    of_float = of_float32([kernel.form.instruction])
    form = gemm_form(kernel.expr, kernel.layouts, tile, kernel.form.threads, room_bytes, of_float)
    assert form is not None
    return replace(kernel, tile=tile, form=form)


def random_array(type_: TensorType, seed: int = 0) -> Array:
    """Values of a tensor type that are neither large nor all positive."""
    rng = np.random.default_rng([seed, *type_.shape])
    if type_.dtype is DType.BOOL:
        return rng.integers(0, 2, type_.shape).astype(np.bool_)
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape).astype(type_.dtype.numpy)
    return rng.integers(-20 if type_.dtype.is_signed else 0, 21, type_.shape).astype(type_.dtype.numpy)


def run_all(
    expr: TensorExpr,
    inputs: Sequence[Array],
    compiler: Compiler,
    *,
    constants: Collection[int] = (),
    channels_last: Collection[int] = (),
    vdevice: VDevice = AVX2,
    cc: Sequence[str] = GCC,
    flags: Sequence[str] = ("-Og",),
) -> list[tuple[RKernel, list[Array]]]:
    """Every candidate rKernel of an expression with its outputs."""
    bound = Bound(expr, constants, vdevice, channels_last)
    texts = [emit_kernel(kernel, f"kernel{i}") for i, kernel in enumerate(bound.kernels)]
    library = compiler.library(texts, cc=cc, flags=flags)
    return [(kernel, bound.run(kernel, library[f"kernel{i}"], inputs)) for i, kernel in enumerate(bound.kernels)]
