"""Sums over rows of matrices: what is one, when a device streams it, and how threads share it out."""

from dataclasses import replace

import pytest

from rammer.devices.registry import find_device
from rammer.ir.kernel_form import GemvRowsForm
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions
from rammer.tiling.gemv_rows import matrix_vector, streams_rows
from rammer.verify.forms import form_fault
from tests.support.kernels import Bound, lstm_cell, types
from tests.support.operators import expression

H200 = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
F16 = DType.FLOAT16


def matmul(points, elements, *, rows=1, dtype=F16):
    return expression("MatMul", types((rows, elements), (elements, points), dtype=dtype))


def kernel_of(points=64, elements=2048, dtype=F16):
    """The first candidate of a product that is streamed."""
    vdevice = replace(H200, stationary_bytes=0)
    kernel = Bound(matmul(points, elements, dtype=dtype), {1}, vdevice, elements=16).kernels[0]
    assert isinstance(kernel.form, GemvRowsForm)
    return kernel


def test_a_vector_times_a_matrix():
    found = matrix_vector(matmul(40, 256))
    assert found is not None
    assert (len(found.rows), found.wholes, found.elements) == (1, (), 256)
    assert found.rows[0].load.slot == 1


@pytest.mark.parametrize(
    "expr",
    [
        matmul(40, 256, rows=2),
        expression("MatMul", types((3, 1, 64), (3, 64, 20))),
        expression("MatMul", types((1, 64), (64, 20), dtype=DType.FLOAT64)),
        expression("Softmax", types((6, 70)), axis=1),
        lstm_cell(1, 64, 32),
    ],
    ids=["two rows", "a matrix for each vector", "float64", "no product", "sums over other elements"],
)
def test_what_is_none(expr):
    assert matrix_vector(expr) is None


@pytest.mark.parametrize(
    ("points", "elements", "once", "constants", "streamed"),
    [
        (2048, 2048, {1}, {1}, True),
        (2048, 2048, set(), {1}, False),
        (8192, 2048, set(), {1}, True),
        (2048, 2048, {1}, set(), False),
        (1000, 1024, {1}, {1}, False),
        (2048, 2044, {1}, {1}, False),
        (64, 1 << 18, {1}, {1}, False),
    ],
    ids=["read once", "shared", "too much to stay", "no constant", "little", "odd rows", "rows too long for threads"],
)
def test_when_rows_are_streamed(points, elements, once, constants, streamed):
    assert (streams_rows(matmul(points, elements), constants, H200, once) is not None) == streamed


@pytest.mark.parametrize(
    ("elements", "dtype", "across", "turns"),
    [(256, F16, 32, 1), (2048, F16, 256, 1), (8192, F16, 512, 2), (2048, DType.FLOAT32, 512, 1), (600, F16, 64, 2)],
)
def test_how_threads_share_rows(elements, dtype, across, turns):
    form = kernel_of(elements=elements, dtype=dtype).form
    assert isinstance(form, GemvRowsForm)
    assert (form.across, form.turns) == (across, turns)
    assert form.vector * dtype.itemsize_bytes == 16


@pytest.mark.parametrize(("elements", "turns", "batch"), [(8192, 8, 2), (9216, 9, 1), (10240, 10, 1), (11264, 0, 0)])
def test_long_rows_of_few_threads_come_one_at_a_time(elements, turns, batch):
    expr, halves = matmul(4096, elements, dtype=DType.FLOAT32), replace(H200, stationary_bytes=0, threads=256)
    found = [kernel.form for kernel in Bound(expr, {1}, halves, elements=16).kernels]
    forms = [form for form in found if isinstance(form, GemvRowsForm)]
    assert {(form.across, form.turns) for form in forms} == ({(256, turns)} if turns else set())
    assert max((form.batch for form in forms), default=0) == batch


def of_few_bits(points, elements, *, bits=4, block=32, rows=1):
    shapes = ((points, elements * bits // 8), (points, elements // block))
    operands = [*types((rows, elements), dtype=F16), TensorType(DType.UINT8, shapes[0]), TensorType(F16, shapes[1])]
    return expression("MatMulNBits", operands, bits=bits, block=block)


def packed_kernel(*args, **options):
    kernel = Bound(of_few_bits(*args, **options), {1, 2}, replace(H200, stationary_bytes=0), elements=16).kernels[0]
    assert isinstance(kernel.form, GemvRowsForm)
    return kernel


@pytest.mark.parametrize(
    ("elements", "bits", "block", "vector", "across", "turns"),
    [
        (896, 4, 32, 32, 32, 1),
        (1024, 4, 32, 32, 32, 1),
        (2048, 4, 128, 32, 64, 1),
        (3072, 4, 32, 32, 128, 1),
        (8192, 4, 32, 32, 256, 1),
        (16384, 4, 32, 32, 512, 1),
        (2048, 8, 32, 16, 128, 1),
        (1536, 8, 16, 16, 64, 2),
    ],
)
def test_how_threads_share_rows_of_few_bits(elements, bits, block, vector, across, turns):
    form = packed_kernel(64, elements, bits=bits, block=block).form
    assert (form.vector, form.across, form.turns) == (vector, across, turns)
    assert form.scratch_bytes > 4 * elements  # where the vector passes through


@pytest.mark.parametrize(
    ("options", "streamed"),
    [
        ({}, True),
        ({"bits": 8}, True),
        ({"rows": 2}, False),
        ({"bits": 2}, False),
        ({"block": 16}, False),
        ({"elements": 896, "points": 4096}, True),
        ({"elements": 480, "points": 16384}, False),
        ({"elements": 1 << 15}, False),
        ({"points": 300}, False),
    ],
    ids=str,
)
def test_when_rows_of_few_bits_are_streamed(options, streamed):
    expr = of_few_bits(**{"points": 2048, "elements": 2048} | options)
    assert (streams_rows(expr, {1, 2}, H200, {1, 2}) is not None) == streamed
    assert streams_rows(expr, {1}, H200, {1}) is None  # with scales that are none


def test_rows_of_few_bits_that_lie_otherwise_are_a_fault():
    kernel = packed_kernel(64, 2048)
    assert form_fault(kernel) is None
    for changed in (
        replace(kernel, alignments=(16, 1, 16, 16)),
        replace(kernel, alignments=()),
        replace(kernel, form=replace(kernel.form, scratch_bytes=kernel.form.scratch_bytes - 1)),
    ):
        assert form_fault(changed) is not None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"across": 128}, "T09"),
        ({"turns": 2}, "T09"),
        ({"batch": 3}, "T09"),
        ({"scratch_bytes": 0}, "T09"),
        ({"threads": 32}, "T10"),
    ],
    ids=str,
)
def test_other_shares_are_faults(change, code):
    kernel = kernel_of()
    assert form_fault(kernel) is None
    fault = form_fault(replace(kernel, form=replace(kernel.form, **change)))
    assert fault is not None
    assert fault[0] == code


def test_rows_that_lie_otherwise_are_a_fault():
    kernel = kernel_of()
    fault = form_fault(replace(kernel, alignments=(16, 1, 16)))
    assert fault is not None
    assert fault[0] == "T10"
