"""Random models that keep several caches: whatever is updated in place, runs give what the model says without state."""

import random
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from rammer.errors import VerificationError
from rammer.options import CompileOptions
from rammer.pipelines.kinds import compile_with
from rammer.schedule import dependencies
from tests.devices.cuda.conftest import gpu, libraries  # noqa: F401 - fixtures
from tests.support.small_models import FLOAT, small_model

ROWS, WIDTH = 6, 4
CACHE = (ROWS, WIDTH)
POLICIES = ("sequential", "wavefront", "critical-path", "ios")


def random_model(generator):
    """Caches of which a row is replaced, added to, or everything, and results that read the old and the new ones."""
    states = generator.randint(1, 3)
    old, new = [f"past{i}" for i in range(states)], [f"present{i}" for i in range(states)]
    steps: list[Any] = [("Equal", ["numbers", "position"], "hit")]
    rows = ["x"]

    def made(op, inputs):
        steps.append((op, inputs, f"v{len(steps)}"))
        return steps[-1][2]

    def anything(among):
        whole = generator.choice(among)
        match generator.randrange(4):
            case 0:
                return made("Tanh", [whole])
            case 1:
                return made("MatMul", [whole, "weight"])
            case 2:
                return made("Add", [whole, generator.choice(among)])
        return made("Softmax", [whole])

    for i in range(states):
        among = [*old, *new[:i]]
        if generator.random() < 0.5:
            rows.append(made("MatMul", ["mean", anything(among)]))  # a row made of all rows of a cache
        row = generator.choice(rows)
        fresh = made("Add", [old[i], row]) if generator.random() < 0.3 else row
        if generator.random() < 0.85:
            steps.append(("Where", ["hit", fresh, old[i]], new[i]))
        else:
            steps.append(("Add", [old[i], fresh], new[i]))
    results = [anything([*old, *new, *new]) for _ in range(generator.randint(1, 3))]
    constants: dict[str, Any] = {
        "numbers": np.arange(ROWS, dtype=np.int64).reshape(ROWS, 1),
        "mean": np.full((1, ROWS), 1 / ROWS, np.float32),
        "weight": np.random.default_rng(0).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 2,
    }
    ports: dict[str, Any] = {"x": (FLOAT, (1, WIDTH)), "position": (TensorProto.INT64, (1,))}
    ports |= dict.fromkeys(old, (FLOAT, CACHE))
    nodes = [helper.make_node(op, inputs, [output]) for op, inputs, output in steps]
    outputs: Any = dict.fromkeys([*dict.fromkeys(results), *new], (FLOAT, CACHE))
    return small_model(nodes, ports, outputs, constants), dict(zip(old, new, strict=True))


def check(generator, options_of):
    """Compile and run one; how many states it has in place, and how many not."""
    model, states = random_model(generator)
    net = compile_with(
        model, options_of(states=states, policy=generator.choice(POLICIES), veus=generator.randint(1, 4))
    )
    plain = compile_with(model, CompileOptions(device="reference", policy="sequential", veus=1))
    rng = np.random.default_rng(generator.randrange(1000))
    held: dict[str, Any] = {name: rng.standard_normal(CACHE).astype(np.float32) for name in states}
    for name, value in held.items():
        net.state[name] = value
    for position in (0, 3, 3, -1, ROWS, 5):
        given = {"x": rng.standard_normal((1, WIDTH)).astype(np.float32), "position": np.array([position])}
        wanted: Any = plain.run({**given, **held})
        held = {name: wanted[states[name]] for name in states}
        for name, value in net.run(given).items():
            np.testing.assert_allclose(value, wanted[name], rtol=1e-4, atol=1e-5)
        for name, value in held.items():
            kept: Any = net.state[name]
            np.testing.assert_allclose(kept, value, rtol=1e-4, atol=1e-5)
    return len(net.signature.in_place), len(states) - len(net.signature.in_place)


@pytest.mark.parametrize(("device", "count"), [("reference", 40), ("cpu", 12), ("cuda on the host", 6)])
def test_states_move_as_without(request, device, count):
    generator, found = random.Random(device), Counter[str]()
    is_gpu = device == "cuda on the host"
    options_of = request.getfixturevalue("gpu").options if is_gpu else partial(CompileOptions, device=device)
    for _ in range(count):
        in_place, other = check(generator, options_of)
        found["in place"] += in_place
        found["other"] += other
    assert found["in place"] >= count / 2
    assert found["other"] >= count / 10


def test_a_schedule_without_these_dependencies_is_refused(monkeypatch):
    """Writers that do not wait for who reads the old state."""
    monkeypatch.setattr(dependencies, "_readers_by_output", lambda graph, regions: {})
    generator, refused = random.Random(1), Counter[str]()
    for _ in range(30):
        try:
            check(generator, partial(CompileOptions, device="reference"))
        except VerificationError as error:
            refused[error.code] += 1
    assert refused["P19"] >= 3
    assert {*refused} == {"P19"}
