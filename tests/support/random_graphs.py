"""Random ONNX models: chains, diamonds, many branches, shared inputs and several outputs over most operators.

`random_model` is a function of its arguments. Models are small, valid, of static shapes and well conditioned: values
stay near one, so that reordered sums agree to a few units in the last place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from tests.support.model_maker import Array, ModelMaker, Tensor
from tests.support.random_discrete import DISCRETE_RULES
from tests.support.random_movement import MOVEMENT_RULES, Rule
from tests.support.random_parts import PART_RULES
from tests.support.random_rules import FLOAT32_RULES, RULES


def random_model(
    seed: int, steps: int | None = None, *, mixed: bool = False, parts: bool = False
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model and inputs for it.

    Args:
        seed: decides all choices.
        steps: how many productions, each of one to nine nodes; None takes 4 to 16 by the seed.
        mixed: with integers, truth values and 16-bit floats beside float32.
        parts: with branches, loops and scans, and with quantised parts.
    """
    rng = np.random.default_rng(seed)
    m = ModelMaker(rng)
    shapes = [
        (1, m.draw(1, 6), m.draw(3, 8), m.draw(3, 8)),
        (m.draw(1, 5), m.draw(1, 8)),
        (m.draw(1, 3), m.draw(1, 2), m.draw(2, 5)),
    ]
    for shape in (shapes[i] for i in rng.permutation(3)[: m.draw(1, 3)]):
        m.input(rng.standard_normal(shape, dtype=np.float32))
    if mixed:
        shape = m.any(shapes)
        m.input(rng.integers(-5, 6, shape).astype(m.any(("int32", "int64", "uint8", "bool"))))
    for _ in range(steps or m.draw(4, 16)):
        # More often a late value, so that there are chains as well as many readers of one value.
        x = m.tensors[int(len(m.tensors) * rng.beta(2.5, 1))]
        rules = (
            [rule for rule, ranks in PART_RULES.items() if x.rank in ranks] if parts and x.dtype == "float32" else []
        )
        m.any(rules if rules and m.flip(0.4) else _rules(x, mixed=mixed))(m, x)
    return m.finish(f"random{seed}"), m.inputs


def _rules(x: Tensor, *, mixed: bool) -> Sequence[Rule]:
    """The rules that a value of such rank and type goes through."""
    by_rank = [*MOVEMENT_RULES.items()]
    if x.dtype in ("float32", "float16"):
        by_rank += RULES.items()
    if x.dtype == "float32":
        by_rank += FLOAT32_RULES.items()
    rules = [rule for rule, ranks in by_rank if x.rank in ranks]
    if mixed:
        rules += [rule for rule, (ranks, dtypes) in DISCRETE_RULES.items() if x.rank in ranks and x.dtype in dtypes]
    return rules
