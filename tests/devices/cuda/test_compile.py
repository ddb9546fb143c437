"""Code for GPUs, compiled: the interpreter alone, the types it shares with the host, and the six networks.

Needs the `cuda` extra, but neither a GPU nor a driver. `make test-cuda` runs all of it.
"""

import ctypes
import io
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from onnx import TensorProto, helper

import rammer
from benchmarks.networks import NETWORKS, PAPER, SMALL
from rammer.devices.base import Source, no_progress
from rammer.devices.codegen.tables import CALLER, CONSTANT
from rammer.devices.cuda.architecture import NAMED
from rammer.devices.cuda.build import CUBIN, DELAYS_MACRO, TRACE_MACRO, build, compile_source
from rammer.devices.cuda.limits import MOST_ARRAYS
from rammer.devices.cuda.source import translation_unit
from rammer.devices.cuda.source_files import CALLED, CODE
from rammer.devices.cuda.tables import (
    CLOCK,
    COUNTER,
    DONE,
    NOTHING,
    SEGMENT_SHIFT,
    SIGNALS,
    SPAN,
    STATUS,
    TAGGED,
    WAIT,
    WAITS,
    Program,
    program_type,
    record_dtype,
)
from rammer.devices.cuda.toolchain import Toolchain, find_toolchain
from rammer.devices.registry import find_device
from rammer.errors import ArtifactVersionError, CompilerFailedError, DeviceUnavailableError
from rammer.frontends.onnx import load_graph
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from tests.support.artifacts import of_another_version, rewrite
from tests.support.random_branches import random_branches
from tests.support.small_models import FLOAT, layer_model, small_model

pytest.importorskip("cuda.core", reason="needs the cuda extra")

THREADS, SLOTS, SEGMENTS = 512, 6, 4
EMPTY = translation_unit({}, THREADS, SLOTS, SEGMENTS)


@pytest.mark.parametrize("architecture", NAMED)
@pytest.mark.parametrize("macros", [[], [TRACE_MACRO], [DELAYS_MACRO]], ids=["plain", "trace", "delays"])
def test_interpreter_compiles_alone(architecture, macros):
    assert find_toolchain().cubin(EMPTY, architecture, macros)[:4] == b"\x7fELF"


def test_c_and_python_agree_on_every_shared_type():
    record = record_dtype(SLOTS)
    dtypes = {
        "record": record,
        "wait": WAIT,
        "counter": COUNTER,
        "tagged": TAGGED,
        "status": STATUS,
        "span": SPAN,
        "clock": CLOCK,
    }
    program = program_type(SEGMENTS)
    facts = {"sizeof(rammer_program)": ctypes.sizeof(program), "RAMMER_DONE": f"{DONE}u"}
    facts |= {
        f"__builtin_offsetof(rammer_program, {name})": getattr(program, name).offset
        for name, *_ in (*Program._fields_, *program._fields_)
    }
    facts |= {"RAMMER_NOTHING": f"{NOTHING}u", "RAMMER_SEGMENT_SHIFT": SEGMENT_SHIFT}
    facts |= {"RAMMER_WAITS": WAITS, "RAMMER_SIGNALS": SIGNALS, "RAMMER_CONSTANTS": CONSTANT}
    for name, dtype in dtypes.items():
        facts[f"sizeof(rammer_{name})"] = dtype.itemsize
        for field, (_, offset, *_) in (dtype.fields or {}).items():
            facts[f"__builtin_offsetof(rammer_{name}, {field})"] = offset
    checks = "\n".join(f'static_assert({fact} == {value}, "{fact}");' for fact, value in facts.items())
    toolchain = find_toolchain()
    toolchain.cubin(f"{EMPTY}\n{checks}", "sm_90")
    with pytest.raises(CompilerFailedError, match="static assertion"):
        toolchain.cubin(f'{EMPTY}\nstatic_assert(sizeof(rammer_record) == {record.itemsize + 1}, "record");', "sm_90")


def test_a_kernel_takes_as_many_arrays_as_are_allowed():
    toolchain = find_toolchain()
    most = CALLER + MOST_ARRAYS + 1  # segments: one is that of tensor maps
    assert toolchain.cubin(translation_unit({}, THREADS, SLOTS, most), "sm_80")
    with pytest.raises(CompilerFailedError, match="parameter space overflowed"):
        toolchain.cubin(translation_unit({}, THREADS, SLOTS, most + 1), "sm_80")


def test_an_operator_of_many_operands_compiles(tmp_path):
    names = [f"x{i}" for i in range(300)]
    nodes = [helper.make_node("Sum", names, ["y"])]
    model = small_model(nodes, dict.fromkeys(names, (FLOAT, (4, 8))), {"y": (FLOAT, (4, 8))})
    assert bytes(compiled(model, tmp_path))[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("op_type", "ports", "constants"),
    [
        ("Slice", {"x": (FLOAT, (4, 8))}, {"starts": np.array([4]), "ends": np.array([9])}),
        ("Add", {"x": (FLOAT, (0, 8)), "other": (FLOAT, (8,))}, {}),
        ("ConstantOfShape", {}, {"shape": np.array([0, 8])}),
    ],
)
def test_a_model_without_elements_to_compute_compiles(op_type, ports, constants, tmp_path):
    nodes = [helper.make_node(op_type, [*ports, *constants], ["y"])]
    model = small_model(nodes, ports, {"y": (FLOAT, (0, 8))}, constants)
    assert bytes(compiled(model, tmp_path))[:4] == b"\x7fELF"


def test_a_product_of_elements_by_positions_of_64_bits_compiles(tmp_path):
    nodes = [
        helper.make_node("GatherElements", ["x", "i"], ["picked"], axis=1),
        helper.make_node("Add", ["picked", "picked"], ["doubled"]),
        helper.make_node("MatMul", ["doubled", "w"], ["y"]),
    ]
    ports = {"x": (FLOAT, (50, 126)), "i": (TensorProto.INT64, (50, 126))}
    model = small_model(nodes, ports, {"y": (FLOAT, (50, 90))}, {"w": np.ones((126, 90), np.float32)})
    assert bytes(compiled(model, tmp_path))[:4] == b"\x7fELF"


FUNCTION = CALLED + " void f{0}(const rammer_record *record) {{ ((float *)record)[threadIdx.x] = {0}; }}"


@pytest.mark.parametrize("is_there", [False, True])
def test_functions_are_compiled_one_by_one_where_there_is_a_linker(is_there):
    toolchain = find_toolchain()
    if is_there and toolchain.linker is None:
        pytest.skip("needs nvJitLink")
    calls = 'extern "C" __global__ void calls(const rammer_record *record) { f0(record); f1(record); }'
    text = "\n".join([EMPTY, *map(FUNCTION.format, range(2)), calls])
    found = replace(toolchain, linker=toolchain.linker if is_there else None)
    code = found.cubin(text, "sm_90", relocatable=True)
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[16:18], "little") == 2  # an executable
    assert (b".text.f1" in code) == is_there  # a section of its own


@pytest.mark.parametrize(("functions", "wanted"), [(160, False), (161, True)])
def test_a_program_of_many_functions_is_relocatable(functions, wanted, tmp_path):
    text = "\n".join(["", *map(FUNCTION.format, range(functions))])
    source = Source(device="cuda", files={CODE: text.encode()})
    asked = []

    def cubin(text, architecture, macros, *, relocatable, instead):
        asked.append(relocatable)
        assert text.count("#pragma nv_abi") == (functions if relocatable else 0)
        return b""

    found = SimpleNamespace(version="1", cubin=cubin)
    with mock.patch("rammer.devices.cuda.build.find_toolchain", return_value=found):
        compile_source(source, "sm_90", CompileOptions(cache_dir=tmp_path), trace=False)
    assert asked == [wanted]


@pytest.mark.parametrize(("values", "taken"), [(200, b"one_by_one"), (8, b"at_once")])
@pytest.mark.parametrize("relocatable", [False, True])
def test_what_spills_many_registers_is_compiled_another_way(values, taken, relocatable):
    text = f"""
#ifdef ONE_BY_ONE
extern "C" __global__ void __launch_bounds__(1024) one_by_one(volatile float *x) {{
    for (int i = 0; i < {values}; ++i)
        x[i] = x[i] + 1.0f;
#else
extern "C" __global__ void __launch_bounds__(1024) at_once(volatile float *x) {{
    float all[{values}];
    #pragma unroll
    for (int i = 0; i < {values}; ++i)
        all[i] = x[i];
    #pragma unroll
    for (int i = 0; i < {values}; ++i)
        x[i] = all[i] + 1.0f;
#endif
}}"""
    code = find_toolchain().cubin(text, "sm_90", relocatable=relocatable, instead="ONE_BY_ONE")
    assert b".text." + taken in code


def test_compiler_error_is_shown():
    with pytest.raises(CompilerFailedError, match="no_such_type") as caught:
        find_toolchain().cubin("no_such_type x;", "sm_90")
    assert caught.value.code == "R502"


def compiled(model, tmp_path, device="cuda:sm_90", **settings):
    found, options = find_device(device), CompileOptions(device=device, cache_dir=tmp_path, **settings)
    vdevice = found.describe(options)
    plan = plan_graph(load_graph(model), vdevice, options)
    return found.build(found.emit(plan, vdevice), options).files[CUBIN]


def few(names, *quick):
    """These names; all but the quick ones are marked, so that `make test-cuda` has them and `make test` does not."""
    return [pytest.param(name, marks=[pytest.mark.long] * (name not in quick)) for name in names]


@pytest.mark.parametrize("name", few(NETWORKS, "resnext", "lstm_tc", "llama"))
def test_small_network_compiles(name, tmp_path):
    assert bytes(compiled(NETWORKS[name](**SMALL[name]), tmp_path))[:4] == b"\x7fELF"


@pytest.mark.parametrize("name", few(PAPER, "resnext", "lstm_tc"))
def test_small_network_compiles_for_halves_of_multiprocessors(name, tmp_path):
    assert bytes(compiled(NETWORKS[name](**SMALL[name]), tmp_path, veus=264))[:4] == b"\x7fELF"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "llama"])
def test_network_compiles(name, tmp_path):
    assert bytes(compiled(NETWORKS[name](), tmp_path))[:4] == b"\x7fELF"


@pytest.mark.long
@pytest.mark.parametrize("architecture", [name for name in NAMED if name != "sm_90"])
@pytest.mark.parametrize("name", NETWORKS)
def test_small_network_compiles_for_other_architectures(name, architecture, tmp_path):
    assert bytes(compiled(NETWORKS[name](**SMALL[name]), tmp_path, f"cuda:{architecture}"))[:4] == b"\x7fELF"


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("architecture", few(["sm_80", "sm_90", "sm_120"], "sm_90"))
def test_tensor_cores_compile(architecture, precision, tmp_path):
    model = NETWORKS["resnext"](**SMALL["resnext"])
    assert compiled(model, tmp_path, f"cuda:{architecture}", precision=precision)


@pytest.mark.parametrize("architecture", few(["sm_80", "sm_90", "sm_120"], "sm_90"))
def test_tensor_cores_compile_for_halves_of_multiprocessors(architecture, tmp_path):
    model, veus = NETWORKS["resnext"](**SMALL["resnext"]), 2 * NAMED[architecture].multiprocessors
    assert compiled(model, tmp_path, f"cuda:{architecture}", precision="fp16", veus=veus)


def test_branches_compile(tmp_path):
    assert bytes(compiled(random_branches(0)[0], tmp_path))[:4] == b"\x7fELF"


def test_machine_code_is_kept(tmp_path, monkeypatch):
    first = compiled(layer_model(), tmp_path)

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(Toolchain, "cubin", refuse)
    assert compiled(layer_model(), tmp_path) == first


def test_model_for_a_gpu_elsewhere_is_saved_and_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    net = rammer.compile(layer_model(), "cuda:sm_90")
    net.save(tmp_path / "net.rammer")
    loaded = rammer.load(tmp_path / "net.rammer")
    assert loaded.device == "cuda:sm_90"
    try:
        find_device("cuda").describe(CompileOptions())
    except DeviceUnavailableError:
        with pytest.raises(DeviceUnavailableError):
            loaded(np.ones((2, 3), np.float32))


def test_model_of_another_version_of_the_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    net = rammer.compile(layer_model(), "cuda:sm_90")
    net.save(tmp_path / "net.rammer")
    of_another_version(tmp_path / "net.rammer")
    for device in ("cuda:sm_90", "cuda"):
        with pytest.raises(ArtifactVersionError, match="its tables are of version 0"):
            rammer.load(rewrite(tmp_path / "net.rammer", device=device))


def test_progress_is_told(tmp_path):
    found, options = find_device("cuda:sm_90"), CompileOptions(cache_dir=tmp_path)
    vdevice = found.describe(options)
    source = found.emit(plan_graph(load_graph(layer_model()), vdevice, options), vdevice)
    told = []
    build(source, "sm_90", options, lambda done, total: told.append((done, total)))
    assert told == [(1, 1)]
    assert build(source, "sm_90", options, no_progress).machine["architecture"] == "sm_90"


def test_products_of_warpgroups_stay_in_flight():
    """Nor does any function keep registers in local memory for want of those that sums take."""
    from cuda.core import Program as Text
    from cuda.core import ProgramOptions

    options = CompileOptions(device="cuda:sm_90", precision="fp16")
    device = find_device(options.device)
    vdevice = device.describe(options)
    wide = np.zeros((768, 3072), dtype=np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["h0"]),
        helper.make_node("MatMul", ["h0", "wide"], ["h1"]),
        helper.make_node("Erf", ["h1"], ["h2"]),
        helper.make_node("MatMul", ["h2", "narrow"], ["h3"]),
        helper.make_node("LayerNormalization", ["h3", "g"], ["y"]),
    ]
    constants = {"wide": wide, "narrow": wide.T, "g": wide[:, 0]}
    shape = (FLOAT, (128, 768))
    model = small_model(nodes, {"x": shape}, {"y": shape}, constants)
    text = bytes(device.emit(plan_graph(load_graph(model), vdevice, options), vdevice).files[CODE]).decode()
    assert "rammer_gemm_sm90<" in text
    log = io.StringIO()
    chosen = ProgramOptions(arch="sm_90a", std="c++17", ptxas_options=["-v"])
    Text(text, "c++", chosen).compile("cubin", logs=log)
    assert "C75" not in log.getvalue()  # wgmma that waits for the one before: C7508 to C7519
    assert set(re.findall(r"(\d+) bytes spill", log.getvalue())) == {"0"}
