"""What products of windows are predicted to take beside others: longer in float64, and where the last tiles are cut."""

from dataclasses import replace

import pytest

from rammer.devices.cuda.tiling.figures import H200_DOUBLES
from rammer.devices.cuda.tiling.gemm_time import gemm_us
from rammer.inspection.dump import Dump
from rammer.ir.kernel_form import GemmForm
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


@pytest.mark.parametrize("figure", ["cut_windows", "beside_windows"])
def test_factors_count_where_they_belong(separable, figure):
    kernels, vdevice = separable
    of_cut, beside = replace(H200_DOUBLES, cut_windows=1.0), replace(H200_DOUBLES, beside_windows=1.0)
    without = of_cut if figure == "cut_windows" else beside
    seen = set()
    for kernel in kernels:
        longer = gemm_us(kernel, kernel.form, vdevice, H200_DOUBLES) > gemm_us(kernel, kernel.form, vdevice, without)
        assert longer == (figure == "beside_windows" or is_cut(kernel))
        seen.add(longer)
    assert True in seen


def test_alone_they_do_not(separable):
    kernels, vdevice = separable
    alone = replace(vdevice, has_neighbours=False)
    without = replace(H200_DOUBLES, cut_windows=1.0, beside_windows=1.0)
    for kernel in kernels:
        assert gemm_us(kernel, kernel.form, alone, H200_DOUBLES) == gemm_us(kernel, kernel.form, vdevice, without)
