"""The networks that are measured, as ONNX models with random weights.

The six of the Rammer paper (OSDI 2020, section 5), and transformers and image networks that people run today.
Everything is a function of the seed: equal arguments give byte-identical models. PyTorch modules with the same weights
are in `benchmarks.networks.torch_modules`, which nothing here imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import onnx

from benchmarks.networks import (
    alexnet,
    bert,
    convnext,
    deepspeech2,
    efficientnet,
    llama,
    lstm_tc,
    mobilenet,
    nasnet,
    resnet,
    resnext,
    seq2seq,
    vit,
    whisper,
)

__all__ = ["LARGER", "NETWORKS", "PAPER", "SMALL"]

NETWORKS: dict[str, Callable[..., onnx.ModelProto]] = {
    "resnext": resnext.build,
    "nasnet": nasnet.build,
    "alexnet": alexnet.build,
    "deepspeech2": deepspeech2.build,
    "lstm_tc": lstm_tc.build,
    "seq2seq": seq2seq.build,
    "llama": llama.build,
    "whisper": whisper.build,
    "vit": vit.build,
    "bert": bert.build,
    "convnext": convnext.build,
    "resnet": resnet.build,
    "efficientnet": efficientnet.build,
    "mobilenet": mobilenet.build,
}
"""Name to builder. All take `seed`, `batch` and sizes of their own, by keyword, with the published ones as defaults."""

PAPER = ("resnext", "nasnet", "alexnet", "deepspeech2", "lstm_tc", "seq2seq")
"""The networks of the Rammer paper."""

LARGER: dict[str, Callable[..., onnx.ModelProto]] = {
    "resnext101": partial(resnet.build, blocks=(3, 4, 23, 3), groups=64, group_width=4),
    "nasnet_mobile": partial(
        nasnet.build, image=224, cells=4, filters=44, stem_cells=2, stem_channels=32, classes=1000
    ),
}
"""The paper's larger inputs: ResNeXt-101 64x4d and NASNet-A 4@1056 for ImageNet, builders like the others."""

SMALL: Mapping[str, Mapping[str, Any]] = {
    "resnext": {"blocks": 1, "cardinality": 4, "width": 8},
    "nasnet": {"cells": 1, "reductions": 1, "filters": 8},
    "alexnet": {"channels": (8, 16, 16, 16, 8), "hidden": 32, "classes": 10},
    "deepspeech2": {"frames": 40, "layers": 2, "hidden": 16},
    "lstm_tc": {"steps": 5, "layers": 3, "hidden": 16},
    "seq2seq": {"steps": 5, "layers": 2, "decoder_steps": 3, "decoder_layers": 2, "hidden": 16},
    "llama": {"cached": 20, "layers": 2, "hidden": 64, "heads": 4, "groups": 2, "size": 16, "inner": 96, "words": 80},
    "whisper": {"frames": 50, "layers": 1, "hidden": 32, "heads": 2},
    "vit": {"image": 32, "patch": 8, "layers": 1, "hidden": 32, "heads": 2, "classes": 10},
    "bert": {"tokens": 20, "layers": 2, "hidden": 32, "heads": 2, "words": 80},
    "convnext": {"image": 32, "blocks": (1, 1), "width": 16, "classes": 10},
    "resnet": {"image": 32, "blocks": (1, 1), "width": 8, "classes": 10},
    "efficientnet": {"image": 32, "stages": 2, "last": 64, "classes": 10},
    "mobilenet": {"image": 32, "stages": 2, "last": 64, "classes": 10},
}
"""Sizes at which each network has all its kinds of operators and little work."""
