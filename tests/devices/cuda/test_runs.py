"""What is said of a schedule's runs holds for the records of its plan."""

import json
from collections import defaultdict

import numpy as np
import pytest

from benchmarks.networks import NETWORKS, SMALL
from rammer.devices.cuda.emit.persistent_rnn import emit_walk
from rammer.devices.cuda.runs import Runs
from rammer.devices.cuda.source_files import DEVICE_RECORDS, LAUNCH
from rammer.devices.cuda.tables import record_dtype
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph

DEVICE = find_device("cuda:sm_90")
LONG = 8


def said_and_found(monkeypatch, model, policy):
    """The runs that code is made for, and by rKernel (joins one before, busy, length) of the runs in the tables."""
    said = {}

    def noting(symbol, family, members, runs):
        said.update(runs)
        return emit_walk(symbol, family, members, runs)

    monkeypatch.setattr("rammer.devices.cuda.source.emit_walk", noting)
    options = CompileOptions(device=DEVICE.name, policy=policy)
    vdevice = DEVICE.describe(options)
    files = DEVICE.emit(plan_graph(load_graph(model), vdevice, options), vdevice).files
    launch = json.loads(bytes(files[LAUNCH]))
    records = np.frombuffer(files[DEVICE_RECORDS], dtype=record_dtype(launch["slots"]))
    found = defaultdict(list)
    for begin, end in zip(launch["starts"], launch["starts"][1:], strict=False):
        i = begin
        while i < end:
            length = int(records["run"][i])
            if length:
                joins = i > begin and bool(records["joins"][i - 1])
                found[int(records["kernel"][i])].append((joins, bool(records["busy"][i]), length))
            i += max(1, length)
    return said, found


@pytest.mark.parametrize("policy", ["wavefront", "sequential", "ios", "wavefront-fast"])
@pytest.mark.parametrize(
    "model",
    [
        pytest.param(NETWORKS["lstm_tc"](layers=2, steps=12, hidden=64), id="layers"),
        pytest.param(NETWORKS["lstm_tc"](layers=2, steps=12, hidden=64, batch=4), id="layers of a batch"),
        pytest.param(NETWORKS["seq2seq"](**SMALL["seq2seq"]), id="seq2seq"),
        pytest.param(NETWORKS["deepspeech2"](**SMALL["deepspeech2"]), id="deepspeech2"),
    ],
)
def test_code_is_there_for_all_runs(monkeypatch, model, policy):
    said, found = said_and_found(monkeypatch, model, policy)
    assert said.keys() == found.keys()
    for kernel, runs in found.items():
        assert said[kernel].begin or all(joins for joins, _, _ in runs)
        assert said[kernel].busy or not any(busy for _, busy, _ in runs)
        assert said[kernel].long == any(length >= LONG and not busy for _, busy, length in runs)


def test_layers_without_waits_need_no_code_for_them(monkeypatch):
    said, _ = said_and_found(monkeypatch, NETWORKS["lstm_tc"](layers=2, steps=12, hidden=64), "wavefront")
    assert set(said.values()) >= {Runs(begin=True, busy=False, long=False), Runs(begin=False, busy=False, long=True)}
    assert not any(runs.busy for runs in said.values())
