"""From ATen operators to ours, one file per family: tables from an operator's name to its converter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rammer.frontends.torch.converters import (
    activations,
    arithmetic,
    attention,
    bessel,
    complex,
    contraction,
    convolution,
    creation,
    distances,
    finding,
    gradients,
    indexing,
    linear_algebra,
    logic,
    movement,
    normalization,
    parts,
    polynomials,
    pooling,
    random,
    recurrent,
    reduction,
    resize,
    sampling,
    scatter,
    sorting,
    special,
)
from rammer.frontends.torch.node import Converter

CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        **activations.CONVERTERS,
        **arithmetic.CONVERTERS,
        **attention.CONVERTERS,
        **bessel.CONVERTERS,
        **complex.CONVERTERS,
        **contraction.CONVERTERS,
        **convolution.CONVERTERS,
        **creation.CONVERTERS,
        **distances.CONVERTERS,
        **gradients.CONVERTERS,
        **indexing.CONVERTERS,
        **linear_algebra.CONVERTERS,
        **logic.CONVERTERS,
        **movement.CONVERTERS,
        **normalization.CONVERTERS,
        **parts.CONVERTERS,
        **polynomials.CONVERTERS,
        **pooling.CONVERTERS,
        **random.CONVERTERS,
        **recurrent.CONVERTERS,
        **reduction.CONVERTERS,
        **resize.CONVERTERS,
        **sampling.CONVERTERS,
        **scatter.CONVERTERS,
        **sorting.CONVERTERS,
        **special.CONVERTERS,
        **finding.CONVERTERS,  # which has more of `where`
    }
)
"""All converters, by the operator's name in ATen, without the overload."""
