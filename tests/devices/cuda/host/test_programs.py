"""Whole programs of few vEUs, from a model to its outputs, in several orders of vEUs, warps and copies."""

import re
from dataclasses import replace

import numpy as np
import onnx
import pytest

from benchmarks.networks import NETWORKS, SMALL, few_bits
from benchmarks.networks.builder import GraphBuilder
from benchmarks.networks.precision import converted
from examples.two_branches import build_model
from rammer.devices.codegen.tables import ARENA, CONSTANT
from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from rammer.errors import RunTimeoutError
from rammer.ir.kernel_form import FlashAttentionForm, GemvRowsForm, PersistentRnnForm
from rammer.ir.types import DType
from rammer.schedule.policies import POLICIES
from tests.support.agreement import run_onnx_runtime
from tests.support.cpu import chain, expected, without_first_signal
from tests.support.host_cuda import ORDERS, HostGpu, orders
from tests.support.host_cuda.programs import TOLERANCES, Program
from tests.support.small_models import layer_model, mlp_model, recurrent_model, vectors_model

QUICK = {"resnext": ("fp32", "fp16"), "alexnet": ("tf32",), "lstm_tc": ("fp32",), "seq2seq": ("fp32",)}


def check(program, **load):
    """Every order gives what ONNX Runtime does, and the same bits."""
    loaded = program.gpu.load(program.source, **load)
    bits = set()
    for order in program.orders:
        assert program.error(loaded, order) < program.tolerance, order
        bits.add(b"".join(one.tobytes() for one in program.gpu.run(loaded, program.inputs, program.wanted, order)))
    assert len(bits) == 1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", [layer_model, build_model], ids=["layer", "two branches"])
def test_policies(model, policy, gpu):
    check(Program.of(gpu, model(), policy=policy, veus=2))


@pytest.mark.parametrize("precision", TOLERANCES)
def test_products(precision, gpu):
    check(Program.of(gpu, mlp_model(), precision=precision, veus=3))
    of_float = {
        "fp32": "rammer_mma_f64",
        "tf32": "rammer_mma_tf32",
        "fp16": "rammer_mma_f16",
        "bf16": "rammer_mma_bf16",
    }
    counted = {name for name in gpu.api.counts() if "mma" in name}
    assert counted
    assert counted <= {"wgmma", of_float[precision]}


@pytest.mark.parametrize("delays", [False, True])
def test_lanes_that_have_padding(delays, gpu):
    check(Program.of(gpu, vectors_model(64), veus=4), delays=delays)


@pytest.mark.parametrize("delays", [False, True])
def test_streamed_rows_wait_for_elements_one_by_one(delays, gpu):
    net = GraphBuilder("chain")
    value = net.input("x", (1, 512))
    rng = np.random.default_rng(0)
    for number in range(3):
        weight = net.parameter(f"w{number}", rng.standard_normal((512, 512), dtype=np.float32) / np.float32(16))
        value = net.node("Tanh", f"y{number}", [net.node("MatMul", f"p{number}", [value, weight], (1, 512))], (1, 512))
    program = Program.of(gpu, net.build(value), veus=2)
    rows = [kernel for kernel in program.plan.kernels if isinstance(kernel.form, GemvRowsForm)]
    assert any(kernel.layouts[0].tagged for kernel in rows)
    code = bytes(program.source.files[CODE]).decode()
    assert {"true", "false"} == set(re.findall(r"typedef rammer_gemv_rows<.*, (\w+), \d+> gemv;", code))
    check(program, delays=delays)


def test_streamed_rows_of_few_bits_wait_for_elements_one_by_one(gpu):
    net = GraphBuilder("chain")
    value = net.input("x", (1, 1024))
    rng = np.random.default_rng(0)
    for number in range(3):
        weight = rng.standard_normal((1024, 1024), dtype=np.float32) / np.float32(16)
        value = net.node("Tanh", f"y{number}", [few_bits.linear(net, f"p{number}", value, weight, 4)], (1, 1024))
    program = Program.of(gpu, net.build(value), veus=2)
    rows = [kernel for kernel in program.plan.kernels if isinstance(kernel.form, GemvRowsForm)]
    assert len(rows) == 3
    assert any(kernel.layouts[0].tagged for kernel in rows)
    check(program, delays=True)


@pytest.mark.parametrize(("name", "precision"), [(name, one) for name in QUICK for one in QUICK[name]])
def test_network(name, precision, gpu):
    check(Program.of(gpu, NETWORKS[name](**SMALL[name]), precision=precision, veus=4))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_a_decode_step_streams_its_matrices(precision, gpu):
    sizes = {"cached": 20, "layers": 1, "hidden": 256, "heads": 4, "groups": 2, "size": 64, "inner": 512, "words": 640}
    program = Program.of(gpu, NETWORKS["llama"](**sizes), precision=precision, veus=2)
    streamed = [
        operator.kind
        for operator, kernel in zip(program.plan.graph.operators, program.plan.kernels, strict=True)
        if isinstance(kernel.form, GemvRowsForm)
    ]
    product, residual = "MatMul", "MatMul+Add+Pow"
    assert streamed == [product, residual, "MatMul+Sigmoid+Mul+MatMul+Mul", residual, product]
    check(program)


@pytest.mark.parametrize(("bits", "precision"), [(4, "fp16"), (8, "fp32")])
def test_a_decode_step_streams_weights_of_few_bits(bits, precision, gpu):
    sizes = {"cached": 9, "layers": 1, "heads": 16, "groups": 2, "size": 64, "inner": 1024, "words": 640}
    program = Program.of(gpu, NETWORKS["llama"](bits=bits, hidden=1024, **sizes), precision=precision, veus=2)
    operators, kernels = program.plan.graph.operators, program.plan.kernels
    streamed = {
        operator.kind: kernel.expr
        for operator, kernel in zip(operators, kernels, strict=True)
        if isinstance(kernel.form, GemvRowsForm)
    }
    product, residual, gated = "MatMulNBits", "MatMulNBits+Add+Pow", "MatMulNBits+Sigmoid+Mul+MatMulNBits+Mul"
    assert streamed.keys() == {product, residual, gated}
    matrices = {type_.dtype for expr in streamed.values() for type_ in expr.inputs if type_.rank == 2}
    assert matrices == {DType.UINT8, DType.FLOAT16}  # with scales, which float16 has
    check(program)


def test_a_decode_step_reads_its_caches_before_it_waits(gpu):
    sizes = {"cached": 150, "layers": 1, "hidden": 256, "heads": 4, "groups": 2, "size": 64, "inner": 512, "words": 640}
    program = Program.of(gpu, converted(NETWORKS["llama"](**sizes), "fp16"), precision="fp16", veus=4)
    assert any(isinstance(kernel.form, FlashAttentionForm) for kernel in program.plan.kernels)
    code = bytes(program.source.files[CODE]).decode()
    assert "::copy_outside<8" in code  # of the old rows
    assert "::copy_between<8" in code
    made = [operator.kind for operator in program.plan.graph.operators]
    assert not any("Sqrt" in kind or kind == "Mul+Mul" for kind in made)  # normalisations are part of the products
    check(program)


@pytest.mark.parametrize(
    ("batch", "precision", "policy"),
    [
        (2, "fp32", "wavefront"),
        (3, "fp32", "sequential"),
        (9, "fp32", "wavefront"),
        (9, "fp16", "wavefront"),
        (8, "tf32", "wavefront"),
    ],
)
def test_recurrent_layers_of_a_batch(batch, precision, policy, gpu):
    model = NETWORKS["lstm_tc"](batch=batch, **SMALL["lstm_tc"])
    program = Program.of(gpu, model, policy=policy, veus=6, precision=precision)
    forms = [kernel.form for kernel in program.plan.kernels]
    assert any(isinstance(form, PersistentRnnForm) and 1 < form.columns <= batch for form in forms)
    check(program)


@pytest.mark.parametrize(("precision", "units"), [("fp16", 64), ("bf16", 60)])
def test_recurrent_layers_that_keep_weights_of_16_bits(precision, units, gpu, monkeypatch):
    """On units that keep so little that these have to stay as they are."""
    whole = HostGpu.vdevice
    monkeypatch.setattr(
        HostGpu, "vdevice", lambda gpu, options: replace(whole(gpu, options), stationary_bytes=512 * 4 * 16)
    )
    model = NETWORKS["lstm_tc"](layers=2, steps=4, hidden=units)
    program = Program.of(gpu, model, veus=4, precision=precision)
    forms = [kernel.form for kernel in program.plan.kernels if isinstance(kernel.form, PersistentRnnForm)]
    assert len(forms) == 8
    assert all(form.is_narrow for form in forms)
    # Units lie side by side, so that a word has the weights of two.
    assert (
        f"rammer_rnn_{'f16' if precision == 'fp16' else precision}_pairs" in bytes(program.source.files[CODE]).decode()
    )
    check(program)


@pytest.mark.parametrize(("batch", "precision", "width"), [(16, "fp32", 2), (32, "fp16", 4)])
def test_neighbours_of_vectors_of_a_batch_are_brought_together(batch, precision, width, gpu):
    model = NETWORKS["lstm_tc"](batch=batch, steps=2, layers=2, hidden=128)
    program = Program.of(gpu, model, veus=8, precision=precision)
    assert f"WIDTH = {width} " in bytes(program.source.files[CODE]).decode()
    check(program)


@pytest.mark.parametrize(
    ("batch", "precision", "times"),
    [(3, "fp32", 1e-5), (3, "fp32", 1e4), (9, "fp32", 1e4), (9, "fp32", 1e30), (8, "tf32", 300.0)],
)
def test_recurrent_layers_take_elements_of_any_size(batch, precision, times, gpu):
    """Float16, which multiplies, has a smaller range."""
    model = NETWORKS["lstm_tc"](batch=batch, **SMALL["lstm_tc"])
    program = Program.of(gpu, model, veus=6, precision=precision)
    sequence = np.array(program.inputs[0], np.float32)
    sequence[:, 1, ::5] *= np.float32(times)
    wanted = run_onnx_runtime(model, {model.graph.input[0].name: sequence})
    check(replace(program, inputs=[sequence], wanted=wanted))


@pytest.mark.parametrize("times", [0.0, 1e-12, 1e5])
def test_recurrent_layers_take_weights_of_any_size(times, gpu):
    """They are scaled by the largest of an rTask."""
    model = NETWORKS["lstm_tc"](batch=3, **SMALL["lstm_tc"])
    for weight in model.graph.initializer:
        values = onnx.numpy_helper.to_array(weight)
        if values.ndim == 3:
            weight.CopyFrom(onnx.numpy_helper.from_array(values * np.float32(times), weight.name))
    check(Program.of(gpu, model, veus=6))


@pytest.mark.parametrize(("op_type", "gates"), [("GRU", 3), ("RNN", 1), ("LSTM", 4)])
@pytest.mark.parametrize("batch", [1, 3])
def test_recurrent_operators(op_type, gates, batch, gpu):
    check(Program.of(gpu, recurrent_model(op_type, gates, batch=batch), veus=6))


def test_recurrent_layers_as_cells(gpu):
    check(Program.of(gpu, NETWORKS["seq2seq"](cells=True, batch=2, **SMALL["seq2seq"]), veus=8))


@pytest.mark.long
@pytest.mark.parametrize("veus", [1, 8])
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", SMALL)
def test_every_network(name, precision, veus, gpu):
    check(Program.of(gpu, NETWORKS[name](**SMALL[name]), precision=precision, veus=veus))


@pytest.mark.parametrize("veus", [1, 8])
def test_chain_of_two_rprograms(veus, gpu):
    plan = chain(length=9, veus=veus, tiles=4, programs=2)
    loaded = gpu.load(source_of(plan, gpu.vdevice(gpu.options(veus=veus))))
    for seed, order in enumerate(orders(veus)):
        x = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
        np.testing.assert_allclose(gpu.run(loaded, [x], [x], order)[0], expected(plan, x), rtol=1e-6)


def test_missing_signal_is_named(gpu):
    plan = without_first_signal(chain(length=3, veus=2))
    loaded, x = gpu.load(source_of(plan, gpu.vdevice(gpu.options()))), np.ones(64, np.float32)
    for order in ORDERS:  # each run finds the counters as the first one did
        with pytest.raises(RunTimeoutError) as caught:
            gpu.run(loaded, [x], [x], order)
        assert "vEU 1 is at step 0 of rProgram 0, a Wait for counter 0, which saw 0 of 1" in caught.value.message
        assert caught.value.where == "before rTask 0 of 'op1'"


def test_a_run_that_is_given_up_gives_all_its_signals(gpu):
    """Whichever Wait is in vain: counters are then where the next run looks for them."""
    plan = chain(length=5, veus=3, tiles=2, programs=2)
    loaded, x = gpu.load(source_of(plan, gpu.vdevice(gpu.options(veus=3)))), np.linspace(-1, 1, 64, dtype=np.float32)
    records, wanted = loaded._records.copy(), expected(plan, x)
    tried = 0
    for number in np.flatnonzero(records["wait_count"]).tolist():
        for wait in range(records["wait_count"][number]):
            for order in ORDERS[:3]:
                broken = records.copy()
                broken["waits"]["threshold"][number, wait] += 1
                gpu.api._copy(loaded._program.records, broken.ctypes.data, broken.nbytes)
                with pytest.raises(RunTimeoutError):
                    gpu.run(loaded, [x], [x], order)
                gpu.api._copy(loaded._program.records, records.ctypes.data, records.nbytes)
                for _ in range(2):
                    np.testing.assert_allclose(gpu.run(loaded, [x], [x], order)[0], wanted, rtol=1e-6)
                tried += 1
    assert tried > 20


def test_trace_has_a_span_for_each_step(gpu):
    plan = chain(length=6, veus=2, tiles=3, programs=2)
    loaded, x = gpu.load(source_of(plan, gpu.vdevice(gpu.options()))), np.ones(64, np.float32)
    for gpu.api.order in ORDERS:
        y = np.zeros_like(x)
        trace = loaded.trace([x], [y])
        np.testing.assert_array_equal(y, expected(plan, x))
        for program, spans in zip(plan.schedule.programs, trace.spans_ns, strict=True):
            assert [len(span) for span in spans] == [len(queue) for queue in program.steps]
            assert all(np.all(np.diff(span.reshape(-1)) >= 0) for span in spans)


def test_a_clone_shares_constants_alone(gpu):
    program = Program.of(gpu, vectors_model(128), veus=4)  # its two matrices are blocks of their own
    loaded = gpu.load(program.source)
    twin = loaded.clone()
    assert twin._segments[CONSTANT] == loaded._segments[CONSTANT]
    assert twin._segments[ARENA] != loaded._segments[ARENA]
    del loaded
    assert program.is_right(twin, program.orders)
