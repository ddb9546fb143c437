"""What is measured: the networks, and forms of them that some runtime may like better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from benchmarks.networks import NETWORKS, PAPER
from benchmarks.networks.builder import Array, random_inputs
from benchmarks.networks.precision import ELEMENT_TYPES, converted

SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to write a network down.

    Attributes:
        sizes: the builder's arguments beyond the defaults.
        converts: whether in 16-bit precisions the model itself is of that type, or only products are.
    """

    network: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    batch: int = 1
    converts: bool = False

    @property
    def task(self) -> str:
        """What forms have in common that are to be compared: the network and the batch."""
        return self.network if self.batch == 1 else f"{self.network}, batch {self.batch}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A row of the table: a model and the inputs that everybody runs it on."""

    name: str
    form: Form
    model: onnx.ModelProto
    inputs: Mapping[str, Array]


FORMS: Mapping[str, Form] = {name: Form(network=name, converts=name not in PAPER) for name in NETWORKS} | {
    # The branches as one grouped convolution, the form that libraries have kernels for.
    "resnext-grouped": Form(network="resnext", sizes={"grouped": True}),
    "resnext-grouped-16": Form(network="resnext", sizes={"grouped": True}, batch=16),
    **{f"lstm_tc-{batch}": Form(network="lstm_tc", batch=batch) for batch in (4, 16, 64)},
    # The same weights as integers: PyTorch multiplies by the floats that they stand for, XLA does not read them.
    "llama-int4": Form(network="llama", sizes={"bits": 4}, converts=True),
    # The decoder as exporters write cells that a loop calls.
    "seq2seq-cells": Form(network="seq2seq", sizes={"cells": True}),
}
"""Every row by name. A network's own form comes first."""


def build_case(name: str, precision: str = "fp32") -> Case:
    """The row `name`, for a precision of `TOLERANCES`. Raises KeyError for an unknown name."""
    form = FORMS[name]
    model = NETWORKS[form.network](seed=SEED, batch=form.batch, **form.sizes)
    if form.converts and precision in ELEMENT_TYPES:
        model = converted(model, precision)
    return Case(name=name, form=form, model=model, inputs=random_inputs(model, SEED))
