"""One model compiled in every way: its plans on the reference device and on the processor, against ONNX Runtime."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto

from rammer.devices.base import Loaded, Source
from rammer.devices.reference.pickers import Bursts, Highest, Lowest, Picker, Random, Starving
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.program import Plan, Schedule, Wait
from rammer.ir.vdevice import Figure, VDevice
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph, schedule_tasks
from rammer.roller.model import ModelCosts
from rammer.schedule.policies import POLICIES
from tests.support.float64 import run_in_float64
from tests.support.model_maker import Array
from tests.support.plans import run_orders
from tests.support.random_graphs import random_model

VEUS = (1, 2, 3, 4)
WITH_PARTS = range(2_000, 3_000)
"""Seeds of models with control flow and quantised parts."""

DISTINCT = [policy for policy in POLICIES if policy != "auto"]
"""The policies; `auto` gives a schedule that is one of the others'."""

CALLS = 5
TOLERANCES: Mapping[str, float] = {"float32": 1e-5, "float16": 5e-3}
"""Largest norm of the difference in units of the norm of what is expected; other types agree exactly.

A model may cancel (normalise what is constant, say) so that ONNX Runtime itself is further from the truth; then the
float64 result decides, to which Rammer's has to be as near as ONNX Runtime's, or near. Where nothing is left of values
near one (the logarithm of a sum of probabilities), the norm is taken to be what float32 leaves of ones. A float32
output that is made of 16-bit floats is as exact as these.
"""

_MOST_CANCELLED = 1e-3
_LEFT_OF_ONE = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What was compared, all of it in agreement.

    Attributes:
        models: compiled.
        plans: one for each policy and number of vEUs.
        rtasks: in all plans that differ.
        waits: in all plans that differ.
        interleavings: runs on the reference device.
        calls: runs on the processor.
        worst: largest relative difference from ONNX Runtime, by dtype.
    """

    models: int = 0
    plans: int = 0
    rtasks: int = 0
    waits: int = 0
    interleavings: int = 0
    calls: int = 0
    worst: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Agreement) -> Agreement:
        """Both together."""
        names = (entry.name for entry in fields(self) if entry.name != "worst")
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        dtypes = sorted(self.worst.keys() | other.worst.keys())
        worst = {dtype: max(self.worst.get(dtype, 0.0), other.worst.get(dtype, 0.0)) for dtype in dtypes}
        return Agreement(**sums, worst=worst)

    def __str__(self) -> str:
        worst = ", ".join(f"{dtype} {error:.1e}" for dtype, error in self.worst.items())
        return (
            f"{self.models:,} models, {self.plans:,} plans of {self.rtasks:,} rTasks and {self.waits:,} Waits, "
            f"{self.interleavings:,} interleavings, {self.calls:,} calls; largest relative difference: {worst}"
        )


def check_seed(seed: int, built: Collection[int] = VEUS) -> Agreement:
    """`check_agreement` on a random model; see `tests.end_to_end.test_random_graphs`."""
    model, inputs = random_model(seed, mixed=seed % 3 == 2, parts=seed in WITH_PARTS)
    return check_agreement(model, inputs, spread=seed % 2 == 1, seed=seed, built=built)


def check_agreement(
    model: onnx.ModelProto, inputs: Mapping[str, Array], *, spread: bool, seed: int, built: Collection[int]
) -> Agreement:
    """Compile a model with each policy for 1 to 4 vEUs and compare all of its runs.

    Args:
        model: the model.
        inputs: arrays by name.
        spread: compile for a processor so slow, with hand-overs so cheap, that all work spreads over the vEUs.
        seed: of the interleavings.
        built: numbers of vEUs whose plans run on the processor, too; all of them run on the reference device.

    Raises:
        AssertionError: results differ.
        RammerError: the model does not compile, a verifier's refusal included, or a run does not end.
    """
    graph = load_graph(model)
    arrays = [inputs[graph.values[number].name] for number in graph.inputs]
    expected = run_onnx_runtime(model, inputs)
    exact = cache(lambda: run_in_float64(model, inputs))
    halves = made_of_halves(model)
    found = Agreement(models=1)
    device = find_device("cpu")
    for veus in VEUS:
        options = CompileOptions(veus=veus)
        vdevice = device.describe(options)
        if spread:
            vdevice = without_costs(vdevice)
        tasks = lower_graph(graph, vdevice, options, Dump(None))
        checked: list[Schedule] = []
        for policy in DISTINCT:
            chosen = replace(options, policy=policy)
            plan = schedule_tasks(tasks, vdevice, ModelCosts(vdevice), chosen, Dump(None))
            found += Agreement(plans=1)
            schedule = replace(plan.schedule, policy="")
            if schedule not in checked:  # policies often agree, above all about one vEU
                checked.append(schedule)
                source = device.emit(plan, vdevice) if veus in built else None
                found += _check_plan(plan, source, chosen, arrays, expected, exact, halves, seed)
    return found


def _check_plan(
    plan: Plan,
    source: Source | None,
    options: CompileOptions,
    inputs: Sequence[Array],
    expected: Sequence[Array],
    exact: Callable[[], Sequence[Array]],
    halves: Collection[int],
    seed: int,
) -> Agreement:
    """All runs of one plan; on the processor where there is its source."""
    assert options.veus is not None
    runs = {"reference": run_orders(plan, inputs, pickers(options.veus, seed))}
    if source is not None:
        device = find_device("cpu")
        loaded = device.load(source, device.build(source, options), options)
        runs["cpu"] = [_run(loaded, inputs, expected) for _ in range(CALLS)]
    worst: dict[str, float] = {}
    for name, results in runs.items():
        place = f"{options.policy}, {options.veus} vEUs, {name} device"
        first, *others = (_bits(result) for result in results)
        assert all(other == first for other in others), f"{place}: runs differ"
        for dtype, error in compare(results[0], expected, place, exact, halves):
            worst[dtype] = max(worst.get(dtype, 0.0), error)
    programs = plan.schedule.programs
    return Agreement(
        rtasks=sum(1 for program in programs for _ in program.tasks()),
        waits=sum(isinstance(step, Wait) for program in programs for queue in program.steps for step in queue),
        interleavings=len(runs["reference"]),
        calls=len(runs.get("cpu", ())),
        worst=worst,
    )


def without_costs(vdevice: VDevice) -> VDevice:
    """The vDevice with arithmetic so slow that the smallest operator is worth all vEUs."""
    slow = {dtype: Figure(figure.value / 1e4, "made up") for dtype, figure in vdevice.flops_per_us.items()}
    nothing = Figure(0.0, "made up")
    return replace(vdevice, flops_per_us=slow, handover_us=nothing, task_overhead_us=nothing)


def pickers(veus: int, seed: int) -> Sequence[Picker]:
    """Interleavings: random ones and unkind ones. A single vEU has only one."""
    if veus == 1:
        return [Lowest()]
    return [Random(seed), Random(seed + 1), Bursts(seed), Starving(seed % veus), Highest(), Lowest()]


def run_onnx_runtime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """ONNX Runtime's outputs; as written where numbers are quantised, for its optimiser breaks some such models."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(inputs))]


def made_of_halves(model: onnx.ModelProto) -> frozenset[int]:
    """The numbers of the outputs that depend on 16-bit floats."""
    graph = model.graph
    found = {value.name for value in graph.initializer if value.data_type == TensorProto.FLOAT16}
    found |= {value.name for value in graph.input if value.type.tensor_type.elem_type == TensorProto.FLOAT16}
    for node in graph.node:
        if found & _needs(node) or (node.op_type == "Cast" and node.attribute[0].i == TensorProto.FLOAT16):
            found.update(node.output)
    return frozenset(number for number, value in enumerate(graph.output) if value.name in found)


def _needs(node: onnx.NodeProto) -> set[str]:
    """The names that a node and the graphs in it read."""
    inner = (one for attribute in node.attribute if attribute.HasField("g") for one in attribute.g.node)
    return set(node.input).union(*map(_needs, inner))


def compare(
    actual: Sequence[Array],
    expected: Sequence[Array],
    place: str,
    exact: Callable[[], Sequence[Array]] | None = None,
    halves: Collection[int] = (),
) -> Iterator[tuple[str, float]]:
    """(dtype, relative difference) of each output.

    Args:
        actual: our outputs.
        expected: another float32 program's.
        place: where they are from, for the message.
        exact: gives the float64 outputs, asked for where the two float32 ones lie too far apart.
        halves: numbers of the outputs that are made of 16-bit floats.

    Raises:
        AssertionError: types or shapes differ, or values by more than the tolerance.
    """
    for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        where = f"{place}, output {number}"
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), where
        dtype = ours.dtype.name
        if dtype not in TOLERANCES:
            np.testing.assert_array_equal(ours, theirs, err_msg=where)
            continue
        rounded = "float16" if number in halves else dtype
        error, most = relative_difference(ours, theirs), TOLERANCES[rounded]
        if error > most and dtype == "float32" and exact is not None:
            error, of_theirs = (relative_difference(one, exact()[number]) for one in (ours, theirs))
            most = max(most, min(of_theirs, _MOST_CANCELLED))
        assert error <= most, f"{where}: relative difference {error:.2e}"
        yield rounded, error


def relative_difference(actual: Array, expected: Array) -> float:
    """Norm of the difference in units of the norm of `expected`; NaN and infinities have to be where expected.

    A norm below what float32 leaves of ones counts as that.
    """
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    norm = float(np.linalg.norm(expected[finite].astype(np.float64)))
    difference = float(np.linalg.norm(actual[finite].astype(np.float64) - expected[finite]))
    return difference / max(norm, _LEFT_OF_ONE) if norm else difference


def _run(loaded: Loaded, inputs: Sequence[Array], like: Sequence[Array]) -> list[Array]:
    """The outputs of a call, into memory that holds nothing of use."""
    outputs: list[Array] = [np.full(x.nbytes, 0xA5, np.uint8).view(x.dtype).reshape(x.shape) for x in like]
    loaded.run(inputs, outputs)
    return outputs


def _bits(arrays: Sequence[Array]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def attempt_seed(seed: int) -> Agreement | str:
    """`check_seed`, or how it failed: for other processes, where not every exception comes back whole."""
    try:
        return check_seed(seed)
    except Exception:  # noqa: BLE001  (whatever it is, the other seeds go on)
        return traceback.format_exc(limit=-4)


def check_runs(loaded: Loaded, inputs: Sequence[Array], wanted: Array, tolerance: float, runs: int = 20) -> None:
    """Each run of a model with one output agrees with `wanted`, and all give the same bits."""
    bits = set()
    for _ in range(runs):
        found = np.full(wanted.shape, 77, dtype=np.float32)
        loaded.run(inputs, [found])
        assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < tolerance
        bits.add(found.tobytes())
    assert len(bits) == 1
