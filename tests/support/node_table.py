"""The table of docs/operators.md that counts ONNX's own cases.

python -m tests.support.node_table      # evaluates every case in NumPy, prints the table and writes it anew
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx

from rammer.errors import RammerError
from rammer.frontends.onnx import load_graph
from tests.end_to_end.test_onnx_backend import CASES, EXCLUDED, prepared, reason_of, tolerances
from tests.support.onnx_reference import compare, evaluate_model, without_counts
from tests.support.walkthroughs import ROOT

PAGE = ROOT / "docs" / "operators.md"

RIGHT, WRONG = "right", "wrong"

OUT_OF_SCOPE = frozenset(
    {
        "operators on strings, images, text",
        "random numbers",
        "operators of training",
        "elements that are strings",
    }
)
"""The reasons why cases are excluded that the table does not count."""

_HEAD = "| ONNX's own cases: `node`, `simple`, `pytorch-operator`, `pytorch-converted` | number |"


def listed() -> dict[str, str]:
    """What the tests hold each case to: right, or the reason why it is refused."""
    return {name: reason_of(name) or RIGHT for name in CASES}


def evaluated() -> dict[str, str]:
    """What becomes of each case: right, wrong, or the reason why it is refused, its error where it should not be."""
    return {name: _outcome(name) for name in CASES}


def _outcome(name: str) -> str:
    try:
        model, inputs, expected = prepared(name)
        graph = load_graph(model)
        names = [graph.values[output].name for output in graph.outputs]
        with np.errstate(all="ignore"):
            outputs = dict(zip(names, evaluate_model(model, inputs), strict=True))
            compare(without_counts(outputs, expected), expected, **tolerances(name, expected))
    except RammerError as error:
        return reason_of(name) or f"{error.code}, which no test expects"
    except AssertionError:
        return WRONG
    return RIGHT


def table(outcomes: Mapping[str, str]) -> str:
    """The rows: all cases in scope, the right ones, the wrong ones, and those refused for each reason."""
    counts = Counter(outcomes.values())
    for reason in OUT_OF_SCOPE:
        del counts[reason]
    rows = [("in scope: without strings, random numbers and training", sum(counts.values()))]
    rows += [(f"{outcome} by evaluation of the graph", counts.pop(outcome, 0)) for outcome in (RIGHT, WRONG)]
    order = [*EXCLUDED, *sorted(counts.keys() - EXCLUDED.keys())]
    rows += [(f"refused: {reason}", counts[reason]) for reason in order if counts[reason]]
    return "\n".join([_HEAD, "|---|---|", *(f"| {text} | {count:,} |" for text, count in rows)])


def current(page: str) -> str:
    """The table that a page has."""
    before, head, after = page.partition(_HEAD)
    assert head, f"no table of cases in {before[:40]!r}..."
    return head + after.partition("\n\n")[0].rstrip("\n")


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    found = table(evaluated())
    PAGE.write_text(text.replace(current(text), found), encoding="utf-8")
    print(f"onnx {onnx.__version__}, opset {onnx.defs.onnx_opset_version()}\n{found}")
