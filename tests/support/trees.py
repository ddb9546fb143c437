"""Random tree ensembles, rows that are hard for them, and how to run one on a device."""

from __future__ import annotations

import numpy as np

from rammer.frontends.builder import FoldingBuilder
from rammer.frontends.node import ModelNode
from rammer.frontends.trees.build import add_ensemble
from rammer.frontends.trees.ensemble import Missing, Tree, TreeEnsemble, ValueSet, ensemble, single_leaf, tree
from rammer.frontends.trees.links import Link, add_link
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Graph, SourceLocation
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions
from rammer.pipelines.compiler import compile_graph
from rammer.runtime.executable import Executable


def random_tree(rng, depth, features, width, grid, sets=0, missing=(Missing.NAN,), full=False) -> Tree:
    """A tree of at most a depth, thresholds on a grid so that rows meet them."""
    nodes: list = []

    def grow(level):
        number = len(nodes)
        nodes.append(None)
        if level == 0 or (not full and level < depth and rng.random() < 0.3):
            nodes[number] = (-1, 0.0, 0, 0, rng.normal(size=width), 0, False, -1)
            return number
        of_set = int(rng.integers(sets)) if sets and rng.random() < 0.4 else -1
        left, right = grow(level - 1), grow(level - 1)
        feature, threshold = int(rng.integers(features)), float(rng.choice(grid))
        kind = int(rng.choice(missing))
        nodes[number] = (feature, threshold, left, right, np.zeros(width), kind, bool(rng.random() < 0.5), of_set)
        return number

    grow(depth)
    feature, threshold, left, right, value, kind, to_left, of_set = zip(*nodes, strict=True)
    return tree(feature, threshold, left, right, np.array(value), missing=kind, missing_left=to_left, sets=of_set)


def random_ensemble(
    seed,
    *,
    trees=7,
    depth=3,
    features=4,
    width=1,
    groups=1,
    dtype=DType.FLOAT32,
    total=DType.FLOAT32,
    hard=True,
    full=False,
    values=6,
) -> TreeEnsemble:
    """An ensemble with every kind of missing value, sets and a leaf that stands alone, or (not hard) a plain one."""
    rng = np.random.default_rng(seed)
    grid = np.sort(rng.normal(size=values)).astype(dtype.numpy).astype(np.float64)
    sets = (
        ValueSet(((-0.5, 0.5), (2.0, 2.75)), members_left=True),
        ValueSet(((1.0, 1.0), (3.0, float(np.nextafter(np.float32(4), np.float32(0))))), members_left=False),
        ValueSet((), members_left=True),
    )
    if hard:
        grid = np.concatenate([grid, [np.inf, 0.0, -0.0, np.nan, float(np.finfo(dtype.numpy).max)]])
    kinds = tuple(Missing) if hard else (Missing.NAN,)
    made = [random_tree(rng, depth, features, width, grid, 3 if hard else 0, kinds, full) for _ in range(trees)]
    if hard:
        made.append(single_leaf(rng.normal(size=width)))
    target = rng.integers(groups, size=len(made)) * width
    return ensemble(
        made,
        features=features,
        compare=dtype,
        total=total,
        outputs=groups * width,
        target=target,
        base=rng.normal(size=groups * width),
        divisor=1.0 if not hard else 3.0,
        sets=sets if hard else (),
    )


def hard_rows(source: TreeEnsemble, count: int, seed: int = 0):
    """Rows of thresholds and their neighbours, categories, zeros of all kinds, NaN, infinities."""
    rng = np.random.default_rng(seed)
    dtype = source.compare.numpy
    known = source.nodes.threshold[np.isfinite(source.nodes.threshold)].astype(dtype)
    with np.errstate(over="ignore"):
        near = [np.nextafter(known, dtype.type(-np.inf)), np.nextafter(known, dtype.type(np.inf))]
    odd = [0.0, -0.0, 1e-36, -1e-36, 2e-35, np.nan, np.inf, -np.inf, 1.0, 2.0, 2.5, 3.0, 3.99, 4.0, -1.0, 0.5]
    pool = np.concatenate([known, *near, np.array(odd, dtype), rng.normal(size=20).astype(dtype)])
    return rng.choice(pool, size=(count, source.features))


def graph_of(source: TreeEnsemble, rows: int, dtype: DType | None = None, features: int | None = None) -> Graph:
    """The ensemble alone as a graph of a number of rows."""
    builder = FoldingBuilder("trees")
    place = SourceLocation(model="trees", node="trees", op_type="TreeEnsemble")
    x = builder.input("x", TensorType(dtype or source.compare, (rows, features or source.features)))
    y = add_ensemble(ModelNode(location=place, builder=builder), x, source)
    return builder.finish([("y", y)], place)


def executable_of(graph: Graph, **chosen) -> Executable:
    """A graph compiled for a device."""
    return compile_graph(graph, CompileOptions(**chosen))


def through_graph(source: TreeEnsemble, rows):
    """What an ensemble gives for rows, by its definition; its graph gives the same, up to the order of sums."""
    rows = np.asarray(rows)
    wanted: np.ndarray = source.evaluate(rows)
    found: np.ndarray = evaluate_graph(graph_of(source, len(rows), DType.of(rows)), [rows])[0]
    tolerance = 1e-6 if source.total is DType.FLOAT32 else 1e-13
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    return wanted


def linked_through_graph(source: TreeEnsemble, link: Link, rows, scale: float = 1.0):
    """What an ensemble and its link give for rows; they agree with the link in NumPy."""
    margins: np.ndarray = source.evaluate(rows)
    builder = FoldingBuilder("link")
    place = SourceLocation(model="link", node="link", op_type="Link")
    node = ModelNode(location=place, builder=builder)
    x = builder.input("x", TensorType(source.total, margins.shape))
    scaled = node.add("Mul", x, node.constant(np.array(scale, margins.dtype)))
    found: np.ndarray = evaluate_graph(builder.finish([("y", add_link(node, scaled, link))], place), [margins])[0]
    np.testing.assert_allclose(found, link.apply(margins * scale), rtol=1e-6, atol=1e-7)
    return found
