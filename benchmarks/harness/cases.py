"""What is measured: the six networks, and forms of them that some runtime may like better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from benchmarks.networks import NETWORKS, inputs
from benchmarks.networks.builder import Float32

SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to write a network down: its builder's arguments beyond the paper's."""

    network: str
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A row of the table: a model and the inputs that everybody runs it on."""

    name: str
    form: Form
    model: onnx.ModelProto
    inputs: Mapping[str, Float32]


FORMS: Mapping[str, Form] = {name: Form(network=name) for name in NETWORKS} | {
    # The branches as one grouped convolution, the form that libraries have kernels for.
    "resnext-grouped": Form(network="resnext", sizes={"grouped": True})
}
"""Every row by name. A network's own form comes first."""


def build_case(name: str) -> Case:
    """The row `name`, batch 1. Raises KeyError for an unknown name."""
    form = FORMS[name]
    return Case(
        name=name,
        form=form,
        model=NETWORKS[form.network](seed=SEED, **form.sizes),
        inputs=inputs(form.network, SEED),
    )
