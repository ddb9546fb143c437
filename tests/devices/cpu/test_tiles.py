"""Products of bytes by tiles (AMX): exactly what NumPy computes, by the instructions where this machine grants them."""

import platform
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rammer.devices.cpu import machine as machine_module
from rammer.devices.cpu.describe import describe
from rammer.devices.cpu.emit.kernel import emit_kernel
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cpu.toolchain import native_flags
from rammer.ir.evaluate import evaluate
from rammer.ir.kernel_form import Instruction, MicroKernelForm
from rammer.ir.types import DType
from rammer.passes.helpers.quads import in_quads
from rammer.roller.model import predict
from rammer.tiling.byte_tiles import Steps
from rammer.verify.forms import form_fault
from tests.support.kernel_cases import BYTES, requantised
from tests.support.kernels import AVX512, CLANG, GCC, TILES, Bound, Compiler, conv, types
from tests.support.operators import expression

I32 = DType.INT32
GRANTED = ("-DRAMMER_TILES_GRANTED",)
HERE = "amx_int8" in read_machine().features
UNSHRUNK = (Phase.explicit, Phase.generate)  # each example is compiled
needs_tiles = pytest.mark.skipif(not HERE, reason="no tiles here")


@pytest.fixture(scope="session")
def compiler(tmp_path_factory):
    return Compiler(tmp_path_factory.mktemp("tiles"))


def product(m, k, n):
    return in_quads(expression("MatMul", types((m, k), (k, n), dtype=I32)), "k", 0)


def quantised_conv(x, w, **attributes):
    return requantised(in_quads(conv(x, w, dtype=I32, **attributes), "c", 1))


def tiled(bound):
    """All candidates whose blocks are kept in tiles."""
    kernels = TILES.rules.candidates(bound.workload, TILES, to_measure=False)
    return [kernel for kernel in kernels if instruction_of(kernel) is Instruction.TDPBUSD]


def bytes_of(expr):
    """Random operands: bytes take all their values."""
    arrays = []
    for slot, type_ in enumerate(expr.inputs):
        low, high = (-128, 128) if type_.dtype is DType.INT8 else (0, 256) if type_.dtype is DType.UINT8 else (0, 9)
        array = np.random.default_rng([slot, *type_.shape]).integers(low, high, type_.shape)
        arrays.append((array / 1024 if type_.dtype.is_float else array).astype(type_.dtype.numpy))
    return arrays


def check(expr, compiler, *, constants=(1,), channels_last=(), cc=GCC):
    """Compare every tiled candidate with the definition, emulated and where it can be by the instructions."""
    bound = Bound(expr, constants, TILES, channels_last)
    kernels = tiled(bound)
    assert kernels
    inputs = bytes_of(expr)
    wanted = evaluate(expr, inputs)
    texts = [emit_kernel(kernel, f"kernel{i}") for i, kernel in enumerate(kernels)]
    for flags in (("-Og",), ("-O2", *GRANTED))[: 1 + HERE]:
        library = compiler.library(texts, cc=cc, flags=flags)
        for i, kernel in enumerate(kernels):
            assert form_fault(kernel) is None
            for found, want in zip(bound.run(kernel, library[f"kernel{i}"], inputs), wanted, strict=True):
                np.testing.assert_array_equal(found, want)
    return kernels


@settings(max_examples=10, deadline=None, phases=UNSHRUNK)
@given(st.integers(4, 70), st.integers(2, 50), st.integers(8, 70))
def test_products_of_any_extents(compiler, m, quads, n):
    check(product(m, 4 * quads, n), compiler)


@settings(max_examples=10, deadline=None, phases=UNSHRUNK)
@given(
    image=st.tuples(st.integers(5, 20), st.integers(5, 40)),
    quads=st.sampled_from([2, 5, 16, 17, 24]),
    features=st.integers(8, 40),
    kernel=st.sampled_from([(1, 1), (3, 3), (1, 3), (3, 2)]),
    stride=st.integers(1, 2),
    pads=st.sampled_from([(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0)]),
    dilation=st.integers(1, 2),
)
def test_convolutions(compiler, image, quads, features, kernel, stride, pads, dilation):
    expr = quantised_conv(
        (1, 4 * quads, *image),
        (features, 4 * quads, *kernel),
        strides=(stride, stride),
        pads=pads,
        dilations=(dilation, dilation),
    )
    # Where a dimension is padded that has no taps, whole rows are padding: those may be left to vectors.
    without_taps = any(size == 1 and (pads[dim] or pads[2 + dim]) for dim, size in enumerate(kernel))
    if not without_taps or tiled(Bound(expr, {1, 3}, TILES, {0, 2, 4})):
        check(expr, compiler, constants={1, 3}, channels_last={0, 2, 4})


def test_rows_that_are_padding_are_left_to_vectors():
    expr = quantised_conv((1, 64, 9, 9), (32, 64, 1, 1), pads=(1, 1, 1, 1))
    assert not tiled(Bound(expr, {1, 3}, TILES, {0, 2, 4}))


@pytest.mark.parametrize("cc", [GCC, CLANG], ids=["gcc", "clang"])
def test_compilers(cc, compiler):
    check(product(37, 276, 50), compiler, cc=cc)
    check(
        quantised_conv((2, 72, 7, 7), (24, 72, 3, 3)),
        compiler,
        constants={1, 3},
        channels_last={0, 2, 4},
        cc=cc,
    )


def test_results_with_rows_side_by_side(compiler):
    """Channels last going in, rows of pixels coming out: the epilogue runs along rows."""
    check(quantised_conv((1, 64, 6, 9), (40, 64, 3, 3)), compiler, constants={1, 3}, channels_last={0})


def test_batches_and_groups_of_rows(compiler):
    expr = in_quads(expression("MatMul", types((3, 5, 68), (68, 33), dtype=I32)), "k", 0)
    check(expr, compiler)


@pytest.mark.parametrize("cc", [GCC, CLANG], ids=["gcc", "clang"])
def test_instructions_compile(cc, compiler, tmp_path):
    """On any processor of the architecture: whether it has them matters to who runs them."""
    if platform.machine() != "x86_64":
        pytest.skip("another architecture")
    (kernel, *_) = tiled(Bound(product(40, 192, 40), {1}, TILES))
    flags = ("-Og", *GRANTED, "-mamx-tile", "-mamx-int8")
    known = subprocess.run(
        [*cc, *flags, "-x", "c", "-c", "/dev/null", "-o", str(tmp_path / "known.o")], capture_output=True, check=False
    )
    if known.returncode:
        pytest.skip("a compiler from before them")
    compiler.library([emit_kernel(kernel, "kernel")], cc=cc, flags=flags)


def test_steps_are_equal_or_full():
    assert Steps.of(7) == Steps(quads=7, whole=1, rest=0)
    assert Steps.of(24) == Steps(quads=12, whole=2, rest=0)
    assert Steps.of(17) == Steps(quads=16, whole=1, rest=1)
    assert Steps.of(192) == Steps(quads=16, whole=12, rest=0)


def instruction_of(kernel):
    return kernel.form.instruction if isinstance(kernel.form, MicroKernelForm) else None


def test_what_has_no_tiles():
    """A single row, weights that lie otherwise, a machine without: vectors multiply those."""
    assert not tiled(Bound(product(1, 300, 70), {1}, TILES))
    assert not tiled(Bound(*BYTES["bytes that lie otherwise"], TILES))
    of_vectors = Bound(product(64, 256, 64), {1}, AVX512).kernels
    assert {instruction_of(kernel) for kernel in of_vectors} == {None}


def test_roller_takes_tiles_where_they_are_faster():
    many, few = (Bound(product(rows, 768, 768), {1}, TILES).kernels[0] for rows in (128, 2))
    assert instruction_of(many) is Instruction.TDPBUSD
    assert many.form.details == "registers 32x32, tdpbusd"
    assert instruction_of(few) is None
    short = Bound(quantised_conv((1, 16, 56, 56), (96, 16, 1, 1)), {1, 3}, TILES, {0, 2, 4})
    best = {instruction_of(kernel): predict(kernel, TILES).task_us for kernel in reversed(short.kernels)}
    assert best[None] < 1.5 * best[Instruction.TDPBUSD]


def rule_of(kernel, **changes):
    """The rule that a form with something else breaks."""
    assert isinstance(kernel.form, MicroKernelForm)
    fault = form_fault(replace(kernel, form=replace(kernel.form, **changes)))
    assert fault is not None
    return fault[0]


def test_a_form_that_tiles_cannot_have_is_a_fault():
    (kernel, *_) = tiled(Bound(product(128, 256, 64), {1}, TILES))
    assert rule_of(kernel, register=(64, 16)) == rule_of(kernel, register=(16, 64)) == "T09"
    assert rule_of(kernel, instruction=Instruction.MMA_F16) == "T10"
    plain = Bound(expression("MatMul", types((64, 64), (64, 64))), {1}, TILES).kernels[0]
    assert rule_of(plain, instruction=Instruction.TDPBUSD) == "T10"


def with_features(*features):
    return replace(read_machine(), features=("avx512bw", "avx512dq", "avx512f", "avx512vl", *features))


def test_description():
    found = describe(with_features("avx512_vnni", "amx_tile", "amx_int8"), 1)
    assert found.tile_flops_per_us is not None
    assert found.tile_flops_per_us.value == pytest.approx(8 * found.flops_per_us[DType.INT8].value)
    assert "amx_int8" in found.tile_flops_per_us.provenance
    for features in (("avx512_vnni",), ("amx_tile", "amx_int8"), ("avx512_vnni", "amx_tile", "amx_bf16")):
        assert describe(with_features(*features), 1).tile_flops_per_us is None


@needs_tiles
def test_tiles_that_the_system_does_not_grant_are_not_there(monkeypatch):
    monkeypatch.setattr(machine_module, "_grants_tiles", lambda: False)
    refused = read_machine()
    assert not [feature for feature in refused.features if feature.startswith("amx")]
    assert describe(refused, 1).tile_flops_per_us is None
    assert GRANTED[0] not in native_flags(refused.features)


def test_loops_over_lanes_have_whole_vectors():
    assert "-mprefer-vector-width=512" in native_flags(with_features().features)
    assert "-mprefer-vector-width=512" not in native_flags(("avx2", "avx512f", "fma"))


def test_compilers_are_told_that_tiles_are_granted():
    assert GRANTED[0] in native_flags(("amx_int8", "amx_tile"))
    assert GRANTED[0] not in native_flags(("avx512f",))
