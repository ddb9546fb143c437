"""ONNX's own tests of operators and models: each gives the expected values or is refused for a reason listed here.

The tests come with the onnx package; what PyTorch exported for them is of operator sets before 13. Where one feeds a
shape, axes or another operand that Rammer needs at compile time, the operand is made an initialiser, as it is in
models. Where one feeds a sequence or an optional, its tensors are fed, of which nodes in front make it, and where a
dimension is open, it is as large as what is fed.
"""

import warnings
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from rammer.errors import RammerError, UnsupportedFeatureError, UnsupportedOperatorsError
from rammer.frontends.onnx import load_graph
from rammer.ir.graph import Graph
from tests.support.onnx_reference import Array, compare, evaluate_verified, without_counts

with warnings.catch_warnings():  # the package computes its expectations on import, overflows included
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.test_case import TestCase
    from onnx.backend.test.loader import load_model_tests

    CASES = {
        case.name.removeprefix("test_"): case
        for kind in ("node", "simple", "pytorch-operator", "pytorch-converted")
        for case in load_model_tests(kind=kind)
    }

PASSING = 1955
"""How many cases pass with the onnx package of opset 28."""

EXCLUDED: dict[str, tuple[type[RammerError] | None, str]] = {
    "operators on strings, images, text": (
        UnsupportedOperatorsError,
        "image_decoder_* regex_* string_* strnorm*",
    ),
    "random numbers": (None, "bernoulli* training_dropout*"),
    "operators of training": (UnsupportedOperatorsError, "adagrad* adam* gradient_of_* momentum* nesterov_momentum"),
    "elements that are strings": (UnsupportedFeatureError, "ai_onnx_ml_label* equal_string*"),
    "bits of floating-point numbers": (UnsupportedFeatureError, "bitcast_*float*"),
    "a form of before opset 9 that the version converter changes": (UnsupportedFeatureError, "scan_sum"),
}
"""Reason: what the frontend raises (None: nothing, other numbers are drawn), and the cases by name."""


def reason_of(name: str) -> str | None:
    for reason, (_, patterns) in EXCLUDED.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return reason
    return None


CHOICES = ("computed as the model runs", "computed by the model", "a loop of more than")
"""What the errors say that ask for an operand to be known."""

INCLUDED = [name for name in CASES if reason_of(name) is None]


def array_of(value: Any) -> Array:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def with_tensors(model: onnx.ModelProto, values: Sequence[Any]) -> tuple[onnx.ModelProto, list[Array]]:
    """The model with the tensors of its sequences and optionals as inputs, and the arrays of all inputs."""
    changed, arrays = onnx.ModelProto(), list[Array]()
    changed.CopyFrom(model)
    del changed.graph.input[:], changed.graph.node[:]
    for info, value in zip(model.graph.input, values, strict=False):
        tensors = [array_of(each) for each in tensors_of(value)]
        names = [info.name]
        if not info.type.HasField("tensor_type"):
            names = [f"{info.name}_{i}" for i in range(len(tensors))]
            changed.graph.node.extend(made_of(names, info, value is not None))
        for name, array in zip(names, tensors, strict=True):
            type_ = helper.np_dtype_to_tensor_dtype(array.dtype)
            changed.graph.input.append(helper.make_tensor_value_info(name, type_, array.shape))
        arrays += tensors
    changed.graph.input.extend(model.graph.input[len(values) :])
    changed.graph.node.extend(model.graph.node)
    return changed, arrays


def made_of(tensors: Sequence[str], info: onnx.ValueInfoProto, is_there: bool) -> Iterator[onnx.NodeProto]:
    """Nodes that make a sequence or an optional."""
    is_optional = info.type.HasField("optional_type")
    held, name = (info.type.optional_type.elem_type, f"{info.name}_held") if is_optional else (info.type, info.name)
    if is_there and held.HasField("sequence_type"):
        yield helper.make_node("SequenceConstruct" if tensors else "SequenceEmpty", tensors, [name])
        tensors = [name]
    if is_optional:
        yield helper.make_node("Optional", tensors, [info.name], type=held)


def tensors_of(value: Any) -> list[Any]:
    """The tensors of a value: those of a sequence, none of an empty optional."""
    return [] if value is None else value if isinstance(value, list) else [value]


def with_constants(model: onnx.ModelProto, values: Sequence[Any], first: int) -> onnx.ModelProto:
    """The model with its scalar and vector inputs, from number `first` on, as initialisers."""
    pinned = onnx.ModelProto()
    pinned.CopyFrom(model)
    for value, given in list(zip(model.graph.input, values, strict=False))[first:]:
        if array_of(given).ndim <= 1:
            pinned.graph.initializer.append(numpy_helper.from_array(array_of(given), value.name))
    return pinned


def readable(model: onnx.ModelProto, values: Sequence[Any]) -> tuple[onnx.ModelProto, Graph]:
    """The model as it is, else with all but the first input constant where they may be shapes, else with all; read."""
    for first in (len(values), 1):
        candidate = with_constants(model, values, first)
        try:
            return candidate, load_graph(candidate)
        except UnsupportedFeatureError as error:
            if not any(words in error.message for words in CHOICES):
                raise
    candidate = with_constants(model, values, 0)
    return candidate, load_graph(candidate)


def read(case: TestCase) -> tuple[onnx.ModelProto, Sequence[Any], Sequence[Any]]:
    """A case's model, its inputs and the expected outputs, in memory or from the case's folder."""
    if case.model is not None and case.data_sets is not None:
        ((values, expected),) = case.data_sets
        return case.model, values, expected
    assert case.model_dir is not None
    folder = Path(case.model_dir)

    def tensors(kind: str) -> list[Any]:
        files = [folder / "test_data_set_0" / f"{kind}_{i}.pb" for i in range(len(list(folder.rglob(f"{kind}_*.pb"))))]
        return [onnx.load_tensor(file) for file in files]

    model = onnx.load(folder / "model.onnx")
    if reason_of(case.name.removeprefix("test_")) not in (None, "random numbers"):
        return model, [], []  # their data may be no tensors
    return model, tensors("input"), tensors("output")


def opened(name: str) -> tuple[onnx.ModelProto, Graph, list[Array], list[Array]]:
    """A case's model in a form that the frontend reads, what it reads, the inputs and the expected outputs."""
    whole, given, expected = read(CASES[name])
    whole, values = with_tensors(whole, given)
    model, graph = readable(whole, values)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [array for info, array in zip(model.graph.input, values, strict=False) if info.name not in constants]
    return model, graph, inputs, [array_of(tensor) for value in expected for tensor in tensors_of(value)]


@cache
def prepared(name: str) -> tuple[onnx.ModelProto, list[Array], list[Array]]:
    """A case's model in a form that the frontend reads, its inputs and the expected outputs."""
    model, _, inputs, expected = opened(name)
    return model, inputs, expected


def tolerances(name: str, expected: Sequence[Array]) -> dict[str, float]:
    """16-bit floats: the expectations round after every step of the formula, or compute it in 16 bits."""
    case = CASES[name]
    halves = {"bfloat16": 1.6e-2, "float16": 2e-3}
    rtol = max([case.rtol, *(halves.get(array.dtype.name, 0.0) for array in expected)])
    return {"rtol": rtol, "atol": max(case.atol, 1e-5)}


@pytest.mark.parametrize("name", INCLUDED)
def test_case(name: str) -> None:
    _, graph, inputs, expected = opened(name)
    names = [graph.values[output].name for output in graph.outputs]
    with np.errstate(all="ignore"):
        outputs = dict(zip(names, evaluate_verified(graph, inputs), strict=True))
        compare(without_counts(outputs, expected), expected, **tolerances(name, expected))


@pytest.mark.parametrize("name", [name for name in CASES if reason_of(name) is not None])
def test_excluded_case_is_refused_for_its_reason(name: str) -> None:
    error, _ = EXCLUDED[reason_of(name) or ""]
    if error is None:
        _, graph, _, expected = opened(name)
        types = [graph.values[value].type for value in graph.outputs]
        assert [(type_.dtype.numpy, type_.shape) for type_ in types[: len(expected)]] == [
            (array.dtype, array.shape) for array in expected
        ]
        return
    with pytest.raises(error):
        load_graph(prepared(name)[0])


def test_every_exclusion_is_needed() -> None:
    for reason, (_, patterns) in EXCLUDED.items():
        for pattern in patterns.split():
            assert any(fnmatchcase(name, pattern) for name in CASES), (reason, pattern)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="older onnx packages have fewer cases")
def test_number_of_passing_cases() -> None:
    assert len(INCLUDED) >= PASSING
