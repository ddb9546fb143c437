"""Decision trees beside their libraries and compilers of trees: `python -m benchmarks.trees --help`.

Each model is fitted on generated data, its rows are others. All contestants take turns in one process, with as many
threads, on the same float32 rows; each is called the way that costs it least (a bound call, an in-place prediction),
and its time is the least of its turns. ONNX Runtime takes part where the model converts; compilers that make code for
each tree where the model is small enough for them. With `--keep` what is fitted and compiled is found in a folder the
next time; `--prepare` does no more than that.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.environment import OUT
from benchmarks.harness.kept import Kept
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
from rammer.pipelines.compiler import compile_graph
from rammer.runtime.executable import Executable

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
    parser.add_argument("--depths", nargs="*", default=["3", "6", "8", "10", "real"], help="of forests also real")
    parser.add_argument("--features", type=int, nargs="*", default=[28, 200])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 1000, 100_000])
    parser.add_argument("--libraries", nargs="*", default=["xgboost", "lightgbm", "forest"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--without", nargs="*", default=[], help="peers that do not take part")
    parser.add_argument("--keep", type=Path, help="a folder for fitted models and compiled programs")
    parser.add_argument("--prepare", action="store_true", help="fit and compile only, into that folder")
    parser.add_argument("--output", type=Path, default=OUT / "trees.json")
    arguments = parser.parse_args()
    kept = Kept(arguments.keep)
    results = []
    for features in arguments.features:
        for model in _models(arguments, features, kept):
            for rows in arguments.rows:
                x = np.random.default_rng(rows).normal(size=(rows, features)).astype(np.float32)
                ours = _ours(model, x, arguments.threads, kept)
                if arguments.prepare:
                    continue
                found = _measured(model, x, ours, arguments)
                results.append(found)
                times = "  ".join(f"{name} {value:,.1f}" for name, value in found.us.items())
                print(
                    f"{found.model:22} {features:4} features {rows:7} rows  {found.ratio:6.2f}x  us: {times}",
                    flush=True,
                )
                arguments.output.parent.mkdir(parents=True, exist_ok=True)
                arguments.output.write_text(json.dumps([asdict(result) for result in results], indent=1))
    for rows in arguments.rows if results else ():
        ratios = [result.ratio for result in results if result.rows == rows]
        print(f"{rows:7} rows: geometric mean {math.exp(np.mean(np.log(ratios))):.2f}x, least {min(ratios):.2f}x")


def _measured(model: Model, x: np.ndarray, ours: Call, arguments: argparse.Namespace) -> Result:
    calls = {"rammer": ours}
    calls |= {name: make(x) for name, make in model.peers.items() if name not in arguments.without}
    us = dict.fromkeys(calls, math.inf)
    for _ in range(arguments.turns):
        for name, call in calls.items():
            us[name] = min(us[name], _turn_us(call))
    return Result(
        model=model.name,
        features=x.shape[1],
        trees=len(model.source.roots),
        nodes=len(model.source.nodes.feature),
        rows=len(x),
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


def _ours(model: Model, x: np.ndarray, threads: int, kept: Kept) -> Call:
    """Programs of up to so many rows, one call for each piece, bound to it; a single row is one vEU's."""
    veus = threads if len(x) > 1 else 1
    bound = []
    for first in range(0, len(x), _PIECE):
        piece = x[first : first + _PIECE]
        name = f"{model.name}-{x.shape[1]}-{len(piece)}-{veus}"
        bound.append(kept.executable(name, partial(_compiled, model.source, len(piece), veus)).bind({"x": piece}))

    def run() -> None:
        for call in bound:
            call()

    return run


def _compiled(source: TreeEnsemble, rows: int, veus: int) -> Executable:
    return compile_graph(graph_of(source, rows), CompileOptions(device="cpu", veus=veus))


def graph_of(source: TreeEnsemble, rows: int) -> Graph:
    """The graph of an ensemble for so many rows of float32."""
    builder = FoldingBuilder("trees")
    place = SourceLocation(model="trees", node="trees", op_type="TreeEnsemble")
    x = builder.input("x", TensorType(DType.FLOAT32, (rows, source.features)))
    y = add_ensemble(ModelNode(location=place, builder=builder), x, source)
    return builder.finish([("y", y)], place)


def _models(arguments: argparse.Namespace, features: int, kept: Kept) -> Iterator[Model]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, features)).astype(np.float32)
    y = x[:, 0] * x[:, 1] + 3 * np.sin(x[:, 2]) + np.abs(x[:, 3]) + rng.normal(size=len(x))
    makers = {"xgboost": _xgboost, "lightgbm": _lightgbm, "forest": _forest}
    depths = [None if depth == "real" else int(depth) for depth in arguments.depths]
    for library in arguments.libraries:
        for depth in depths if library == "forest" else filter(None, depths):
            trees = arguments.trees if depth else arguments.trees // 5
            training = Training(
                name=f"{library} depth {depth or 'real'}",
                x=x,
                y=y,
                trees=trees,
                depth=depth,
                threads=arguments.threads,
                kept=Kept(None if kept.folder is None else kept.folder / f"{library}-{depth}-{features}-{trees}"),
            )
            yield makers[library](training)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a model is fitted to, and where it is kept."""

    name: str
    x: np.ndarray
    y: np.ndarray
    trees: int
    depth: int | None
    threads: int
    kept: Kept


def _xgboost(given: Training) -> Model:
    import xgboost

    settings = {"max_depth": given.depth, "nthread": given.threads, "tree_method": "hist"}
    data = partial(xgboost.DMatrix, given.x, given.y)
    fitted = given.kept.get("fitted", lambda: xgboost.train(settings, data(), given.trees))
    fitted.set_param({"nthread": given.threads})
    source = read_xgboost.read_booster(fitted).margin
    assert source is not None
    peers: dict[str, Callable[[np.ndarray], Call]] = {
        "xgboost": lambda rows: lambda: fitted.inplace_predict(rows),
    }
    peers |= _onnx_runtime(fitted, "xgboost", given)
    peers |= _treelite(fitted, "xgboost", len(source.nodes.feature), given)
    peers |= _hummingbird(_for_hummingbird(fitted), given)
    return Model(name=given.name, fitted=fitted, source=source, peers=peers)


def _lightgbm(given: Training) -> Model:
    import lightgbm

    assert given.depth is not None
    threads = given.threads
    settings = {"max_depth": given.depth, "num_leaves": 1 << given.depth, "n_jobs": threads, "verbose": -1}
    new = partial(lightgbm.LGBMRegressor, n_estimators=given.trees, **settings)
    estimator = given.kept.get("fitted", lambda: new().fit(given.x, given.y))
    fitted = estimator.booster_
    source = read_lightgbm.read_booster(fitted).raw
    peers: dict[str, Callable[[np.ndarray], Call]] = {
        "lightgbm": lambda rows: lambda: fitted.predict(rows, num_threads=threads),
    }
    peers |= _onnx_runtime(fitted, "lightgbm", given)
    peers |= _treelite(fitted, "lightgbm", len(source.nodes.feature), given)
    peers |= _lleaves(fitted, len(source.nodes.feature), given)
    peers |= _hummingbird(estimator, given)
    return Model(name=given.name, fitted=fitted, source=source, peers=peers)


def _forest(given: Training) -> Model:
    from sklearn.ensemble import RandomForestRegressor

    settings = {"max_depth": given.depth, "n_jobs": given.threads, "random_state": 0, "max_features": 0.3}
    new = partial(RandomForestRegressor, given.trees, **settings)
    fitted = given.kept.get("fitted", lambda: new().fit(given.x[:5000], given.y[:5000]))
    source = read_sklearn.read_forest(fitted)
    peers: dict[str, Callable[[np.ndarray], Call]] = {"sklearn": lambda rows: lambda: fitted.predict(rows)}
    peers |= _onnx_runtime(fitted, "sklearn", given)
    peers |= _treelite(fitted, "sklearn", len(source.nodes.feature), given)
    peers |= _hummingbird(fitted, given)
    return Model(name=given.name, fitted=fitted, source=source, peers=peers)


def _onnx_runtime(fitted: object, library: str, given: Training) -> dict[str, Callable[[np.ndarray], Call]]:
    try:
        import onnxmltools
        import onnxruntime
        import skl2onnx
    except ImportError:
        return {}
    home = skl2onnx.common if library == "sklearn" else onnxmltools.convert.common
    kinds = [("x", home.data_types.FloatTensorType([None, given.x.shape[1]]))]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads

    def convert() -> bytes:
        model: bytes = getattr(onnxmltools, f"convert_{library}")(fitted, initial_types=kinds).SerializeToString()
        return model

    try:
        session = onnxruntime.InferenceSession(
            given.kept.get("onnx", convert), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # noqa: BLE001 - of whatever class the converter's own is
        print(f"  ONNX Runtime does not take part: {type(error).__name__}: {str(error)[:120]}")
        return {}
    return {"onnxruntime": lambda rows: lambda: session.run(None, {"x": rows})}


def _treelite(fitted: object, library: str, nodes: int, given: Training) -> dict[str, Callable[[np.ndarray], Call]]:
    try:
        import tl2cgen
        import treelite
    except ImportError:
        return {}
    home = treelite.sklearn if library == "sklearn" else treelite.frontend
    model = getattr(home, "import_model" if library == "sklearn" else f"from_{library}")(fitted)
    peers: dict[str, Callable[[np.ndarray], Call]] = {
        "treelite": lambda rows: lambda: treelite.gtil.predict(model, rows, nthread=given.threads)
    }
    if nodes <= _MOST_COMPILED_NODES:
        path = given.kept.path("tl2cgen.so")
        if not path.exists():
            tl2cgen.export_lib(model, toolchain="gcc", libpath=path, params={"parallel_comp": 32})
        predictor = tl2cgen.Predictor(path, nthread=given.threads)

        def compiled(rows: np.ndarray) -> Call:
            matrix = tl2cgen.DMatrix(rows)
            return lambda: predictor.predict(matrix)

        peers["tl2cgen"] = compiled
    return peers


def _lleaves(
    fitted: Any,  # noqa: ANN401 - of LightGBM
    nodes: int,
    given: Training,
) -> dict[str, Callable[[np.ndarray], Call]]:
    if nodes > _MOST_COMPILED_NODES:
        return {}
    try:
        import lleaves
    except ImportError:
        return {}
    path = given.kept.path("model.txt")
    fitted.save_model(str(path))
    model = lleaves.Model(model_file=str(path))
    try:
        model.compile(cache=path.with_name("lleaves.bin"))
    except AttributeError as error:  # llvmlite took out what it calls
        print(f"  lleaves does not take part: {error}")
        return {}

    def compiled(rows: np.ndarray) -> Call:
        wide = rows.astype(np.float64)
        return lambda: model.predict(wide, n_jobs=given.threads)

    return {"lleaves": compiled}


def _for_hummingbird(
    fitted: Any,  # noqa: ANN401 - of XGBoost
) -> Any:  # noqa: ANN401 - of XGBoost
    """The estimator of a booster that tells its base as before XGBoost 3.1: Hummingbird reads no list of numbers."""
    import xgboost

    estimator = xgboost.XGBRegressor()
    estimator.load_model(fitted.save_raw("ubj"))
    booster = estimator.get_booster()
    told = re.sub(r'"\[([^],]*)\]"', r'"\1"', booster.save_config())
    booster.save_config = lambda: told
    return estimator


def _hummingbird(
    fitted: Any,  # noqa: ANN401 - of its library
    given: Training,
) -> dict[str, Callable[[np.ndarray], Call]]:
    try:
        import torch
        from hummingbird.ml import convert
    except ImportError:
        return {}
    torch.set_num_threads(given.threads)
    try:
        model = given.kept.get("hummingbird", lambda: convert(fitted, "torch", given.x[:1]))
    except Exception as error:  # noqa: BLE001 - of whatever class its reader's is
        print(f"  Hummingbird does not take part: {type(error).__name__}: {str(error)[:120]}")
        return {}
    return {"hummingbird": lambda rows: lambda: model.predict(rows)}


if __name__ == "__main__":
    main()
