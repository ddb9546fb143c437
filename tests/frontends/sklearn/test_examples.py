"""The examples with scikit-learn, which compare with it themselves."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytestmark = pytest.mark.classical

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_image_network_with_trees(capsys):
    runpy.run_path(str(EXAMPLES / "image_and_trees.py"), run_name="__main__")
    assert "TreeSum" in capsys.readouterr().out
