"""rKernels of every skeleton against NumPy, behind Waits for their operands, in several orders of vEUs and copies."""

from dataclasses import replace

import pytest

from rammer.errors import RunTimeoutError
from rammer.ir.kernel_form import GemmForm, Instruction
from rammer.ir.types import DType
from tests.support.host_cuda import ORDERS, Copies, Order, Policy
from tests.support.host_cuda.kernels import KernelProgram, cases_of
from tests.support.kernel_cases import (
    CELLS,
    CHANNELS_LAST,
    CONTRACTIONS,
    IMAGES,
    MAPS,
    PLAIN_BYTES,
    REDUCTIONS,
    assert_close,
    filtered,
)
from tests.support.kernels import conv, types, with_task
from tests.support.operators import expression

VEUS = 3
SOME = (
    *ORDERS[:2],
    Order(policy=Policy.AHEAD, copies=Copies.ANY_TIME, seed=0),
    Order(policy=Policy.BEHIND, copies=Copies.EARLY, seed=1),
    Order(policy=Policy.RANDOM, copies=Copies.LATE, seed=3),
)

# Products of several blocks, whatever tiles Roller would choose: (shapes, tile of an rTask).
BLOCKS = {
    "one step": (((36, 64, 64), (36, 64, 64)), (5, 64, 64)),
    "odd sizes": (((7, 37, 53), (7, 53, 41)), (3, 37, 41)),
    "small blocks": (((9, 16, 24), (9, 24, 16)), (4, 16, 16)),
    "long sums": (((9, 64, 500), (9, 500, 60)), (4, 64, 60)),
    "rows and lanes": (((2, 300, 70), (2, 70, 200)), (2, 300, 200)),
    "ragged rows and lanes": (((3, 300, 64), (3, 64, 250)), (2, 170, 130)),
    "no batches": (((300, 96), (96, 200)), (300, 150)),
    "two axes of batches": (((2, 5, 33, 40), (2, 5, 40, 34)), (2, 2, 33, 34)),
}


@pytest.fixture
def h200(gpu):
    """The vDevice for which rKernels are constructed; their program has fewer vEUs."""
    return gpu.vdevice(gpu.options(veus=132))


def check(gpu, cases, orders=SOME):
    """Each case gives what NumPy does, in every order."""
    program = KernelProgram(cases, veus=VEUS)
    loaded = program.load(gpu)
    for order in orders:
        for case, found in zip(cases, program.outputs(gpu, loaded, order), strict=True):
            for output, ours, wanted in zip(case.bound.expr.outputs, found, case.wanted, strict=True):
                assert_close(ours, wanted, output.type.dtype)


def ends(cases):
    """The first candidate and the last: the largest rTasks and the smallest."""
    return [cases[0], *cases[1:][-1:]]


@pytest.mark.parametrize("part", range(4))
def test_contractions(part, gpu, h200):
    found = [CONTRACTIONS[name] for name in list(CONTRACTIONS)[part::4]]
    check(gpu, [case for expr, constants in found for case in ends(cases_of(expr, h200, constants))])


@pytest.mark.parametrize("name", PLAIN_BYTES)
def test_products_of_bytes(name, gpu, h200):
    """By tensor cores, exactly; what is stored as bytes is stored four at a time."""
    expr, constants = PLAIN_BYTES[name]
    images = {0} if expr.inputs[0].rank == 4 else ()
    cases = cases_of(expr, h200, constants, {*images, *(slot for slot in (2,) if len(expr.inputs) > 2)})
    forms = [case.kernel.form for case in cases]
    assert all(isinstance(form, GemmForm) and form.instruction is Instruction.MMA_I8 for form in forms)
    check(gpu, ends(cases))


@pytest.mark.parametrize("part", range(2))
def test_reductions(part, gpu, h200):
    check(gpu, [case for expr in list(REDUCTIONS.values())[part::2] for case in ends(cases_of(expr, h200))])


def test_maps(gpu, h200):
    check(gpu, [case for expr in MAPS.values() for case in cases_of(expr, h200)])


def test_guarded_transforms(gpu, h200):
    """Tiles whose guard does not hold are computed by their fallback."""
    found = zip(filtered((8, 12)), IMAGES, strict=True)
    check(gpu, [case for expr, images in found for case in ends(cases_of(expr, h200, (), images))], SOME[:2])


def test_images_with_channels_last(gpu, h200):
    found = CHANNELS_LAST.values()
    check(gpu, [case for expr, last, _ in found for case in ends(cases_of(expr, h200, {1}, last))])


def test_recurrent_cells(gpu, h200):
    check(gpu, [case for expr, constants in CELLS.values() for case in ends(cases_of(expr, h200, constants))])


@pytest.mark.parametrize(("dtype", "names"), [(DType.FLOAT32, list(BLOCKS)), (DType.FLOAT16, list(BLOCKS)[:4])])
def test_rtasks_of_several_tiles(dtype, names, gpu, h200):
    cases = []
    for number, name in enumerate(names):
        shapes, task = BLOCKS[name]
        first, *_ = cases_of(expression("MatMul", types(*shapes, dtype=dtype)), h200, {1} if number % 2 else ())
        kernel = with_task(first.kernel, task)
        assert kernel.form.tiles > 1
        cases.append(replace(first, kernel=kernel))
    check(gpu, cases)


@pytest.mark.parametrize(("elements", "width"), [(16, 16), (4, 16), (2, 8), (1, 4)])
def test_as_many_elements_are_copied_at_a_time_as_are_aligned(elements, width, gpu, h200):
    first, *_ = cases_of(conv((1, 64, 16, 16), (64, 64, 3, 3)), h200, {1}, {0, 2}, elements)
    check(gpu, [first], ORDERS[:1])
    copies = {name for name, times in gpu.api.counts().items() if name.startswith("cp.async")}
    assert copies == {f"cp.async {width}", "cp.async 16"}  # and records


@pytest.mark.parametrize(
    ("expr", "channels_last", "copied"),
    [
        pytest.param(conv((1, 3, 16, 16), (16, 3, 3, 3)), {0, 2}, {"cp.async 4"}, id="three channels"),
        pytest.param(expression("MatMul", types((64, 63), (63, 64), dtype=DType.FLOAT16)), (), set(), id="odd halves"),
    ],
)
def test_elements_that_lie_in_no_groups_go_one_by_one(expr, channels_last, copied, gpu, h200):
    first, *_ = cases_of(expr, h200, {1}, channels_last)
    check(gpu, [first], ORDERS[:1])
    assert {name for name in gpu.api.counts() if name.startswith("cp.async")} == {*copied, "cp.async 16"}  # of records


def test_products_of_16_bit_operands_run_on_tensor_cores(gpu, h200):
    m = n = k = 64
    first, *_ = cases_of(expression("MatMul", types((m, k), (k, n), dtype=DType.FLOAT16)), h200)
    check(gpu, [first], ORDERS[:1])
    assert gpu.api.counts()["rammer_mma_f16"] == m * n * k // (16 * 8 * 16)


def copied_in_vain(gpu, case):
    """Bytes copied into shared memory, records among them, for rTasks whose Waits are in vain."""
    program = KernelProgram([case], veus=VEUS, signals=False)
    loaded = program.load(gpu)
    with pytest.raises(RunTimeoutError):
        program.outputs(gpu, loaded, ORDERS[0])
    copies = {tuple(name.split()): times for name, times in gpu.api.counts().items() if name.startswith("cp.async ")}
    return sum(int(size_bytes) * times for (_, size_bytes), times in copies.items())


@pytest.mark.parametrize(
    "expr",
    [
        pytest.param(conv((1, 64, 16, 16), (64, 64, 3, 3)), id="one tile"),
        pytest.param(expression("MatMul", types((5, 80, 64, 48), (5, 80, 48, 64))), id="overlapped tiles"),
    ],
)
def test_copies_of_constants_are_on_their_way_before_an_rtask_waits(expr, gpu, h200):
    first, *_ = cases_of(expr, h200, {1})
    without = replace(first, kernel=replace(first.kernel, constants=frozenset()))
    form = first.kernel.form
    assert isinstance(form, GemmForm)
    stage_bytes = form.threadblock.n * form.threadblock.k * 4
    assert copied_in_vain(gpu, first) - copied_in_vain(gpu, without) == VEUS * stage_bytes
