"""Decision trees beside their libraries and compilers of trees: `python -m benchmarks.trees --help`.

Each model is fitted on generated data, its rows are others. All contestants take turns in one process, with as many
threads, on the same float32 rows; each is called the way that costs it least (a bound call, an in-place prediction),
and its time is the least of its turns. ONNX Runtime takes part where the model converts; compilers that make code for
each tree where the model is small enough for them.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.environment import OUT
from rammer.compiler import compile_graph
from rammer.frontends.builder import FoldingBuilder
from rammer.frontends.node import ModelNode
from rammer.frontends.trees import lightgbm as read_lightgbm
from rammer.frontends.trees import scikit_learn as read_sklearn
from rammer.frontends.trees import xgboost as read_xgboost
from rammer.frontends.trees.build import add_ensemble
from rammer.frontends.trees.ensemble import TreeEnsemble
from rammer.ir.graph import Graph, SourceLocation
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions

_LEAST_TURN_S = 0.05
_MOST_COMPILED_NODES = 20_000  # of a model, for compilers that make code for each tree
_PIECE = 4096  # rows of one of our programs; more run in pieces

Call = Callable[[], Any]
"""One prediction of all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A fitted model.

    Attributes:
        name: the library and the depth.
        fitted: of the library.
        source: its trees.
        peers: ways to call it by name, each a function from rows to a call.
    """

    name: str
    fitted: Any
    source: TreeEnsemble
    peers: dict[str, Callable[[np.ndarray], Call]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Times of one model at one number of rows, in microseconds by contestant."""

    model: str
    features: int
    trees: int
    nodes: int
    rows: int
    us: dict[str, float]

    @property
    def ratio(self) -> float:
        """How many times longer the best peer takes."""
        return min(value for name, value in self.us.items() if name != "rammer") / self.us["rammer"]


def main() -> None:
    """Measure and print a table; write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--depths", type=int, nargs="*", default=[3, 6, 8, 10])
    parser.add_argument("--features", type=int, nargs="*", default=[28, 200])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 1000, 100_000])
    parser.add_argument("--libraries", nargs="*", default=["xgboost", "lightgbm", "forest"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--without", nargs="*", default=[], help="peers that do not take part")
    arguments = parser.parse_args()
    results = []
    for features in arguments.features:
        for model in _models(arguments, features):
            for rows in arguments.rows:
                found = _measured(model, features, rows, arguments)
                results.append(found)
                times = "  ".join(f"{name} {value:,.1f}" for name, value in found.us.items())
                print(
                    f"{found.model:22} {features:4} features {rows:7} rows  {found.ratio:6.2f}x  us: {times}",
                    flush=True,
                )
    for rows in arguments.rows:
        ratios = [result.ratio for result in results if result.rows == rows]
        print(f"{rows:7} rows: geometric mean {math.exp(np.mean(np.log(ratios))):.2f}x, least {min(ratios):.2f}x")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "trees.json").write_text(json.dumps([asdict(result) for result in results], indent=1))


def _measured(model: Model, features: int, rows: int, arguments: argparse.Namespace) -> Result:
    x = np.random.default_rng(rows).normal(size=(rows, features)).astype(np.float32)
    calls = {"rammer": _ours(model.source, x, arguments.threads)}
    calls |= {name: make(x) for name, make in model.peers.items() if name not in arguments.without}
    us = dict.fromkeys(calls, math.inf)
    for _ in range(arguments.turns):
        for name, call in calls.items():
            us[name] = min(us[name], _turn_us(call))
    return Result(
        model=model.name,
        features=features,
        trees=len(model.source.roots),
        nodes=len(model.source.nodes.feature),
        rows=rows,
        us=us,
    )


def _turn_us(call: Call) -> float:
    """The least time of a call within a turn."""
    call()
    least, spent = math.inf, 0.0
    while spent < _LEAST_TURN_S:
        start = time.perf_counter()
        call()
        least, spent = min(least, time.perf_counter() - start), spent + time.perf_counter() - start
    return least * 1e6


def _ours(source: TreeEnsemble, x: np.ndarray, threads: int) -> Call:
    """Programs of up to so many rows, one call for each piece, bound to it; a single row is one vEU's."""
    executables: dict[int, Any] = {}
    bound = []
    for first in range(0, len(x), _PIECE):
        piece = x[first : first + _PIECE]
        if len(piece) not in executables:
            graph = graph_of(source, len(piece))
            executables[len(piece)] = compile_graph(
                graph, CompileOptions(device="cpu", veus=threads if len(x) > 1 else 1)
            )
        bound.append(executables[len(piece)].bind({"x": piece}))

    def run() -> None:
        for call in bound:
            call()

    return run


def graph_of(source: TreeEnsemble, rows: int) -> Graph:
    """The graph of an ensemble for so many rows of float32."""
    builder = FoldingBuilder("trees")
    place = SourceLocation(model="trees", node="trees", op_type="TreeEnsemble")
    x = builder.input("x", TensorType(DType.FLOAT32, (rows, source.features)))
    y = add_ensemble(ModelNode(location=place, builder=builder), x, source)
    return builder.finish([("y", y)], place)


def _models(arguments: argparse.Namespace, features: int) -> Iterator[Model]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, features)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + 3 * np.sin(x[:, 2]) + np.abs(x[:, 3]) + rng.normal(size=len(x))
    makers = {"xgboost": _xgboost, "lightgbm": _lightgbm, "forest": _forest}
    for library in arguments.libraries:
        for depth in arguments.depths:
            yield makers[library](x, y, arguments.trees, depth, arguments.threads)
    if "forest" in arguments.libraries:
        yield _forest(x[:5000], y[:5000], arguments.trees // 5, None, arguments.threads)


def _xgboost(x: np.ndarray, y: np.ndarray, trees: int, depth: int | None, threads: int) -> Model:
    import xgboost

    settings = {"max_depth": depth, "nthread": threads, "tree_method": "hist"}
    fitted = xgboost.train(settings, xgboost.DMatrix(x, y), trees)
    source = read_xgboost.read_booster(fitted).margin
    assert source is not None
    peers: dict[str, Callable[[np.ndarray], Call]] = {
        "xgboost": lambda rows: lambda: fitted.inplace_predict(rows),
    }
    peers |= _onnx_runtime(fitted, "xgboost", x.shape[1], threads)
    peers |= _treelite(fitted, "xgboost", len(source.nodes.feature), threads)
    return Model(name=f"xgboost depth {depth}", fitted=fitted, source=source, peers=peers)


def _lightgbm(x: np.ndarray, y: np.ndarray, trees: int, depth: int | None, threads: int) -> Model:
    import lightgbm

    assert depth is not None
    settings = {"max_depth": depth, "num_leaves": 1 << depth, "n_jobs": threads, "verbose": -1}
    estimator = lightgbm.LGBMRegressor(n_estimators=trees, **settings).fit(x, y)
    fitted = estimator.booster_
    source = read_lightgbm.read_booster(fitted).raw
    peers: dict[str, Callable[[np.ndarray], Call]] = {
        "lightgbm": lambda rows: lambda: fitted.predict(rows, num_threads=threads),
    }
    peers |= _onnx_runtime(fitted, "lightgbm", x.shape[1], threads)
    peers |= _treelite(fitted, "lightgbm", len(source.nodes.feature), threads)
    peers |= _lleaves(fitted, len(source.nodes.feature), threads)
    peers |= _hummingbird(estimator, threads)
    return Model(name=f"lightgbm depth {depth}", fitted=fitted, source=source, peers=peers)


def _forest(x: np.ndarray, y: np.ndarray, trees: int, depth: int | None, threads: int) -> Model:
    from sklearn.ensemble import RandomForestRegressor

    fitted = RandomForestRegressor(trees, max_depth=depth, n_jobs=threads, random_state=0, max_features=0.3)
    fitted.fit(x[:5000], y[:5000])
    source = read_sklearn.read_forest(fitted)
    peers: dict[str, Callable[[np.ndarray], Call]] = {"sklearn": lambda rows: lambda: fitted.predict(rows)}
    peers |= _onnx_runtime(fitted, "sklearn", x.shape[1], threads)
    peers |= _treelite(fitted, "sklearn", len(source.nodes.feature), threads)
    peers |= _hummingbird(fitted, threads)
    return Model(name=f"forest depth {depth or 'real'}", fitted=fitted, source=source, peers=peers)


def _onnx_runtime(fitted: object, library: str, features: int, threads: int) -> dict[str, Callable[[np.ndarray], Call]]:
    try:
        import onnxmltools
        import onnxruntime
        import skl2onnx
    except ImportError:
        return {}
    home = skl2onnx.common if library == "sklearn" else onnxmltools.convert.common
    kinds = [("x", home.data_types.FloatTensorType([None, features]))]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    try:
        model = getattr(onnxmltools, f"convert_{library}")(fitted, initial_types=kinds)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - of whatever class the converter's own is
        print(f"  ONNX Runtime does not take part: {type(error).__name__}: {str(error)[:120]}")
        return {}
    return {"onnxruntime": lambda rows: lambda: session.run(None, {"x": rows})}


def _treelite(fitted: object, library: str, nodes: int, threads: int) -> dict[str, Callable[[np.ndarray], Call]]:
    try:
        import tl2cgen
        import treelite
    except ImportError:
        return {}
    home = treelite.sklearn if library == "sklearn" else treelite.frontend
    model = getattr(home, "import_model" if library == "sklearn" else f"from_{library}")(fitted)
    peers: dict[str, Callable[[np.ndarray], Call]] = {
        "treelite": lambda rows: lambda: treelite.gtil.predict(model, rows, nthread=threads)
    }
    if nodes <= _MOST_COMPILED_NODES:
        folder = tempfile.mkdtemp()
        path = Path(folder) / "model.so"
        tl2cgen.export_lib(model, toolchain="gcc", libpath=path, params={"parallel_comp": 32})
        predictor = tl2cgen.Predictor(path, nthread=threads)

        def compiled(rows: np.ndarray) -> Call:
            matrix = tl2cgen.DMatrix(rows)
            return lambda: predictor.predict(matrix)

        peers["tl2cgen"] = compiled
    return peers


def _lleaves(
    fitted: Any,  # noqa: ANN401 - of LightGBM
    nodes: int,
    threads: int,
) -> dict[str, Callable[[np.ndarray], Call]]:
    if nodes > _MOST_COMPILED_NODES:
        return {}
    try:
        import lleaves
    except ImportError:
        return {}
    path = Path(tempfile.mkdtemp()) / "model.txt"
    fitted.save_model(str(path))
    model = lleaves.Model(model_file=str(path))
    try:
        model.compile()
    except AttributeError as error:  # llvmlite took out what it calls
        print(f"  lleaves does not take part: {error}")
        return {}

    def compiled(rows: np.ndarray) -> Call:
        wide = rows.astype(np.float64)
        return lambda: model.predict(wide, n_jobs=threads)

    return {"lleaves": compiled}


def _hummingbird(
    fitted: Any,  # noqa: ANN401 - of its library
    threads: int,
) -> dict[str, Callable[[np.ndarray], Call]]:
    try:
        import torch
        from hummingbird.ml import convert
    except ImportError:
        return {}
    torch.set_num_threads(threads)
    try:
        model = convert(fitted, "torch")
    except Exception as error:  # noqa: BLE001 - of whatever class its reader's is
        print(f"  Hummingbird does not take part: {type(error).__name__}: {str(error)[:120]}")
        return {}
    return {"hummingbird": lambda rows: lambda: model.predict(rows)}


if __name__ == "__main__":
    main()
