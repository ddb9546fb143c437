"""The command line: what it prints, what it leaves, and how it ends."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import rammer
from rammer import cli
from rammer.cli.output import output
from rammer.devices.cuda.architecture import named
from rammer.devices.cuda.describe import describe
from rammer.devices.cuda.device import CudaDevice
from rammer.errors import RammerError
from tests.support.artifacts import built_elsewhere, with_sections
from tests.support.small_models import (
    FLOAT,
    layer_result,
    pair_model,
    small_model,
    unary_model,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
COMMANDS = ("compile", "run", "bench", "inspect", "devices", "cache", "doctor")


def in_a_process(*arguments, **environment):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "rammer", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


# --- Help -------------------------------------------------------------------------------------------------------------


def test_several_models_are_compiled_into_one_file(call, layer, tmp_path):
    onnx.save(pair_model(), "pair.onnx")
    code, out, _ = call("compile", layer, "pair.onnx", layer, "-o", "all.rammer", "--priorities", "1,2,1", "--veus", 2)
    assert code == 0
    assert "layer+pair+layer_2" in out
    np.save("x.npy", X)
    code, out, _ = call("run", "all.rammer", "--input", "layer_2:x=x.npy", "--random", "--json")
    assert code == 0
    found = json.loads(out)
    assert set(found) == {"layer:y", "pair:total", "pair:gap", "layer_2:y"}
    np.testing.assert_allclose(np.reshape(found["layer_2:y"]["values"], (2, 4)), layer_result(X), rtol=1e-6)
    code, out, _ = call("inspect", "all.rammer")
    assert code == 0
    assert "pair:subtract" in out


@pytest.mark.parametrize("priorities", ["1", "1,0", "1,a", "1,,2"])
def test_priorities_are_a_positive_number_for_each_model(call, layer, priorities):
    code, _, err = call("compile", layer, layer, "-o", "all.rammer", "--priorities", priorities)
    assert code == 2
    assert "priorities" in err


def test_help_lists_the_commands_and_where_to_start():
    result = CliRunner().invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", result.output)
    assert "rammer compile model.onnx -o model.rammer" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    result = CliRunner().invoke(cli.app, [name, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    lines = [line.strip("│ ") for line in result.output.splitlines() if re.search(r"--[a-z]", line)]
    options = [line for line in lines if line.startswith(("-", "*"))]
    assert options
    for line in options:
        explanation = re.split(r"\s{2,}", re.sub(r"\[default.*", "", line))[-1]
        assert len(explanation.split()) >= 3, line


# --- compile ----------------------------------------------------------------------------------------------------------


def test_compile_writes_a_file_that_loads(call, layer, tmp_path):
    code, out, err = call("compile", layer, "-o", "layer.rammer")
    assert (code, err) == (0, "")
    assert "wrote layer.rammer" in out
    np.testing.assert_allclose(rammer.load(tmp_path / "layer.rammer")(X), layer_result(X), rtol=1e-6)


def test_compile_json(call, layer):
    code, out, _ = call("compile", layer, "--output", "layer.rammer", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["output"] == "layer.rammer"
    assert [data["signature"].pop(name) for name in ("states", "in_place")] == [[], []]
    assert data["signature"] == {"inputs": [["x", "float32", [2, 3]]], "outputs": [["y", "float32", [2, 4]]]}
    assert data["seconds"] > 0


def test_compile_options(call, layer, tmp_path):
    code, _, _ = call(
        "compile",
        layer,
        "-o",
        "m.rammer",
        "--policy",
        "sequential",
        "--veus",
        3,
        "--dump-dir",
        "dump",
        "--device",
        "cpu",
    )
    report = rammer.load(tmp_path / "m.rammer").report
    assert (code, report["policy"], report["device"]["veus"]) == (0, "sequential", 3)
    assert min(path.name for path in (tmp_path / "dump").iterdir()) == "00-import.txt"


# --- run --------------------------------------------------------------------------------------------------------------


def test_run_reads_and_writes_arrays(call, compiled, tmp_path):
    np.save(tmp_path / "x.npy", X)
    code, out, _ = call("run", compiled, "--input", "x=x.npy", "-o", "results")
    assert code == 0
    assert "y float32[2, 4]" in out
    np.testing.assert_allclose(np.load(tmp_path / "results" / "y.npy"), layer_result(X), rtol=1e-6)


def test_run_compiles_an_onnx_file(call, layer, tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    code, out, _ = call("run", layer, "-i", "x=x.npy", "--json")
    found = json.loads(out)["y"]
    assert (code, found["dtype"], found["shape"]) == (0, "float32", [2, 4])
    np.testing.assert_allclose(np.reshape(found["values"], (2, 4)), layer_result(X), rtol=1e-6)


def test_run_with_bfloat16_files(call, tmp_path):
    x = np.array([1.5, -2.5], ml_dtypes.bfloat16)
    onnx.save(unary_model("Abs", onnx.TensorProto.BFLOAT16, (2,)), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", x)
    code, _, err = call("run", "m.onnx", "-i", "x=x.npy", "-o", ".", "--device", "reference")
    assert code == 0, err
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").view(ml_dtypes.bfloat16), np.abs(x))


def test_run_json_is_json_for_values_that_json_lacks(call, tmp_path):
    onnx.save(unary_model("Neg", FLOAT, (3,)), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.array([np.nan, np.inf, 1], np.float32))
    _, out, _ = call("run", "m.onnx", "-i", "x=x.npy", "--json", "--device", "reference")
    assert json.loads(out, parse_constant=pytest.fail)["y"]["values"] == ["nan", "-inf", -1.0]


@pytest.mark.parametrize("kind", [FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL, onnx.TensorProto.BFLOAT16])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_random_inputs_of_any_type(call, tmp_path, kind, shape):
    onnx.save(unary_model("Identity", kind, shape), tmp_path / "m.onnx")
    outputs = {call("run", "m.onnx", "--random", "--json", "--device", "reference")[:2] for _ in range(2)}
    assert len(outputs) == 1  # the same numbers every time
    ((code, out),) = outputs
    assert code == 0
    assert json.loads(out)["y"]["shape"] == list(shape)


def test_given_inputs_go_before_random_ones(call, tmp_path):
    onnx.save(pair_model(), tmp_path / "m.onnx")
    np.save(tmp_path / "a.npy", np.full(4, 1e6, np.float32))
    _, out, _ = call("run", "m.onnx", "-i", "a=a.npy", "--random", "--json", "--device", "reference")
    assert min(json.loads(out)["total"]["values"]) > 9e5


# --- bench, inspect, devices ------------------------------------------------------------------------------------------


def test_bench(call, compiled):
    code, out, _ = call("bench", compiled, "--repeat", 20, "--warmup", 2, "--json")
    data = json.loads(out)
    assert (code, data["runs"], data["device"]) == (0, 20, "cpu")
    assert 0 < data["p10_us"] <= data["median_us"] <= data["p90_us"]
    code, out, _ = call("bench", compiled, "--repeat", 1, "--warmup", 0)
    assert code == 0
    assert re.search(r"layer on cpu: median [\d.,]+ [um]s", out)


def test_a_compiled_model_on_another_number_of_units(call, compiled):
    np.save("x.npy", X)
    for veus in (1, 3):
        code, out, _ = call("run", compiled, "--input", "x=x.npy", "--veus", veus, "--json")
        assert code == 0
        np.testing.assert_allclose(np.reshape(json.loads(out)["y"]["values"], (2, 4)), layer_result(X), rtol=1e-6)
        code, out, _ = call("inspect", compiled, "--veus", veus, "--json")
        assert (code, json.loads(out)["device"]["veus"]) == (0, veus)
    code, _, error = call("bench", compiled, "--veus", 2, "--policy", "sequential")
    assert (code, "--policy for" in error, "--veus" in error) == (2, True, False)


def test_inspect(call, compiled):
    code, out, _ = call("inspect", compiled)
    assert code == 0
    assert "wavefront" in out
    assert "(x: float32[2,3]) -> (y: float32[2,4])" in out
    assert "product, relu" in out
    _, kernels, _ = call("inspect", compiled, "--kernels")
    assert "form" in kernels
    assert "memory" in kernels
    report = json.loads(call("inspect", compiled, "--json")[1])
    assert report == dict(rammer.load(compiled).report)


@pytest.mark.parametrize("options", [[], ["--kernels"], ["--json"], ["--timeline", "run.html"]])
def test_inspect_refuses_reports_of_others(call, compiled, tmp_path, options):
    path = tmp_path / "other.rammer"
    path.write_bytes(compiled.read_bytes())
    with_sections(path, lambda sections: sections.update({"report": b"{}"}))
    code, out, err = call("inspect", path, *options)
    assert (code, "R401" in out + err, "its report has no 'name'" in out + err) == (5, True, True)


def test_a_timeline_needs_the_report_of_the_program_that_runs(call, compiled, tmp_path):
    path = tmp_path / "other.rammer"
    path.write_bytes(compiled.read_bytes())
    of_another = {"programs": [[[["execute", 0, 0]]]], "predicted": {"total_us": 1.0, "starts_us": [[[0.0]]]}}
    report = json.dumps({**rammer.load(compiled).report, **of_another}).encode()
    with_sections(path, lambda sections: sections.update({"report": report}))
    assert call("inspect", path)[0] == 0
    code, _, err = call("inspect", path, "--timeline", "run.html")
    assert (code, "its report is of another program" in err) == (5, True)


def test_inspect_shows_every_candidate(call, compiled):
    _, out, _ = call("inspect", compiled, "--kernels")
    report = rammer.load(compiled).report
    candidates = sum(len(operator["candidates"]) for operator in report["operators"])
    assert len(re.findall(r"\b(?:map|reduce|gemm|implicit_gemm|gemv|depthwise) [\dx]+ ", out)) == candidates
    assert len(re.findall(r" \* ", out)) == len(report["operators"])


@pytest.mark.parametrize("suffix", [".html", ".json"])
def test_inspect_writes_a_timeline(call, compiled, tmp_path, suffix):
    code, out, _ = call("inspect", compiled, "--timeline", f"run{suffix}")
    assert code == 0
    assert f"wrote run{suffix}" in out
    content = (tmp_path / f"run{suffix}").read_text()
    assert "layer on cpu" in content if suffix == ".html" else json.loads(content)["traceEvents"]


def page_of(path):
    (data,) = re.findall(r"const data = (.*);\n", path.read_text())
    return json.loads(data)


def test_inspect_writes_a_page_without_running_anything(call, compiled, tmp_path):
    code, out, _ = call("inspect", compiled, "--html", "report.html", "--json")
    assert code == 0
    json.loads(out)  # and nothing else, whatever solvers print
    page = page_of(tmp_path / "report.html")
    assert [run["name"] for run in page["runs"]] == ["predicted"]
    (model,) = page["models"]
    assert model["bounds_us"]["these rKernels"] <= rammer.load(compiled).report["predicted"]["total_us"] * (1 + 1e-6)


def test_inspect_shows_runs_and_models_beside_each_other(call, compiled, layer, tmp_path):
    assert call("compile", layer, "-o", "other.rammer", "--policy", "sequential")[0] == 0
    code, out, _ = call("inspect", compiled, "--html", "both.html", "--trace", "--beside", "other.rammer")
    assert (code, "wrote both.html" in out) == (0, True)
    page = page_of(tmp_path / "both.html")
    assert [model["policy"] for model in page["models"]] == ["wavefront", "sequential"]
    assert [run["name"].rpartition(", ")[2] for run in page["runs"]] == ["measured", "predicted"] * 2


def test_names_from_a_model_are_shown_as_they_are(call, tmp_path):
    name = "[bold]a[/b] [/x] :smile:"
    node = onnx.helper.make_node("Relu", ["x"], ["[/y]"], name=name)
    model = small_model([node], {"x": (FLOAT, (2,))}, {"[/y]": (FLOAT, (2,))}, name="[red]")
    onnx.save(model, tmp_path / "[red].onnx")
    for arguments in (["inspect"], ["inspect", "--kernels"], ["run", "--random"], ["bench", "--repeat", "1"]):
        code, out, _ = call(arguments[0], "[red].onnx", *arguments[1:], "--device", "reference")
        assert code == 0
        assert name in out or "[red]" in out or "[/y]" in out


def test_devices(call):
    code, out, _ = call("devices")
    assert code == 0
    assert re.search(r"^cpu .*execution units", out, re.MULTILINE)
    found = json.loads(call("devices", "--json")[1])
    assert set(found) == {"cpu", "reference", "cuda"}
    assert "execution units" in out.split("cuda")[1] or "to do:" in out  # what there is, or what to do about it
    assert "cuda:sm_90" in out
    assert found["reference"]["flops_per_us"]["float32"]["value"] > 0


def test_devices_says_how_many_threads_a_gpu_has(call, monkeypatch):
    monkeypatch.setattr(CudaDevice, "describe", lambda *_: describe(named("sm_90"), 264))
    assert "NVIDIA H200, 264 execution units of 256 threads" in call("devices")[1]


@pytest.mark.parametrize("line", ["inspect {}", "inspect {} --kernels", "inspect {} --survey", "devices", "cache"])
def test_what_is_printed_fits_80_columns(call, layer, monkeypatch, line):
    monkeypatch.setenv("RAMMER_CACHE_DIR", "cache")
    monkeypatch.setattr(output, "width", 80)
    code, out, _ = call(*line.format("layer.onnx").split())
    assert code == 0
    assert max(len(printed.rstrip()) for printed in out.splitlines()) <= 80


def test_a_pipe_is_as_wide_as_columns_says(compiled):
    narrow, wide = (in_a_process("inspect", compiled, COLUMNS=columns).stdout for columns in ("80", "160"))
    assert max(len(printed.rstrip()) for printed in narrow.splitlines()) <= 80
    assert ("product, relu" in narrow, "product, relu" in wide) == (False, True)


def test_what_was_done_to_an_old_model_is_noted(call):
    old = onnx.parser.parse_model(
        '<ir_version: 6, opset_import: ["" : 11]> old (float[2, 3] x) => (float[2] y)'
        "{ y = ReduceSum <axes = [1], keepdims = 0> (x) }"
    )
    onnx.save(old, "old.onnx")
    code, _, err = call("run", "old.onnx", "--random", "--device", "reference")
    assert (code, err) == (0, "note: old.onnx: ONNX's converter brought it from operator set 11 up to 13\n")


def test_version_and_short_help(call):
    assert call("--version")[:2] == (0, f"rammer {rammer.__version__}\n")
    assert call("-h")[1] == call("--help")[1]
    assert call("bench", "-h")[1] == call("bench", "--help")[1]


# --- cache, doctor ----------------------------------------------------------------------------------------------------


def test_the_cache_is_shown_and_cleared(call, layer, tmp_path, monkeypatch):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path / "cache"))
    assert json.loads(call("cache", "--json")[1])["parts"]["rammer-objects"]["files"] == 0
    call("inspect", layer)
    (tmp_path / "cache" / "rammer-objects" / "mine.txt").write_text("not Rammer's")
    before = json.loads(call("cache", "--json")[1])
    assert before["folder"] == str(tmp_path / "cache")
    assert before["parts"]["rammer-objects"]["files"] > 0
    assert before["parts"]["rammer-objects"]["bytes"] > 0
    code, out, _ = call("cache", "--clear")
    assert code == 0
    assert out.endswith("removed\n")
    assert sum(part["files"] for part in json.loads(call("cache", "--json")[1])["parts"].values()) == 0
    assert (tmp_path / "cache" / "rammer-objects" / "mine.txt").exists()


def test_the_machine_is_measured_again(tmp_path):
    def measured():
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("peaks/*/*")}

    in_a_process("devices", RAMMER_CACHE_DIR=str(tmp_path))
    assert not measured()
    in_a_process("devices", RAMMER_CACHE_DIR=str(tmp_path), RAMMER_FIGURES="measured")
    first = measured()
    in_a_process("devices", RAMMER_CACHE_DIR=str(tmp_path), RAMMER_FIGURES="measured")
    assert measured() == first
    assert len(first) == 1
    assert in_a_process("devices", "--measure", RAMMER_CACHE_DIR=str(tmp_path)).returncode == 0
    assert measured().keys() == first.keys()
    assert measured() != first


def test_the_doctor_says_what_there_is(call):
    code, out, _ = call("doctor")
    assert code == 0
    found = {finding["name"]: finding for finding in json.loads(call("doctor", "--json")[1])}
    assert set(found) == {"rammer", "packages", "processor", "compiler", "cache", "gpu"}
    assert all(found[name]["state"] == "ok" for name in ("rammer", "processor", "compiler", "cache"))
    assert rammer.__version__ in found["rammer"]["text"]
    for finding in found.values():
        assert finding["name"] in out
        assert (finding["state"] == "ok") == (not finding["to_do"])


@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false"])
def test_the_doctor_finds_a_broken_compiler(call, monkeypatch, compiler):
    monkeypatch.setenv("CC", compiler)
    code, out, _ = call("doctor")
    assert code == 6
    assert re.search(r"^broken +compiler", out, re.MULTILINE)
    assert "to do: " in out


def test_the_doctor_finds_a_cache_that_cannot_be_used(call, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path / "file" / "cache"))
    code, out, _ = call("doctor")
    assert code == 0
    assert re.search(r"^missing +cache", out, re.MULTILINE)


def test_every_error_class_has_an_exit_code():
    codes = {cls: cli.exit_code(cls.__new__(cls)) for cls in _subclasses(RammerError)}
    assert {cls.__name__ for cls, code in codes.items() if code == 70} == {"VerificationError"}
    assert set(codes.values()) == {2, 3, 4, 5, 6, 70}


def _subclasses(cls):
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


@pytest.mark.filterwarnings("default")
def test_a_rebuilt_model_is_a_warning_and_works(call, compiled, tmp_path):
    (tmp_path / "m.rammer").write_bytes(compiled.read_bytes())
    built_elsewhere(tmp_path / "m.rammer")
    code, out, err = call("run", "m.rammer", "--random", "--json")
    assert code == 0
    assert json.loads(out)
    assert err.startswith("warning: ")
    assert "avx9000" in err


# --- As a process -----------------------------------------------------------------------------------------------------


def test_the_installed_command_works(compiled):
    command = Path(sys.executable).parent / "rammer"
    if not command.exists():
        pytest.skip("the package is not installed")
    done = subprocess.run([command, "bench", compiled, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["median_us"] > 0


def test_exit_code_and_streams_of_a_process(compiled, tmp_path):
    failed = in_a_process("run", compiled)
    assert (failed.returncode, failed.stdout) == (4, "")
    assert failed.stderr.startswith("[R300] input 'x' is missing\n  to do: ")
    assert in_a_process("run", tmp_path / "none.onnx").returncode == 3
    assert in_a_process("--help").returncode == 0


def test_no_compiler(layer, tmp_path):
    done = in_a_process("inspect", layer, CC="/no/such/compiler", RAMMER_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 6
    assert done.stderr.startswith("[R501]")
    assert "Traceback" not in done.stderr


def test_a_wrong_environment(layer):
    done = in_a_process("inspect", layer, RAMMER_VEUS="many")
    assert done.returncode == 2
    assert done.stderr.startswith("[R100] RAMMER_VEUS=many")


def test_output_into_a_pipe_that_closes(compiled):
    command = [sys.executable, "-m", "rammer", "inspect", str(compiled), "--kernels"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert "Traceback" not in done.stderr
