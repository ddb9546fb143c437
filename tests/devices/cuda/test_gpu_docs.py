"""The code of docs/gpu.md does what it says. Run by `pytest -m gpu`."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.small_models import FLOAT, small_model

pytest.importorskip("torch")
pytestmark = pytest.mark.gpu
PAGE = Path(__file__).parents[3] / "docs" / "gpu.md"


def test_code_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["a"]), helper.make_node("Flatten", ["a"], ["f"])]
    nodes.append(helper.make_node("MatMul", ["f", "w"], ["y"]))
    weights = np.random.default_rng(0).standard_normal((3, 10)).astype(np.float32)
    model = small_model(nodes, {"x": (FLOAT, [1, 3, 32, 32])}, {"y": (FLOAT, [1, 10])}, {"w": weights})
    onnx.save(model, "model.onnx")
    names: dict[str, object] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)  # noqa: S102 - the page's own
    x, y = (names[name].cpu().numpy() for name in "xy")  # type: ignore[attr-defined]
    np.testing.assert_allclose(y, x.mean((2, 3)) @ weights, rtol=1e-4, atol=1e-5)
