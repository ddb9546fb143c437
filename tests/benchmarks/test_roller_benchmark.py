"""The benchmark of construction and prediction: what it draws, and its arithmetic."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest

from benchmarks.networks import NETWORKS, SMALL
from benchmarks.roller import Instance, Outcome, instances, measured, read, spearman
from rammer.ir.workload import Workload
from rammer.options import CompileOptions
from tests.support.kernels import AVX512, types
from tests.support.operators import expression


def outcome(predicted_us, measured_us):
    return Outcome(
        model="m", name="n", kind="k", construct_ms=1.0, tiles=("t",) * len(predicted_us), profile_s=1.0,
        predicted_us=predicted_us, measured_us=measured_us,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((1, 2, 3), (10, 20, 30), 1.0),
        ((1, 2, 3), (3, 2, 1), -1.0),
        ((1, 2, 3, 4), (1, 3, 2, 4), 0.8),
        ((1, 1, 2), (1, 2, 3), 0.866025),
    ],
)
def test_rank_correlation(a, b, expected):
    assert spearman(a, b) == pytest.approx(expected, abs=1e-6)


def test_top_1_is_compared_with_the_best_measured():
    one = outcome((1.0, 2.0, 3.0), (6.0, 5.0, 7.0))
    assert one.ratio == 1.2
    assert one.is_apart
    assert not outcome((1.0, 2.0), (5.0, 5.1)).is_apart


def test_measuring_goes_on_where_an_earlier_call_ended(tmp_path):
    (tmp_path / "found.json").write_text(json.dumps({"operators": [asdict(outcome((1.0,), (2.0,)))]}))
    known = read(tmp_path / "found.json")
    assert known == [outcome((1.0,), (2.0,))]
    both = [Instance(model="m", name="n", kind="k", workload=Workload(expression("Relu", types((4,))), ()))] * 2
    # Neither the operator that is known nor, without time, the other one is measured.
    assert measured(both, known, AVX512, CompileOptions(device="cpu"), seconds=-1.0) == known


def test_operators_are_drawn_from_networks_evenly(monkeypatch):
    def small(name, precision):
        return NETWORKS[name](seed=0, **SMALL[name])

    monkeypatch.setattr("benchmarks.roller.NETWORKS", {name: NETWORKS[name] for name in ("bert", "mobilenet")})
    monkeypatch.setattr("benchmarks.roller._model", small)
    with ThreadPoolExecutor(1) as pool:
        found = instances(AVX512, 12, CompileOptions(device="cpu"), pool)
    assert len({one.workload for one in found}) == 12
    assert {one.model for one in found} == {"bert", "mobilenet"}
    assert len({one.kind for one in found}) > 3
