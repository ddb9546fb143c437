"""Layers of PyTorch that Rammer reads, against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import rammer  # noqa: E402 - after the check for PyTorch
from rammer.passes import cut_loops, long_layers  # noqa: E402
from tests.support.torch_modules import Each, check, normal  # noqa: E402 - after the check for PyTorch

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank):
    layer = getattr(torch.nn, f"Conv{rank}d")
    forms = {
        "plain": layer(4, 6, 3),
        "moved": layer(4, 6, 3, stride=2, padding=1),
        "grouped": layer(4, 6, 3, dilation=2, groups=2, bias=False),
    }
    check(Each(forms), normal(2, 4, *(7,) * rank))
    check(Each(forms), normal(4, *(7,) * rank))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions(rank):
    layer = getattr(torch.nn, f"ConvTranspose{rank}d")
    forms = {
        "plain": layer(4, 6, 3),
        "moved": layer(4, 6, 3, stride=2, padding=1, output_padding=1),
        "grouped": layer(4, 6, 3, dilation=2, groups=2),
    }
    check(Each(forms), normal(2, 4, *(5,) * rank))


def test_padding_by_name():
    forms = {
        "same": torch.nn.Conv2d(2, 3, (3, 4), padding="same", dilation=2),
        "valid": torch.nn.Conv2d(2, 3, 3, padding="valid"),
        "reflect": torch.nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"),
    }
    check(Each(forms), normal(1, 2, 7, 8))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pooling(rank):
    def layer(kind, *args, **options):
        return getattr(torch.nn, f"{kind}{rank}d")(*args, **options)

    forms = {
        "max": layer("MaxPool", 3, 2, 1),
        "max_up": layer("MaxPool", 3, 2, ceil_mode=True),
        "average": layer("AvgPool", 3, 2, 1),
        "average_up": layer("AvgPool", 3, 2, 1, ceil_mode=True, count_include_pad=False),
        "whole": layer("AdaptiveAvgPool", 1),
        "uneven": layer("AdaptiveAvgPool", 3),
        "greatest": layer("AdaptiveMaxPool", 1),
    }
    x = normal(2, 3, *(7,) * rank)
    check(Each(forms), x)
    check(Each(forms), x[0])


def test_pooling_forms():
    forms = {
        "divisor": torch.nn.AvgPool2d(2, divisor_override=3),
        "even": torch.nn.AdaptiveAvgPool2d((3, 4)),
        "even_max": torch.nn.AdaptiveMaxPool2d((3, 4)),
        "norm": torch.nn.LPPool2d(2, 2),
        "overlapping": torch.nn.MaxPool2d(3, 1, 1),
    }
    check(Each(forms), normal(2, 3, 6, 8).abs())


def with_statistics(layer):
    torch.manual_seed(3)
    for name, tensor in layer.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape) + (0.5 if name.endswith("var") else 0.0))
    return layer.eval()


NORMALISATIONS = {
    "batch": torch.nn.BatchNorm2d(4),
    "batch_plain": torch.nn.BatchNorm2d(4, affine=False),
    "batch_untracked": torch.nn.BatchNorm2d(4, track_running_stats=False),
    "group": torch.nn.GroupNorm(2, 4),
    "group_plain": torch.nn.GroupNorm(2, 4, affine=False),
    "instance": torch.nn.InstanceNorm2d(4, affine=True),
    "instance_tracked": torch.nn.InstanceNorm2d(4, track_running_stats=True),
    "layer": torch.nn.LayerNorm(5),
    "layer2d": torch.nn.LayerNorm((3, 5), bias=False),
    "layer_plain": torch.nn.LayerNorm(5, elementwise_affine=False),
    "local_response": torch.nn.LocalResponseNorm(2),
    "rms": torch.nn.RMSNorm(5),
    "rms_epsilon": torch.nn.RMSNorm(5, eps=1e-3),
}


def test_normalisations():
    check(with_statistics(Each(NORMALISATIONS)), normal(2, 4, 3, 5))
    check(with_statistics(torch.nn.BatchNorm1d(3)), normal(5, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_normalisations_of_16_bits_by_statistics_of_32(dtype):
    def normalised(x, mean, variance, weight):
        mean, variance = mean.clone(), variance.clone()
        y = F.batch_norm(x, mean, variance, weight, training=True)
        return y, F.batch_norm(x, None, None, weight, training=True), mean, variance

    check(normalised, normal(2, 3, 4, 5).to(dtype), normal(3), normal(3).abs(), normal(3) + 2)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(name, bidirectional):
    layer = getattr(torch.nn, name)
    forms = {
        "plain": layer(3, 4, bidirectional=bidirectional),
        "batch_first": layer(3, 4, num_layers=2, batch_first=True, bidirectional=bidirectional),
        "unbiased": layer(3, 4, bias=False, bidirectional=bidirectional),
    }
    check(Each(forms), normal(2, 5, 3))


def test_recurrent_states_and_cells():
    check(torch.nn.RNN(3, 4, nonlinearity="relu"), normal(5, 2, 3), normal(1, 2, 4))
    check(torch.nn.LSTM(3, 4), normal(5, 2, 3), (normal(1, 2, 4), normal(1, 2, 4) + 1))
    check(torch.nn.LSTM(3, 4), normal(5, 3))
    check(torch.nn.LSTMCell(3, 4), normal(2, 3), (normal(2, 4), normal(2, 4)))
    check(torch.nn.GRUCell(3, 4), normal(2, 3), normal(2, 4))


@pytest.mark.parametrize("options", [{"size": (9, 5)}, {"scale_factor": 2}, {"scale_factor": (1.5, 0.7)}])
def test_upsampling(options):
    def all_modes(x):
        smooth = ("bilinear", "bicubic")
        return (
            [F.interpolate(x, mode=mode, **options) for mode in ("nearest", "nearest-exact", *smooth)],
            [F.interpolate(x, mode=mode, align_corners=True, **options) for mode in smooth],
            [F.interpolate(x, mode=mode, antialias=True, **options) for mode in smooth],
        )

    check(all_modes, normal(2, 3, 4, 6))


def test_upsampling_of_other_ranks():
    check(lambda x: F.interpolate(x, scale_factor=2.0, mode="linear"), normal(2, 3, 5))
    check(lambda x: F.interpolate(x, size=(3, 4, 5), mode="trilinear"), normal(1, 2, 4, 2, 3))
    check(lambda x: F.interpolate(x, size=7), normal(2, 3, 5))


def test_folds():
    check(lambda x: F.unfold(x, 3, padding=1, stride=2), normal(2, 3, 5, 6))
    check(lambda x: F.unfold(x, (2, 3), dilation=(1, 2)), normal(2, 3, 5, 6))
    check(lambda x: F.fold(x, (4, 6), 2, stride=2), normal(2, 12, 6))
    check(lambda x: F.fold(x, (5, 6), 3, padding=1), normal(2, 18, 30))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_recurrent_layers_of_very_many_steps(bidirectional, monkeypatch, tmp_path):
    """Their steps are programs that run again and again, here from four steps on."""
    monkeypatch.setattr(long_layers, "MOST_STEPS", 3)
    monkeypatch.setattr(cut_loops, "_MOST_TRIPS", 4)
    module = torch.nn.GRU(3, 4, 2, batch_first=True, bidirectional=bidirectional).eval()
    x = normal(2, 16, 3)
    net = rammer.compile(module, "cpu", args=(x,))
    assert 4 in [link["runs"] for link in net.report["links"]]
    net.save(tmp_path / "net.rammer")
    module.weight_hh_l0.data.neg_()
    fresh, loaded = net.clone(), rammer.load(tmp_path / "net.rammer")
    fresh.refresh(module)
    for result, wanted in zip(fresh(x), module(x), strict=True):
        torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
    module.weight_hh_l0.data.neg_()
    for other in (net, loaded):
        for result, wanted in zip(other(x), module(x), strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)
