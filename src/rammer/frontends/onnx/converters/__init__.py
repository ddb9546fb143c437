"""From ONNX operators to ours, one file per family: tables from operator type to converter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rammer.frontends.onnx.converters import (
    activated,
    attention,
    classical,
    constants,
    contraction,
    control,
    counted,
    elementwise,
    fused,
    indexing,
    movement,
    ngrams,
    normalization,
    quantised,
    random,
    recurrent,
    reduction,
    resize,
    sampling,
    scatter,
    sequences,
    signal,
    trees,
    windows,
)
from rammer.frontends.onnx.node import Converter

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **activated.CONVERTERS,
        **attention.CONVERTERS,
        **classical.CONVERTERS,
        **constants.CONVERTERS,
        **contraction.CONVERTERS,
        **control.CONVERTERS,
        **counted.CONVERTERS,
        **elementwise.CONVERTERS,
        **fused.CONVERTERS,
        **indexing.CONVERTERS,
        **movement.CONVERTERS,
        **ngrams.CONVERTERS,
        **normalization.CONVERTERS,
        **quantised.CONVERTERS,
        **random.CONVERTERS,
        **recurrent.CONVERTERS,
        **reduction.CONVERTERS,
        **resize.CONVERTERS,
        **sampling.CONVERTERS,
        **scatter.CONVERTERS,
        **sequences.CONVERTERS,
        **signal.CONVERTERS,
        **trees.CONVERTERS,
        **windows.CONVERTERS,
    }
)
"""All converters, by operator type; of other domains than ONNX's own with the domain."""
