"""Options: defaults, the environment, values that cannot be used."""

import ast
import inspect
import re
from pathlib import Path

import numpy as np
import pytest

import rammer
from rammer import errors
from rammer.errors import OptionError
from rammer.options import CompileOptions
from tests.support.small_models import scale_model

VARIABLES = ("DEVICE", "VEUS", "CACHE_DIR", "CACHE_BYTES", "COMPILE_TIMEOUT_S", "RUN_TIMEOUT_S", "SPIN_US")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in ("CC", "XDG_CACHE_HOME", *(f"RAMMER_{variable}" for variable in VARIABLES)):
        monkeypatch.delenv(name, raising=False)


def test_defaults():
    options = CompileOptions()
    assert (options.device, options.policy, options.precision) == ("cpu", "wavefront", "fp32")
    assert options.veus is None
    assert options.cc is None
    assert options.cache_dir == Path("~/.cache/rammer").expanduser()
    assert options.cache_bytes == 4 << 30


def test_environment_gives_what_is_not_given(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "ccache gcc")
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("RAMMER_CACHE_BYTES", "1000000")
    monkeypatch.setenv("RAMMER_VEUS", "3")
    monkeypatch.setenv("RAMMER_DEVICE", "reference")
    monkeypatch.setenv("RAMMER_RUN_TIMEOUT_S", "0.5")
    monkeypatch.setenv("RAMMER_COMPILE_TIMEOUT_S", "7")
    monkeypatch.setenv("RAMMER_SPIN_US", "0")
    monkeypatch.setenv("RAMMER_DELAYS", "1")
    options = CompileOptions(device="cpu")
    assert (options.cc, options.cache_dir, options.veus) == ("ccache gcc", tmp_path, 3)
    assert options.cache_bytes == 1_000_000
    assert (options.run_timeout_s, options.compile_timeout_s, options.spin_us) == (0.5, 7.0, 0.0)
    assert options.delays
    assert options.device == "cpu"


def test_cache_lies_where_the_desktop_standard_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert CompileOptions().cache_dir == tmp_path / "rammer"
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path / "own"))
    assert CompileOptions().cache_dir == tmp_path / "own"


def test_empty_variable_counts_as_not_set(monkeypatch):
    monkeypatch.setenv("RAMMER_VEUS", "")
    assert CompileOptions().veus is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RAMMER_VEUS", "two"),
        ("RAMMER_SPIN_US", "fast"),
        ("RAMMER_CACHE_BYTES", "4G"),
        ("RAMMER_VEUS", "0"),
        ("RAMMER_DELAYS", "yes"),
    ],
)
def test_bad_variable_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(OptionError, match=f"{variable}={value}|veus=0") as caught:
        CompileOptions()
    assert caught.value.code == "R100"
    assert caught.value.hint


@pytest.mark.parametrize(
    "given",
    [
        {"veus": 0},
        {"veus": -1},
        {"cache_bytes": -1},
        {"precision": "fp8"},
        {"numerics": "loose"},
        {"trees": "fir"},
        {"figures": "guessed"},
        {"run_timeout_s": 0.0},
        {"run_timeout_s": float("inf")},
        {"compile_timeout_s": -1.0},
        {"spin_us": -1.0},
        {"spin_us": float("nan")},
        {"input_shapes": {"x": (1, -1)}},
    ],
)
def test_bad_value_is_named(given):
    with pytest.raises(OptionError, match=str(next(iter(given)) if "input_shapes" not in given else "'x'")):
        CompileOptions(**given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"input_shapes": {"n": None}}, "input_shapes= of 'n': None"),
        ({"input_shapes": {"n": "8"}}, "input_shapes= of 'n': '8'"),
        ({"args": np.zeros(3)}, "args= is of class ndarray"),
        ({"kwargs": [1]}, "kwargs= is of class list"),
    ],
)
def test_arguments_of_another_form_are_named(given, says):
    with pytest.raises(OptionError, match=re.escape(says)) as caught:
        rammer.compile(scale_model(2.0, ("n", 3)), "reference", **given)
    assert caught.value.hint


def errors_without_a_hint(path):
    """Where a file makes errors that do not say what to do."""
    advised = {name for name, error in vars(errors).items() if getattr(error, "advice", "")} | {"VerificationError"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            error = vars(errors).get(node.func.id)
            hinted = node.func.id in advised or any(keyword.arg == "hint" for keyword in node.keywords)
            if inspect.isclass(error) and issubclass(error, errors.RammerError) and not hinted:
                yield f"{path}:{node.lineno}"


def test_every_error_says_what_to_do():
    files = [path for path in Path(rammer.__file__).parent.rglob("*.py") if path.name != "errors.py"]
    assert len(files) > 100
    assert not [place for path in files for place in errors_without_a_hint(path)]
