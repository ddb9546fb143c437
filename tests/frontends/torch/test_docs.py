"""The page about PyTorch names the operators that there are."""

import re

import pytest

pytest.importorskip("torch")

from rammer.frontends.torch.converters import CONVERTERS
from tests.support.walkthroughs import ROOT

pytestmark = pytest.mark.torch


def test_operators_are_those_with_a_converter():
    page = (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")
    table = page.partition("## Operators")[2]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(CONVERTERS)
