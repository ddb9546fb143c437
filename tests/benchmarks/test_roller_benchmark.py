"""The benchmark of construction and prediction: what it draws, and its arithmetic."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from benchmarks.harness.saved_candidates import SavedCandidates, save
from benchmarks.harness.saved_candidates import read as read_candidates
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.roller import (
    Instance,
    Outcome,
    _lineup,
    _outcome,
    instances,
    measured,
    predicted_again,
    read,
    spearman,
)
from rammer.devices.base import Binary
from rammer.devices.cuda.tiling.figures import H200_THREADS
from rammer.devices.cuda.tiling.rules import GpuRules
from rammer.devices.registry import find_device
from rammer.ir.types import Layout
from rammer.ir.workload import Workload
from rammer.options import CompileOptions
from rammer.profiler.measure import expected
from rammer.roller.construct import construct
from tests.support.kernels import AVX512, types
from tests.support.operators import expression

H200 = find_device("cuda:sm_90").describe(CompileOptions())


def outcome(predicted_us, measured_us):
    return Outcome(
        model="m", name="n", kind="k", construct_ms=1.0, tiles=("t",) * len(predicted_us), profile_s=1.0,
        predicted_us=predicted_us, measured_us=measured_us,
        predicted_task_us=predicted_us, measured_task_us=measured_us, first_task_us=measured_us,
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


def saved(path):
    """Candidates for a GPU in a file; their code is never looked at."""
    work = Workload(expression("Softmax", types((64, 128)), axis=1), (Layout.row_major((64, 128)),) * 2)
    lineup, veus = _lineup(construct(work, H200, to_measure=True), H200)
    binary = Binary(device="cuda", machine={"architecture": "sm_90"}, files={"program.cubin": b"code"})
    about = {"model": "m", "name": "n", "kind": "k", "construct_ms": 1.0}
    candidates = SavedCandidates(about=about, kernels=tuple(lineup), binary=binary, right=tuple(expected(lineup)))
    save(path, candidates, H200, veus)
    return candidates


def test_saved_candidates_are_the_same_again(tmp_path):
    candidates, again = saved(tmp_path / "000.npz"), read_candidates(tmp_path / "000.npz")
    assert again.kernels == candidates.kernels
    assert again.kernels[0] is again.kernels[1] is not again.kernels[2]  # each runs twice
    assert (again.about, again.binary) == (candidates.about, candidates.binary)
    (some,), (all_of_it,) = again.right, candidates.right
    assert some.addresses.size == 4096 < all_of_it.addresses.size
    assert set(zip(some.addresses.tolist(), some.values.tolist(), strict=True)) <= set(
        zip(all_of_it.addresses.tolist(), all_of_it.values.tolist(), strict=True)
    )


def test_what_was_measured_is_predicted_anew(tmp_path):
    """Of a candidate that ran twice the second time counts; the first one is kept beside it."""
    candidates = saved(tmp_path / "000.npz")
    times_us = [float(number) for number in range(1, len(candidates.kernels) + 1)]
    first = _outcome(candidates.about, candidates.kernels, times_us, H200, 1.0)
    assert sorted(first.measured_task_us) == times_us[1::2]
    assert sorted(first.first_task_us) == times_us[::2]
    assert predicted_again([tmp_path / "000.npz"], [first], H200) == [first]
    other = replace(H200, rules=GpuRules(threads=replace(H200_THREADS, start_us=5.0)))
    (again,) = predicted_again([tmp_path / "000.npz"], [first], other)
    assert sorted(again.measured_task_us) == sorted(first.measured_task_us)
    assert min(again.predicted_task_us) > 5.0 > max(first.predicted_task_us[:1])
    assert predicted_again([tmp_path / "000.npz"], [replace(first, name="another")], H200) == []


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
