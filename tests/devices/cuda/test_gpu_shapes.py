"""Models of several shapes on a GPU: padded and cut where arrays lie, constants there once. `pytest -m gpu`."""

import numpy as np
import pytest

import rammer
from rammer.errors import InputTypeError, LayoutError, ShapeRangeError, StreamCaptureError
from tests.devices.cuda.host.test_shapes import WIDTH, layers
from tests.support.agreement import run_onnx_runtime

torch = pytest.importorskip("torch")

from tests.support.torch_modules import Module  # noqa: E402 - after the check for PyTorch

pytestmark = pytest.mark.gpu
ROWS = rammer.Dim(name="rows", low=1, high=8, buckets=(4, 8))


def spread(*shape):
    return np.random.default_rng(sum(shape)).standard_normal((*shape, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module", params=[(("n",), (0,)), ((3, "n"), (1,)), (("n", "m"), (0, 1))], ids=str)
def case(request):
    """A model, and what makes a shape of its input of a number of rows."""
    shape, axes = request.param
    model = layers(*shape)
    net = rammer.compile(
        model, "cuda", dynamic={"x": dict.fromkeys(axes, ROWS) if len(axes) == 1 else {0: ROWS, 1: (1, 4)}}
    )
    return net, lambda rows: [rows if size == "n" else min(rows, 4) if size == "m" else size for size in shape]


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8])
def test_arrays_of_any_library(case, rows):
    net, shape_of = case
    x = spread(*shape_of(rows))
    (expected,) = run_onnx_runtime(layers(*x.shape[:-1]), {"x": x})
    found = net(x)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    tensor = torch.from_numpy(x).cuda()
    of_tensor = torch.from_dlpack(net(tensor))
    assert of_tensor.is_cuda
    assert of_tensor.shape == tensor.shape
    assert of_tensor.is_contiguous()
    np.testing.assert_array_equal(of_tensor.cpu().numpy(), found)
    first = net(tensor)
    np.testing.assert_allclose(net(first).numpy(), net(found), atol=1e-6)  # results are arrays to call with
    cupy = pytest.importorskip("cupy")
    np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(net(cupy.asarray(x)))), found)


def test_streams_that_make_and_take_arrays(case):
    net, shape_of = case
    makes, takes = torch.cuda.Stream(), torch.cuda.Stream()
    x = torch.from_numpy(spread(*shape_of(3))).cuda()
    expected = net(x).numpy()
    torch.cuda.synchronize()
    for _ in range(20):
        with torch.cuda.stream(makes):
            torch.cuda._sleep(1_000_000)
            late = x.clone()
            y = net(late)
        with torch.cuda.stream(takes):
            copy = torch.from_dlpack(y).clone()
            torch.cuda._sleep(1_000_000)
            later = torch.from_dlpack(y).clone()
            del y
        net(-x)
        takes.synchronize()
        np.testing.assert_array_equal(copy.cpu().numpy(), expected)
        np.testing.assert_array_equal(later.cpu().numpy(), expected)


def test_what_cannot_be_padded(case):
    net, shape_of = case
    x = torch.from_numpy(spread(*shape_of(3))).cuda()
    with pytest.raises(InputTypeError):
        net(np.zeros(x.shape))
    with pytest.raises(InputTypeError):
        net(x.double())
    with pytest.raises(ShapeRangeError):
        net(
            torch.zeros(*shape_of(4)[:-1], 9, WIDTH, device="cuda")
            if len(x.shape) == 3
            else torch.zeros(9, WIDTH, device="cuda")
        )
    parts = net(x)
    with pytest.raises(LayoutError):
        net.program_for(((*shape_of(4), WIDTH),)).padded(0, _Strided(parts))


class _Strided:
    """Every other element of an array, by the CUDA array interface."""

    def __init__(self, array):
        self._array = array
        *rows, width = array.shape
        self.shape = (*rows, width // 2)
        strides = [4]
        for extent in reversed((*rows[1:], width)):
            strides.insert(0, strides[0] * extent)
        strides[-1] = 8
        self.__cuda_array_interface__ = array.__cuda_array_interface__ | {
            "shape": self.shape,
            "strides": tuple(strides),
        }


class Classifier(Module):
    def __init__(self, width=2048):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, width)
        self.middle = torch.nn.Linear(width, width)
        self.last = torch.nn.Linear(width, 10)

    def forward(self, x):
        h = torch.relu(self.middle(torch.relu(self.first(x))))
        return {"logits": self.last(h), "h": h}


def test_a_module_and_its_file():
    torch.manual_seed(0)
    module = Classifier().cuda().eval()
    with torch.no_grad():
        free_bytes = torch.cuda.mem_get_info()[0]
        net = rammer.compile(module, "cuda", args=(torch.zeros(2, WIDTH, device="cuda"),), dynamic={"x": {0: (1, 16)}})
        assert len(net.programs) == 5
        net(torch.zeros(16, WIDTH, device="cuda"))
        torch.cuda.synchronize()
        taken_bytes = free_bytes - torch.cuda.mem_get_info()[0]
        weights_bytes = sum(parameter.nbytes for parameter in module.parameters())
        placed = {
            (name, place)
            for program in net.programs.programs.values()
            for name, place in program._loaded._constants._places.items()
            if len(program._loaded._constants._blocks[name]) > 1 << 20
        }
        print(f"weights {weights_bytes / 1e6:.1f} MB, taken {taken_bytes / 1e6:.1f} MB, large blocks {len(placed)}")
        assert len(placed) == len({name for name, _ in placed})  # each in one place
        loaded = rammer.load(net.to_bytes())
        for rows in (1, 3, 7, 16):
            x = torch.randn(rows, WIDTH, device="cuda")
            for model in (net, loaded, net.clone()):
                found, expected = model(x), module(x)
                assert found["h"].is_cuda
                torch.testing.assert_close(found["logits"], expected["logits"], atol=1e-4, rtol=1e-4)
                torch.testing.assert_close(found["h"], expected["h"], atol=1e-4, rtol=1e-4)


def test_a_program_is_captured(case):
    net, shape_of = case
    x = torch.from_numpy(spread(*shape_of(3))).cuda()
    expected = net(x).numpy()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(StreamCaptureError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        net(x)
    whole = (*shape_of(4), WIDTH)
    inside, y = torch.zeros(whole, device="cuda"), torch.zeros(whole, device="cuda")
    program = net.program_for((whole,))
    with torch.cuda.graph(graph):
        program.run({"x": inside}, outputs={"y": y}, stream=torch.cuda.current_stream())
    inside[tuple(map(slice, x.shape))] = x
    graph.replay()
    np.testing.assert_allclose(y[tuple(map(slice, x.shape))].cpu().numpy(), expected, atol=1e-6)
