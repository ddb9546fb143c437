"""The PyTorch modules compute what the ONNX models compute."""

import numpy as np
import onnxruntime
import pytest

from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import random_inputs

torch = pytest.importorskip("torch")

from benchmarks.networks.torch_modules import module_inputs, torch_module  # noqa: E402  (torch may be missing)

pytestmark = pytest.mark.torch

# Name, the sizes that model and module share, and those of the model's input alone.
CASES = [
    pytest.param("resnext", {"blocks": 1, "cardinality": 4, "width": 8}, {}, id="resnext-small"),
    pytest.param("resnext", {"cardinality": 4, "width": 8, "grouped": True}, {}, id="resnext-small-grouped"),
    pytest.param("resnext", {}, {}, id="resnext"),
    pytest.param("resnext", {"grouped": True}, {}, id="resnext-grouped"),
    pytest.param("nasnet", {"cells": 1, "filters": 8}, {}, id="nasnet-small"),
    pytest.param("nasnet", {}, {}, id="nasnet"),
    pytest.param("alexnet", {"hidden": 32, "classes": 10}, {}, id="alexnet-small"),
    pytest.param("alexnet", {}, {}, id="alexnet"),
    pytest.param("deepspeech2", {"layers": 2, "hidden": 16}, {"frames": 40}, id="deepspeech2-small"),
    pytest.param("deepspeech2", {}, {}, id="deepspeech2"),
    pytest.param("lstm_tc", {"layers": 3, "hidden": 16}, {"steps": 5, "batch": 3}, id="lstm_tc-small"),
    pytest.param("lstm_tc", {}, {}, id="lstm_tc"),
    pytest.param(
        "seq2seq",
        {"layers": 2, "decoder_steps": 3, "decoder_layers": 2, "hidden": 16},
        {"steps": 5, "batch": 2},
        id="seq2seq-small",
    ),
    pytest.param(
        "seq2seq",
        {"layers": 2, "decoder_steps": 3, "decoder_layers": 2, "hidden": 16, "cells": True},
        {"steps": 5, "batch": 2},
        id="seq2seq-small-cells",
    ),
    pytest.param("seq2seq", {}, {}, id="seq2seq"),
    *(
        pytest.param(
            name,
            {key: size for key, size in SMALL[name].items() if key not in of_input},
            {key: size for key, size in SMALL[name].items() if key in of_input},
            id=f"{name}-small",
        )
        for name, of_input in (
            ("llama", ("cached",)),
            ("whisper", ()),
            ("vit", ()),
            ("bert", ("tokens",)),
            ("convnext", ("image",)),
            ("resnet", ("image",)),
            ("efficientnet", ("image",)),
            ("mobilenet", ("image",)),
        )
    ),
    *(
        pytest.param(
            "llama",
            {key: size for key, size in SMALL["llama"].items() if key != "cached"} | {"bits": bits},
            {"cached": 20},
            id=f"llama-small-int{bits}",
        )
        for bits in (4, 8)
    ),
    *(pytest.param(name, {}, {}, id=name) for name in ("whisper", "convnext", "resnet", "efficientnet", "mobilenet")),
]


@pytest.mark.parametrize(("name", "sizes", "input_sizes"), CASES)
def test_module_agrees_with_model(name, sizes, input_sizes):
    model = NETWORKS[name](seed=4, **sizes, **input_sizes)
    feeds = random_inputs(model, seed=4)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = session.run(None, feeds)

    module = torch_module(name, model, **sizes)
    with torch.inference_mode():
        found = module(*module_inputs(name, feeds))
    for actual, expected in zip(found if isinstance(found, tuple) else [found], outputs, strict=True):
        assert actual.shape == expected.shape
        assert np.linalg.norm(actual.numpy() - expected) < 1e-4 * np.linalg.norm(expected)


def test_sizes_must_fit_the_model():
    model = NETWORKS["lstm_tc"](steps=2, layers=2, hidden=8)
    with pytest.raises(RuntimeError, match=r"lstm\.weight_ih_l2"):
        torch_module("lstm_tc", model, layers=3, hidden=8)
