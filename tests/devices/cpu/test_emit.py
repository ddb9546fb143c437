"""Generated C against NumPy: every candidate rKernel of many expressions, compiled and run rTask by rTask."""

import math
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rammer.devices.cpu.emit.kernel import emit_kernel
from rammer.ir.evaluate import evaluate
from rammer.ir.expr import (
    Axis,
    Expr,
    Output,
    ScalarFn,
    TensorExpr,
    call,
    cast,
    const,
    load,
    select,
)
from rammer.ir.kernel_form import MicroKernelForm
from rammer.ir.types import DType, TensorType
from tests.support.kernel_cases import (
    BYTES,
    CHANNELS_LAST,
    CONTRACTIONS,
    IMAGES,
    MAPS,
    REDUCTIONS,
    assert_close,
    filtered,
)
from tests.support.kernels import (
    AVX2,
    AVX512,
    CLANG,
    GCC,
    NEON,
    Bound,
    Compiler,
    conv,
    random_array,
    run_all,
    types,
)
from tests.support.operators import expression

F16, BF16, F32, F64 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64
I32, I64, U8, BOOL = DType.INT32, DType.INT64, DType.UINT8, DType.BOOL
MACHINES = {"avx512": AVX512, "avx2": AVX2, "neon": NEON}


@pytest.fixture(scope="session")
def compiler(tmp_path_factory):
    return Compiler(tmp_path_factory.mktemp("kernels"))


def check(expr, compiler, *, inputs=None, **options):
    """Compare every candidate with the definition; returns the candidates."""
    inputs = inputs or [random_array(type_, slot) for slot, type_ in enumerate(expr.inputs)]
    wanted = evaluate(expr, inputs)
    results = run_all(expr, inputs, compiler, **options)
    for _, outputs in results:
        for output, found, want in zip(expr.outputs, outputs, wanted, strict=True):
            assert_close(found, want, output.type.dtype)
    return [kernel for kernel, _ in results]


def register_of(kernel):
    """The block of a product that is kept in registers."""
    assert isinstance(kernel.form, MicroKernelForm)
    return kernel.form.register


@pytest.mark.parametrize("vdevice", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions(name, vdevice, compiler):
    expr, constants = CONTRACTIONS[name]
    kernels = check(expr, compiler, constants=constants, vdevice=vdevice)
    assert any(isinstance(kernel.form, MicroKernelForm) for kernel in kernels)


@pytest.mark.parametrize("vdevice", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("rows", [3, 5, 12, 30])
def test_sums_that_are_stored_along_rows_are_transposed(rows, vdevice, compiler):
    """Filters over one channel are multiplied side by side, and their results lie apart."""
    expr = conv((1, 1, 5 * rows), (48, 1, 10), strides=(5,))
    kernels = check(expr, compiler, constants={1}, vdevice=vdevice)
    turned = [kernel for kernel in kernels if "rammer_transpose" in emit_kernel(kernel, "conv")]
    assert turned
    assert all(kernel.tile.lane == 0 for kernel in turned)


@pytest.mark.parametrize(
    ("vdevice", "flags", "cc"),
    [
        (AVX512, ("-O3",), GCC),
        (AVX512, ("-O3",), CLANG),
        (AVX512, ("-Og", "-mno-avx512vnni", "-mno-avxvnni"), GCC),
        (AVX2, ("-Og",), GCC),
        (NEON, ("-Og",), GCC),
    ],
    ids=["avx512", "avx512-clang", "avx512-without", "avx2", "neon"],
)
def test_bytes(vdevice, flags, cc, compiler):
    """By the instruction where the machine has it, and exactly without it; int8 takes all its values."""
    for expr, constants in BYTES.values():
        inputs = [
            np.random.default_rng(slot).integers(*((-128, 128) if slot == 1 else (0, 256)), type_.shape)
            for slot, type_ in enumerate(expr.inputs)
        ]
        inputs = [array.astype(type_.dtype.numpy) for array, type_ in zip(inputs, expr.inputs, strict=True)]
        kernels = check(expr, compiler, inputs=inputs, constants=constants, vdevice=vdevice, flags=flags, cc=cc)
        assert any(isinstance(kernel.form, MicroKernelForm) for kernel in kernels)


def test_bytes_without_the_instruction_are_a_general_reduction():
    expr, constants = BYTES["bytes"]
    kernels = Bound(expr, constants, replace(AVX512, byte_products=None)).kernels
    assert {kernel.form.skeleton for kernel in kernels} == {"reduce"}


def test_bytes_of_an_epilogue_are_widened_and_narrowed_by_vectors():
    """All lanes of the loop have four bytes."""
    expr, constants = BYTES["quantised 3x3"]
    kernel = Bound(expr, constants, AVX512, {0, 2, 4}).kernels[0]
    text = emit_kernel(kernel, "quantised")
    assert kernel.tile.lane is not None
    vectors = register_of(kernel)[kernel.tile.lane] // 16
    whole, rest = divmod(kernel.expr.axes[kernel.tile.lane].extent, 16)
    assert f"RAMMER_VECTORS({whole}, RESULT, " in text
    for lanes in (16, rest):
        assert f"RAMMER_WIDEN({lanes}, u8, in" in text
        assert f"RAMMER_NARROW({lanes}, u8, out" in text
    assert f"RAMMER_ADD_DOTS({vectors}, 16, " in text


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, compiler):
    kernels = check(REDUCTIONS[name], compiler, constants={1})
    assert "map" not in {kernel.form.skeleton for kernel in kernels}


@pytest.mark.parametrize("name", MAPS)
def test_maps(name, compiler):
    kernels = check(MAPS[name], compiler)
    assert {kernel.form.skeleton for kernel in kernels} == {"map"}


@pytest.mark.parametrize("vdevice", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_last(name, vdevice, compiler):
    expr, channels_last, skeleton = CHANNELS_LAST[name]
    constants = {1} if len(expr.inputs) > 1 and skeleton not in ("map", "reduce") else set()
    kernels = check(expr, compiler, constants=constants, channels_last=channels_last, vdevice=vdevice)
    assert {kernel.form.skeleton for kernel in kernels} == {skeleton}


def test_what_windows_of_neighbouring_rows_share_is_loaded_once():
    """13 pixels side by side take 13 loads and 3 of weights for 37 products; two more would be with padding."""
    expr, channels_last, _ = CHANNELS_LAST["depthwise 3x3"]
    text = emit_kernel(Bound(expr, {1}, AVX512, channels_last).kernels[0], "depthwise")
    assert text.count("RAMMER_LOAD_ONCE(") == 13
    assert text.count("RAMMER_LOAD(") == 3
    assert text.count(" += w") == 37


@pytest.mark.parametrize(("vdevice", "most"), [(AVX512, 16), (AVX2, 11)], ids=["avx512", "avx2"])
def test_a_row_of_weights_stays_in_registers_where_windows_slide(vdevice, most):
    """Beside the sums are three vectors of weights and two for pixels: of 16 registers that leaves 11."""
    expr = conv((1, 32, 30, 64), (32, 1, 3, 3), group=32)
    (rows,) = {math.prod(register_of(kernel)[1:]) for kernel in Bound(expr, {1}, vdevice, {0, 2}).kernels}
    assert rows == most


@pytest.mark.parametrize(("columns", "exponentials"), [(512, 1), (8 << 10, 2)], ids=["short", "long"])
def test_exponentials_of_a_softmax_are_kept_while_that_takes_little_memory(columns, exponentials, compiler):
    expr = expression("Softmax", types((3, columns)), axis=1)
    for kernel in check(expr, compiler):
        assert emit_kernel(kernel, "softmax").count("rammer_exp_f32(") == exponentials


@pytest.mark.parametrize(("name", "settled"), [("average pool", True), ("pool of many taps", False)])
def test_taps_of_short_windows_are_settled(name, settled):
    """No loop is bounded by the padding, unless that would multiply the code."""
    expr, channels_last, _ = CHANNELS_LAST[name]
    for kernel in Bound(expr, (), AVX512, channels_last).kernels:
        assert ("_within" not in emit_kernel(kernel, "pool")) is settled


@pytest.mark.parametrize("vdevice", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("size", [(8, 8), (13, 14)], ids=str)
def test_transforms_have_nothing_to_choose(size, vdevice, compiler):
    """All points of a tile are written side by side; loops are cut where padding begins, and runs tell what is."""
    of_runs = re.compile(r"[&() ]*(\w+_run [<>]= \d+[&() ]*)+")
    for expr, images in zip(filtered(size), IMAGES, strict=True):
        check(expr, compiler, channels_last=images, vdevice=vdevice)
        for kernel in Bound(expr, (), vdevice, images).kernels:
            text = emit_kernel(replace(kernel, expr=kernel.expr.usual), "transform")
            assert all(of_runs.fullmatch(choice) for choice in re.findall(r"= (.*?) \?", text))


@pytest.mark.parametrize("bad", [np.inf, np.nan], ids=str)
def test_fallbacks_do_not_read_what_is_usual(bad, compiler):
    """Tiles whose guard does not hold are computed from the image and the weights, all others from products."""
    _, expr = filtered((8, 12))
    products, ordinary, *others = [random_array(type_, slot) for slot, type_ in enumerate(expr.inputs)]
    assert 0 < ordinary.sum() < ordinary.size
    products[np.broadcast_to(ordinary[:, None, :, :, None] == 0, products.shape)] = bad
    inputs = [products, ordinary, *others]
    assert np.isfinite(evaluate(expr, inputs)[0]).all()
    kernels = check(expr, compiler, inputs=inputs, constants={3}, channels_last=IMAGES[1])
    assert {kernel.form.skeleton for kernel in kernels} == {"map"}


def test_a_tile_may_cut_the_axes_that_choose(compiler):
    _, expr = filtered((8, 8))
    bound = Bound(expr, (), AVX2, IMAGES[1])
    tile = replace(bound.kernels[0].tile, task=(1,) * len(bound.expr.axes))
    kernel = replace(bound.kernels[0], tile=tile)
    inputs = [random_array(type_) for type_ in expr.inputs]
    library = compiler.library([emit_kernel(kernel, "cut")])
    (found,) = bound.run(kernel, library["cut"], inputs)
    (wanted,) = evaluate(expr, inputs)
    assert_close(found, wanted, F32)


@pytest.mark.parametrize("cc", [None, CLANG], ids=["cc", "clang"])
def test_optimised_code_agrees_with_both_compilers(cc, compiler):
    chosen = {} if cc is None else {"cc": cc}
    for name in ("product", "3x3 stride 2", "cell", "attention scores"):
        expr, constants = CONTRACTIONS[name]
        check(expr, compiler, constants=constants, vdevice=AVX512, flags=("-O3",), **chosen)
    for expr in (REDUCTIONS["max pool"], REDUCTIONS["softmax of rows"], REDUCTIONS["depthwise 3x3"], MAPS["gather"]):
        check(expr, compiler, vdevice=AVX512, flags=("-O3",), **chosen)


def test_more_tasks_than_candidates_offer(compiler):
    """Boundary tiles along every axis at once."""
    expr = conv((1, 5, 11, 13), (37, 5, 3, 3))
    bound = Bound(expr, {1}, AVX2)
    first = bound.kernels[0]
    task = tuple(min(axis.extent, 2 * size) for axis, size in zip(bound.expr.axes, register_of(first), strict=True))
    kernel = replace(first, tile=replace(first.tile, task=task))
    assert kernel.task_count > 10
    inputs = [random_array(type_) for type_ in expr.inputs]
    library = compiler.library([emit_kernel(kernel, "tiled")])
    (found,) = bound.run(kernel, library["tiled"], inputs)
    (wanted,) = evaluate(expr, inputs)
    assert_close(found, wanted, F32)


# --- Values ------------------------------------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 3e38, -3e38, 1.5, -2.5, 100.0, -100.0, 88.9])


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=lambda dtype: dtype.value)
def test_nan_infinity_and_subnormal_numbers(dtype, compiler):
    with np.errstate(over="ignore"):
        a, b = (grid.reshape(-1).astype(np.float32).astype(dtype.numpy) for grid in np.meshgrid(SPECIAL, SPECIAL))
    types_ = types(a.shape, a.shape, dtype=dtype)
    for kind in ("Max", "Min", "Add", "Div", "Less", "Equal"):
        check(expression(kind, types_), compiler, inputs=[a, b])
    for kind in ("Exp", "Tanh", "Sigmoid", "Erf", "Relu", "Sign", "Abs", "Round", "Sqrt", "IsNaN"):
        check(expression(kind, types_[:1]), compiler, inputs=[a])
    check(
        expression("ReduceMax", types((14, 14), dtype=dtype), axes=(1,), keepdims=False),
        compiler,
        inputs=[a.reshape(14, 14)],
    )
    check(
        expression("ReduceMin", types((14, 14), dtype=dtype), axes=(0,), keepdims=False),
        compiler,
        inputs=[a.reshape(14, 14)],
    )


@pytest.mark.parametrize("dtype", [U8, DType.INT8, I32, I64, DType.UINT64, DType.INT16], ids=lambda dtype: dtype.value)
def test_integers_wrap_and_divide_as_in_numpy(dtype, compiler):
    limits = np.iinfo(dtype.numpy)
    ends = [limits.min, limits.max, limits.min // 2 + 1, 0, 1, 2, 3, 7, limits.max // 3]
    ends += [-1, -2, -7] if dtype.is_signed else []
    a, b = (grid.reshape(-1) for grid in np.meshgrid(*[np.array(ends, dtype.numpy)] * 2))
    type_ = TensorType(dtype, a.shape)
    (axis,) = (Axis("s0", a.size),)
    x, y = load(0, type_, (axis,)), load(1, type_, (axis,))
    functions = [ScalarFn.ADD, ScalarFn.SUB, ScalarFn.MUL, ScalarFn.DIV, ScalarFn.FLOORDIV, ScalarFn.MOD, ScalarFn.FMOD]
    functions += [ScalarFn.MIN, ScalarFn.MAX, ScalarFn.BIT_AND, ScalarFn.BIT_OR, ScalarFn.BIT_XOR]
    bodies = [call(fn, x, y) for fn in functions]
    bodies += [call(fn, x) for fn in (ScalarFn.NEG, ScalarFn.ABS, ScalarFn.SIGN, ScalarFn.BIT_NOT)]
    amount = call(ScalarFn.BIT_AND, y, const(63, dtype))
    bodies += [call(fn, x, amount) for fn in (ScalarFn.SHIFT_LEFT, ScalarFn.SHIFT_RIGHT)]
    outputs = tuple(Output(type=type_, indices=(axis,), body=body) for body in bodies)
    with np.errstate(all="ignore"):
        check(TensorExpr(axes=(axis,), inputs=(type_, type_), outputs=outputs), compiler, inputs=[a, b])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda dtype: dtype.value)
def test_sixteen_bit_floats_convert_exactly(dtype, compiler):
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype.numpy)
    check(expression("Cast", types(every.shape, dtype=dtype), to=F32), compiler, inputs=[every])
    wide = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        narrow = every.astype(np.float32)
        samples = [wide, narrow, narrow * np.float32(1 + 2**-11)]
        rounded = [numbers.astype(dtype.numpy) for numbers in samples]
    for numbers, wanted in zip(samples, rounded, strict=True):
        ((_, (found,)), *_) = run_all(expression("Cast", types(numbers.shape), to=dtype), [numbers], compiler)
        np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))


@pytest.mark.parametrize("kind", ["Exp", "Tanh", "Sigmoid", "Erf"])
def test_functions_are_accurate_to_three_units_in_the_last_place(kind, compiler):
    x = np.concatenate([np.linspace(-105, 95, 200_001), np.linspace(-5, 5, 200_001), np.logspace(-40, 1, 10_000)])
    x = x.astype(np.float32)
    ((_, (found,)), *_) = run_all(expression(kind, types(x.shape)), [x], compiler, flags=("-O3",))
    (wanted,) = evaluate(expression(kind, types(x.shape, dtype=F64)), [x.astype(np.float64)])
    with np.errstate(over="ignore"):
        unit = np.spacing(np.abs(wanted.astype(np.float32))).astype(np.float64)
        inside = np.isfinite(wanted.astype(np.float32))
    assert np.max(np.abs(found.astype(np.float64)[inside] - wanted[inside].astype(np.float64)) / unit[inside]) < 3
    np.testing.assert_array_equal(np.isinf(found), ~inside)


def test_indices_outside_are_kept_inside(compiler):
    """A gather without clamps of its own."""
    x, where = TensorType(F32, (10, 6)), TensorType(I32, (8,))
    i, j = Axis("s0", 8), Axis("s1", 6)
    index = cast(I64, load(1, where, (i,)))
    body = load(0, x, (index, j))
    output = Output(type=TensorType(F32, (8, 6)), indices=(i, j), body=body)
    expr = TensorExpr(axes=(i, j), inputs=(x, where), outputs=(output,))
    rows = np.array([0, 9, -1, 10, 2**31 - 1, -(2**31), 3, 4], np.int32)
    values = random_array(x)
    for _, (found,) in run_all(expr, [values, rows], compiler):
        np.testing.assert_array_equal(found, values[np.clip(rows, 0, 9)])


def test_a_padded_gather_gives_its_fill_outside(compiler):
    x, where = TensorType(F32, (10,)), TensorType(I64, (6,))
    i = Axis("s0", 6)
    body = load(0, x, (load(1, where, (i,)),), fill=-3.0)
    output = Output(type=TensorType(F32, (6,)), indices=(i,), body=body)
    expr = TensorExpr(axes=(i,), inputs=(x, where), outputs=(output,))
    check(expr, compiler, inputs=[random_array(x), np.array([0, 9, -1, 10, 1 << 40, 5])])


def test_divisions_in_unused_branches_do_no_harm(compiler):
    type_ = TensorType(I32, (9,))
    i = Axis("s0", 9)
    x = load(0, type_, (i,))
    body = select(call(ScalarFn.EQ, x, 0), const(7, I32), call(ScalarFn.DIV, const(100, I32), x))
    expr = TensorExpr(axes=(i,), inputs=(type_,), outputs=(Output(type=type_, indices=(i,), body=body),))
    check(expr, compiler, inputs=[np.arange(-4, 5, dtype=np.int32)])


# --- Random elementwise work ---------------------------------------------------------------------------------

UNARY = [ScalarFn.NEG, ScalarFn.ABS, ScalarFn.SIGN, ScalarFn.FLOOR, ScalarFn.TANH, ScalarFn.SIGMOID, ScalarFn.ERF]
BINARY = [ScalarFn.ADD, ScalarFn.SUB, ScalarFn.MUL, ScalarFn.MIN, ScalarFn.MAX]
COMPARISONS = [ScalarFn.LT, ScalarFn.LE, ScalarFn.EQ, ScalarFn.NE]


@st.composite
def elementwise(draw):
    """A DAG over loads that are whole, broadcast, transposed, shifted or strided."""
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    i, j = Axis("s0", rows), Axis("s1", columns)
    dtype = draw(st.sampled_from([F32, F64, F16]))
    shapes: list[tuple[tuple[int, ...], tuple[Expr, ...]]]
    shapes = [((rows, columns), (i, j)), ((columns,), (j,)), ((columns, rows), (j, i)), ((rows, 1), (i, const(0, I64)))]
    shapes += [((2 * rows, columns + 3), (i * 2 + 1, j + 3)), ((rows * columns,), (i * columns + j,))]
    slots = draw(st.lists(st.sampled_from(shapes), min_size=1, max_size=4))
    inputs = tuple(TensorType(dtype, shape) for shape, _ in slots)
    pool_ = [load(slot, inputs[slot], index) for slot, (_, index) in enumerate(slots)]
    pool_.append(load(0, inputs[0], [index - 1 for index in slots[0][1]], fill=0.5))
    for _ in range(draw(st.integers(1, 10))):
        pick = st.sampled_from(pool_)
        shape = draw(st.integers(0, 3))
        if shape == 0:
            pool_.append(call(draw(st.sampled_from(UNARY)), draw(pick)))
        elif shape == 1:
            condition = call(draw(st.sampled_from(COMPARISONS)), draw(pick), draw(pick))
            pool_.append(select(condition, draw(pick), draw(pick)))
        elif shape == 2:
            pool_.append(call(draw(st.sampled_from(BINARY)), draw(pick), draw(st.sampled_from([0.0, -1.5, 2.0]))))
        else:
            pool_.append(call(draw(st.sampled_from(BINARY)), draw(pick), draw(pick)))
    type_ = TensorType(dtype, (rows, columns))
    outputs = tuple(Output(type=type_, indices=(i, j), body=cast(dtype, body)) for body in pool_[-2:])
    return TensorExpr(axes=(i, j), inputs=inputs, outputs=outputs)


@settings(max_examples=60)
@given(elementwise())
def test_random_elementwise_work(compiler, expr):
    # Multiples of 1/4 keep sums and products exact, so that contraction cannot move a value across a comparison.
    inputs = [np.round(random_array(type_).astype(np.float64) * 4) / 4 for type_ in expr.inputs]
    inputs = [array.astype(type_.dtype.numpy) for array, type_ in zip(inputs, expr.inputs, strict=True)]
    check(expr, compiler, inputs=inputs, flags=("-Og", "-ffp-contract=off"))


# --- The text --------------------------------------------------------------------------------------------------

_PRINT = """
from tests.devices.cpu.test_emit import AVX512, CONTRACTIONS, MAPS, REDUCTIONS, Bound, emit_kernel
import sys
expressions = [*CONTRACTIONS.values(), *((expr, {1}) for expr in (*REDUCTIONS.values(), *MAPS.values()))]
for expr, constants in expressions:
    for kernel in Bound(expr, constants, AVX512).kernels:
        sys.stdout.write(emit_kernel(kernel, "kernel"))
"""


def test_equal_kernels_have_equal_code_in_every_process():
    texts = {
        subprocess.run(
            [sys.executable, "-c", _PRINT], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1
    assert texts.pop().count("void kernel(") > 100


def test_stack_stays_small():
    for expr, constants in CONTRACTIONS.values():
        for kernel in Bound(expr, constants, AVX512).kernels:
            assert kernel.form.scratch_bytes <= 64 << 10


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("rows", [4, 24, 300])
@pytest.mark.parametrize("vdevice", [AVX2, AVX512], ids=lambda vdevice: vdevice.name)
def test_each_block_of_rows_prefetches_its_share_of_the_next_weights(batch, rows, vdevice):
    expr = expression("MatMul", types((*batch, rows, 64), (*batch, 64, 96)))
    kernel = max(Bound(expr, {1}, vdevice).kernels, key=lambda kernel: kernel.tile.task)
    text = emit_kernel(kernel, "kernel")
    blocks = -(-rows // register_of(kernel)[-2])
    steps = [int(step) for step in re.findall(r"ahead\d+ \+= (\d+);", text)]
    assert bool(steps) is ("RAMMER_PREFETCH" in text) is (blocks > 1)
    assert all(step * blocks >= 64 > (step - 1) * blocks for step in steps)


@pytest.mark.parametrize(("channels", "is_prefetched"), [(3, False), (32, True), (64, False)])
def test_short_stretches_of_the_next_rows_are_prefetched(channels, is_prefetched):
    bound = Bound(conv((1, channels, 8, 8), (64, channels, 3, 3)), {1}, AVX512, {0, 2})
    text = emit_kernel(max(bound.kernels, key=lambda kernel: kernel.tile.task), "kernel")
    assert ("RAMMER_PREFETCH(in0" in text) is is_prefetched


@pytest.mark.parametrize("vdevice", [AVX512, AVX2], ids=lambda vdevice: vdevice.name)
@pytest.mark.parametrize(("rows", "spare_bytes", "is_prefetched"), [(1, -1, True), (1, 0, False), (2, -1, False)])
def test_a_matrix_that_no_cache_holds_is_prefetched_ahead(rows, spare_bytes, is_prefetched, vdevice, compiler):
    expr = expression("MatMul", types((rows, 64), (64, 192)))
    vdevice = replace(vdevice, stream_bytes=128, stream_ahead_bytes=512, veus=vdevice.veus[:1])
    vdevice = replace(vdevice, own_cache_bytes=expr.inputs[1].nbytes + spare_bytes)
    for kernel in check(expr, compiler, constants={1}, vdevice=vdevice):
        lanes = register_of(kernel)[-1]
        assert kernel.form.ahead_bytes == (512 if is_prefetched else 0)
        ahead = re.findall(r"RAMMER_PREFETCH\(.* \+ 512\);", emit_kernel(kernel, "kernel"))
        assert len(ahead) == (lanes // 16 if is_prefetched else 0)  # a line each
        assert lanes <= 64 or not is_prefetched  # two streams of 128 bytes


def test_sums_go_through_memory_only_to_be_transposed():
    expr, constants = CONTRACTIONS["1x1"]
    for channels_last, is_in_memory in (({0, 2}, False), ({0}, True)):
        for kernel in Bound(expr, constants, AVX512, channels_last).kernels:
            assert ("float sums" in emit_kernel(kernel, "kernel")) is is_in_memory


def test_a_register_tile_that_does_not_fit_is_refused():
    bound = Bound(CONTRACTIONS["product"][0], {1}, AVX512)
    first = bound.kernels[0]
    assert isinstance(first.form, MicroKernelForm)
    kernel = replace(first, form=replace(first.form, register=(3, 5)))
    with pytest.raises(ValueError, match="register tile"):
        emit_kernel(kernel, "kernel")


def test_a_function_of_the_wrong_type_is_refused():
    type_ = TensorType(I32, (4,))
    i = Axis("s0", 4)
    body = call(ScalarFn.SQRT, load(0, type_, (i,)))
    expr = TensorExpr(axes=(i,), inputs=(type_,), outputs=(Output(type=type_, indices=(i,), body=body),))
    with pytest.raises(TypeError, match="sqrt of int32"):
        emit_kernel(Bound(expr, (), AVX2).kernels[0], "kernel")
