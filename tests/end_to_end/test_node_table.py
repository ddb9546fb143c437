"""The documents count ONNX's own cases as the tests hold them."""

import onnx
import pytest

from tests.support.node_table import OUT_OF_SCOPE, PAGE, RIGHT, current, listed, table


@pytest.mark.skipif(onnx.defs.onnx_opset_version() != 28, reason="other onnx packages have other cases")
def test_the_table_is_current():
    stale = "cases have changed: run python -m tests.support.node_table"
    assert current(PAGE.read_text(encoding="utf-8")) == table(listed()), stale


def test_cases_out_of_scope_are_not_counted():
    outcomes = {"a": RIGHT, "b": RIGHT, "c": min(OUT_OF_SCOPE), "d": "R999, which no test expects"}
    found = table(outcomes).splitlines()[2:]
    assert [line.rsplit("| ", 1)[1] for line in found] == ["3 |", "2 |", "0 |", "1 |"]
    assert "R999" in found[-1]
