"""What products of windows are predicted to take beside others: longer in float64, and where the last tiles are cut."""

from dataclasses import replace

import pytest

from rammer.devices.cuda.tiling.figures import H200
from rammer.devices.cuda.tiling.gemm_time import gemm_us
from rammer.inspection.dump import Dump
from rammer.ir.kernel_form import GemmForm, Instruction
from rammer.options import CompileOptions
from rammer.pipelines.compiler import find_target
from rammer.pipelines.planning import lower_graph
from tests.support.passes import Net


@pytest.fixture(scope="module")
def separable():
    """The rKernels of a depthwise and a pointwise convolution as one, and the device."""
    net = Net()
    depthwise = net.conv(net.input(1, 64, 32, 32), net.weight(64, 1, 3, 3), pad=1, group=64)
    graph = net.build(net.conv(depthwise, net.weight(64, 64, 1, 1)))
    options = CompileOptions(device="cuda:sm_90", veus=50)
    _, vdevice = find_target(options)
    (operator,) = lower_graph(graph, vdevice, options, Dump(None)).operators
    kernels = [kernel for kernel in operator.kernels if isinstance(kernel.form, GemmForm)]
    return kernels, replace(vdevice, has_neighbours=True)


def is_cut(kernel):
    return any(axis.extent % size for axis, size in zip(kernel.expr.axes, kernel.tile.task, strict=True))


@pytest.mark.parametrize("figure", ["cut_windows", "double_windows"])
def test_factors_count_where_they_belong(separable, figure):
    kernels, vdevice = separable
    is_of_cut = figure == "cut_windows"
    without = replace(H200, cut_windows=1.0) if is_of_cut else replace(H200, double_windows=1.0)
    applies = is_cut if is_of_cut else lambda kernel: kernel.form.instruction is Instruction.MMA_F64
    seen = set()
    for kernel in kernels:
        longer = gemm_us(kernel, kernel.form, vdevice, H200) > gemm_us(kernel, kernel.form, vdevice, without)
        assert longer == applies(kernel)
        seen.add(longer)
    assert seen >= {True}


def test_alone_they_do_not(separable):
    kernels, vdevice = separable
    alone = replace(vdevice, has_neighbours=False)
    without = replace(H200, cut_windows=1.0, double_windows=1.0, byte_windows=2.0)
    for kernel in kernels:
        assert gemm_us(kernel, kernel.form, alone, H200) == gemm_us(kernel, kernel.form, vdevice, without)
