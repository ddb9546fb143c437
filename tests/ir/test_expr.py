"""Expression nodes: interning, folding, traversal and rewriting."""

import gc
import threading
from dataclasses import replace

import pytest

from rammer.ir.expr import (
    Axis,
    Call,
    Cast,
    Const,
    Load,
    Output,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    call,
    cast,
    const,
    load,
    nodes,
    rebuild,
    select,
    substitute,
    to_text,
)
from rammer.ir.interned import Interned
from rammer.ir.types import DType, TensorType

A, B = Axis("i", 4), Axis("j", 6)
X = TensorType(DType.FLOAT32, (4, 6))
H = TensorType(DType.FLOAT16, (4, 6))


def test_equal_nodes_are_one_object():
    assert Axis("i", 4) is A
    assert A + B is A + B
    assert load(0, X, (A, B), fill=0) is load(0, X, (A, B), fill=0.0)
    assert Axis("i", 5) is not A
    assert load(0, X, (A, B)) is not load(1, X, (A, B))


def test_literals_that_compare_equal_are_kept_apart():
    assert const(0.0, DType.FLOAT32) is not const(-0.0, DType.FLOAT32)
    assert const(1, DType.INT32) is not const(1, DType.INT64)
    assert const(1, DType.INT64) is not const(True, DType.BOOL)
    assert const(float("nan"), DType.FLOAT32) is const(float("nan"), DType.FLOAT32)


def test_literals_have_the_python_type_of_their_dtype():
    assert (type(const(1, DType.FLOAT16).value), type(const(1.0, DType.INT8).value)) == (float, int)
    assert const(3, DType.BOOL).value is True


def test_nodes_that_nobody_holds_are_freed():
    before = len(Interned._alive)
    for extent in range(1000, 1100):
        Axis("temporary", extent)
    gc.collect()
    assert len(Interned._alive) <= before


def test_equal_tensor_expressions_are_one_object():
    def doubled(extent):
        axis = Axis("i", extent)
        type_ = TensorType(DType.FLOAT32, (extent,))
        output = Output(type=type_, indices=(axis,), body=load(0, type_, [axis]) * 2.0)
        return TensorExpr(axes=(axis,), inputs=(type_,), outputs=(output,))

    assert doubled(8) is doubled(8)
    assert doubled(8) is not doubled(9)
    assert replace(doubled(8), inputs=(TensorType(DType.FLOAT32, (16,)),)) is not doubled(8)


def test_interning_holds_across_threads():
    found = []
    barrier = threading.Barrier(8)

    def build():
        barrier.wait()
        found.append([Axis("shared", n) * 3 + n for n in range(1, 200)])

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (A + 0, A),
        (0 + A, A),
        (A - 0, A),
        (A * 1, A),
        (A * 0, const(0, DType.INT64)),
        (A // 1, A),
        (A % 1, const(0, DType.INT64)),
        (A // 4, const(0, DType.INT64)),
        (A % 4, A),
        (A + 2 + 3, A + 5),
        (A + 2 - 2, A),
        (A - 3, A + -3),
        (2 + A, A + 2),
        (3 * A, A * 3),
        (const(7, DType.INT64) // const(-2, DType.INT64), const(-4, DType.INT64)),
        (const(-7, DType.INT64) % const(3, DType.INT64), const(2, DType.INT64)),
    ],
)
def test_integer_arithmetic_folds(built, expected):
    assert built is expected


def test_what_must_not_fold_does_not():
    assert isinstance(A // 3, Call)
    assert isinstance(A % 3, Call)
    zero = const(0, DType.INT64)
    assert isinstance(A % zero, Call)
    assert isinstance(A // zero, Call)
    value = load(0, X, (A, B))
    assert isinstance(value + 0.0, Call)  # -0.0 + 0.0 is 0.0
    assert isinstance(value * 0.0, Call)  # NaN stays


def test_numbers_take_the_type_of_the_other_operand():
    value = load(0, X, (A, B))
    assert (value + 1).children[1] is const(1.0, DType.FLOAT32)
    assert (1 - value).children[0] is const(1.0, DType.FLOAT32)
    assert call(ScalarFn.SELECT, call(ScalarFn.LT, value, 0), 0, value).dtype is DType.FLOAT32


def test_operands_of_different_types_are_refused():
    value = load(0, X, (A, B))
    with pytest.raises(TypeError, match="float32, int64"):
        value + A
    with pytest.raises(TypeError, match="needs an expression"):
        call(ScalarFn.ADD, 1, 2)
    with pytest.raises(TypeError):
        select(call(ScalarFn.LT, A, B), A, value)


def test_predicates_are_booleans():
    value = load(0, X, (A, B))
    for fn in (ScalarFn.EQ, ScalarFn.LT, ScalarFn.ISNAN, ScalarFn.ISINF):
        args = (value, 0.0) if fn in (ScalarFn.EQ, ScalarFn.LT) else (value,)
        assert call(fn, *args).dtype is DType.BOOL
    assert call(ScalarFn.NOT, call(ScalarFn.LT, A, B)).dtype is DType.BOOL
    assert Reduce(ReduceFn.MAX, (B,), value).dtype is DType.FLOAT32


def test_halves_are_widened_as_they_are_loaded():
    value = load(0, H, (A, B))
    assert isinstance(value, Cast)
    assert (value.dtype, value.arg.dtype) == (DType.FLOAT32, DType.FLOAT16)


def test_widening_that_is_undone_leaves_nothing_but_rounding_stays():
    value = load(0, H, (A, B))
    assert (cast(DType.FLOAT16, value),) == value.children
    assert cast(DType.FLOAT32, value) is value
    assert isinstance(cast(DType.BFLOAT16, value), Cast)
    wide = load(0, X, (A, B))
    rounded = cast(DType.FLOAT32, cast(DType.FLOAT16, wide))
    assert [type(node) for node in nodes(rounded)] == [Axis, Axis, Load, Cast, Cast]


def test_a_load_needs_an_index_per_dimension():
    with pytest.raises(ValueError, match="1 indices"):
        load(0, X, (A,))
    assert load(0, X, (1, B)).children[0] is const(1, DType.INT64)


def test_nodes_come_once_and_after_their_operands():
    shared = load(0, X, (A, B)) + 1.0
    root = shared * shared
    order = nodes(root, shared)
    assert len(set(order)) == len(order)
    for position, node in enumerate(order):
        assert all(child in order[:position] for child in node.children)


def test_deep_expressions_do_not_recurse():
    root = load(0, X, (A, B))
    for step in range(4_000):
        root = root * 1.5 + float(step)
    assert len(nodes(root)) > 4_000
    (moved,) = substitute([root], {A: B})
    assert moved is not root
    assert to_text(root).endswith("...")


def test_rebuild_shares_what_it_does_not_change():
    left, right = load(0, X, (A, B)), load(1, X, (A, B))
    (same,) = rebuild([left + right], lambda node: None)
    assert same is left + right
    double = rebuild([left + right, left], lambda node: right if node is left else None)
    assert double == (right + right, right)


def test_substitute_replaces_axes_everywhere_and_folds():
    root = load(0, X, (A + 1, B), fill=0) * 2.0
    (moved,) = substitute([root], {A: const(2, DType.INT64), B: A // 3})
    assert moved is load(0, X, (3, A // 3), fill=0) * 2.0


def test_a_reduction_axis_can_only_become_an_axis():
    k = Axis("k", 6)
    total = Reduce(ReduceFn.SUM, (B,), load(0, X, (A, B)))
    assert substitute([total], {B: k}) == (Reduce(ReduceFn.SUM, (k,), load(0, X, (A, k))),)
    with pytest.raises(TypeError, match="reduction axis"):
        substitute([total], {B: A + 1})


def test_a_tensor_expression_lists_its_loads_and_reductions():
    k, m = Axis("k", 6), Axis("m", 6)
    inner = Reduce(ReduceFn.MAX, (m,), load(0, X, (A, m)))
    outer = Reduce(ReduceFn.SUM, (k,), load(0, X, (A, k)) - inner)
    expr = TensorExpr(
        axes=(A,), inputs=(X,), outputs=(Output(type=TensorType(DType.FLOAT32, (4,)), indices=(A,), body=outer),)
    )
    assert expr.reductions == (inner, outer)
    assert expr.loads == (load(0, X, (A, k)), load(0, X, (A, m)))
    assert expr.reduce_axes == (m, k)
    assert str(expr) == (
        "for i<4 (in0: float32[4,6])\n  out0[i] = sum[k<6]((in0[i, k] - max[m<6](in0[i, m])))  : float32[4]"
    )


def test_text():
    value = load(0, X, (A + 1, B % 4), fill=-1)
    root = select(call(ScalarFn.LE, value, 0), cast(DType.FLOAT32, A), call(ScalarFn.EXP, value))
    assert str(root) == (
        "select((in0[(i + 1), (j % 4) else -1.0] <= 0.0), float32(i), exp(in0[(i + 1), (j % 4) else -1.0]))"
    )
    assert isinstance(const(1, DType.INT8), Const)
