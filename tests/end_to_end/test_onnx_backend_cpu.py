"""ONNX's own tests of single operators, compiled for the processor.

`test_onnx_backend` has the list of cases and runs them without a device.
"""

import numpy as np
import pytest

import rammer
from tests.end_to_end.test_onnx_backend import INCLUDED, prepared, tolerances
from tests.support.onnx_reference import compare, without_counts

EVERY = 12
"""One case in so many is tried in every test run."""


CASES = [
    pytest.param(name, marks=() if number % EVERY == 0 else pytest.mark.long) for number, name in enumerate(INCLUDED)
]


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    model, inputs, expected = prepared(name)
    net = rammer.compile(model, "cpu", veus=2)
    outputs = net.run({port.name: x for port, x in zip(net.signature.inputs, inputs, strict=True)})
    with np.errstate(all="ignore"):
        compare(without_counts(outputs, expected), expected, **tolerances(name, expected))
