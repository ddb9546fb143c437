"""The report of a compiled model: whatever passes the check can be rendered, and what a compilation leaves passes."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console, RenderableType
from rich.table import Table

import rammer
from rammer.inspection import tables
from rammer.inspection.page import Shown, to_html
from rammer.inspection.report import check_report
from rammer.inspection.timeline import fits, to_chrome_trace
from rammer.ir.schema import SchemaError
from rammer.printable import counted
from tests.support.small_models import mlp_model

ANOTHER: list[Any] = [None, True, -1, 1.5, 10**30, 1 << 62, float("nan"), "text", "", [], [1], {}, {"a": 1}]
STEPS: list[Any] = [
    ["execute", 99, 0],
    ["execute", 0],
    ["wait", 0],
    ["signal", 0, 0],
    ["signal", -1],
    ["halt", 0],
    [["a"]],
]


@pytest.fixture(scope="module")
def report() -> Mapping[str, Any]:
    """That of a small model of several rOperators on two vEUs, with Waits and Signals."""
    report: Mapping[str, Any] = rammer.compile(mlp_model(), "cpu", veus=2).report
    assert len(report["operators"]) > 1
    kinds = {step[0] for program in report["programs"] for queue in program for step in queue}
    assert kinds == {"execute", "wait", "signal"}
    return report


def spans_of(report: Mapping[str, Any]) -> list[list[np.ndarray[Any, Any]]]:
    """A traced run of its program, in which nothing takes any time."""
    return [[np.zeros((len(queue), 2), np.int64) for queue in program] for program in report["programs"]]


def _listed(report: Mapping[str, Any], forms: Sequence[bool]) -> list[RenderableType]:
    return [table(report, wide=wide) for table in (tables.operators, tables.candidates) for wide in forms]


def render(report: Mapping[str, Any], forms: Sequence[bool] = (False, True), printed: set[str] | None = None) -> str:
    """Everything that is made of a report; the wide form of a table reads all that the other one does.

    Tables that are `printed` are not printed again: that takes ten times as long as to make them.
    """
    console = Console(width=200, file=io.StringIO(), record=True)
    printed = set() if printed is None else printed
    for table in (tables.summary(report), *_listed(report, forms)):
        assert isinstance(table, Table)
        text = repr([(column.header, column.style, *column.cells) for column in table.columns])
        if text not in printed:
            console.print(table)
            printed.add(text)
    spans_ns = spans_of(report)
    page = to_html([Shown(name="", report=report, spans_ns=spans_ns)], "")
    return console.export_text() + page + to_chrome_trace(report, spans_ns)


def places(tree: Any) -> Iterator[tuple[Any, ...]]:
    """The way to everything in JSON data: the first three entries of lists stand for all of them."""
    if isinstance(tree, (dict, list)):
        for key in list(tree) if isinstance(tree, dict) else range(min(3, len(tree))):
            yield (key,)
            yield from ((key, *way) for way in places(tree[key]))


def changed(report: Mapping[str, Any], way: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy with something else there, or nothing if that is Ellipsis."""
    *path, last = way
    tree: Any = dict(report)
    place = tree
    for key in path:  # the rest is shared, as nobody changes it
        place[key] = copy.copy(place[key])
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return tree  # type: ignore[no-any-return]


@pytest.mark.parametrize("device", ["cpu", "reference", "cuda:sm_90"])
def test_what_a_compilation_leaves_passes(device: str) -> None:
    if device.startswith("cuda"):
        pytest.importorskip("cuda.core", reason="needs the cuda extra")
    report = rammer.compile(mlp_model(), device).report
    check_report(report)
    assert report["name"] in render(report)


def test_what_passes_can_be_rendered(report: Mapping[str, Any]) -> None:
    refused = 0
    rendered = set()
    printed: set[str] = set()
    for way in places(report):
        for number, value in enumerate((*ANOTHER, ...)):
            tree = changed(report, way, value)
            try:
                check_report(tree)
            except SchemaError as error:
                refused += 1
                assert str(error).startswith("its report")  # noqa: PT017 - most of the values are refused, not all
            else:
                likewise = (number, *("any" if isinstance(key, int) else key for key in way))
                if likewise not in rendered:  # one entry of a list stands for all
                    rendered.add(likewise)
                    render(tree, forms=[True], printed=printed)
    assert refused > 500
    assert len(rendered) > 300


@pytest.mark.parametrize("step", [*ANOTHER, *STEPS])
def test_steps_that_there_are_not(report: Mapping[str, Any], step: Any) -> None:
    with pytest.raises(SchemaError, match="its report"):
        check_report(changed(report, ("programs", 0, 0, 0), step))


def test_a_choice_among_no_candidates(report: Mapping[str, Any]) -> None:
    with pytest.raises(SchemaError, match=r"its report.operators\[0\].chosen is none of its candidates"):
        check_report(changed(report, ("operators", 0, "candidates"), []))


def test_a_run_of_another_program_does_not_fit(report: Mapping[str, Any]) -> None:
    spans_ns = spans_of(report)
    assert fits(report, spans_ns)
    assert not fits(report, spans_ns[1:])
    assert not fits(report, [[times[1:] for times in program] for program in spans_ns])
    assert json.loads(to_chrome_trace(report, spans_ns))["traceEvents"]


@pytest.mark.parametrize(("number", "text"), [(0, "0 waits"), (1, "1 wait"), (2, "2 waits")])
def test_one_is_no_several(number: int, text: str) -> None:
    assert counted(number, "wait") == text
