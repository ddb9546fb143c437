"""Models are read from paths, bytes and messages; what is no model is refused by name."""

import os

import numpy as np
import onnx
import pytest
from onnx import helper

import rammer
from rammer.errors import (
    ArtifactCorruptError,
    InvalidModelError,
    ModelNotFoundError,
    NotAModelError,
    OptionError,
    RammerError,
)
from rammer.frontends.onnx import load_graph
from tests.support.onnx_reference import model_of

X = np.ones((2, 3), np.float32)
MODEL = model_of([helper.make_node("Relu", ["x"], ["y"], name="first")], {"x": X}, ["y"])


def test_path_bytes_and_message_give_the_same_graph(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(MODEL, path)
    graphs = [load_graph(source) for source in (path, str(path), path.read_bytes(), MODEL)]
    assert len({str(graph) for graph in graphs}) == 1
    assert [graph.operators[0].sources[0].model for graph in graphs] == ["model.onnx", "model.onnx", "test", "test"]
    assert str(graphs[0].operators[0].sources[0]) == "Relu node 'first' of model.onnx"


def test_what_torch_exports_is_its_message():
    class ONNXProgram:  # PyTorch's, which needs a package of its own
        model_proto = MODEL

    net = rammer.compile(ONNXProgram(), "reference")
    np.testing.assert_array_equal(net(X), X)
    with pytest.raises(OptionError, match="dimensions"):  # of the message: there is no open one
        rammer.compile(ONNXProgram(), "reference", dynamic={"x": {0: (1, 2)}})


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("saved.rammer", b"RAMMER\r\n", "rammer.load(path)"),
        ("module.pt2", b"PK\x03\x04rest", "torch.export.load(path)"),
    ],
)
def test_files_of_others_are_told_apart(tmp_path, name, content, hint):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(NotAModelError) as caught:
        load_graph(tmp_path / name)
    assert hint in caught.value.hint


def test_what_is_compiled_is_told_apart(tmp_path):
    with pytest.raises(NotAModelError, match="Executable is compiled already"):
        rammer.compile(rammer.compile(MODEL, "reference"))
    onnx.save(MODEL, tmp_path / "model.onnx")
    with pytest.raises(ArtifactCorruptError, match="no file that Rammer saved") as caught:
        rammer.load(tmp_path / "model.onnx")
    assert "rammer.compile" in caught.value.hint


def test_message_is_not_changed():
    before = MODEL.SerializeToString(deterministic=True)
    load_graph(MODEL)
    assert MODEL.SerializeToString(deterministic=True) == before


def test_missing_file(tmp_path):
    with pytest.raises(ModelNotFoundError, match="no such file") as caught:
        load_graph(tmp_path / "absent.onnx")
    assert caught.value.where.endswith("absent.onnx")


def test_folder(tmp_path):
    with pytest.raises(ModelNotFoundError, match="folder"):
        load_graph(tmp_path)


def test_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelNotFoundError, match="pipe"):
        load_graph(tmp_path / "pipe")


def test_device_that_never_ends():
    with pytest.raises(ModelNotFoundError, match="device"):
        load_graph("/dev/zero")


def test_file_larger_than_any_model(tmp_path):
    with (tmp_path / "huge.onnx").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(NotAModelError, match="it has 1 TiB"):
        load_graph(tmp_path / "huge.onnx")


@pytest.mark.parametrize("path", ["file/below", "with\0null"])
def test_unreadable_path(tmp_path, path):
    (tmp_path / "file").touch()
    with pytest.raises(ModelNotFoundError, match="cannot be read"):
        load_graph(str(tmp_path / path))


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"import torch\n", b"\x00" * 100, b"\x89PNG\r\n\x1a\n" + b"\0" * 64, b"PK\x03\x04" + b"\x14" * 60],
)
def test_what_is_no_model(data):
    with pytest.raises(NotAModelError):
        load_graph(data)


def test_model_without_graph():
    with pytest.raises(NotAModelError, match="no graph"):
        load_graph(onnx.ModelProto(ir_version=10))


def test_every_truncation_is_refused():
    data = MODEL.SerializeToString()
    for length in range(len(data)):
        with pytest.raises(RammerError):
            load_graph(data[:length])


def test_name_that_is_no_text():
    with pytest.raises(InvalidModelError, match="UTF-8"):
        load_graph(MODEL.SerializeToString().replace(b"first", b"f\xffrst"))


def test_name_of_a_graph_that_is_no_text():
    name = MODEL.graph.name.encode()
    with pytest.raises(InvalidModelError, match="UTF-8") as caught:
        load_graph(MODEL.SerializeToString().replace(name, b"\xff" * len(name)))
    assert "the model" in str(caught.value)
