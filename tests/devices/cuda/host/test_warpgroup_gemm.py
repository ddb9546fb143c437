"""Products that warpgroups multiply: operands either way round, stages, ragged edges, batches, in several orders."""

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from onnx import TensorProto, helper

from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from rammer.devices.cuda.tiling import warpgroup
from rammer.devices.cuda.tiling.figures import H200_WARPGROUPS
from rammer.devices.cuda.tiling.rules import GpuRules
from rammer.errors import VerificationError
from rammer.ir.kernel_form import WarpgroupGemmForm
from rammer.profiler.measure import _Operator, expected, operands_for
from rammer.roller.construct import construct
from rammer.verify import tasks
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import orders
from tests.support.products_alone import products_alone
from tests.support.small_models import FLOAT, small_model

TOLERANCES = {"tf32": 2e-3, "bf16": 2e-2, "fp16": 2e-3}


def chain(rows, inner, columns):
    """Two products with what comes between and behind them; the second's rows lie in memory of ours."""
    rng = np.random.default_rng(7)
    sizes = ((inner, columns), (columns, inner))
    constants = {f"w{i}": rng.standard_normal(size) / np.sqrt(size[0]) for i, size in enumerate(sizes)}
    constants |= {f"b{i}": rng.standard_normal(size[1]) for i, size in enumerate(sizes)}
    constants = {name: array.astype(np.float32) for name, array in constants.items()}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "w0"], ["p0"]),
        helper.make_node("Add", ["p0", "b0"], ["s0"]),
        helper.make_node("Relu", ["s0"], ["h"]),
        helper.make_node("MatMul", ["h", "w1"], ["p1"]),
        helper.make_node("Add", ["p1", "b1"], ["s1"]),
        helper.make_node("Sigmoid", ["x"], ["r"]),
        helper.make_node("Add", ["s1", "r"], ["y"]),
    ]
    return small_model(nodes, {"x": (FLOAT, (*rows, inner))}, {"y": (FLOAT, (*rows, inner))}, constants)


def scores(heads, queries, keys, size):
    """A batch of products of which neither operand is a constant."""
    nodes = [
        helper.make_node("Relu", ["q"], ["a"]),
        helper.make_node("Tanh", ["k"], ["b"]),
        helper.make_node("Transpose", ["b"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a", "t"], ["y"]),
    ]
    inputs = {"q": (FLOAT, (heads, queries, size)), "k": (FLOAT, (heads, keys, size))}
    return small_model(nodes, inputs, {"y": (FLOAT, (heads, queries, keys))})


def plan_of(gpu, model, wanted, *, precision="fp16", veus=3):
    """A plan whose products are by warpgroups, of the first forms that are `wanted`, and its vDevice."""
    plain = GpuRules.candidates

    def candidates(rules, workload, vdevice, *, to_measure):
        kernels = plain(rules, workload, vdevice, to_measure=to_measure)
        tiles = warpgroup.warpgroup_tiles(workload, kernels[0].tile.lane, vdevice)
        return [workload.kernel(tile, form) for tile, form in tiles if wanted(form)][:1] or kernels

    construct.cache_clear()
    with mock.patch.object(GpuRules, "candidates", candidates), products_alone():
        planned = gpu.plan(model, precision=precision, veus=veus)
    construct.cache_clear()
    return planned


def forms_of(gpu, model, wanted=lambda form: True, *, precision="fp16", veus=3):
    """The forms of a plan's products of warpgroups, which are the first that are `wanted`.

    Each order gives what ONNX Runtime does, and the same bits.
    """
    plan, vdevice = plan_of(gpu, model, wanted, precision=precision, veus=veus)
    rng = np.random.default_rng(0)
    shapes = {port.name: [d.dim_value for d in port.type.tensor_type.shape.dim] for port in model.graph.input}
    dtypes = {port.name: helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type) for port in model.graph.input}
    inputs = {name: rng.standard_normal(shape).astype(dtypes[name]) for name, shape in shapes.items()}
    (expected,) = run_onnx_runtime(model, inputs)
    loaded = gpu.load(source_of(plan, vdevice))
    bits = set()
    for order in orders(plan.veus):
        (found,) = gpu.run(loaded, list(inputs.values()), [expected], order)
        assert relative_difference(found, expected) < TOLERANCES[precision], order
        bits.add(found.tobytes())
    assert len(bits) == 1
    return [kernel.form for kernel in plan.kernels if isinstance(kernel.form, WarpgroupGemmForm)]


@pytest.mark.parametrize("precision", TOLERANCES)
def test_precisions(precision, gpu):
    assert len(forms_of(gpu, chain((20,), 128, 64), precision=precision)) == 2


@pytest.mark.parametrize(
    ("rows", "swapped", "model"),
    [(64, False, chain((70,), 64, 40)), (192, False, chain((150,), 64, 24)), (128, True, chain((8,), 64, 104))],
)
def test_warpgroups(rows, swapped, model, gpu):
    forms = forms_of(gpu, model, lambda form: form.swapped == swapped and form.instruction_m == rows)
    assert (rows, swapped) in {(form.instruction_m, form.swapped) for form in forms}


def test_ring_is_filled_again_and_again(gpu):
    with mock.patch.object(warpgroup, "_NAMED_BYTES", 195 << 10):
        forms = forms_of(gpu, chain((16,), 320, 64), lambda form: form.instruction_n == 16, veus=2)
    assert [form.stages for form in forms] == [3, 1]


@pytest.mark.parametrize(
    ("rows", "width", "finishers"), [(64, 4, 384), (40, 8, 384), (128, 8, 512)], ids=["few", "ragged", "by all"]
)
def test_results_of_a_thread(rows, width, finishers, gpu):
    """Those who do not multiply make them, of few results; two rows of four, not one of eight and another of some."""
    plan, vdevice = plan_of(gpu, chain((rows,), 64, 64), lambda form: form.threadblock[:2] == (rows, 64))
    text = bytes(source_of(plan, vdevice).files[CODE]).decode()
    assert f"rammer_epilogue<{rows}, 64, {width}, " in text
    assert f", {finishers}> epilogue;" in text
    assert text.count("    rammer_await_sums();") == 2 * (finishers < 512)


def test_results_by_half_of_those_who_multiply_are_rejected(gpu):
    plan, _ = plan_of(gpu, chain((16,), 64, 64), lambda form: form.instruction_m == 64)
    place, operator = next(
        found for found in enumerate(plan.graph.operators) if isinstance(found[1].kernels[0].form, WarpgroupGemmForm)
    )
    kernel = operator.kernels[0]
    broken = replace(operator, kernels=(replace(kernel, form=replace(kernel.form, finishers=448)),))
    operators = [*plan.graph.operators]
    operators[place] = broken
    with pytest.raises(VerificationError, match="results made by 448 of 512 threads, where 4 warps multiply") as caught:
        tasks.verify(replace(plan.graph, operators=tuple(operators)))
    assert caught.value.code == "T09"


def test_ragged_edges(gpu):
    """Rows, columns and sums that end within a tile, an instruction and a slab."""
    assert len(forms_of(gpu, chain((13,), 72, 40))) == 2


def test_rows_of_several_axes(gpu):
    assert len(forms_of(gpu, chain((2, 3, 4), 64, 40))) == 2


def test_batches_without_constants(gpu):
    assert len(forms_of(gpu, scores(2, 12, 24, 64), veus=2)) == 1


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_callers_arrays_are_none(dtype, gpu):
    """They lie anywhere, so no tensor map says where."""
    constants = {"w": np.eye(64, dtype=helper.tensor_dtype_to_np_dtype(dtype))}
    model = small_model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (dtype, (20, 64))}, {"y": (dtype, (20, 64))}, constants
    )
    assert forms_of(gpu, model) == []


def test_quotients_by_numbers_are_rounded_correctly(gpu):
    """Of an epilogue, say: no branch for extreme operands, and the bits of a division all the same."""
    rng = np.random.default_rng(3)
    x = np.ldexp(rng.uniform(1, 2, (64, 64)), rng.integers(-60, 60, (64, 64))).astype(np.float32)
    x[0, :6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0]
    divisors = np.array([1.4140625, 768.0, 1e-5], dtype=np.float32)
    constants = {f"c{i}": divisor for i, divisor in enumerate(divisors)}
    nodes = [helper.make_node("Div", ["x", f"c{i}"], [f"y{i}"]) for i in range(len(divisors))]
    outputs = {f"y{i}": (FLOAT, x.shape) for i in range(len(divisors))}
    model = small_model(nodes, {"x": (FLOAT, x.shape)}, outputs, constants)
    plan, vdevice = gpu.plan(model, precision="fp32")
    source = source_of(plan, vdevice)
    assert bytes(source.files[CODE]).count(b"rammer_quotient_f32(") > 1  # besides the function itself
    with np.errstate(all="ignore"):
        wanted = [x / divisor for divisor in divisors]
    found = gpu.run(gpu.load(source), [x], wanted, next(iter(orders(plan.veus))))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_erf_plus_one_is_a_function_of_its_own_for_results_of_16_bits(dtype, gpu):
    x = np.linspace(-6, 6, 64 * 64).reshape(64, 64).astype(helper.tensor_dtype_to_np_dtype(dtype))
    x[0, :4] = [np.inf, -np.inf, np.nan, -0.0]
    nodes = [helper.make_node("Erf", ["x"], ["e"]), helper.make_node("Add", ["one", "e"], ["y"])]
    model = small_model(nodes, {"x": (dtype, x.shape)}, {"y": (dtype, x.shape)}, {"one": np.ones((), x.dtype)})
    plan, vdevice = gpu.plan(model, precision="fp32")
    source = source_of(plan, vdevice)
    is_own = bytes(source.files[CODE]).count(b"rammer_erf_plus_one_f32(") > 1  # besides the function itself
    assert is_own == (dtype == TensorProto.FLOAT16)
    wanted = np.vectorize(lambda one: math.erfc(-one))(x.astype(np.float64))
    (found,) = gpu.run(gpu.load(source), [x], [x], next(iter(orders(plan.veus))))
    np.testing.assert_allclose(found, wanted, rtol=2.0**-11 if is_own else 3e-7, atol=7e-7)


def test_candidates_that_are_measured_find_their_operands(gpu):
    """Tensor maps are made before a call, when nobody knows where arrays of callers lie."""
    plan, vdevice = plan_of(gpu, chain((20,), 128, 64), lambda form: True)
    kernel = next(kernel for kernel in plan.kernels if isinstance(kernel.form, WarpgroupGemmForm))
    operator = _Operator([kernel])
    operands = operands_for(operator.expr)
    loaded = gpu.load(source_of(operator.plan(vdevice.alignment_bytes), vdevice))
    inputs, like = operator.arrays(operands, vdevice.alignment_bytes)
    assert not inputs
    operator.check(gpu.run(loaded, inputs, like, orders(1)[0]), expected([kernel]))


@pytest.mark.parametrize("swapped", [False, True])
def test_as_many_weights_are_on_their_way_before_a_wait_as_the_ring_has_room_for(gpu, swapped):
    plan, vdevice = plan_of(gpu, chain((64,), 256, 512), lambda form: form.swapped == swapped)
    kernels = [kernel for kernel in plan.kernels if isinstance(kernel.form, WarpgroupGemmForm)]
    assert kernels
    for kernel in kernels:
        (axis,) = kernel.expr.reductions[0].axes
        form, length = kernel.form, min(axis.extent, kernel.form.stages * kernel.form.threadblock.k)
        assert vdevice.rules.brought(kernel).beside_bytes == length * form.threadblock.n * 2


def test_no_weights_are_on_their_way_where_neither_operand_is_constant(gpu):
    plan, vdevice = plan_of(gpu, scores(2, 64, 64, 64), lambda form: True)
    kernels = [kernel for kernel in plan.kernels if isinstance(kernel.form, WarpgroupGemmForm)]
    assert kernels
    assert all(vdevice.rules.brought(kernel).beside_bytes == 0 for kernel in kernels)


def test_results_of_late_operands_take_longer_the_more_there_are(gpu):
    plan, vdevice = plan_of(gpu, chain((64,), 256, 512), lambda form: True)
    kernels = [kernel for kernel in plan.kernels if isinstance(kernel.form, WarpgroupGemmForm)]
    assert kernels
    for kernel in kernels:
        m, n, _ = kernel.form.threadblock
        late_us = vdevice.rules.late_us(kernel)
        assert H200_WARPGROUPS.result_us * m * n < late_us < vdevice.rules.compute_us(kernel, vdevice)


def test_only_products_of_warpgroups_take_operands_late(gpu):
    plan, vdevice = plan_of(gpu, chain((64,), 256, 512), lambda form: True)
    others = [kernel for kernel in plan.kernels if not isinstance(kernel.form, WarpgroupGemmForm)]
    assert all(vdevice.rules.late_us(kernel) == 0.0 and not kernel.form.takes_late for kernel in others)
