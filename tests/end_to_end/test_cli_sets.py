"""The commands on files that hold several programs: of a dynamic model, of an estimator, of a plain set."""

import json
import re

import numpy as np
import onnx.parser
import pytest

import rammer
from rammer.cli.output import output
from rammer.frontends.builder import FoldingBuilder
from rammer.frontends.node import ModelNode
from rammer.ir.dimensions import Dim
from rammer.ir.estimator import REFUSED, ROWS, ClassLabels, EstimatorForm, InputColumn, Method, Part, Step
from rammer.ir.graph import SourceLocation
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions
from rammer.pipelines.compiler import compile_graph
from rammer.runtime.estimator import CompiledEstimator
from rammer.runtime.programs import ProgramSet


def negation(shape="float[N, 3]"):
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 22]> m ({shape} x) => ({shape} y) {{ y = Neg(x) }}'
    )


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory):
    path = tmp_path_factory.mktemp("sets") / "dynamic.rammer"
    rammer.compile(negation(), "cpu", dynamic={"x": {0: Dim(name="batch", low=1, high=4)}}).save(path)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Two shapes of one entry, and another entry."""
    path = tmp_path_factory.mktemp("sets") / "plain.rammer"
    programs = ProgramSet()
    for rows, entry in ((2, "a"), (3, "a"), (2, "b")):
        programs.add(rammer.compile(negation(f"float[{rows}, 3]"), "cpu"), entry)
    programs.save(path)
    return path


def estimator_graph(rows, method):
    """Whether the first of two columns is positive, and the column itself; the second is a text that nothing reads."""
    place = SourceLocation(model="signs", node="signs", op_type="signs")
    builder = FoldingBuilder("signs")
    node = ModelNode(location=place, builder=builder)
    x = builder.input(ROWS, TensorType(DType.FLOAT64, (rows, 2)))
    both = node.add("ReduceMax", x, axes=(1,), keepdims=False)
    column = node.add("ReduceSum", node.add("Mul", x, node.constant(np.array([1.0, 0.0]))), axes=(1,), keepdims=False)
    zero = node.constant(np.zeros((), np.float64))
    positive = node.add("Less", zero, column)
    places = node.add("Where", positive, node.constant(np.array(1, np.int64)), node.constant(np.array(0, np.int64)))
    refused = node.add("IsNaN", both)
    number = node.add("Where", refused, node.constant(np.array(1, np.int64)), node.constant(np.array(0, np.int64)))
    return builder.finish([(method, places if method == "predict" else column), (REFUSED, number)], place)


@pytest.fixture(scope="module")
def estimator(tmp_path_factory):
    """An estimator as a front end would give it."""
    path = tmp_path_factory.mktemp("sets") / "estimator.rammer"
    labels = ClassLabels(dtype="|O", values=("no", "yes"))
    form = EstimatorForm(
        estimator="Signs",
        named=False,
        columns=(
            InputColumn(name="height", texts=None, used=True),
            InputColumn(name="colour", texts=("red", "green"), used=False),
        ),
        methods=(
            Method(name="predict", parts=(Part(output="predict", labels=labels),), joined="alone"),
            Method(name="transform", parts=(Part(output="transform", labels=None),), joined="alone"),
        ),
        refusals=("NaN in a feature",),
        steps=(Step(place="Signs.scaler", width=2, computed=1),),
    )
    options = CompileOptions(device="cpu", veus=1)
    programs = ProgramSet(lambda shapes, method: compile_graph(estimator_graph(shapes[0][0], method), options))
    CompiledEstimator(form, programs).save(path)
    return path


def test_inspect_lists_the_programs_of_a_dynamic_model(call, dynamic):
    code, out, _ = call("inspect", dynamic)
    assert code == 0
    assert "batch 1 to 4 (padded)" in out
    assert [f"x float32[{rows}, 3]" in out for rows in (1, 2, 3, 4)] == [True, True, False, True]
    report = json.loads(call("inspect", dynamic, "--json")[1])
    assert report["dimensions"] == [{"name": "batch", "low": 1, "high": 4, "padded": True}]
    assert len(report["programs"]) == 3
    assert all(program["bytes"] > 0 for program in report["programs"])


def test_programs_of_many_inputs_fit_80_columns(call, monkeypatch):
    monkeypatch.setattr(output, "width", 80)
    names = [f"input_with_a_long_name_{number}" for number in range(4)]
    inputs = ", ".join(f"float[batch, 3] {name}" for name in names)
    header = '<ir_version: 8, opset_import: ["" : 17]> main_graph'
    text = f"{header} ({inputs}) => (float[batch, 3] y) {{ y = Sum({', '.join(names)}) }}"
    onnx.save(onnx.parser.parse_model(text), "sum.onnx")
    batch = Dim(name="batch", low=1, high=2)
    rammer.compile("sum.onnx", "cpu", dynamic={name: {0: batch} for name in names}).save("sum.rammer")
    code, out, _ = call("inspect", "sum.rammer")
    assert code == 0
    assert max(len(line.rstrip()) for line in out.splitlines()) <= 80
    assert all(header in out for header in ("rOperators", "predicted", "size"))
    assert all(out.count(name) == 2 for name in names)
    assert re.search("^model +sum *$", call("inspect", "sum.rammer", "--shape", "batch=2")[1], re.MULTILINE)


def test_several_shapes_beside_a_constant(call, tmp_path):
    header = '<ir_version: 8, opset_import: ["" : 17]> main_graph'
    text = f"{header} (float[batch, 3] x, float[1] k) => (float[batch, 3] y) {{ y = Mul(x, k) }}"
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    code, _, err = call("compile", "m.onnx", "-o", "m.rammer", "--dynamic", "batch=1:2", "--constant", "k=3,")
    assert code == 0, err
    x = np.arange(3, dtype=np.float32).reshape(1, 3)
    np.testing.assert_array_equal(rammer.load(tmp_path / "m.rammer")(x), 3 * x)


def test_compile_for_several_shapes(call, tmp_path):
    onnx.save(negation(), tmp_path / "m.onnx")
    onnx.save(negation("float[?, 3]"), tmp_path / "unnamed.onnx")
    wanted = {"m.onnx": ("N=1:4:2,4", 2), "unnamed.onnx": ("x.0=1:2", 2)}
    for name, (dimension, count) in wanted.items():
        out = json.loads(call("compile", name, "-o", "m.rammer", "--dynamic", dimension, "--json")[1])
        assert len(out["programs"]) == count
        x = np.arange(3, dtype=np.float32).reshape(1, 3)
        np.testing.assert_array_equal(rammer.load(tmp_path / "m.rammer")(x), -x)
    assert "N 1 to 4 (padded)" in call("compile", "m.onnx", "-o", "m.rammer", "--dynamic", "N=1:4")[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("m.onnx", "--dynamic", "N=4"), "batch=1:16"),
        (("m.onnx", "--dynamic", "N=a:b"), "batch=1:16"),
        (("m.onnx", "--dynamic", "M=1:4"), "there are N"),
        (("m.onnx", "--dynamic", "N=4:1"), "low <= high"),
        (("m.onnx", "m.onnx", "--dynamic", "N=1:4"), "by themselves"),
    ],
)
def test_dimensions_that_are_refused(call, tmp_path, arguments, told):
    onnx.save(negation(), tmp_path / "m.onnx")
    code, _, err = call("compile", *arguments, "-o", "m.rammer")
    assert code == 2
    assert told in err.replace("\n", " ")


def test_inspect_shows_one_program(call, dynamic, tmp_path):
    for shape in ("batch=3", "x=3,3"):
        assert "(x: float32[4,3]) -> (y: float32[4,3])" in call("inspect", dynamic, "--shape", shape)[1]
    assert call("inspect", dynamic, "--shape", "batch=2", "--timeline", "run.html")[0] == 0
    assert "m on cpu" in (tmp_path / "run.html").read_text()


def test_inspect_shows_what_an_estimator_reads(call, estimator):
    code, out, _ = call("inspect", estimator)
    assert code == 0
    assert "1 of 2 columns: height" in out
    assert "Signs.scaler computes 1 of 2 columns" in out
    assert "NaN in a feature" in out
    report = json.loads(call("inspect", estimator, "--json")[1])
    assert report["estimator"]["methods"] == ["predict", "transform"]
    assert {program["entry"] for program in report["programs"]} == {"predict", "transform"}
    one = call("inspect", estimator, "--entry", "transform", "--shape", "X=40,2")[1]
    assert "(X: float64[128,2]) -> (transform: float64[128], refused: int64[128])" in one


def test_run_a_dynamic_model_on_any_rows(call, dynamic):
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.save("x.npy", x)
    out = json.loads(call("run", dynamic, "-i", "x=x.npy", "--json")[1])
    assert out["y"] == {"dtype": "float32", "shape": [3, 3], "values": (-x).reshape(-1).tolist()}
    assert json.loads(call("run", dynamic, "--random", "--shape", "batch=2", "--json")[1])["y"]["shape"] == [2, 3]
    assert json.loads(call("run", dynamic, "--random", "--json")[1])["y"]["shape"] == [1, 3]


def test_run_an_estimator_gives_labels(call, estimator, tmp_path):
    np.save("X.npy", np.array([["1.5", "red"], ["-2", "green"], ["3", "blue"]]))
    out = json.loads(call("run", estimator, "-i", "X=X.npy", "--json", "-o", "results")[1])
    assert out["predict"]["values"] == ["yes", "no", "yes"]
    assert np.load(tmp_path / "results" / "predict.npy").tolist() == ["yes", "no", "yes"]
    numbers = json.loads(call("run", estimator, "-i", "X=X.npy", "--json", "--entry", "transform")[1])
    assert numbers["transform"]["values"] == [1.5, -2.0, 3.0]
    out = json.loads(call("run", estimator, "--random", "--shape", "X=40,2", "--json")[1])
    assert out["predict"]["shape"] == [40]


def test_run_chooses_of_a_set(call, plain):
    assert json.loads(call("run", plain, "--random", "--entry", "b", "--json")[1])["y"]["shape"] == [2, 3]
    out = json.loads(call("run", plain, "--random", "--entry", "a", "--shape", "x=3,3", "--json")[1])
    assert out["y"]["shape"] == [3, 3]
    np.save("x.npy", np.ones((3, 3), np.float32))
    assert json.loads(call("run", plain, "-i", "x=x.npy", "--entry", "a", "--json")[1])["y"]["shape"] == [3, 3]


def test_bench(call, dynamic, estimator, plain):
    for arguments in ([dynamic, "--shape", "batch=3"], [estimator, "--shape", "X=20,2"], [plain, "--entry", "b"]):
        code, out, _ = call("bench", *arguments, "--repeat", 2, "--warmup", 1, "--json")
        assert (code, json.loads(out)["runs"]) == (0, 2)


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("inspect dynamic --kernels", 2, "choose by --shape or --entry"),
        ("inspect dynamic --policy ios", 2, "--policy for"),
        ("inspect dynamic --shape z=3", 2, "no input or dimension 'z'"),
        ("inspect dynamic --shape x=3,4", 4, "[3, 4], not of [3, 3]"),
        ("inspect dynamic --shape batch=5", 4, "1 to 4"),
        ("inspect dynamic --shape batch=2 --shape x=3,3", 2, "several extents for 'batch'"),
        ("run dynamic --entry other --random", 2, "no entry 'other'"),
        ("run dynamic -i x=three.npy --shape x=2,3", 2, "a file of shape [3, 3]"),
        ("run dynamic", 4, "input 'x' is missing"),
        ("run estimator --random --entry predict_proba", 2, "give --entry predict, --entry transform"),
        ("run estimator --random --shape X=2,3", 4, "takes [rows, 2]"),
        ("run plain --random", 2, "give --entry a, --entry b"),
        ("run plain --random --entry a", 2, "choose --shape x=2,3 or --shape x=3,3"),
        ("run plain --random --entry b --shape x=4,3", 2, "choose --shape x=2,3"),
    ],
)
def test_mistakes_are_explained(call, dynamic, estimator, plain, line, code, says):
    files = {"dynamic": dynamic, "estimator": estimator, "plain": plain}
    np.save("three.npy", np.ones((3, 3), np.float32))
    got, out, err = call(*[files.get(word, word) for word in line.split()])
    assert (got, out) == (code, ""), err
    assert says in err
