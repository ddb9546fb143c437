"""An rKernel as one device function."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scalar import storage_type
from rammer.devices.codegen.scope import Operands, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.attention import emit_attention
from rammer.devices.cuda.emit.depthwise import emit_depthwise
from rammer.devices.cuda.emit.fold import fold
from rammer.devices.cuda.emit.gemm import emit_gemm
from rammer.devices.cuda.emit.gemv import STREAM, emit_gemv
from rammer.devices.cuda.emit.gemv_rows import emit_gemv_rows
from rammer.devices.cuda.emit.map import emit_map
from rammer.devices.cuda.emit.persistent_rnn import declare_cell, emit_keep_constants, emit_load_weights, emit_step
from rammer.devices.cuda.emit.points import Side, ends, tile_sides
from rammer.devices.cuda.emit.reduce import emit_reduce
from rammer.devices.cuda.emit.trees import emit_trees
from rammer.devices.cuda.emit.wait import emit_meet, emit_wait, takes_any_apart, takes_apart
from rammer.devices.cuda.emit.warpgroup_gemm import emit_place, emit_results, emit_rows, loop_of
from rammer.devices.cuda.source_files import CALLED
from rammer.ir.expr import Load
from rammer.ir.kernel_form import (
    DepthwiseForm,
    ExternForm,
    FlashAttentionForm,
    GemmForm,
    GemvForm,
    GemvRowsForm,
    KernelForm,
    MapForm,
    PersistentRnnForm,
    ReduceForm,
    WarpgroupGemmForm,
)
from rammer.ir.task import RKernel
from rammer.ir.tree_forms import SharedTreesForm
from rammer.ir.types import DType, Layout
from rammer.tiling.persistent_rnn import Stationary, plan_of

TAGGED_STORE = "rammer_store_flagged"
_INT32_ADDRESSES = 1 << 31
_TAGGED: Mapping[DType, str] = {
    DType.FLOAT32: "rammer_tagged",
    DType.TF32: "rammer_tagged_bits",
    DType.FLOAT16: "rammer_tagged_half",
    DType.BFLOAT16: "rammer_tagged_half",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelText:
    """The text of an rKernel, and what it keeps if it is a persistent RNN.

    `apart` says whether lanes of a warp may come apart in it: where each waits for tagged elements of its own. `loop`
    is what the interpreter runs before the function, if warpgroups multiply, and `has_rows` whether others then find
    what a row has in common.
    """

    text: str
    stationary: Stationary | None = None
    apart: bool = False
    loop: str | None = None
    has_rows: bool = False


def emit_kernel(
    kernel: RKernel, symbol: str, *, unwritten: Collection[int] = (), constants_stay: bool = True
) -> KernelText:
    """The function that a whole block calls for an rTask; of a persistent RNN, those for a run (`runtime/runs.cuh`).

        void symbol(const rammer_record *record)

        void symbol::load_weights(char *const *pointers, uint32_t tile, float *shared, float *weights)
        void symbol::keep_constants(char *const *pointers, uint32_t tile, float *shared)
        template <int team>
        void symbol::step(char *const *pointers, uint32_t tile, uint32_t position, float *shared, const float *weights)

    A record has the address of the element of each slot whose indices are 0, inputs first, then outputs, and the number
    of the rTask, row-major over `kernel.grid`: `pointers` and `tile`. The first function waits as the record says
    before it reads what others write, and returns at once if that was in vain; it has C linkage for the dispatch. The
    text needs `walk.cuh`, `rammer_kernel.cuh`, `rammer_scalars.h` and those of its skeleton.

    Args:
        kernel: the rKernel.
        symbol: the function's name.
        unwritten: the slots that no rTask writes wherever the rKernel is used.
        constants_stay: whether L2 holds all constants from run to run. If not, those of which each element is read by
            one rTask make room for the others.

    Raises:
        TypeError: the expression applies a function to a type it is not defined for.
        UnsupportedFeatureError: an rTask has more points than threads can count.
        ValueError: the skeleton is none of this device's.
    """
    if isinstance(kernel.form, PersistentRnnForm):
        return _emit_persistent_rnn(kernel, symbol, unwritten)
    if isinstance(kernel.form, ExternForm):
        return _emit_extern(kernel, kernel.form, symbol)
    if isinstance(kernel.form, WarpgroupGemmForm):
        return _emit_warpgroup_gemm(kernel, kernel.form, symbol)
    streamed = kernel.constants if not constants_stay and isinstance(kernel.form, GemvForm | GemvRowsForm) else ()
    writer = _writer(kernel)
    operands = Operands(kernel, _readers(kernel, streamed), TAGGED_STORE)
    with _function(writer, kernel, symbol, operands) as (scope, sides):
        _emit_body(scope, sides, kernel.form, unwritten)
        emit_meet(scope)
    return KernelText(text=writer.text(), apart=bool(_tagged(kernel)))


@contextmanager
def _function(writer: Writer, kernel: RKernel, symbol: str, operands: Operands) -> Iterator[tuple[Scope, list[Side]]]:
    """The function of an rKernel: the scope in it, and where the rTask lies."""
    with writer.block(f"{CALLED} void {symbol}(const rammer_record *record)"):
        writer.line("__builtin_assume(__isShared(record));")
        writer.line("char *const scratch = rammer_scratch;")
        writer.line("char *const *pointers = rammer_operands(record);")
        writer.let("uint32_t", "tile", "record->tile")
        for line in _operand_lines(operands, range(len(kernel.layouts))):
            writer.line(line)
        yield Scope(writer, operands, fold), tile_sides(writer, kernel)


def _emit_warpgroup_gemm(kernel: RKernel, form: WarpgroupGemmForm, symbol: str) -> KernelText:
    """The functions of a product of warpgroups: where an rTask lies, what is made of its sums.

    If elements of rows are tagged, another one waits for them beside the sums.
    """
    writer = _writer(kernel)
    with writer.block(f"RAMMER_INLINE void {symbol}_place(const rammer_record *record, rammer_product *product)"):
        emit_place(writer, kernel, form)
    tagged = _tagged(kernel)
    operands = Operands(kernel, dict.fromkeys(tagged, "rammer_load_flagged_by_warps{record}"), TAGGED_STORE)
    if tagged:
        parameters = "const rammer_record *record, uint32_t thread, uint32_t threads"
        with writer.block(f"RAMMER_INLINE void {symbol}_rows({parameters})"):
            writer.line("char *const *pointers = rammer_operands(record);")
            writer.let("uint32_t", "tile", "record->tile")
            for line in _operand_lines(operands, tagged):
                writer.line(line)
            emit_rows(Scope(writer, operands, fold), tile_sides(writer, kernel), form)
    with _function(writer, kernel, symbol, operands) as (scope, sides):
        emit_results(scope, sides, form)
    return KernelText(text=writer.text(), loop=loop_of(form), has_rows=bool(tagged))


def _emit_extern(kernel: RKernel, form: ExternForm, symbol: str) -> KernelText:
    """A user's own code, in a namespace, and the function that calls it; see `ir.extern.KernelSource`."""
    writer = _writer(kernel)
    with writer.block(f"namespace {symbol}_extern"):
        writer.line(form.code)
    with _function(writer, kernel, symbol, Operands(kernel)) as (_, sides):
        emit_wait(writer)
        count = len(kernel.expr.inputs)
        arguments = [f"in{number}" if number < count else f"out{number - count}" for number in form.operands]
        for place in form.axes:
            arguments += ("0", "1") if place is None else ends(sides[place])
        writer.line(f"{symbol}_extern::task({', '.join([*arguments, 'scratch'])});")
    return KernelText(text=writer.text())


def _emit_body(scope: Scope, sides: Sequence[Side], form: KernelForm, unwritten: Collection[int]) -> None:
    """Write the loops over one rTask."""
    match form:
        case MapForm():
            emit_map(scope, sides, form)
        case ReduceForm():
            emit_reduce(scope, sides, form)
        case GemmForm():
            emit_gemm(scope, sides, form)
        case GemvForm():
            emit_gemv(scope, sides, form)
        case GemvRowsForm():
            emit_gemv_rows(scope, sides, form)
        case FlashAttentionForm():
            emit_attention(scope, sides, form, unwritten)
        case DepthwiseForm():
            emit_depthwise(scope, sides, form)
        case SharedTreesForm():
            emit_trees(scope, sides, form)
        case _:
            raise ValueError(f"GPUs have no rKernels of the form {form}")


def _emit_persistent_rnn(kernel: RKernel, symbol: str, unwritten: Collection[int]) -> KernelText:
    """The three functions of a persistent RNN, those of a type."""
    plan = plan_of(kernel)
    stationary = plan.stationary
    others = [slot for slot in range(len(kernel.layouts)) if slot not in stationary.weights]
    writer = _writer(kernel)
    takes = {
        slot: "rammer_load_flagged" if takes_apart(kernel, slot) else "rammer_load_flagged_by_warps"
        for slot in _tagged(kernel)
    }
    readers = {slot: f"{take}{{rammer_at(position)}}" for slot, take in takes.items()}
    operands = Operands(kernel, readers, TAGGED_STORE)

    @contextmanager
    def function(name: str, parameters: str, slots: Collection[int]) -> Iterator[tuple[Scope, list[Side]]]:
        arguments = f"char *const *pointers, uint32_t tile, {parameters}"
        template = "template <int team> " if name == "step" else ""
        with writer.block(f"{template}static RAMMER_MEMBER void {name}({arguments})"):
            for line in _operand_lines(operands, slots):
                writer.line(line)
            yield Scope(writer, operands, fold), tile_sides(writer, kernel)

    with writer.block(f"struct {symbol}", ";"):
        declare_cell(writer, kernel, plan, meets=takes_any_apart(kernel))
        with function("load_weights", "float *shared, float *weights", stationary.weights) as (scope, sides):
            emit_load_weights(scope, sides, plan)
        with function("keep_constants", "float *shared", plan.kept) as (scope, sides):
            emit_keep_constants(scope, sides, plan)
        with function("step", "uint32_t position, float *shared, const float *weights", others) as (scope, sides):
            emit_step(scope, sides, plan, unwritten)
    return KernelText(text=writer.text(), stationary=stationary, apart=takes_any_apart(kernel))


def _writer(kernel: RKernel) -> Writer:
    """A writer that computes addresses in 32 bits where they fit."""
    return Writer("int32_t" if all(layout.span < _INT32_ADDRESSES for layout in kernel.layouts) else "int64_t")


def _readers(kernel: RKernel, streamed: Collection[int]) -> dict[int, str]:
    """How elements are read that are not read plainly."""
    return dict.fromkeys(streamed, STREAM) | dict.fromkeys(_tagged(kernel), "rammer_load_flagged{record}")


def _tagged(kernel: RKernel) -> list[int]:
    """The slots that are tagged."""
    return [slot for slot in range(len(kernel.expr.inputs)) if kernel.layouts[slot].tagged]


def _operand_lines(operands: Operands, slots: Collection[int]) -> list[str]:
    """Pointers without `restrict`: what another block wrote must not be read through the read-only cache."""
    kernel = operands.kernel
    inputs = kernel.expr.inputs
    loaded = {node.slot for node in operands.reach((*operands.results, *operands.fallbacks)) if isinstance(node, Load)}
    lines = []
    for i, type_ in enumerate(inputs):
        if i in loaded and i in slots:
            storage = _storage(type_.dtype, kernel.layouts[i])
            lines.append(f"const {storage} *in{i} = (const {storage} *)pointers[{i}];")
            lines.append(f"__builtin_assume(__isGlobal(in{i}));")
    for i, output in enumerate(kernel.expr.outputs):
        if len(inputs) + i in slots:
            storage = _storage(output.type.dtype, kernel.layouts[len(inputs) + i])
            lines.append(f"{storage} *out{i} = ({storage} *)pointers[{len(inputs) + i}];")
            lines.append(f"__builtin_assume(__isGlobal(out{i}));")
    return lines


def _storage(dtype: DType, layout: Layout) -> str:
    """The type in memory, tagged or not."""
    if layout.tagged:
        return _TAGGED[dtype]
    return storage_type(dtype)
