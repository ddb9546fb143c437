"""Saved models: the same results without the model, and a clear word about every file that cannot be used."""

import json
import os
import subprocess
import sys
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest

import rammer
from rammer.devices.cpu import device as cpu_device
from rammer.devices.cpu.machine import read_machine
from rammer.errors import (
    ArtifactCorruptError,
    ArtifactDeviceError,
    ArtifactNotFoundError,
    ArtifactVersionError,
    ArtifactWriteError,
    CompilerNotFoundError,
)
from rammer.runtime.artifact import RebuiltWarning
from rammer.runtime.container import open_container
from tests.support.artifacts import built_elsewhere, of_another_version, rewrite
from tests.support.small_models import layer_model, layer_result, mlp_model, pair_model, scale_model

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
A, B = np.arange(4, dtype=np.float32), np.ones(4, np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved model; nobody writes to it."""
    path = tmp_path_factory.mktemp("saved") / "layer.rammer"
    rammer.compile(layer_model(), "cpu", veus=2).save(path)
    return path


@pytest.fixture
def copy(saved, tmp_path):
    """A copy to damage."""
    path = tmp_path / "copy.rammer"
    path.write_bytes(saved.read_bytes())
    return path


# --- Round trips ------------------------------------------------------------------------------------------------------


def test_round_trip_without_the_model(tmp_path):
    model = tmp_path / "pair.onnx"
    model.write_bytes(pair_model().SerializeToString())
    net = rammer.compile(model, "cpu")
    net.save(tmp_path / "pair.rammer")
    expected, signature, report = net(A, B), net.signature, net.report
    del net
    model.unlink()
    loaded = rammer.load(tmp_path / "pair.rammer")
    assert (loaded.name, loaded.device, loaded.signature) == ("pair", "cpu", signature)
    assert loaded.report == report
    results = loaded(A, B)
    assert list(results) == ["total", "gap"]
    for name, array in results.items():
        np.testing.assert_array_equal(array, expected[name])


def test_results_are_the_same_bits(tmp_path):
    net = rammer.compile(mlp_model(), "cpu", veus=2)
    net.save(tmp_path / "mlp.rammer")
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    assert rammer.load(str(tmp_path / "mlp.rammer"))(x).tobytes() == net(x).tobytes()


def test_a_loaded_model_can_be_saved_over_its_own_file(copy):
    before = copy.read_bytes()
    loaded = rammer.load(copy)
    loaded.save(copy)
    assert copy.read_bytes() == before
    np.testing.assert_allclose(loaded(X), layer_result(X), rtol=1e-6)
    np.testing.assert_allclose(rammer.load(copy)(X), layer_result(X), rtol=1e-6)


def test_a_loaded_model_outlives_its_file(copy):
    loaded = rammer.load(copy)
    copy.unlink()
    np.testing.assert_allclose(loaded(X), layer_result(X), rtol=1e-6)


def test_saving_twice_gives_the_same_bytes(tmp_path, saved):
    rammer.compile(layer_model(), "cpu", veus=2).save(tmp_path / "again.rammer")
    assert (tmp_path / "again.rammer").read_bytes() == saved.read_bytes()


def test_a_fresh_cache_gives_the_same_bytes(tmp_path, saved, monkeypatch):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path / "cache"))
    rammer.compile(layer_model(), "cpu", veus=2).save(tmp_path / "again.rammer")
    assert (tmp_path / "again.rammer").read_bytes() == saved.read_bytes()


def test_loading_needs_no_compiler_and_no_cache(saved, tmp_path):
    code = f"""
import numpy as np, rammer
net = rammer.load({str(saved)!r})
print(net(np.array({X.tolist()}, np.float32)).tolist())
"""
    # No PATH and no CC: a compiler that is looked for is not found. The cache is a folder that does not exist.
    environment = {"RAMMER_CACHE_DIR": str(tmp_path / "cache"), "PATH": "", "CC": "/no/such/compiler"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(json.loads(done.stdout), layer_result(X), rtol=1e-6)


def test_one_file_loaded_by_several_threads(saved):
    results, start = [], threading.Barrier(4)

    def work():
        start.wait()
        results.append(rammer.load(saved)(X))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(np.array_equal(result, results[0]) for result in results)


def test_nothing_in_the_file_is_a_pickle(saved):
    container = open_container(saved)
    assert set(container.meta) == {"name", "device", "machine", "signature"}
    for name, section in container.sections().items():
        assert bytes(section[:2]) != b"\x80\x04", name


# --- Files that cannot be used ----------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path):
    with pytest.raises(ArtifactNotFoundError, match="cannot read") as caught:
        rammer.load(tmp_path / "none.rammer")
    assert (caught.value.code, caught.value.hint) == ("R400", "check the path")


@pytest.mark.parametrize("length", [0, 7, 60, 5000, -1])
def test_a_truncated_file(copy, length):
    copy.write_bytes(copy.read_bytes()[:length])
    with pytest.raises(ArtifactCorruptError, match=r"copy\.rammer cannot be used") as caught:
        rammer.load(copy)
    assert caught.value.code == "R401"
    assert "compile the model again" in caught.value.hint


@pytest.mark.parametrize("place", [0.0, 0.05, 0.3, 0.6, 0.999])
def test_an_altered_file(copy, place):
    content = bytearray(copy.read_bytes())
    content[int(place * len(content))] ^= 0x10
    copy.write_bytes(content)
    with pytest.raises(ArtifactCorruptError):
        rammer.load(copy)


def test_an_onnx_file_is_no_artifact(tmp_path):
    (tmp_path / "m.rammer").write_bytes(layer_model().SerializeToString())
    with pytest.raises(ArtifactCorruptError, match="no file that Rammer saved"):
        rammer.load(tmp_path / "m.rammer")


def test_another_version_of_the_format(copy):
    content = bytearray(copy.read_bytes())
    content[8:12] = (99).to_bytes(4, "little")
    copy.write_bytes(content)
    with pytest.raises(ArtifactVersionError, match="format version 99") as caught:
        rammer.load(copy)
    assert caught.value.code == "R402"


def test_another_version_of_the_tables(copy):
    path = of_another_version(built_elsewhere(copy))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is rebuilt that cannot be read
        with pytest.raises(ArtifactVersionError, match="its tables are of version 0") as caught:
            rammer.load(path)
    assert caught.value.code == "R402"
    assert "compile the model again" in caught.value.hint


def test_a_device_that_is_not_known_here(copy):
    with pytest.raises(ArtifactDeviceError, match="device 'abacus'") as caught:
        rammer.load(rewrite(copy, device="abacus"))
    assert caught.value.code == "R403"


# --- Another machine --------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(copy):
    return built_elsewhere(copy)


def test_it_is_rebuilt_for_this_machine(elsewhere, tmp_path):
    with pytest.warns(RebuiltWarning, match="avx9000"):
        net = rammer.load(elsewhere)
    np.testing.assert_allclose(net(X), layer_result(X), rtol=1e-6)
    net.save(tmp_path / "here.rammer")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(rammer.load(tmp_path / "here.rammer")(X), net(X))


def test_the_warning_points_at_the_caller(elsewhere):
    with pytest.warns(RebuiltWarning) as caught:
        rammer.load(elsewhere)
    assert caught[0].filename == __file__


def test_a_lesser_machine_is_told_apart(saved, monkeypatch):
    here = read_machine()
    lesser = replace(here, features=tuple(feature for feature in here.features if not feature.startswith("avx")))
    if lesser == here:
        pytest.skip("this processor has no instruction set that could be missing")
    monkeypatch.setattr(cpu_device, "read_machine", lambda: lesser)
    with pytest.warns(RebuiltWarning, match="avx"):
        rammer.load(saved)


def test_it_cannot_be_rebuilt_without_a_compiler(elsewhere):
    options = rammer.CompileOptions(cc="/no/such/compiler")
    with pytest.warns(RebuiltWarning), pytest.raises(ArtifactDeviceError, match="avx9000") as caught:
        rammer.load(elsewhere, options)
    assert caught.value.code == "R403"
    assert isinstance(caught.value.__cause__, CompilerNotFoundError)
    assert caught.value.hint


# --- Writing ----------------------------------------------------------------------------------------------------------


def test_reference_programs_cannot_be_saved(tmp_path):
    net = rammer.compile(layer_model(), "reference")
    with pytest.raises(ArtifactWriteError, match="reference device cannot be saved") as caught:
        net.save(tmp_path / "m.rammer")
    assert caught.value.code == "R404"
    assert not (tmp_path / "m.rammer").exists()


def test_a_folder_that_is_missing(tmp_path):
    net = rammer.compile(scale_model(2.0), "cpu")
    with pytest.raises(ArtifactWriteError, match="No such file or directory"):
        net.save(tmp_path / "no" / "m.rammer")


def test_a_folder_in_the_place_of_the_file(tmp_path):
    net = rammer.compile(scale_model(2.0), "cpu")
    (tmp_path / "m.rammer").mkdir()
    with pytest.raises(ArtifactWriteError):
        net.save(tmp_path / "m.rammer")
    assert [path.name for path in tmp_path.iterdir()] == ["m.rammer"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path):
    net = rammer.compile(scale_model(2.0), "cpu")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ArtifactWriteError, match="Permission denied"):
            net.save(tmp_path / "m.rammer")
    finally:
        tmp_path.chmod(0o700)
