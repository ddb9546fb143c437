"""From classes of estimators to tensors, one file per family: tables from a class's name to its entry."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rammer.frontends.sklearn.converters import (
    ada_boost,
    bayes,
    boosters,
    clusters,
    composition,
    encoding,
    ensembles,
    functions,
    imputing,
    linear,
    mapping,
    mixtures,
    neighbours,
    networks,
    others,
    projection,
    scaling,
    selection,
    svm,
    trees,
)
from rammer.frontends.sklearn.node import Entry

ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        **ada_boost.ENTRIES,
        **bayes.ENTRIES,
        **boosters.ENTRIES,
        **clusters.ENTRIES,
        **composition.ENTRIES,
        **encoding.ENTRIES,
        **ensembles.ENTRIES,
        **functions.ENTRIES,
        **imputing.ENTRIES,
        **linear.ENTRIES,
        **mapping.ENTRIES,
        **mixtures.ENTRIES,
        **neighbours.ENTRIES,
        **networks.ENTRIES,
        **others.ENTRIES,
        **projection.ENTRIES,
        **scaling.ENTRIES,
        **selection.ENTRIES,
        **svm.ENTRIES,
        **trees.ENTRIES,
    }
)
"""All entries, by the name of the class."""
