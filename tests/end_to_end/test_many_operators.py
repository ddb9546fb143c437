"""A model of 20,000 small operators compiles within 300 MB."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

OPERATORS = 20_000
MOST_BYTES = 300 * 2**20

COMPILE = r"""
import re, sys, rammer
rammer.compile(sys.argv[1], "cpu", veus=2)
print(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])  # `getrusage` counts what pytest has, too
"""


def chain(folder):
    """Products and activations, one after another."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal((16, 16)) / 4).astype(np.float32), f"w{i}") for i in range(8)
    ]
    nodes = [
        helper.make_node("MatMul", [f"v{i}", f"w{i // 2 % 8}"], [f"v{i + 1}"])
        if i % 2 == 0
        else helper.make_node("Tanh", [f"v{i}"], [f"v{i + 1}"])
        for i in range(OPERATORS)
    ]
    ports = [helper.make_tensor_value_info(name, 1, [4, 16]) for name in ("v0", f"v{OPERATORS}")]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], weights)
    path = folder / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.mark.long
def test_memory(tmp_path):
    command = [sys.executable, "-c", COMPILE, str(chain(tmp_path))]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(found.stdout) * 1024 < MOST_BYTES
