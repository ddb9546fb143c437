"""Models of a few bytes that ask for more than there is, and names that are more than names."""

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper
from typer.testing import CliRunner

import rammer
from rammer.cli import app
from rammer.devices.registry import DEVICES
from rammer.errors import InvalidModelError, OutOfMemoryError, TensorSizeError
from rammer.ir.sizes import size_text
from tests.support.small_models import FLOAT, small_model

by_device = pytest.mark.parametrize("device", DEVICES)


# --- Sizes ------------------------------------------------------------------------------------------------------------

_K, _M, _G = 1 << 10, 1 << 20, 1 << 30

# What makes y, the inputs, and how much is needed.
IMPOSSIBLE = {
    "Tile": (f"r = Constant<value_ints=[{2 * _G}, {2 * _G}]>() y = Tile(x, r)", "float[2, 2] x", "64 EiB"),
    "Conv": (f"y = Conv<pads=[{2 * _G}, {2 * _G}, 0, 0]>(x, w)", "float[1,1,4,4] x, float[1,1,3,3] w", "16 EiB"),
    "ConvTranspose": (
        f"y = ConvTranspose<strides=[{_G}, {_G}]>(x, w)",
        "float[1,1,40,40] x, float[1,1,3,3] w",
        "more than 1024 EiB",
    ),
    "MaxPool": (
        f"y = MaxPool<kernel_shape=[{_K * _G}], pads=[{_K * _G - 1}, {_K * _G - 1}]>(x)",
        f"float[1, 64, {_G}] x",
        "256.2 TiB",
    ),
    "Expand": (f"s = Constant<value_ints=[{4 * _G}, {4 * _G}]>() y = Expand(x, s)", "float[1] x", "64 EiB"),
    "Reshape": (f"s = Constant<value_ints=[{', '.join('1' * 65)}]>() y = Reshape(x, s)", "float[1] x", "65 dimensions"),
    "Relu": ("y = Relu(x)", f"float[{', '.join('1' * 65)}] x", "65 dimensions"),
    "empty": ("y = Relu(x)", f"float[{4 * _G}, 0, {4 * _G}] x", "64 EiB"),
}
TOO_LARGE = {
    "Expand": (f"s = Constant<value_ints=[{_K * _G}]>() y = Expand(x, s)", "float[1] x", "4 TiB"),
    "ConstantOfShape": ("s = Constant<value_ints=[1000000000000]>() y = ConstantOfShape(s)", "float[1] x", "3.638 TiB"),
    "Resize": (f"s = Constant<value_ints=[1, 1, {_M}, {_M}]>() y = Resize(x, , , s)", "float[1,1,4,4] x", "4 TiB"),
    "an input": ("y = ReduceSum(x)", f"float[{_M}, {_M}] x", "4 TiB"),
    "a value between": (f"s = Constant<value_ints=[{_K * _G}]>() h = Expand(x, s) y = Softmax(h)", "float[1] x", "TiB"),
}


def parsed(body: str, inputs: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 22]> huge ({inputs}) => (float[] y) {{{body}}}'
    )


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Only so much more than the process has by now that no huge tensor goes unnoticed."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc").exists() else 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * _G, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@by_device
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("body", "inputs", "needed"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_tensors_that_cannot_be(device: str, body: str, inputs: str, needed: str) -> None:
    with pytest.raises(TensorSizeError, match=needed) as caught:
        rammer.compile(parsed(body, inputs), device)
    assert caught.value.code == "R208"
    assert re.search(r"node '\w+' of huge|input 'x' of huge", caught.value.where)


@by_device
@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("body", "inputs", "needed"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_models_that_take_more_memory_than_there_is(device: str, body: str, inputs: str, needed: str) -> None:
    with pytest.raises(OutOfMemoryError, match=rf"{needed} of memory are needed \(.*\), .*iB are there") as caught:
        rammer.compile(parsed(body, inputs), device)
    assert caught.value.code == "R506"


def test_a_large_value_that_nobody_stores_is_no_harm() -> None:
    body = f"s = Constant<value_ints=[{_K * _G}]>() h = Expand(x, s) f = Constant<value_ints=[7]>() y = Gather(h, f)"
    net = rammer.compile(parsed(body, "float[1] x"), "cpu")
    np.testing.assert_array_equal(net(np.array([3], np.float32)), [3])


@pytest.mark.usefixtures("little_memory")
def test_memory_that_others_use_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would fit in the machine, but not in what is left of it."""
    model = parsed(f"s = Constant<value_ints=[{_G}]>() y = Expand(x, s)", "float[1] x")
    monkeypatch.setattr("rammer.ir.sizes.check_memory", lambda *_, **__: None)
    with pytest.raises(OutOfMemoryError, match=r"it returns y: float32.*: 4 GiB"):
        rammer.compile(model, "cpu")(np.ones(1, np.float32))


def test_memory_that_runs_out_as_the_reference_device_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object) -> None:
        raise MemoryError("Unable to allocate 8 GiB")

    net = rammer.compile(parsed("y = Neg(x)", "float[4] x"), "reference")
    monkeypatch.setattr("rammer.devices.reference.execution.evaluate_tile", too_much)
    with pytest.raises(OutOfMemoryError, match="8 GiB"):
        net(np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1 << 40, "1 TiB"), (1 << 5000, "more than 1024 EiB")],
)
def test_sizes_as_text(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


# --- Names ------------------------------------------------------------------------------------------------------------

# Clears the screen, sets the window's title, turns writing around, a line that looks like another error.
EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.exe\n[R999] forged\r"


def evil_model(inputs: str = EVIL) -> onnx.ModelProto:
    node = helper.make_node("Relu", [inputs], ["y" + EVIL], name="node" + EVIL)
    return small_model([node], {EVIL: (FLOAT, (2, 3))}, {"y" + EVIL: (FLOAT, (2, 3))})


def shown_only(text: str) -> bool:
    """Whether a terminal shows each character and obeys none."""
    return all(letter.isprintable() or letter == "\n" for letter in text) and "\n[R999]" not in text


def test_names_in_errors_do_nothing() -> None:
    with pytest.raises(InvalidModelError) as caught:
        rammer.compile(evil_model(inputs="absent" + EVIL), "cpu")
    text = str(caught.value)
    assert shown_only(text)
    assert "absent\\x1b[2J" in text


def test_names_in_an_executable_do_nothing() -> None:
    net = rammer.compile(evil_model(), "cpu")
    x = np.ones((2, 3), np.float32)
    assert shown_only(f"{net!r} {net.signature} {net.name}")
    np.testing.assert_array_equal(net.run({EVIL: x})["y" + EVIL], x)  # names themselves are what they are


@pytest.mark.parametrize(
    "command", [["inspect"], ["inspect", "--kernels"], ["run", "--random"], ["bench", "--repeat", "1"], ["run"]]
)
def test_names_on_the_command_line_do_nothing(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "evil.onnx"
    onnx.save(evil_model(), path)
    result = CliRunner().invoke(app, [command[0], str(path), *command[1:]])
    assert shown_only(result.output), repr(result.output)
    assert shown_only(str(result.exception or ""))


def test_names_in_pages_and_dumps_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J.onnx"
    onnx.save(evil_model(), path)
    page, dumps = tmp_path / "page.html", tmp_path / "dumps"
    command = ["inspect", str(path), "--timeline", str(page), "--dump-dir", str(dumps)]
    assert CliRunner().invoke(app, command).exit_code == 0
    written = [page, *dumps.iterdir()]
    assert len(written) > 5
    for file in written:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", file.read_text(encoding="utf-8")), file
    assert "\\x1b[2J" in page.read_text(encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="file names of any bytes")
def test_names_that_are_no_text_are_shown() -> None:
    with pytest.raises(rammer.RammerError) as caught:
        rammer.compile(os.fsdecode(b"\xff\x1b.onnx"), "cpu")
    assert str(caught.value).encode()  # no half of a surrogate pair
    assert shown_only(str(caught.value))
