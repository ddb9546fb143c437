"""External data are read from inside the model's folder only."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from rammer.errors import ExternalDataError, OutOfMemoryError
from rammer.frontends.onnx import load_graph
from rammer.ir.evaluate import evaluate_graph
from tests.support.onnx_reference import model_of

W = np.arange(6, dtype=np.float32).reshape(2, 3)


def saved(folder, name="model.onnx", **entries):
    """A model `y = x + w` whose w lies in another file, as the entries say."""
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": W}, ["y"], constants={"w": W})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def refusal(path):
    with pytest.raises(ExternalDataError) as caught:
        load_graph(path)
    assert "initialiser 'w'" in caught.value.where
    return caught.value.message


def test_offset_and_length(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"????" + W.tobytes() + b"more")
    graph = load_graph(saved(tmp_path, location="w.bin", offset=4, length=24))
    np.testing.assert_array_equal(evaluate_graph(graph, [W])[0], W + W)


def test_whole_file_in_a_folder_below(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(W.tobytes())
    graph = load_graph(saved(tmp_path, location="data/w.bin"))
    np.testing.assert_array_equal(evaluate_graph(graph, [W])[0], W + W)


def test_what_onnx_writes(tmp_path):
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": W}, ["y"], constants={"w": W})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    np.testing.assert_array_equal(evaluate_graph(load_graph(tmp_path / "m.onnx"), [W])[0], W + W)


def test_attribute_tensor(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    value = TensorProto(data_type=1, dims=W.shape, data_location=TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="w.bin")
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": W}, ["y"])
    model.graph.node[0].CopyFrom(helper.make_node("Add", ["x", "w"], ["y"]))
    model.graph.node.add().CopyFrom(helper.make_node("Constant", [], ["w"], value=value))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    np.testing.assert_array_equal(evaluate_graph(load_graph(tmp_path / "m.onnx"), [W])[0], W + W)


def test_bytes_need_a_path(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(ExternalDataError, match="did not come from a file") as caught:
        load_graph(saved(tmp_path, location="w.bin").read_bytes())
    assert "path" in caught.value.hint


@pytest.mark.parametrize("location", ["../w.bin", "a/../../w.bin", "/etc/hostname", "C:/w.bin", "C:w.bin"])
def test_locations_outside(tmp_path, location):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    assert "outside the model's folder" in refusal(saved(folder, location=location))


def test_absolute_path_into_the_folder_is_refused_too(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    assert "outside the model's folder" in refusal(saved(tmp_path, location=tmp_path / "w.bin"))


def test_links(tmp_path):
    outside, folder = tmp_path / "w.bin", tmp_path / "model"
    outside.write_bytes(W.tobytes())
    folder.mkdir()
    (folder / "file").symlink_to(outside)
    assert "link out of the model's folder" in refusal(saved(folder, location="file"))
    (folder / "up").symlink_to(tmp_path)
    assert "link out of the model's folder" in refusal(saved(folder, location="up/w.bin"))
    (folder / "loop").symlink_to(folder / "loop")
    assert "cannot be found" in refusal(saved(folder, location="loop"))
    (folder / "real").write_bytes(W.tobytes())
    (folder / "inside").symlink_to("real")
    load_graph(saved(folder, location="inside"))


def test_model_reached_through_a_link(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w.bin").write_bytes(W.tobytes())
    saved(folder, location="w.bin")
    (tmp_path / "alias").symlink_to(folder)
    load_graph(tmp_path / "alias" / "model.onnx")


def test_missing_file(tmp_path):
    assert "'w.bin' cannot be found" in refusal(saved(tmp_path, location="w.bin"))


@pytest.mark.parametrize("location", ["", "a\0b"])
def test_location_that_is_none(tmp_path, location):
    assert "no usable location" in refusal(saved(tmp_path, location=location))
    assert "no usable location" in refusal(saved(tmp_path))


def test_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "w.bin").mkdir()
    assert "Is a directory" in refusal(saved(tmp_path, location="w.bin"))


def test_short_file(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes()[:-1])
    assert "end at byte 24 of 'w.bin', which has 23" in refusal(saved(tmp_path, location="w.bin"))
    assert "end at byte 25" in refusal(saved(tmp_path, location="w.bin", offset=1))


@pytest.mark.parametrize("text", ["-1", "1.5", "", "0x10", "9" * 40, "\u0662"])
@pytest.mark.parametrize("key", ["offset", "length"])
def test_numbers_that_are_none(tmp_path, key, text):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    assert f"the {key} of its external data" in refusal(saved(tmp_path, location="w.bin", **{key: text}))


def test_length_that_does_not_fit(tmp_path):
    (tmp_path / "w.bin").write_bytes(W.tobytes() * 2)
    assert "takes 24 bytes, but its external data have 48" in refusal(saved(tmp_path, location="w.bin", length=48))


def test_huge_tensor_is_not_read(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"")
    assert "which has 0" in refusal(with_extent(saved(tmp_path, location="w.bin"), 2**40))


def with_extent(path, extent):
    """The model with a w of that many elements."""
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].dims[:] = [extent]
    path.write_bytes(model.SerializeToString())
    return path


def test_sparse_file_larger_than_memory_is_not_read(tmp_path):
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OutOfMemoryError, match="1 TiB of memory are needed") as caught:
        load_graph(with_extent(saved(tmp_path, location="w.bin"), 1 << 38))
    assert "initialiser 'w'" in caught.value.where


def test_files_that_together_are_larger_than_memory_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("rammer.frontends.onnx.external.host_memory_bytes", lambda: 30)
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    model = onnx.load(saved(tmp_path, location="w.bin"), load_external_data=False)
    second = model.graph.initializer.add()
    second.CopyFrom(model.graph.initializer[0])
    second.name = "second"
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(OutOfMemoryError, match=r"48 bytes of memory are needed \(other tensors 24 bytes") as caught:
        load_graph(tmp_path / "model.onnx")
    assert "initialiser 'second'" in caught.value.where
