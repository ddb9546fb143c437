"""Every operator of PyTorch that Rammer reads, against eager PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from tests.support.torch_modules import Each, check, generator, integers, normal  # noqa: E402 - after the check for PyTorch

pytestmark = pytest.mark.torch


def positive(*shape):
    return torch.rand(*shape, generator=generator()) + 0.1


X = normal(2, 3, 4)
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 3.5, math.inf, -math.inf, math.nan, 1e-8, 30.0, -30.0])
LEFT = torch.tensor([7.0, -7.0, 7.0, -7.0, 1.0, 6.0, 0.0, 1e8])
RIGHT = torch.tensor([2.0, 2.0, -2.0, -2.0, 0.1, 0.3, 3.0, 7.0])


def cases(*rows):
    return pytest.mark.parametrize(("function", "args"), [pytest.param(f, a, id=name) for name, f, a in rows])


ANYWHERE = ["abs", "neg", "sign", "floor", "ceil", "round", "trunc", "exp", "sin", "cos", "tanh", "sigmoid", "relu"]
ANYWHERE += ["erf", "atan", "asinh", "square", "isnan", "isinf"]
SMALL = ["sinh", "cosh", "exp2", "expm1", "tan"]
POSITIVE = ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"]
UNIT = ["acos", "asin", "atanh"]


def all_of(*names):
    return lambda x: {name: getattr(torch, name)(x) for name in names}


BYTES = torch.tensor([[0, 7], [3, 255]], dtype=torch.uint8)


def test_functions():
    check(all_of(*ANYWHERE), EDGES)
    check(all_of(*SMALL), EDGES[:7])
    check(all_of(*POSITIVE), torch.tensor([1.0, 1e-3, 2.0, 7.0, 1e4]))
    check(all_of(*UNIT), torch.tensor([-0.9, -0.1, 0.0, 0.5, 0.99]))
    check(all_of("acosh"), torch.tensor([1.0, 2.0, 7.0]))


def test_numbers_without_a_sign():
    check(lambda x: (-x, torch.relu(x), torch.nn.functional.softmin(x, -1, dtype=torch.float32)), BYTES)


def test_log1p_is_exact_near_zero_and_far_away():
    check(torch.log1p, torch.tensor([1e-8, -1e-8, 0.0, 1e20, math.inf, -0.5, -2.0, -math.inf]), tolerance=1e-6)


def test_expm1_is_exact_near_zero():
    x = torch.tensor([1e-8, -1e-7, 0.0, 1e-3])
    check(lambda x: torch.expm1(x) * 1e8, x, tolerance=1e-6)


BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "atan2", "fmod", "remainder"]


def test_binary():
    check(lambda a, b: {name: getattr(torch, name)(a, b) for name in BINARY}, X, normal(3, 1))


def test_quotients():
    def quotients(a, b):
        return {mode: torch.div(a, b, rounding_mode=mode) for mode in (None, "floor", "trunc")}

    check(quotients, LEFT, RIGHT)
    check(lambda a, b: (quotients(a, b), quotients(a, -b), quotients(a, 3)), integers(20), integers(20, low=1))
    check(quotients, torch.tensor([5.0, -5.0, 0.0, math.inf])[:, None], torch.tensor([math.inf, -math.inf, 2.0]))


def test_remainders():
    check(torch.remainder, LEFT, RIGHT)
    check(torch.fmod, LEFT, RIGHT)
    check(torch.remainder, integers(20), integers(20, low=1))
    check(torch.floor_divide, LEFT, RIGHT)
    check(lambda a: a % 3, integers(20))


def test_angles_of_all_quadrants():
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, math.inf, -math.inf])
    check(torch.atan2, values.repeat_interleave(7), values.repeat(7))


def test_powers():
    check(lambda x: [x**exponent for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, 2.7)], positive(5))
    check(lambda x: [x**exponent for exponent in (0, 1, 2, 3)], integers(9))


def test_powers_of_tensors():
    check(torch.pow, positive(5), normal(5))
    check(lambda x: 2.5**x, normal(5))


def test_promotion():
    check(lambda a, b: (a + b, a * b, a / b, a - 1.5, a > b, a == 2, a > 1.5), integers(6), normal(6))
    check(lambda a, b: a + b, integers(4, dtype=torch.int32), integers(4))
    check(lambda a: (a / 2, a + True, a * 2.0), integers(4))
    check(lambda a, b: (a + b, a * b, torch.maximum(a, b)), normal(4) > 0, normal(4) < 0.5)
    check(lambda a, b: (a < b, a >= b), normal(4) > 0, normal(4) < 0.5)


def test_other_floating_point_types():
    for dtype, tolerance in ((torch.float16, 2e-3), (torch.bfloat16, 2e-2), (torch.float64, 1e-12)):
        check(lambda x: (x + 1, x * x, torch.exp(x), x.sum(-1)), X.to(dtype), tolerance=tolerance)


def test_scaled_sums():
    check(lambda a, b: (torch.add(a, b, alpha=2), torch.sub(a, b, alpha=0.5), torch.rsub(a, b, alpha=3)), X, X + 1)


COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


def test_comparisons():
    check(lambda a, b: {name: getattr(torch, name)(a, b) for name in COMPARISONS}, EDGES, EDGES.flip(0))
    check(lambda x: {name: getattr(torch, name)(x, 1) for name in COMPARISONS}, integers(9))


def test_logic():
    a, b = normal(8) > 0, normal(8).flip(0) > 0
    check(lambda a, b: (a & b, a | b, a ^ b, ~a, torch.logical_and(a, b), torch.logical_not(a)), a, b)
    check(lambda a, b: (a & b, a | b, a ^ b, ~a, torch.logical_xor(a, b)), integers(8), integers(8).flip(0))
    check(lambda a, b: (a.any(), a.all(), a.any(0), b.all(1, keepdim=True)), normal(3, 4) > 0, normal(3, 4) > -1)


def test_choices():
    check(torch.where, normal(3, 4) > 0, normal(3, 4), normal(4))
    check(lambda c, a: torch.where(c, a, 0.0), normal(3, 4) > 0, normal(3, 4))
    check(lambda a, c: a.masked_fill(c, -math.inf), normal(3, 4), normal(3, 4) > 0)


def test_bounds():
    check(lambda x: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=0.5), x.clamp(1, -1)), EDGES)
    check(lambda x: (x.clamp(-1, 2), x.clamp(min=0)), integers(9))
    check(lambda x, low, high: x.clamp(low, high), X, normal(4) - 1, normal(4) + 1)


ACTIVATIONS = {
    "celu": torch.nn.CELU(0.7),
    "elu": torch.nn.ELU(0.5),
    "gelu": torch.nn.GELU(),
    "gelu_tanh": torch.nn.GELU("tanh"),
    "glu": torch.nn.GLU(-1),
    "hardshrink": torch.nn.Hardshrink(0.3),
    "hardsigmoid": torch.nn.Hardsigmoid(),
    "hardswish": torch.nn.Hardswish(),
    "hardtanh": torch.nn.Hardtanh(-0.4, 0.6),
    "leaky_relu": torch.nn.LeakyReLU(0.2),
    "log_sigmoid": torch.nn.LogSigmoid(),
    "mish": torch.nn.Mish(),
    "prelu": torch.nn.PReLU(3),
    "prelu_one": torch.nn.PReLU(),
    "relu6": torch.nn.ReLU6(),
    "rrelu": torch.nn.RReLU(),
    "selu": torch.nn.SELU(),
    "silu": torch.nn.SiLU(),
    "softplus": torch.nn.Softplus(2.0, 3.0),
    "softshrink": torch.nn.Softshrink(0.3),
    "softsign": torch.nn.Softsign(),
    "tanhshrink": torch.nn.Tanhshrink(),
    "threshold": torch.nn.Threshold(0.1, -7.0),
    "dropout": torch.nn.Dropout(0.5),
}


def test_activations():
    check(Each(ACTIVATIONS), X * 3)


def test_creation():
    check(lambda x: (torch.zeros_like(x), torch.ones(2, 3), torch.full((2,), 7), x + torch.full_like(x, 2.5)), X)
    check(lambda x: x + torch.arange(4), X)
    check(lambda x: (torch.arange(1, 10, 3), torch.arange(0, 1, 0.25), torch.eye(3, 4), x.new_zeros(2)), X)
    check(lambda x: (torch.linspace(0, 1, 7), torch.zeros(2, dtype=torch.bool), x.clone(), torch.scalar_tensor(2)), X)
    check(lambda x: torch.ones(8192, 3) * x[0, 0, :3], X)


@cases(
    ("view", lambda x: (x.view(6, 4), x.reshape(-1), x.flatten(1), x.unflatten(2, (2, 2))), (X,)),
    ("squeeze", lambda x: (x[:, :1].squeeze(1), x.unsqueeze(-1), x[:1].squeeze()), (X,)),
    ("permute", lambda x: (x.permute(2, 0, 1), x.transpose(0, -1), x.mT, x[0].t(), x.movedim(0, 2)), (X,)),
    ("expand", lambda x: (x[:, :1].expand(-1, 5, -1), x.expand(2, 2, 3, 4), x.expand_as(x)), (X,)),
    ("repeat", lambda x: (x.repeat(2, 1, 1), x.repeat(2, 1, 1, 3), x.repeat_interleave(3, 1), x.tile(2)), (X,)),
    ("flip", lambda x: (x.flip(0, 2), x.roll(1, 2), x.roll((1, -1), (0, 1)), x.roll(5), x.rot90()), (X,)),
    ("diagonal", lambda x: (x.diagonal(dim1=1, dim2=2), x[0].diagonal(1), x[0].diagonal(-1), x[0].trace()), (X,)),
    ("triangles", lambda x: (x.tril(), x.triu(1), x.tril(-1)), (X,)),
    ("unfold", lambda x: (x.unfold(2, 2, 1), x.unfold(2, 2, 2), x.unfold(1, 2, 1)), (X,)),
    ("as_strided", lambda x: (x.as_strided((2, 3, 4), (12, 4, 1)), x.as_strided((3, 2), (2, 5), 1)), (X,)),
    (
        "shuffles",
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 4)),
        (normal(2, 8, 4, 4),),
    ),
    ("meshgrid", lambda a, b: torch.meshgrid(a, b, indexing="ij"), (normal(2), normal(3))),
)
def test_movement(function, args):
    check(function, *args)


@cases(
    ("slice", lambda x: (x[:, 1:], x[..., ::2], x[:, -2:], x[1:5], x[:, 5:], x[:, :, 1:3]), (X,)),
    ("select", lambda x: (x[1], x[:, -1], x[..., 2]), (X,)),
    ("split", lambda x: (x.split(2, 1), x.split([1, 3], 2), x.chunk(3, 1), x.unbind(0), x.tensor_split(2, 2)), (X,)),
    ("cat", lambda x: (torch.cat([x, x + 1], 1), torch.stack([x, x], -1), torch.hstack([x, x])), (X,)),
    ("cat_types", lambda x, y: torch.cat([x, y, torch.zeros(0)], -1), (normal(3), integers(2))),
    ("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 2), value=3.0), F.pad(x, (-1, 0))), (X,)),
    ("pad_modes", lambda x: tuple(F.pad(x, (1, 2), mode=m) for m in ("reflect", "replicate", "circular")), (X,)),
    (
        "pad_2d",
        lambda x: (F.pad(x, (1, 2, 0, 1), mode="reflect"), F.pad(x, (1, 2, 2, 1), mode="replicate")),
        (normal(1, 2, 3, 4),),
    ),
    (
        "slice_scatter",
        lambda x, y: (x.slice_scatter(y, 1, 1, 3), x.select_scatter(y[:, 0], 1, -1)),
        (X, normal(2, 2, 4)),
    ),
    ("slice_scatter_step", lambda x, y: x.slice_scatter(y, 2, 0, 4, 2), (X, normal(2, 3, 2))),
)
def test_parts(function, args):
    check(function, *args)


def assigned(x, y):
    x = x.clone()
    x[:, 1:3] = y
    x[0, 0] = 5.0
    x[..., -1] += 1
    return x


def test_assignments_to_parts():
    check(assigned, X, normal(2, 2, 4))


INDEX = torch.tensor([2, 0, -1, 1])


@cases(
    ("embedding", lambda w, i: F.embedding(i, w), (normal(7, 3), integers(2, 4, low=0, high=7))),
    ("index_select", lambda x, i: x.index_select(2, i), (X, INDEX.abs())),
    ("gather", lambda x, i: x.gather(1, i), (X, integers(2, 2, 4, low=0, high=3))),
    ("one", lambda x, i: (x[:, i], x[i.abs() % 2], x[..., i]), (X, torch.tensor([2, 0, -1]))),
    ("two", lambda x, i, j: (x[i, j], x[:, i, j]), (X, torch.tensor([0, 1, -1]), torch.tensor([2, 0, 1]))),
    ("broadcast", lambda x, i, j: x[i[:, None], j], (X, torch.tensor([0, 1]), torch.tensor([2, 0, 1]))),
    ("apart", lambda x, i, j: x[i, :, j], (X, torch.tensor([0, 1, -1]), torch.tensor([2, 0, 3]))),
    ("int32", lambda x, i: x[:, i], (X, torch.tensor([2, 0], dtype=torch.int32))),
    ("take", lambda x, i: x.take(i), (X, integers(5, low=0, high=24))),
    ("take_along", lambda x, i: x.take_along_dim(i, 1), (X, integers(2, 2, 4, low=0, high=3))),
)
def test_picking(function, args):
    check(function, *args)


def put(x, index, values):
    x = x.clone()
    x[index] = values
    return x


@cases(
    ("one_row", lambda x, i, v: put(x, (slice(None), i), v), (X, torch.tensor([1]), normal(2, 1, 4))),
    ("rows", lambda x, i, v: put(x, (slice(None), i), v), (X, torch.tensor([2, 0]), normal(2, 2, 4))),
    (
        "points",
        lambda x, i, j, v: x.index_put((i, j), v),
        (X, torch.tensor([0, 1]), torch.tensor([2, -1]), normal(2, 4)),
    ),
    ("added", lambda x, i, v: x.index_put((i,), v, accumulate=True), (X, torch.tensor([0, 1, 0]), normal(3, 3, 4))),
    ("mask", put, (X, X > 0, torch.tensor(9.0))),
    ("mask_rows", put, (X, torch.tensor([True, False]), torch.tensor(9.0))),
    ("index_copy", lambda x, i, v: x.index_copy(1, i, v), (X, torch.tensor([2, 0]), normal(2, 2, 4))),
    ("index_add", lambda x, i, v: x.index_add(1, i, v, alpha=2), (X, torch.tensor([2, 0, 2]), normal(2, 3, 4))),
    ("index_fill", lambda x, i: x.index_fill(2, i, 4.0), (X, torch.tensor([3, 0]))),
    ("scatter", lambda x, i, v: x.scatter(2, i, v), (X, torch.tensor([[[1, 3]]]).expand(2, 3, 2), normal(2, 3, 2))),
    ("scatter_value", lambda x, i: x.scatter(2, i, 1.5), (X, torch.tensor([[[1, 3]]]).expand(2, 3, 2))),
    ("scatter_add", lambda x, i, v: x.scatter_add(1, i, v), (X, integers(2, 5, 4, low=0, high=3), normal(2, 5, 4))),
    ("one_hot", lambda i: F.one_hot(i, 5), (integers(2, 3, low=0, high=5),)),
)
def test_scattering(function, args):
    check(function, *args)


@cases(
    (
        "sum",
        lambda x: (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), (x > 0).sum(), x.sum(-1, dtype=torch.float64)),
        (X,),
    ),
    ("mean", lambda x: (x.mean(), x.mean(-1), x.mean((0, 1), keepdim=True)), (X,)),
    ("extremes", lambda x: (x.max(), x.min(), x.amax(1), x.amin((0, 2)), x.aminmax(dim=1)), (X,)),
    ("extremes_with_positions", lambda x: (*x.max(1), *x.min(-1, keepdim=True)), (X,)),
    ("extremes_of_two", lambda x: (torch.max(x, x.flip(0)), torch.min(x, x.flip(0))), (X,)),
    ("positions", lambda x: (x.argmax(), x.argmin(1), x.argmax(-1, keepdim=True), x.argmax(keepdim=True)), (X,)),
    ("tests_of_bytes", lambda x: (x.any(), x.any(0), x.all(), x.all(1), x.bool().all(1)), (BYTES,)),
    ("prod", lambda x: (x.prod(), x.prod(1), (x > -9).all(), (x > 9).any()), (X,)),
    ("var", lambda x: (x.var(), x.var(1), x.std(2, correction=0), x.var((0, 1), unbiased=False, keepdim=True)), (X,)),
    ("var_mean", lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, (0, 2))), (X,)),
    ("norm", lambda x: (x.norm(), x.norm(dim=1), x.norm(1, dim=-1), F.normalize(x, dim=1)), (X,)),
    ("norms", lambda x: tuple(torch.linalg.vector_norm(x, o, 1) for o in (0, 1, 2, 3, math.inf, -math.inf)), (X,)),
    ("logsumexp", lambda x: (x.logsumexp(1), x.softmax(-1), x.log_softmax(0), F.softmin(x, 1)), (X,)),
    ("cumsum", lambda x: (x.cumsum(1), (x > 0).cumsum(0)), (X,)),
    ("scalar", lambda x: (x.sum().sum(), x.sum().softmax(0), x.mean().argmax()), (X,)),
    ("cosine", lambda x: F.cosine_similarity(x, x.flip(1), dim=2), (X,)),
    ("distances", lambda x: (torch.cdist(x, x.flip(0)), torch.cdist(x, x, p=1), F.pairwise_distance(x, x + 1)), (X,)),
)
def test_reductions(function, args):
    check(function, *args)


@cases(
    (
        "matmul",
        lambda a, b: (a @ b, a[0] @ b, a @ b[:, 0], a[0, 0] @ b, a[0, 0] @ b[:, 0]),
        (normal(2, 3, 4), normal(4, 5)),
    ),
    (
        "bmm",
        lambda a, b: (torch.bmm(a, b), torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2)),
        (normal(2, 3, 4), normal(2, 4, 5)),
    ),
    (
        "addmm",
        lambda a, b, c: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=2, alpha=3)),
        (normal(3, 4), normal(4, 5), normal(5)),
    ),
    (
        "linear",
        lambda x, w, b: (F.linear(x, w, b), F.linear(x, w), F.linear(x[0, 0], w, b)),
        (X, normal(5, 4), normal(5)),
    ),
    ("einsum", lambda a, b: (torch.einsum("bij,bkj->bik", a, b), torch.einsum("bij,bij->b", a, b)), (X, X + 1)),
    ("einsum_one", lambda a: (torch.einsum("bij->bji", a), torch.einsum("...i->...", a)), (X,)),
    (
        "vectors",
        lambda a, b: (torch.dot(a, b), torch.outer(a, b), torch.addmv(a, torch.outer(a, b), b)),
        (normal(4), normal(4)),
    ),
    ("bilinear", F.bilinear, (normal(5, 3), normal(5, 4), normal(2, 3, 4))),
)
def test_products(function, args):
    check(function, *args)


Q, K, V = normal(2, 4, 5, 8), normal(2, 4, 7, 8), normal(2, 4, 7, 6)


@cases(
    ("plain", F.scaled_dot_product_attention, (Q, K, V)),
    ("scale", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), (Q, K, V)),
    ("causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (Q,)),
    ("mask", F.scaled_dot_product_attention, (Q, K, V, normal(5, 7) > -0.2)),
    (
        "empty_row",
        F.scaled_dot_product_attention,
        (Q, K, V, torch.arange(5)[:, None] > torch.arange(7)),
    ),
    ("bias", F.scaled_dot_product_attention, (Q, K, V, normal(1, 4, 5, 7))),
    ("grouped", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (Q, K[:, :2], V[:, :2])),
    (
        "grouped_mask",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, enable_gqa=True),
        (Q, K[:, :2], V[:, :2], normal(2, 1, 5, 7) > -0.2),
    ),
)
def test_attention(function, args):
    check(function, *args)


def test_losses():
    check(
        lambda x, t: (F.cross_entropy(x, t), F.mse_loss(x, x.flip(0)), F.l1_loss(x, x * 2)),
        normal(4, 5),
        integers(4, low=0, high=5),
    )
    check(
        lambda x: (F.binary_cross_entropy_with_logits(x, x.sigmoid()), F.smooth_l1_loss(x, -x), F.huber_loss(x, -x)), X
    )
