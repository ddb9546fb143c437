"""Mistakes on the command line: each ends with its own exit code and says what to do."""

import json

import numpy as np
import onnx
import pytest

from tests.support.small_models import FLOAT, small_model

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture
def mistakes(tmp_path, layer, compiled):
    """Files that are not what they should be, beside good ones."""
    (tmp_path / "text.onnx").write_text("hello")
    (tmp_path / "cut.onnx").write_bytes(layer.read_bytes()[:80])
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "cut.rammer").write_bytes(compiled.read_bytes()[:-1])
    (tmp_path / "good.rammer").write_bytes(compiled.read_bytes())
    node = onnx.helper.make_node("Abracadabra", ["x"], ["y"], name="trick")
    onnx.save(small_model([node], {"x": (FLOAT, (2,))}, {"y": (FLOAT, (2,))}), tmp_path / "unknown.onnx")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "long.npy", np.zeros((3, 3), np.float32))
    np.save(tmp_path / "double.npy", X.astype(np.float64))
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object))
    np.savez(tmp_path / "several.npz", X)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("nonsense", 2, "No such command"),
        ("compile layer.onnx", 2, "Missing option"),
        ("bench layer.onnx --repeat 0", 2, "--repeat"),
        ("bench layer.onnx --repeat many", 2, "--repeat"),
        ("compile layer.onnx -o m.bin", 2, "[R100]"),
        ("compile layer.onnx -o m.rammer --policy luck", 2, "choose one of wavefront, sequential"),
        ("compile layer.onnx -o m.rammer --precision fp8", 2, "[R100]"),
        ("compile layer.onnx -o m.rammer --numerics loose", 2, "choose one of default, strict"),
        ("compile layer.onnx -o m.rammer --trees fir", 2, "choose one of auto, gemm, perfect"),
        ("compile layer.onnx -o m.rammer --trees gemm", 2, "sums no leaves of decision trees"),
        ("compile layer.onnx -o m.rammer --device abacus", 2, "choose one of cpu, reference"),
        ("compile layer.onnx -o m.rammer --veus 0", 2, "[R100]"),
        ("compile layer.onnx -o m.rammer --shape x", 2, "write it as --shape batch=8 or --shape x=1,3,224,224"),
        ("compile layer.onnx -o m.rammer --shape x=2,three", 2, "write it as --shape batch=8 or --shape x=1,3,224,224"),
        ("compile layer.onnx -o m.rammer --shape q=2,3", 2, "'q'"),
        ("compile layer.onnx -o m.rammer --shape x=2,-3", 2, "[R100]"),
        ("compile layer.onnx -o m.rammer --dump-dir x.npy", 2, "x.npy, which is a file"),
        ("inspect layer.onnx --timeline run.png", 2, "end its name in .html"),
        ("inspect layer.onnx --timeline no/run.html", 2, "cannot write"),
        ("inspect layer.onnx --html no/run.html", 2, "cannot write"),
        ("inspect layer.onnx --trace", 2, "name its file with --html"),
        ("run layer.onnx --random -o x.npy", 2, "cannot write"),
        ("run layer.onnx -i x", 2, "write it as --input x=x.npy"),
        ("run layer.onnx -i x=x.npy -i x=long.npy", 2, "'x' is given twice"),
        ("run good.rammer --random --policy sequential --shape x=2,3", 2, "--policy, --shape for good.rammer"),
        ("inspect none.onnx", 3, "[R200]"),
        ("inspect folder.onnx", 3, "[R200]"),
        ("inspect text.onnx", 3, "[R201]"),
        ("inspect empty.onnx", 3, "[R201]"),
        ("inspect cut.onnx", 3, "[R201]"),
        ("inspect unknown.onnx", 3, "Abracadabra (trick)"),
        ("run layer.onnx", 4, "[R300] input 'x' is missing"),
        ("run layer.onnx", 4, "give each as --input NAME=FILE.npy, or fill them with --random"),
        ("run layer.onnx -i q=x.npy -i x=x.npy", 4, "unknown input(s): q"),
        ("run layer.onnx -i x=none.npy", 4, "No such file"),
        ("run layer.onnx -i x=folder.onnx", 4, "Is a directory"),
        ("run layer.onnx -i x=text.onnx", 4, "is not a .npy file"),
        ("run layer.onnx -i x=empty.onnx", 4, "is not a .npy file"),
        ("run layer.onnx -i x=cut.npy", 4, "is cut short"),
        ("run layer.onnx -i x=several.npz", 4, "is not a .npy file"),
        ("run layer.onnx -i x=objects.npy", 4, "is not a .npy file"),
        ("run layer.onnx -i x=double.npy", 4, "[R301]"),
        ("run layer.onnx -i x=long.npy", 4, "[R302]"),
        ("run none.rammer", 5, "[R400]"),
        ("run cut.rammer", 5, "[R401]"),
        ("compile layer.onnx -o no/m.rammer", 5, "[R404]"),
        ("compile layer.onnx -o m.rammer --device reference", 5, "[R404]"),
    ],
)
@pytest.mark.usefixtures("mistakes")
def test_mistakes_are_explained(call, line, code, says):
    got, out, err = call(*line.split())
    assert got == code, err
    assert says in err
    assert out == ""
    assert "Traceback" not in err


def test_errors_for_scripts(call, layer):
    code, out, err = call("run", layer, "--json")
    error = json.loads(out)["error"]
    assert (code, err, error["code"], error["message"]) == (4, "", "R300", "input 'x' is missing")
    assert error["to_do"]
    code, out, _ = call("run", layer, "--json", "--nonsense")
    assert (code, json.loads(out)["error"]["code"]) == (2, "R100")
    assert call("devices", "--json")[0] == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("inspect big.onnx --timeline no/run.html", "there is no folder no"),
        ("inspect big.onnx --dump-dir x.npy/dump", "cannot write into x.npy"),
        ("inspect big.onnx --html run.html --beside none.rammer", "--beside none.rammer: there is no such file"),
        ("run big.onnx --random -o x.npy/results", "cannot write into x.npy"),
        ("run big.onnx -i x=none.npy", "cannot read none.npy"),
        ("compile big.onnx -o no/big.rammer", "there is no folder no"),
        ("compile good.rammer -o other.rammer", "good.rammer is compiled"),
    ],
)
@pytest.mark.usefixtures("mistakes")
def test_paths_are_checked_before_work(call, line, says):
    """The model itself is not there: nobody looked yet."""
    code, _, err = call(*line.split())
    assert code in (2, 4, 5)
    assert says in err
