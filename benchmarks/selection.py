"""What computing only the columns that are read is worth: `python -m benchmarks.selection --help`.

Two figures of Hummingbird's paper (Nakandala et al., OSDI 2020, section 6.2.2) in kind, of pipelines that impute,
transform and scale 200 columns for a logistic regression: a selector behind those steps, which is pushed down through
them, and weights that L1 makes zero, from which a selector is injected. scikit-learn computes all columns. Times are
medians of calls of `predict` with 10,000 rows, the two in turn.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rammer
from benchmarks.evaluation.charts import Bars, chart
from benchmarks.harness.environment import OUT
from benchmarks.pipelines import measured

COLUMNS = 200
_PERCENTS = (5, 10, 20, 40, 60, 80, 100)
_INVERSE_PENALTIES = (0.007, 0.01, 0.02, 0.05, 0.15, 1.0)


def data(rows: int, seed: int) -> tuple[Any, Any]:
    """Skewed features with holes, and classes that depend on all of them, on the first ones most."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, COLUMNS))
    y = x @ np.linspace(1, 0, COLUMNS) ** 3 + generator.normal(size=rows) > 0
    x = np.exp(x)
    return np.where(generator.random(x.shape) < 0.02, np.nan, x), y


def pipelines() -> Iterator[tuple[str, Any]]:
    """Each with what decides how many columns are read."""
    from sklearn import feature_selection, impute, linear_model, preprocessing
    from sklearn.pipeline import make_pipeline

    def steps() -> list[Any]:
        return [impute.SimpleImputer(), preprocessing.PowerTransformer(), preprocessing.StandardScaler()]

    for percent in _PERCENTS:
        selector = feature_selection.SelectPercentile(percentile=percent)
        yield "pushed down", make_pipeline(*steps(), selector, linear_model.LogisticRegression())
    for inverse_penalty in _INVERSE_PENALTIES:
        model = linear_model.LogisticRegression(C=inverse_penalty, penalty="l1", solver="liblinear", random_state=0)
        yield "injected", make_pipeline(*steps(), model)


def main() -> None:
    """Print a row for each pipeline; write the figures, and a chart of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each comparison")
    parser.add_argument("--output", type=Path, default=OUT / "selection")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    x, y = data(2_000, 0)
    given, _ = data(options.rows, 1)
    found, bars = [], []
    print("| selection | columns | scikit-learn us | Rammer us | times as fast | other labels |\n" + "|---" * 6 + "|")
    for how, pipeline in pipelines():
        model = pipeline.fit(x, y)
        net = rammer.compile(model)
        read = net.form.steps[0].computed
        other = int((net.predict(given) != model.predict(given)).sum())
        calls = {"theirs": partial(model.predict, given), "ours": partial(net.predict, given)}
        us = measured(calls, options.seconds)
        theirs, ours = us["theirs"], us["ours"]
        print(f"| {how} | {read} | {theirs:.0f} | {ours:.0f} | {theirs / ours:.1f} | {other} |", flush=True)
        found.append({"selection": how, "columns": read, "scikit-learn us": theirs, "rammer us": ours})
        values = {"here": ours / 1e3, "peer": theirs / 1e3}
        bars.append(Bars(name=f"{how}, {100 * read / COLUMNS:.0f} %", values=values))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "selection.json").write_text(json.dumps(found, indent=1))
    title = f"ms for {options.rows} rows by the share of columns that are read: Rammer (here), scikit-learn (peer)"
    (options.output / "selection.svg").write_text(chart(title, bars, digits=1))


if __name__ == "__main__":
    main()
