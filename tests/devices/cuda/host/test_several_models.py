"""Several models in one program on a GPU, in several orders of vEUs, warps and copies."""

import pytest

from benchmarks.networks import NETWORKS, SMALL
from examples.two_branches import build_model
from rammer.devices.cuda.source import source_of
from rammer.frontends.onnx import load_graph
from rammer.ir.graph import Array
from rammer.pipelines import together
from rammer.pipelines.together import Model, plan_together
from rammer.schedule.partitions import Partition
from tests.support.agreement import relative_difference
from tests.support.host_cuda import orders
from tests.support.host_cuda.programs import Program
from tests.support.small_models import mlp_model

VEUS = 4
SPANS = {
    "side by side": [range(2), range(2, 3), range(3, 4)],
    "one after another": [range(VEUS)] * 3,
    "both": [range(2), range(2, VEUS), range(2, VEUS)],
}


@pytest.mark.parametrize("policy", ["wavefront", "sequential"])
@pytest.mark.parametrize("spans", SPANS.values(), ids=SPANS)
def test_each_gives_what_it_gives_alone(spans, policy, gpu, monkeypatch):
    """One of them keeps weights in registers from step to step."""
    members = [NETWORKS["lstm_tc"](**SMALL["lstm_tc"]), mlp_model(), build_model()]
    partitions = tuple(Partition(models=(number,), veus=span) for number, span in enumerate(spans))
    monkeypatch.setattr(together, "find_partitions", lambda *_: partitions)
    alone = [Program.of(gpu, model, veus=VEUS) for model in members]
    options = gpu.options(veus=VEUS, policy=policy)
    models = [Model(name=f"m{number}", graph=load_graph(model)) for number, model in enumerate(members)]
    vdevice = gpu.vdevice(options)
    loaded = gpu.load(source_of(plan_together(models, vdevice, options), vdevice))
    inputs: list[Array] = [array for program in alone for array in program.inputs]
    wanted: list[Array] = [array for program in alone for array in program.wanted]
    tolerances = [program.tolerance for program in alone for _ in program.wanted]
    bits = set()
    for order in orders(VEUS):
        found = gpu.run(loaded, inputs, wanted, order)
        bits.add(b"".join(array.tobytes() for array in found))
        for one, other, tolerance in zip(found, wanted, tolerances, strict=True):
            assert relative_difference(one, other) <= tolerance, order
    assert len(bits) == 1
