"""What tests of the command line share."""

import sys

import onnx
import pytest

import rammer
from rammer import cli
from rammer.cli.output import output
from tests.support.small_models import layer_model


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Call the command as its entry point does, in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "width", 200)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["rammer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        return (0 if code is None else code, *capsys.readouterr())

    return run


@pytest.fixture
def layer(tmp_path):
    """An ONNX file."""
    path = tmp_path / "layer.onnx"
    onnx.save(layer_model(), path)
    return path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A compiled model; nobody writes to it."""
    path = tmp_path_factory.mktemp("compiled") / "layer.rammer"
    rammer.compile(layer_model(), "cpu").save(path)
    return path
