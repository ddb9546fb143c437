"""Operators of users' own, and rKernels in C: read, checked against their meaning, and candidates like all others."""

import time

import numpy as np
import onnx.parser
import pytest

import rammer
from rammer import extending
from rammer.errors import InvalidModelError, KernelRejectedError, OptionError, UnsupportedOperatorsError
from rammer.expressions import DType, ReduceFn, absolute, load, plain_result, reduced, reduction_axes, spatial_axes
from rammer.operators import registry

SOFT_CLIP = "com.example.SoftClip"


def soft_clip(x, *, limit=2.0):
    """`x / (|x| / limit + 1)`."""
    axes = spatial_axes(x.shape)
    value = load(0, x, axes)
    return plain_result([x], x.dtype, axes, value / (absolute(value) / limit + 1.0))


def row_sums(x, y):
    """The sums of y's rows, weighted by x."""
    (i,), (j,) = spatial_axes(x.shape), reduction_axes(y.shape[1:])
    return plain_result([x, y], x.dtype, [i], load(0, x, [i]) * reduced(ReduceFn.SUM, [j], load(1, y, [i, j])))


def body(statement, before=""):
    return f"""{before}
#include <math.h>
static void task(const float *x, float *y, int64_t first, int64_t past, int64_t left, int64_t right) {{
    for (int64_t i = first; i < past; i++)
        for (int64_t j = left; j < right; j++) {{
            {statement}
        }}
}}
"""


def in_c(statement, tiles=((3, None), (4, 5), (None, None)), name="soft_clip_c"):
    """Registers C for SoftClip of matrices of float32."""

    def make(x, *, limit):
        if x.dtype is not DType.FLOAT32 or x.rank != 2:
            return None
        code = body(statement.replace("WIDTH", str(x.shape[1])).replace("LIMIT", f"{limit!r}f"))
        return rammer.KernelSource(code=code, tiles=tiles)

    make.__name__ = name
    rammer.kernel(SOFT_CLIP, device="cpu")(make)


RIGHT = "const float v = x[i * WIDTH + j]; y[i * WIDTH + j] = v / (fabsf(v) / LIMIT + 1.0f);"


def model(nodes, inputs="float[6, 8] x", outputs="float[6, 8] y"):
    text = f'<ir_version: 10, opset_import: ["" : 22, "com.example" : 1]> net ({inputs}) => ({outputs}) {{ {nodes} }}'
    return onnx.parser.parse_model(text)


BETWEEN = "a = Relu(x) b = com.example.SoftClip <limit: float = 3.0> (a) y = Add(b, a)"


def between(x):
    a = np.maximum(x, 0)
    return a / (np.abs(a) / 3 + 1) + a


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def kernels_of(net, kind):
    (found,) = [entry for entry in net.report["operators"] if entry["kind"] == kind]
    return [candidate["skeleton"] for candidate in found["candidates"]], found["chosen"]


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_without_a_kernel_an_operator_is_one_of_all(device):
    rammer.operator(SOFT_CLIP)(soft_clip)
    net, x = rammer.compile(model(BETWEEN), device=device, veus=2), numbers(6, 8)
    np.testing.assert_allclose(net(x), between(x), rtol=1e-6)
    (only,) = net.report["operators"]
    assert only["kind"] == "Relu+com.example.SoftClip+Add"


def test_a_kernel_is_a_candidate_beside_others_and_stays_apart():
    rammer.operator(SOFT_CLIP)(soft_clip)
    in_c(RIGHT)
    net, x = rammer.compile(model(BETWEEN), device="cpu", veus=2), numbers(6, 8)
    np.testing.assert_allclose(net(x), between(x), rtol=1e-6)
    skeletons, chosen = kernels_of(net, SOFT_CLIP)
    assert set(skeletons) == {"extern", "map"}
    assert skeletons[chosen] == "extern"


def test_a_model_with_a_kernel_is_adapted():
    """By another process, which knows the code and not who wrote it."""
    rammer.operator(SOFT_CLIP)(soft_clip)
    in_c(RIGHT)
    x = numbers(6, 8)
    settled = rammer.adapt(model(BETWEEN), "cpu", veus=2, bits="any", budget_runs=100, max_slowdown=50.0)
    deadline_s = time.monotonic() + 300.0
    while not settled.is_settled:
        assert time.monotonic() < deadline_s, "it goes on trying"
        np.testing.assert_allclose(settled(x), between(x), rtol=1e-6)
    assert all(outcome.verdict != "failed" for outcome in settled.history)


def test_a_saved_model_needs_neither_operator_nor_kernel(tmp_path, monkeypatch):
    rammer.operator(SOFT_CLIP)(soft_clip)
    in_c(RIGHT)
    rammer.compile(model(BETWEEN), device="cpu", veus=1).save(tmp_path / "net.rammer")
    monkeypatch.setattr(extending, "_KERNELS", {})
    monkeypatch.setattr(registry, "_CUSTOM", {})
    x = numbers(6, 8)
    np.testing.assert_allclose(rammer.load(tmp_path / "net.rammer")(x), between(x), rtol=1e-6)


def test_attributes_have_defaults_and_a_name_may_mean_something_else_later():
    rammer.operator(SOFT_CLIP)(soft_clip)
    plain, x = model("y = com.example.SoftClip(x)"), numbers(6, 8)
    np.testing.assert_allclose(rammer.compile(plain, veus=1)(x), x / (np.abs(x) / 2 + 1), rtol=1e-6)

    @rammer.operator(SOFT_CLIP)
    def soft_clip_again(x, *, limit):
        return soft_clip(x, limit=2 * limit)

    with pytest.raises(InvalidModelError, match="its attribute 'limit' is missing"):
        rammer.compile(plain)
    given = model("y = com.example.SoftClip <limit: float = 1.0> (x)")
    np.testing.assert_allclose(rammer.compile(given, veus=1)(x), x / (np.abs(x) / 2 + 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("statement", "tiles", "message"),
    [
        ("y[i * WIDTH + j] = x[i * WIDTH + j] / (fabsf(x[i * WIDTH + j]) + 1.0f);", ((1, None),), "off by"),
        (f"{RIGHT} if (i == 0) y[i * WIDTH + j - 8] = 0.0f;", ((None, None),), "beyond its result"),
        (f"{RIGHT} if (j == 7) y[i * WIDTH + 8] = 0.0f;", ((1, None),), "off by|beyond its result"),
        (f"{RIGHT} if (isnan(v)) y[i * WIDTH + j] = 0.0f;", ((1, None),), "off by inf .* NaN"),
        (f"{RIGHT} if (isinf(v)) y[i * WIDTH + j] = 0.0f;", ((1, None),), "special values"),
        (f"{RIGHT} ((float *)x)[i * WIDTH + j] = 0.0f;", ((1, None),), "writes to its operands"),
        (f"{RIGHT} y[i * WIDTH + j] += 0.0f * x[i * WIDTH + j - 9];", ((1, None),), "off by inf"),
        (RIGHT.replace("y[", "if (i < past - 1) y["), ((2, None),), "off by"),
    ],
)
def test_a_wrong_kernel_is_rejected(statement, tiles, message):
    rammer.operator(SOFT_CLIP)(soft_clip)
    in_c(statement, tiles, name="wrong")
    with pytest.raises(KernelRejectedError, match=f"the kernel 'wrong' .*({message})"):
        rammer.compile(model(BETWEEN), device="cpu", veus=2)


def test_several_operands_in_any_order_with_axes_of_one_point():
    """Slots are numbered as elements are read; the code has the operands as the operator has them."""
    rammer.operator("com.example.RowSums")(row_sums)

    @rammer.kernel("com.example.RowSums", device="cpu")
    def row_sums_c(x, y):
        return rammer.KernelSource(
            code=f"""
static void task(const float *x, const float *y, float *z, int64_t first, int64_t past) {{
    for (int64_t i = first; i < past; i++) {{
        float sum = 0.0f;
        for (int64_t j = 0; j < {y.shape[1]}; j++)
            sum += y[i * {y.shape[1]} + j];
        z[i] = x[i] * sum;
    }}
}}
""",
            tiles=[(4,), (None,)],
        )

    for rows in (7, 1):
        x, y = numbers(rows), numbers(rows, 5)
        sizes = f"float[{rows}] x, float[{rows}, 5] y"
        net = rammer.compile(model("z = com.example.RowSums(x, y)", sizes, f"float[{rows}] z"), veus=2)
        np.testing.assert_allclose(net(x, y), x * y.sum(1), rtol=1e-5)
        skeletons, chosen = kernels_of(net, "com.example.RowSums")
        assert skeletons[chosen] == "extern"


def test_one_of_rammers_own_operators_gets_a_kernel():
    @rammer.kernel("Sin", device="cpu")
    def sin_c(x):
        if x.rank != 2 or x.dtype is not DType.FLOAT32:
            return None
        width = x.shape[1]
        return rammer.KernelSource(code=body(f"y[i * {width} + j] = sinf(x[i * {width} + j]);"), tiles=[(3, None)])

    net, x = rammer.compile(model("a = Relu(x) b = Sin(a) y = Neg(b)"), device="cpu", veus=2), numbers(6, 8)
    np.testing.assert_allclose(net(x), -np.sin(np.maximum(x, 0)), rtol=1e-6, atol=1e-7)
    skeletons, chosen = kernels_of(net, "Sin")
    assert skeletons[chosen] == "extern"


def test_parts_of_a_tensor_are_left_to_generated_code():
    """The code is for dense operands; a slice along the last dimension is none."""
    rammer.operator(SOFT_CLIP)(soft_clip)
    in_c(RIGHT)
    split = "l, r = Split <axis = 1, num_outputs = 2> (x)"
    nodes = f"{split} a = {SOFT_CLIP}(l) b = {SOFT_CLIP}(r) y = Add(a, b)"
    net, x = rammer.compile(model(nodes, outputs="float[6, 4] y"), device="cpu", veus=2), numbers(6, 8)

    def clipped(part):
        return part / (np.abs(part) / 2 + 1)

    np.testing.assert_allclose(net(x), clipped(x[:, :4]) + clipped(x[:, 4:]), rtol=1e-6)


def test_convolutions_around_an_operator_that_is_set_apart():
    rammer.operator(SOFT_CLIP)(soft_clip)

    @rammer.kernel(SOFT_CLIP, device="cpu")
    def flat_c(x, *, limit):
        sizes = ", ".join(f"int64_t lo{d}, int64_t hi{d}" for d in range(x.rank))
        h, w = x.shape[2:]
        return rammer.KernelSource(
            code=f"""
#include <math.h>
static void task(const float *x, float *y, {sizes}) {{
    for (int64_t k = lo1; k < hi1; k++)
        for (int64_t i = lo2; i < hi2; i++)
            for (int64_t j = lo3; j < hi3; j++) {{
                const int64_t at = (k * {h} + i) * {w} + j;
                y[at] = x[at] / (fabsf(x[at]) / {limit!r}f + 1.0f);
            }}
}}
""",
            tiles=[(None, 2, None, None)],
        )

    nodes = """
        a = Conv <pads = [1, 1, 1, 1]> (x, v) b = Relu(a) c = com.example.SoftClip(b)
        d = Conv <pads = [1, 1, 1, 1]> (c, v) e = Add(d, b) y = com.example.SoftClip(e)
    """
    ports = "float[1, 8, 6, 6] x, float[8, 8, 3, 3] v", "float[1, 8, 6, 6] y"
    x, v = numbers(1, 8, 6, 6), numbers(8, 8, 3, 3) / 8
    expected = rammer.compile(model(nodes, *ports), device="reference", veus=1)(x, v)
    net = rammer.compile(model(nodes, *ports), device="cpu", veus=2)
    np.testing.assert_allclose(net(x, v), expected, rtol=1e-4, atol=1e-5)
    assert sum("extern" in [c["skeleton"] for c in entry["candidates"]] for entry in net.report["operators"]) == 2


def test_what_cannot_be_registered():
    with pytest.raises(OptionError, match="an operator named 'Swish'"):
        rammer.operator("Swish")
    with pytest.raises(OptionError, match=r"an operator named 'com\.microsoft\.Gelu'"):
        rammer.operator("com.microsoft.Gelu")
    with pytest.raises(OptionError, match=r"parameter 'limit=1\.0'"):
        rammer.operator("com.example.Bad")(lambda x, limit=1.0: x)
    with pytest.raises(OptionError, match=r"'com\.example\.Bad', which is no operator"):
        rammer.kernel("com.example.Bad", device="cpu")
    with pytest.raises(OptionError, match="'LSTM', which is made of other operators"):
        rammer.kernel("LSTM", device="cpu")
    with pytest.raises(OptionError, match="device 'tpu'"):
        rammer.kernel("Relu", device="tpu")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("void task() {}", "gives no source"),
        (rammer.KernelSource(code="void task() {}", tiles=[(1, 1)]), "gives no source"),
        (rammer.KernelSource(code="static void task() {}", tiles=[]), "gives no source"),
        (rammer.KernelSource(code="static void task() {}", tiles=[(1,)]), "a tile .* 2 axes of 6, 8 points"),
        (rammer.KernelSource(code="static void task() {}", tiles=[(0, None)]), "a tile"),
    ],
)
def test_what_is_no_source(source, message):
    rammer.operator(SOFT_CLIP)(soft_clip)
    rammer.kernel(SOFT_CLIP, device="cpu")(lambda x, *, limit: source)
    with pytest.raises(OptionError, match=message):
        rammer.compile(model(BETWEEN), device="cpu", veus=2)


def test_what_is_no_expression():
    rammer.operator(SOFT_CLIP)(lambda x, *, limit=1.0: x)
    with pytest.raises(OptionError, match="gives no expression"):
        rammer.compile(model(BETWEEN))


def test_an_operator_that_nobody_defined():
    with pytest.raises(UnsupportedOperatorsError, match=SOFT_CLIP):
        rammer.compile(model(BETWEEN))


def test_measured_times_decide(tmp_path, monkeypatch):
    """With `tune`, a user's rKernel is measured as all others are."""
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    rammer.operator(SOFT_CLIP)(soft_clip)
    in_c(RIGHT, tiles=((None, None),))
    net = rammer.compile(model(BETWEEN), device="cpu", veus=1, tune="measured")
    (found,) = [entry for entry in net.report["operators"] if entry["kind"] == SOFT_CLIP]
    extern = [candidate for candidate in found["candidates"] if candidate["skeleton"] == "extern"]
    assert extern
    assert all(candidate["measured_us"] is not None for candidate in extern)
