"""Random numbers of ONNX models: their distributions, and what they follow from."""

import numpy as np
import pytest
from onnx import parser

import rammer
from rammer.errors import InvalidModelError, OptionError, UnsupportedFeatureError

COUNT = 20_000
SIGMAS = 4.5
"""How far a mean may be from what is expected, in its own standard deviations: the numbers are the same each time."""


def model_of(body, *, x=f"float[{COUNT}] x", y=f"float[{COUNT}] y"):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 22]> random ({x}) => ({y}) {{ {body} }}')


def net_of(body, *, veus=1, state=None, seed=0, **ports):
    return rammer.compile(model_of(body, **ports), veus=veus, state=state, seed=seed)


def mean_is(values, mean, deviation):
    values = np.asarray(values, np.float64)
    assert abs(values.mean() - mean) <= SIGMAS * deviation / np.sqrt(values.size)


ZEROS = np.zeros(COUNT, np.float32)


@pytest.mark.parametrize(
    "body", ["y = RandomUniform<shape=[20000], low=-1.0, high=3.0>()", "y = RandomUniformLike<low=-1.0, high=3.0>(x)"]
)
def test_uniform(body):
    y = net_of(f"z = Add(x, x) {body}")(ZEROS)
    assert y.min() >= -1
    assert y.max() < 3
    mean_is(y, 1, 4 / np.sqrt(12))
    mean_is((y - 1) ** 2, 16 / 12, 16 / np.sqrt(180))
    mean_is(y[1:] * y[:-1] - 1, 0, 3)


@pytest.mark.parametrize(
    "body", ["y = RandomNormal<shape=[20000], mean=2.0, scale=3.0>()", "y = RandomNormalLike<mean=2.0, scale=3.0>(x)"]
)
def test_normal(body):
    z = (net_of(f"z = Add(x, x) {body}")(ZEROS) - 2) / 3
    mean_is(z, 0, 1)
    mean_is(z**2, 1, np.sqrt(2))
    mean_is(z**3, 0, np.sqrt(15))
    mean_is(z**4, 3, np.sqrt(96))
    mean_is(np.abs(z) > 1.959964, 0.05, np.sqrt(0.05 * 0.95))


@pytest.mark.parametrize(("dtype", "number", "step"), [("float16", 10, 2**-11), ("bfloat16", 16, 2**-8)])
def test_uniform_numbers_of_16_bits_are_below_1(dtype, number, step):
    y = net_of(f"z = Add(x, x) y = RandomUniformLike<dtype={number}>(x)", y=f"{dtype}[{COUNT}] y")(ZEROS)
    y = y.astype(np.float64)
    assert y.max() == 1 - step
    assert np.array_equal(y, np.round(y / step) * step)
    mean_is(y, 0.5 - step / 2, 1 / np.sqrt(12))


def test_uniform_numbers_of_float64_have_48_bits():
    y = net_of("z = Add(x, x) y = RandomUniformLike<dtype=11>(x)", y=f"double[{COUNT}] y")(ZEROS)
    assert np.any(y * 2**40 != np.floor(y * 2**40))
    assert np.array_equal(y * 2**48, np.floor(y * 2**48))
    mean_is(y, 0.5, 1 / np.sqrt(12))


def test_bernoulli():
    p = np.linspace(0, 1, COUNT, dtype=np.float32)
    y = net_of("y = Bernoulli<dtype=9>(x)", y=f"bool[{COUNT}] y")(p)
    mean_is(y, 0.5, 0.5)
    mean_is(y[: COUNT // 10], 0.05, 0.22)
    assert not y[0]
    assert y[-1]


def test_multinomial():
    weights = np.array([[0.1, 0.2, 0.3, 0.4, 0], [0, 0, 2, 6, 0]], np.float32)
    body = f"logits = Log(x) y = Multinomial<sample_size={COUNT}>(logits)"
    y = net_of(body, x="float[2, 5] x", y=f"int32[2, {COUNT}] y")(weights)
    for line, share in zip(y, weights / weights.sum(1, keepdims=True), strict=True):
        for position, expected in enumerate(share):
            mean_is(line == position, expected, np.sqrt(expected * (1 - expected)))


def test_dropout_in_training_mode():
    body = "r = Constant<value_float=0.25>() i = Constant<value_int=1>() t = Cast<to=9>(i) y, kept = Dropout(x, r, t)"
    y, kept = net_of(body, y=f"float[{COUNT}] y, bool[{COUNT}] kept")(ZEROS + 3).values()
    assert set(np.unique(y)) == {0, 4}
    assert np.array_equal(y > 0, kept)
    mean_is(kept, 0.75, np.sqrt(0.75 * 0.25))


def test_each_call_draws_others_and_a_seed_repeats_them():
    body = "n = RandomNormalLike(x) m = RandomNormalLike(x) y = Sub(n, m)"
    net = net_of(body)
    first, second = net(ZEROS), net(ZEROS)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.03
    assert np.std(first) > 1
    net.reset()
    assert np.array_equal(net(ZEROS), first)
    assert np.array_equal(net_of(body)(ZEROS), first)
    other = net_of(body, seed=1)
    assert abs(np.corrcoef(other(ZEROS), first)[0, 1]) < 0.03
    other.state["random:stream"] = np.array([0, 1], np.uint64)
    assert np.array_equal(other(ZEROS), second)


def test_a_saved_model_begins_with_its_seed(tmp_path):
    net = net_of("n = RandomNormalLike(x) y = Add(n, x)", seed=2**64 - 1)
    first = net(ZEROS)
    net.save(tmp_path / "random.rammer")
    assert np.array_equal(rammer.load(tmp_path / "random.rammer")(ZEROS), first)


def test_equal_seeds_of_nodes_draw_equal_numbers():
    body = "a = RandomNormalLike<seed=7.0>(x) b = RandomNormalLike<seed=7.0>(x) c = RandomNormalLike<seed=8.0>(x)"
    net = net_of(f"{body} same = Sub(a, b) y = Sub(b, c)", y=f"float[{COUNT}] same, float[{COUNT}] y")
    same, y = net(ZEROS).values()
    assert not same.any()
    mean_is(y**2, 2, np.sqrt(8))
    assert not np.array_equal(net(ZEROS)["y"], y)


def test_random_numbers_beside_a_state_of_the_model():
    body = "noise = RandomNormalLike(x) present = Add(past, noise) y = Add(x, past)"
    net = net_of(
        body,
        x=f"float[{COUNT}] past, float[{COUNT}] x",
        y=f"float[{COUNT}] present, float[{COUNT}] y",
        state={"past": "present"},
    )
    assert not net(ZEROS).any()
    walks = [net(ZEROS) for _ in range(3)]
    mean_is(walks[2] ** 2, 3, np.sqrt(18))


def test_models_of_a_group_draw_numbers_of_their_own():
    model = model_of("y = RandomNormalLike(x)")
    one, other = rammer.compile([model, model], veus=1)(ZEROS, ZEROS)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03


def test_what_is_refused():
    with pytest.raises(InvalidModelError, match="int32"):
        net_of("y = RandomUniformLike<dtype=6>(x)", y=f"int32[{COUNT}] y")
    with pytest.raises(InvalidModelError, match="ratio is 1"):
        net_of("r = Constant<value_float=1.0>() i = Constant<value_int=1>() t = Cast<to=9>(i) y = Dropout(x, r, t)")
    with pytest.raises(OptionError, match="seed -1"):
        net_of("y = Relu(x)", seed=-1)


def test_a_long_loop_draws_none():
    body = """
        n = Constant<value_int=5000>()
        y = Loop(n, , x) <body = trip (int64 i, bool c, float[4] v) => (bool d, float[4] w) {
            d = Identity(c) r = RandomNormalLike(v) w = Add(v, r) }>"""
    with pytest.raises(UnsupportedFeatureError, match="trips"):
        net_of(body, x="float[4] x", y="float[4] y")
