"""Modules that pick, compute and put back: detection, training steps, `torch.compile`, many shapes."""

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import rammer  # noqa: E402 - after the check for PyTorch
from rammer import errors  # noqa: E402
from tests.support.torch_modules import Function, Module, check_each, check_step, normal  # noqa: E402

pytestmark = pytest.mark.torch


def best_boxes(dets, scores, iou_threshold):
    """What `torchvision.ops.nms` does."""
    kept, gone = [], torch.zeros(len(scores), dtype=torch.bool)
    area = (dets[:, 2:] - dets[:, :2]).prod(1)
    for place in scores.argsort(descending=True, stable=True).tolist():
        if not gone[place]:
            kept.append(place)
            shared = torch.minimum(dets[place, 2:], dets[:, 2:]) - torch.maximum(dets[place, :2], dets[:, :2])
            common = shared.clamp(min=0).prod(1)
            gone |= common / (area[place] + area - common) > iou_threshold
    return torch.tensor(kept, dtype=torch.int64)


@pytest.fixture(scope="module")
def nms():
    """The operator of torchvision, or one of its name where that is not there."""
    if hasattr(torch.ops.torchvision, "nms"):
        yield torch.ops.torchvision.nms
        return
    with torch.library._scoped_library("torchvision", "FRAGMENT") as library:
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", best_boxes, "CPU")

        def captured(dets, scores, iou_threshold):
            return dets.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

        torch.library.register_fake("torchvision::nms", captured, lib=library)
        yield torch.ops.torchvision.nms


class Head(Module):
    """The best boxes among those with a score, with their classes."""

    def __init__(self, nms, most):
        super().__init__()
        self.nms, self.most = nms, most
        self.boxes, self.classes = torch.nn.Linear(8, 4), torch.nn.Linear(8, 3)

    def forward(self, features, least):
        scores, classes = self.classes(features).sigmoid().max(-1)
        corner, extent = self.boxes(features).split(2, -1)
        boxes = torch.cat([corner, corner + extent.exp()], -1)
        (found,) = torch.where(scores > least)
        boxes, scores, classes = boxes[found], scores[found], classes[found]
        kept = self.nms(boxes + 10.0 * classes[:, None], scores, 0.3)[: self.most]
        return {"boxes": boxes[kept].clamp(min=0), "scores": scores[kept], "classes": classes[kept], "all": found}


@pytest.mark.parametrize("most", [4, None])
def test_detection(nms, most):
    torch.manual_seed(0)
    features = normal(12, 8)
    check_each(Head(nms, most).eval(), [(features, torch.tensor(least)) for least in (0.0, 0.6, 0.75, 1.0)])


def mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))


def of_masked_tokens(module, x, target):
    return F.cross_entropy(module(x)[target >= 0], target[target >= 0])


def of_experts(module, x, target):
    result = torch.zeros(6, 5)
    for number in range(3):
        (row,) = torch.where(target == number)
        result = result.index_add(0, row, module(x[row]) * (number + 1))
    return result.square().mean()


def of_rows_put_back(module, x, target):
    return torch.zeros(6, 5).index_put((target > 0,), module(x[target > 0])).square().mean()


@pytest.mark.parametrize("loss_of", [of_masked_tokens, of_experts, of_rows_put_back])
@pytest.mark.parametrize("target", [[1, -1, 2, 0, -1, 0], [-1, -1, 2, -1, -1, -1], [4, 3, 2, 1, 0, 2]])
def test_training_steps(loss_of, target):
    module = mlp()
    check_step(loss_of, module, torch.optim.SGD(module.parameters(), lr=0.1), normal(6, 4), torch.tensor(target))


def test_a_step_has_results_of_known_sizes():
    def loss_of(module, x):
        y = module(x)
        return y.sum(), y[y > 0].detach()

    module = mlp()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(errors.DataDependentError, match="its size depends"):
        rammer.compile_step(loss_of, module, optimizer, "reference", args=(normal(6, 4),))


def test_torch_compile_ends_a_graph_where_sizes_arise():
    def found(x):
        return (x[x[:, 0] > 0] * 2).sum() + x.mean()

    net = torch.compile(Function(found).eval(), backend="rammer", dynamic=False, options={"veus": 1})
    with torch.no_grad():
        for seed in range(3):
            x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
            torch.testing.assert_close(net(x), found(x))


def test_torch_compile_has_sizes_inside_of_a_graph():
    inside, result = Function(lambda x: x[x > 0].sum()).eval(), Function(lambda x: x[x > 0]).eval()
    options = {"backend": "rammer", "dynamic": False, "options": {"veus": 1}}
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.testing.assert_close(torch.compile(inside, **options)(normal(6)), inside(normal(6)))
        with pytest.raises(errors.DataDependentError, match="capture_dynamic_output_shape_ops"):
            torch.compile(result, **options)(normal(6))


def test_many_shapes():
    def found(x):
        return x[x[:, 0] > -0.5] * 2, x[x > -0.5].sum()

    class Found(Module):
        def forward(self, x):
            return found(x)

    net = rammer.compile(Found().eval(), "reference", args=(normal(4, 3),), dynamic={"x": {0: (1, 6)}})
    for rows in (1, 2, 5):
        torch.testing.assert_close(net(normal(rows, 3)), found(normal(rows, 3)))
