"""Models whose arrays lie in a device's own memory: what is asked of the device, and what is refused. No GPU needed."""

import gc
import weakref
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import rammer
from rammer.devices.base import Loaded
from rammer.devices.registry import find_device
from rammer.errors import InputShapeError, InputTypeError, LayoutError, OptionError, OutputError, PlacementError
from rammer.runtime.executable import Executable
from tests.support.small_models import layer_model, layer_result, pair_model, scale_model, unary_model

A, B = np.arange(4, dtype=np.float32), np.ones(4, np.float32)


@dataclass
class Remote:
    """An array of the device below; its memory is an array of the host's in truth."""

    memory: np.ndarray
    strides: tuple | None = None
    writable: bool = True

    @property
    def address(self):
        return self.memory.ctypes.data


@dataclass
class Resident:
    """A model of the reference device, whose arrays may be `Remote`."""

    loaded: Loaded
    inputs: int
    array_alignment_bytes: int = 4
    log: list = field(default_factory=list)
    arrays: dict = field(default_factory=dict)

    def run(self, inputs, outputs):
        self.log.append("run")
        self.loaded.run(inputs, outputs)

    def clone(self):
        return replace(self, loaded=self.loaded.clone())

    def trace(self, inputs, outputs):
        return self.loaded.trace(inputs, outputs)

    def stream_of(self, stream):
        if stream == "broken":
            raise OptionError("stream")
        return 1 if stream is None else int(stream)

    def view(self, array, stream):
        if not isinstance(array, Remote):
            return None
        self.log.append(("view", stream))
        self.arrays[array.address] = array.memory
        return array.address, array.memory.dtype, array.memory.shape, array.strides, array.writable

    def room(self, type):
        def make(stream):
            array = Remote(np.full(type.shape, np.nan, type.dtype.numpy))
            self.arrays[array.address] = array.memory
            return array

        return make

    def enqueue(self, arrays, stream):
        self.log.append(("enqueue", stream))
        memory = [self.arrays[address] for address in arrays]
        self.loaded.run(memory[: self.inputs], memory[self.inputs :])

    def again(self, arrays, stream):
        self.enqueue(arrays, stream)

    def new_state(self, types, in_place=()):
        raise NotImplementedError

    def padded(self, address, given, shape, stream):
        raise NotImplementedError

    def fill(self, address, array):
        raise NotImplementedError

    def wait(self):
        self.log.append("wait")


def resident(model):
    """The model as an executable, and its device's side of it."""
    device = find_device("reference")
    net = rammer.compile(model, "reference")
    found = Resident(net._loaded, len(net.signature.inputs))

    class Loads:
        name = device.name

        def load(self, source, binary, options):
            return found

    loads: Any = Loads()
    made = Executable(
        name=net.name,
        signature=net.signature,
        device=loads,
        source=net._source,
        binary=net._binary,
        report=net._report,
        options=rammer.CompileOptions(),
    )
    return made, found


@pytest.fixture
def pair():
    return resident(pair_model())


def test_arrays_stay_where_they_are(pair):
    net, found = pair
    results = net(Remote(A), b=Remote(B))
    assert all(isinstance(result, Remote) for result in results.values())
    np.testing.assert_array_equal(results["gap"].memory, A - B)
    assert found.log == [("view", 1), ("view", 1), ("enqueue", 1)]
    net.wait()
    assert found.log[-1] == "wait"


def test_a_run_is_given_to_the_callers_stream(pair):
    net, found = pair
    net.run({"a": Remote(A), "b": Remote(B)}, stream=7)
    assert found.log == [("view", 7), ("view", 7), ("enqueue", 7)]
    with pytest.raises(OptionError):
        net.run({"a": Remote(A), "b": Remote(B)}, stream="broken")


def test_arrays_of_the_host_take_the_way_of_the_host(pair):
    net, found = pair
    np.testing.assert_array_equal(net(A, B)["total"], A + B)
    with pytest.raises(InputTypeError, match="float64"):  # what NumPy makes of a list
        net(A.tolist(), B)
    assert set(found.log) == {"run"}
    with pytest.raises(PlacementError, match="some inputs lie on the host"):
        net(A, Remote(B))
    with pytest.raises(PlacementError, match="a stream for inputs on the host"):
        net.run({"a": A, "b": B}, stream=7)


def test_what_arrays_hold_is_checked():
    net, found = resident(layer_model())
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(net(Remote(x)).memory, layer_result(x), rtol=1e-6)
    with pytest.raises(InputTypeError, match="float64"):
        net(Remote(x.astype(np.float64)))
    with pytest.raises(InputShapeError, match=r"\[3, 2\]"):
        net(Remote(x.T))
    with pytest.raises(LayoutError, match="row by row"):
        net(replace(Remote(x), strides=(1, 2)))
    assert found.log.count(("enqueue", 1)) == 1


def test_arrays_that_begin_where_the_device_cannot_take_them_are_refused():
    net, found = resident(scale_model(2, (1, 4)))
    memory = np.empty(64, np.uint8)
    found.array_alignment_bytes = 16
    first = -memory.ctypes.data % 16

    def at(offset):
        return Remote(memory[first + offset :][:16].view(np.float32).reshape(1, 4))

    x, y = at(0), at(16)
    net.run({"x": x}, outputs={"y": y})
    with pytest.raises(LayoutError, match="input 'x' begins at no multiple of 16 bytes"):
        net(at(4))
    with pytest.raises(LayoutError, match="output 'y' begins at no multiple of 16 bytes"):
        net.run({"x": x}, outputs={"y": at(20)})


@pytest.mark.parametrize("strides", [None, (4, 1), (1, 1), (0, 1)], ids=["C order", "rows", "other rows", "one row"])
def test_strides_of_what_has_one_element_are_free(strides):
    net, _ = resident(scale_model(2, (1, 4)))
    x = Remote(A.reshape(1, 4), strides=strides)
    y = Remote(np.empty((1, 4), np.float32), strides=strides)
    np.testing.assert_array_equal(net(x).memory, 2 * x.memory)
    np.testing.assert_array_equal(net.run({"x": x}, outputs={"y": y})["y"].memory, 2 * x.memory)
    for wrong in ((4, 2), (1, 4)):
        with pytest.raises(LayoutError, match="row by row"):
            net(replace(x, strides=wrong))
        with pytest.raises(OutputError, match="not C-contiguous"):
            net.run({"x": x}, outputs={"y": replace(y, strides=wrong)})


def test_outputs_in_the_devices_memory(pair):
    net, _ = pair
    a, b, total, gap = (
        Remote(array) for array in (A.copy(), B.copy(), np.empty(4, np.float32), np.empty(4, np.float32))
    )
    inputs = {"a": a, "b": b}
    results = net.run(inputs, outputs={"gap": gap, "total": total})
    assert results["gap"] is gap
    np.testing.assert_array_equal(gap.memory, A - B)
    np.testing.assert_array_equal(total.memory, A + B)
    refused = {
        "overlaps an input": ({"total": a, "gap": gap}, "'total' is to be written where another"),
        "overlaps an output": ({"total": total, "gap": total}, "is to be written where another"),
        "missing": ({"total": total}, "outputs= has total"),
        "unknown": ({"total": total, "gap": gap, "y": gap}, "outputs= has gap, total, y"),
        "elsewhere": ({"total": total, "gap": np.empty(4, np.float32)}, "elsewhere"),
        "type": ({"total": total, "gap": Remote(np.empty(4))}, r"float64\[4\]"),
        "shape": ({"total": total, "gap": Remote(np.empty(5, np.float32))}, r"float32\[5\]"),
        "read-only": ({"total": total, "gap": replace(gap, writable=False)}, "read-only"),
        "strided": ({"total": total, "gap": replace(gap, strides=(2,))}, "not C-contiguous"),
    }
    for outputs, message in refused.values():
        with pytest.raises(OutputError, match=message):
            net.run(inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("places", "refused"),
    [
        ({"total": (0, 4), "gap": (4, 8), "a": (8, 12), "b": (8, 12)}, None),
        ({"total": (8, 12), "gap": (12, 16), "a": (0, 4), "b": (2, 6)}, None),
        ({"total": (9, 13), "gap": (0, 4), "a": (4, 8), "b": (6, 10)}, "total"),
        ({"total": (0, 4), "gap": (4, 8), "a": (8, 12), "b": (3, 7)}, "total"),
        ({"total": (0, 4), "gap": (3, 7), "a": (8, 12), "b": (12, 16)}, "gap"),
        ({"total": (8, 12), "gap": (4, 8), "a": (0, 4), "b": (7, 11)}, "gap"),
    ],
    ids=["shared inputs", "inputs before", "an input's end", "an output's end", "outputs meet", "between outputs"],
)
def test_outputs_lie_apart(places, refused, pair):
    net, _ = pair
    memory = np.arange(16, dtype=np.float32)
    arrays = {name: Remote(memory[begin:end]) for name, (begin, end) in places.items()}
    inputs, outputs = ({name: arrays[name] for name in names} for names in (("a", "b"), ("total", "gap")))
    for _ in range(2):
        if refused is None:
            a, b = arrays["a"].memory.copy(), arrays["b"].memory.copy()
            net.run(inputs, outputs=outputs)
            np.testing.assert_array_equal(arrays["gap"].memory, a - b)
        else:
            with pytest.raises(OutputError, match=f"'{refused}' is to be written where another"):
                net.run(inputs, outputs=outputs)


def test_arrays_of_nothing_lie_anywhere():
    net, _ = resident(scale_model(2, (0, 4)))
    memory = np.empty(8, np.float32)
    x, y = Remote(memory.reshape(2, 4)[:0]), Remote(memory.reshape(2, 4)[:0])
    assert net.run({"x": x}, outputs={"y": y})["y"] is y


def test_outputs_on_the_host():
    net = rammer.compile(pair_model(), "reference")
    total, gap = np.empty(4, np.float32), np.empty(4, np.float32)
    results = net.run({"a": A, "b": B}, outputs={"total": total, "gap": gap})
    assert results["total"] is total
    np.testing.assert_array_equal(total, A + B)
    np.testing.assert_array_equal(gap, A - B)
    read_only = np.empty(4, np.float32)
    read_only.flags.writeable = False
    wide = np.empty(8, np.float32)
    for wrong in (gap[::-1], wide[::2], read_only, np.empty(4), total, total[:3], [0.0] * 4):
        with pytest.raises(OutputError):
            net.run({"a": A, "b": B}, outputs={"total": total, "gap": wrong})
    with pytest.raises(OutputError, match="'total' is to be written where another"):
        net.run({"a": wide[:4], "b": B}, outputs={"total": wide[2:6], "gap": gap})


def test_devices_without_memory_of_their_own_take_arrays_of_the_host():
    net = rammer.compile(pair_model(), "reference")
    net.wait()
    with pytest.raises(PlacementError, match="a stream"):
        net.run({"a": A, "b": B}, stream=1)


def test_bound_arrays_are_looked_at_once(pair):
    net, found = pair
    a, b = Remote(A.copy()), Remote(B.copy())
    total, gap = Remote(np.empty(4, np.float32)), Remote(np.empty(4, np.float32))
    bound = net.bind({"b": b, "a": a}, outputs={"gap": gap, "total": total}, stream=7)
    assert found.log == [("view", 7)] * 4
    for value in (3, 5):
        a.memory[:] = value
        assert bound() is bound.outputs
        assert bound.outputs["gap"] is gap
        np.testing.assert_array_equal(gap.memory, value - B)
        np.testing.assert_array_equal(total.memory, value + B)
    assert found.log[4:] == [("enqueue", 7), ("enqueue", 7)]


def test_a_bound_call_makes_its_outputs_once():
    net, found = resident(scale_model(2, (4,)))
    x = Remote(A.copy())
    bound = net.bind({"x": x})
    first = bound()
    np.testing.assert_array_equal(first.memory, 2 * A)
    x.memory[:] = 3
    assert bound() is first is bound.outputs["y"]
    np.testing.assert_array_equal(first.memory, np.full(4, 6))
    assert found.log == [("view", 1), ("enqueue", 1), ("enqueue", 1)]


def test_the_device_is_told_that_a_bound_call_comes_again(pair):
    net, found = pair

    def refuse(arrays, stream):
        raise OptionError(f"stream={stream}")

    found.again = refuse  # what is captured by now is for the device to say
    bound = net.bind({"a": Remote(A), "b": Remote(B)}, stream=7)
    with pytest.raises(OptionError, match="stream=7"):
        bound()
    assert ("enqueue", 7) not in found.log


def test_what_is_bound_lives_on(pair):
    class Stream:
        def __int__(self):
            return 7

    stream, a = Stream(), Remote(A.copy())
    seen = weakref.ref(stream), weakref.ref(a)
    bound = pair[0].bind({"a": a, "b": Remote(B)}, stream=stream)
    del stream, a
    gc.collect()
    assert all(one() is not None for one in seen)
    del bound
    gc.collect()
    assert all(one() is None for one in seen)


def test_what_is_bound_is_checked(pair):
    net, _ = pair
    arrays = {"a": Remote(A), "b": Remote(B)}
    with pytest.raises(InputTypeError, match="float64"):
        net.bind(arrays | {"a": Remote(A.astype(np.float64))})
    with pytest.raises(PlacementError, match="some inputs lie on the host"):
        net.bind(arrays | {"a": A})
    with pytest.raises(OutputError, match="'total' is to be written where another"):
        net.bind(arrays, outputs={"total": arrays["a"], "gap": Remote(np.empty(4, np.float32))})


def test_bound_arrays_of_the_host():
    net = rammer.compile(pair_model(), "reference")
    a, total, gap = A.copy(), np.empty(4, np.float32), np.empty(4, np.float32)
    bound = net.bind({"a": a, "b": B}, outputs={"total": total, "gap": gap})
    for value in (3, 5):
        a[:] = value
        assert bound()["total"] is total
        np.testing.assert_array_equal(total, value + B)
    with pytest.raises(PlacementError, match="a stream"):
        net.bind({"a": a, "b": B}, stream=1)


@pytest.mark.parametrize(
    "copied", [np.arange(8, dtype=np.float32)[::2], [True, False, True, True]], ids=["rows", "list"]
)
def test_a_host_input_that_would_be_copied_cannot_be_bound(copied):
    is_list = isinstance(copied, list)
    net = rammer.compile(unary_model("Not", TensorProto.BOOL, (4,)) if is_list else scale_model(2, (4,)), "reference")
    assert net(copied).shape == (4,)
    with pytest.raises(LayoutError, match="input 'x' would be read from a copy"):
        net.bind({"x": copied})
