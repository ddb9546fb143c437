"""The benchmark harness: fair turns, refusal of wrong outputs, honest means. Its contestants here are fakes."""

import json
import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from benchmarks import calls
from benchmarks.harness import measure as measuring
from benchmarks.harness.alone import alone
from benchmarks.harness.cases import FORMS, Case, Form
from benchmarks.harness.contestant import Prepared
from benchmarks.harness.gpu import gpu_facts
from benchmarks.harness.measure import Row, Timing, measure
from benchmarks.harness.report import geometric_means, ratios, write_json
from benchmarks.harness.setups import SETUPS, Setup
from benchmarks.networks import NETWORKS
from tests.support.small_models import layer_model

RIGHT = np.array([3.0, 4.0], np.float32)
CASE = Case(name="layer", form=Form(network="layer"), model=layer_model(), inputs={})


class FakeClock:
    """A call takes the microseconds that it returns."""

    def time_us(self, run, count):
        return [run() for _ in range(count)]


@dataclass
class Fake:
    """Takes as long as it is told and writes its calls into a log."""

    name: str
    takes_us: float
    log: list = field(default_factory=list)
    result: np.ndarray = field(default_factory=lambda: RIGHT)

    def version(self):
        return "1"

    def prepare(self, case):
        def run():
            self.log.append(self.name)
            return self.takes_us

        return Prepared(run=run, outputs=lambda: [self.result])


@dataclass
class Elsewhere(Fake):
    """Says what a process of its own computes: never what this one does."""

    here: int = field(default_factory=os.getpid)

    def prepare(self, case):
        assert os.getpid() != self.here
        return super().prepare(case)


@dataclass
class Refusing(Fake):
    def prepare(self, case):
        raise ValueError("no such model")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(measuring, "SETTLE_S", 0.0)


def measured(*contestants, rounds=4):
    setup = Setup(
        region="",
        clock=FakeClock(),
        tolerance=1e-4,
        reference=Fake("reference", 1.0),
        peers=(),
        ours=lambda policy: Fake(policy, 1.0),
    )
    return measure(CASE, contestants, setup, rounds=rounds, progress=lambda text: None)


def test_contestants_may_have_processes_of_their_own():
    def setup(contestant):
        return alone(
            Setup(
                region="",
                clock=FakeClock(),
                tolerance=1e-4,
                reference=Fake("reference", 1.0),
                peers=(contestant,),
                ours=lambda policy: contestant,
            )
        )

    one = setup(Elsewhere("a", 1.0))
    row = measure(CASE, one.peers, one, rounds=2, progress=lambda text: None)
    assert row.refusal == ""
    assert row.timings["a"].calls == 2 * (measuring.TURN_CALLS.stop - 1)
    wrong = setup(Elsewhere("b", 1.0, result=RIGHT + 1))
    assert "b by" in measure(CASE, wrong.peers, wrong, rounds=2, progress=lambda text: None).refusal
    with pytest.raises(RuntimeError, match="c: ValueError: no such model"):
        setup(Refusing("c", 1.0)).peers[0].prepare(CASE)


def test_everybody_gets_as_many_turns_in_changing_order():
    log: list[str] = []
    row = measured(Fake("a", 20_000.0, log), Fake("b", 40_000.0, log), rounds=6)
    assert row.refusal == ""
    assert (row.timings["a"].median_us, row.timings["b"].median_us) == (20_000.0, 40_000.0)
    assert row.timings["a"].calls == row.timings["b"].calls == 6 * 3
    turns = log[2 * measuring.WARMUP_CALLS :]
    blocks = [turns[i : i + 5] for i in range(0, len(turns), 5)]
    assert all(len(set(block)) == 1 for block in blocks)  # nobody interrupts a turn
    assert {tuple(block[0] for block in blocks[i : i + 2]) for i in range(0, 12, 2)} == {("a", "b"), ("b", "a")}


def test_quick_calls_fill_their_turn():
    row = measured(Fake("quick", 1000.0), Fake("very quick", 1.0), rounds=2)
    assert row.timings["quick"].calls == 2 * 50
    assert row.timings["very quick"].calls == 2 * 200


@pytest.mark.parametrize(
    "wrong", [RIGHT * 1.001, RIGHT[:1], RIGHT[None], np.array([3.0, np.nan], np.float32), np.zeros(2, np.float32)]
)
def test_wrong_outputs_are_not_reported(wrong):
    row = measured(Fake("good", 1.0), Fake("bad", 0.1, result=wrong))
    assert row.timings == {}
    assert "bad by" in row.refusal
    assert "good" not in row.refusal
    assert row.differences["bad"] > 1e-4


def test_outputs_may_differ_a_little():
    row = measured(Fake("a", 1.0, result=RIGHT * np.float32(1 + 5e-5)))
    assert row.refusal == ""
    assert 1e-5 < row.differences["a"] < 1e-4


def timings(**medians_us):
    return {name: Timing(median_us=us, p10_us=us, p90_us=us, calls=1) for name, us in medians_us.items()}


def test_ratios_are_to_the_best_peer():
    row = Row(case="n", network="n", timings=timings(slow=9.0, good=6.0, ours=2.0, other=12.0))
    assert ratios(row, ["ours", "other"], ["slow", "good"]) == {"ours": 3.0, "other": 0.5}


def test_the_mean_takes_a_network_once_in_the_best_form_of_either_side():
    rows = [
        Row(case="n", network="n", timings=timings(peer=100.0, ours=2.0)),
        Row(case="n-grouped", network="n", timings=timings(peer=8.0, ours=50.0)),
        Row(case="m", network="m", timings=timings(peer=1.0, ours=1.0)),
    ]
    assert geometric_means(rows, ["ours"], ["peer"])["ours"] == pytest.approx(2.0)


def test_json_is_strict(tmp_path):
    rows = [
        Row(case="n", network="n", timings=timings(peer=4.0, ours=2.0), differences={"ours": 1e-7}),
        Row(case="m", network="m", refusal="ours differs", differences={"ours": math.inf}),
    ]
    path = tmp_path / "new" / "bench.json"
    write_json(path, rows, ["ours"], ["peer"], {"commit": "abc"})
    data = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert data["commit"] == "abc"
    assert data["geometric_means"] == {"ours": 2.0}
    assert data["rows"][0]["ratios"] == {"ours": 2.0}
    assert data["rows"][1]["differences"] == {"ours": None}


def test_every_network_is_a_case_and_peers_have_names_of_their_own():
    assert set(NETWORKS) <= set(FORMS)
    assert {form.network for form in FORMS.values()} == set(NETWORKS)
    for setup in SETUPS.values():
        found = setup(2, "fp32")
        names = [contestant.name for contestant in (*found.peers, found.ours("wavefront"), found.ours("sequential"))]
        assert len(set(names)) == len(names) > 3


def test_less_precise_arithmetic_may_differ_more():
    allowed = [SETUPS["cuda"](132, precision).tolerance for precision in ("fp32", "tf32", "fp16")]
    assert allowed == [1e-4, 2e-3, 1e-2]


def test_facts_about_gpus_need_no_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_facts() == {}
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.1, 345 MHz, 1980 MHz, 3201 MHz, 75.1 W, 30'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    facts: Any = gpu_facts()
    (gpu,) = facts["gpus"]
    assert (gpu["name"], gpu["driver_version"], gpu["clocks.sm"]) == ("NVIDIA H200", "580.1", "345 MHz")


def test_a_call_and_the_drivers_part_take_turns(monkeypatch):
    log = []

    def runs(name, takes_us):
        def run():
            log.append(name)
            return takes_us + len(log) / 1e6

        return run

    monkeypatch.setattr(calls, "WallClock", FakeClock)
    call, driver = runs("call", 9.0), runs("driver", 4.0)
    cost = calls.call_cost("a", call, driver, lambda: log.append("settled"), turns=3, model_us=1.5)
    turn = ["call"] * 50 + ["settled"] + ["driver"] * 50 + ["settled"]
    assert log == turn * (10 + 3)
    assert cost.own_us == pytest.approx(3.5, abs=0.01)
    assert calls.table([cost]).splitlines()[1].split() == ["a", "9.0", "4.0", "1.5", "3.5"]
