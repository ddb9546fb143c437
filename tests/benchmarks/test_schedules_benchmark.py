"""The table of policies: a row for each, and whether simulation orders them as measurement does."""

import pytest

from benchmarks import schedules
from rammer.ir.vdevice import Figure


def test_each_policy_has_a_row(capsys):
    pytest.importorskip("highspy")
    arguments = ["--device", "reference", "--networks", "nasnet", "--small", "--policies", "wavefront,ios"]
    assert schedules.main(arguments) == 0
    text = capsys.readouterr().out
    assert "wavefront" in text
    assert "ios" in text
    assert "measured" not in text


def test_measured_times_stand_beside_simulated_ones(capsys, monkeypatch):
    pytest.importorskip("highspy")
    times = iter([200.0, 300.0])
    monkeypatch.setattr(schedules, "measure_plan", lambda *arguments: Figure(next(times), "made up"))
    arguments = ["--device", "reference", "--networks", "nasnet", "--small", "--policies", "wavefront,ios", "--measure"]
    assert schedules.main(arguments) == 0
    text = capsys.readouterr().out
    assert "simulated / measured" in text
    assert "pairs within 1% of each other left out: nasnet" in text


def test_each_division_has_a_row(capsys):
    pytest.importorskip("highspy")
    arguments = ["--device", "cuda:sm_90", "--networks", "alexnet", "--small", "--policies", "wavefront"]
    assert schedules.main([*arguments, "--divisions"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "wavefront" in line]
    assert [("132" in row, "264" in row) for row in rows] == [(True, False), (False, True), (False, True)]
