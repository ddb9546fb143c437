"""The six networks of the Rammer paper (OSDI 2020, section 5) as ONNX models with random weights.

Everything is a function of the seed: equal arguments give byte-identical models. PyTorch modules with the
same weights are in `benchmarks.networks.torch_modules`, which nothing here imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx

from benchmarks.networks import alexnet, deepspeech2, lstm_tc, nasnet, resnext, seq2seq
from benchmarks.networks.builder import Float32, Shape, random_inputs

__all__ = ["NETWORKS", "SMALL", "inputs"]

NETWORKS: dict[str, Callable[..., onnx.ModelProto]] = {
    "resnext": resnext.build,
    "nasnet": nasnet.build,
    "alexnet": alexnet.build,
    "deepspeech2": deepspeech2.build,
    "lstm_tc": lstm_tc.build,
    "seq2seq": seq2seq.build,
}
"""Name to builder. All take `seed`, `batch` and sizes of their own, by keyword, with the paper's as defaults."""

SMALL: Mapping[str, Mapping[str, Any]] = {
    "resnext": {"blocks": 1, "cardinality": 4, "width": 8},
    "nasnet": {"cells": 1, "filters": 8},
    "alexnet": {"channels": (8, 16, 16, 16, 8), "hidden": 32, "classes": 10},
    "deepspeech2": {"frames": 40, "layers": 2, "hidden": 16},
    "lstm_tc": {"steps": 5, "layers": 3, "hidden": 16},
    "seq2seq": {"steps": 5, "layers": 2, "decoder_steps": 3, "decoder_layers": 2, "hidden": 16},
}
"""Sizes at which each network has all its kinds of operators and little work."""

_INPUT_SHAPES: dict[str, Callable[[int], dict[str, Shape]]] = {
    "resnext": resnext.input_shapes,
    "nasnet": nasnet.input_shapes,
    "alexnet": alexnet.input_shapes,
    "deepspeech2": deepspeech2.input_shapes,
    "lstm_tc": lstm_tc.input_shapes,
    "seq2seq": seq2seq.input_shapes,
}


def inputs(name: str, seed: int, batch: int = 1) -> dict[str, Float32]:
    """Standard normal inputs for network `name` in the paper's size. Raises KeyError for an unknown name."""
    return random_inputs(_INPUT_SHAPES[name](batch), seed)
