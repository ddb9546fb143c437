"""The GPU as a device, as far as it can be tried without one."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import rammer
from benchmarks.networks import NETWORKS
from rammer.devices.base import Binary
from rammer.devices.codegen.source import MANIFEST
from rammer.devices.codegen.tables import (
    EXECUTE,
    EXECUTE_IF,
    RECORD,
    SIGNAL,
    SLOT,
    WAIT,
    KernelEntry,
    Manifest,
    OperatorEntry,
)
from rammer.devices.cuda.architecture import NAMED, Gpu, named
from rammer.devices.cuda.build import mismatch, requirements
from rammer.devices.cuda.describe import describe
from rammer.devices.cuda.device import CudaDevice
from rammer.devices.cuda.limits import MOST_ARRAYS, check_room, chunk_of, records_room_bytes
from rammer.devices.cuda.records import device_records, step_times
from rammer.devices.cuda.source_files import CODE, LAUNCH
from rammer.devices.cuda.stall import Stall
from rammer.devices.cuda.tables import DONE, NOTHING, SEGMENT_SHIFT, SIGNALS, SPAN
from rammer.devices.registry import DEVICES, GPUS, find_device
from rammer.errors import CompilerNotFoundError, DeviceUnavailableError, OptionError, TooManyArraysError
from rammer.frontends.onnx import load_graph
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from rammer.tiling.persistent_rnn import Family, Stationary
from tests.support.small_models import layer_model


@pytest.mark.parametrize("name", NAMED)
def test_named_architecture(name):
    vdevice = find_device(f"cuda:{name}").describe(CompileOptions())
    gpu = named(name)
    assert (vdevice.kind, vdevice.name, vdevice.veu_count) == ("cuda", gpu.name, gpu.multiprocessors)
    assert [level.name for level in vdevice.levels] == ["shared memory", "L2", "memory"]
    assert vdevice.levels == tuple(sorted(vdevice.levels, key=lambda level: level.capacity_bytes))
    figures = [level.bandwidth_bytes_per_us for level in vdevice.levels] + list(vdevice.flops_per_us.values())
    assert all(figure.value > 0 and gpu.name in figure.provenance for figure in figures)


def test_h200_has_the_figures_of_its_data_sheet():
    vdevice = find_device("cuda:sm_90").describe(CompileOptions())
    assert vdevice.flops_per_us[DType.FLOAT32].value * vdevice.veu_count == pytest.approx(67e6, rel=0.01)
    assert vdevice.levels[-1].bandwidth_bytes_per_us.value * vdevice.veu_count == pytest.approx(4.8e6)


def test_costs_of_handing_over_say_that_they_were_measured_elsewhere():
    vdevice = find_device("cuda:sm_80").describe(CompileOptions())
    for figure in (vdevice.handover_us, vdevice.tagged_handover_us):
        assert figure is not None
        assert "by a program of its own on an NVIDIA H200" in figure.provenance


def test_compiler_is_part_of_the_description(monkeypatch):
    def missing():
        raise CompilerNotFoundError("no NVRTC")

    monkeypatch.setattr("rammer.devices.cuda.device.find_toolchain", missing)
    h200 = find_device("cuda:sm_90")
    assert h200.describe(CompileOptions()).compiler == ""
    monkeypatch.setattr("rammer.devices.cuda.device.find_toolchain", lambda: SimpleNamespace(version="13.5"))
    assert h200.describe(CompileOptions()).compiler == "NVRTC 13.5"


def test_veus_are_resident_together():
    h200 = find_device("cuda:sm_90")
    assert h200.describe(CompileOptions(veus=5)).veu_count == 5
    assert h200.describe(CompileOptions(veus=264)).veu_count == 264
    with pytest.raises(OptionError, match="veus=265") as caught:
        h200.describe(CompileOptions(veus=265))
    assert caught.value.hint == "NVIDIA H200 holds 132 blocks, or 264, two on a multiprocessor"


def test_up_to_one_on_a_multiprocessor_veus_are_the_same():
    few, all_, default = (describe(named("sm_90"), veus) for veus in (5, 132, None))
    assert replace(few, veus=all_.veus) == all_ == default


@pytest.mark.parametrize("name", NAMED)
def test_two_on_a_multiprocessor_have_half_of_it_each(name):
    gpu = named(name)
    one, *halves = (describe(gpu, veus) for veus in (None, gpu.multiprocessors + 1, 2 * gpu.multiprocessors))
    for half in halves:
        assert (one.threads, half.threads) == (512, 256)
        assert half.vector_registers * 2 == one.vector_registers
        assert half.stationary_bytes * 2 == one.stationary_bytes
        assert half.flops_per_us[DType.FLOAT32].value * 2 == one.flops_per_us[DType.FLOAT32].value
        for part, whole in zip(half.levels, one.levels, strict=True):
            assert part.bandwidth_bytes_per_us.value * 2 == whole.bandwidth_bytes_per_us.value
        assert [half.levels[i].capacity_bytes for i in (1, 2)] == [one.levels[i].capacity_bytes for i in (1, 2)]


def test_a_gpu_may_have_two_units_on_each_multiprocessor():
    device = CudaDevice(architecture="sm_90")
    assert device.divisions(CompileOptions(device="cuda:sm_90", veus=132)) == ()
    whole = device.describe(CompileOptions(device="cuda:sm_90"))
    even, waiting = device.divisions(CompileOptions(device="cuda:sm_90"))
    assert even == device.describe(CompileOptions(device="cuda:sm_90", veus=264))
    assert (whole.veu_count, waiting.veu_count, waiting.threads) == (132, 264, 256)
    assert waiting.flops_per_us == whole.flops_per_us
    rates = [[level.bandwidth_bytes_per_us.value for level in one.levels] for one in (even, waiting, whole)]
    assert rates[1][:2] == rates[2][:2]  # its own, while the other waits
    assert rates[1][2:] == rates[0][2:]  # memory is everybody's
    assert [one.capacity_bytes for one in waiting.levels] == [one.capacity_bytes for one in even.levels]


@pytest.mark.parametrize(("veus", "threads", "blocks"), [(132, 512, 1), (133, 256, 2)])
def test_code_has_the_threads_of_the_vdevice(veus, threads, blocks):
    device, options = find_device("cuda:sm_90"), CompileOptions(device="cuda:sm_90", veus=veus)
    vdevice = device.describe(options)
    source = device.emit(plan_graph(load_graph(layer_model()), vdevice, options), vdevice)
    assert json.loads(bytes(source.files[LAUNCH]))["threads"] == threads
    code = bytes(source.files[CODE]).decode()
    assert f"#define RAMMER_THREADS {threads}\n#define RAMMER_BLOCKS {blocks}\n" in code
    assert "__launch_bounds__(RAMMER_THREADS, RAMMER_BLOCKS)" in code


@pytest.mark.parametrize(
    ("name", "one_kib", "two_kib"), [("sm_80", 163, 81), ("sm_89", 99, 49), ("sm_90", 227, 113), ("sm_120", 99, 49)]
)
def test_each_block_has_shared_memory_of_its_own(name, one_kib, two_kib):
    gpu = named(name)
    found = (describe(gpu, blocks * gpu.multiprocessors).levels[0].capacity_bytes for blocks in (1, 2))
    assert list(found) == [one_kib << 10, two_kib << 10]


def test_unknown_architecture():
    with pytest.raises(OptionError, match="cuda:sm_70"):
        find_device("cuda:sm_70")
    with pytest.raises(OptionError, match="sm_91"):
        named("sm_91")


def test_gpu_that_is_too_old():
    v100 = Gpu(
        name="NVIDIA V100",
        capability=(7, 0),
        multiprocessors=80,
        clock_ghz=1.5,
        shared_bytes_per_multiprocessor=96 << 10,
        shared_bytes_reserved=0,
        registers_per_multiprocessor=65_536,
        lanes_per_multiprocessor=64,
        l2_bytes=6 << 20,
        memory_bytes=16 << 30,
        memory_bytes_per_us=900e3,
        provenance="made up",
    )
    with pytest.raises(DeviceUnavailableError, match=r"V100 has compute capability 7\.0"):
        describe(v100, None)


def test_precision_is_that_of_the_options():
    h200 = find_device("cuda:sm_90")
    assert h200.describe(CompileOptions()).precision == "fp32"
    vdevice = h200.describe(CompileOptions(precision="bf16"))
    assert (vdevice.precision, vdevice.precisions) == ("bf16", ("fp32", "tf32", "bf16", "fp16"))


def test_gpus_are_found_by_name_only():
    assert not {*GPUS} & {*DEVICES}
    assert all(find_device(name).name == name for name in GPUS)


def test_binary_for_another_gpu():
    binary = Binary(device="cuda", machine=requirements("sm_89"), files={})
    assert mismatch(binary, "sm_89") is None
    assert mismatch(binary, "sm_90") == "it was built for sm_89, this is sm_90"
    assert mismatch(binary, "sm_80") == "it was built for sm_89, this is sm_80"
    assert mismatch(Binary(device="cuda", machine=requirements("sm_80"), files={}), "sm_89") is None


def test_records_of_many_operands_are_fetched_few_at_a_time():
    assert [chunk_of(slots) for slots in (0, 32, 34, 302, 1000, 5000)] == [16, 16, 8, 2, 1, 1]


def test_more_records_are_fetched_together_where_rtasks_leave_room():
    kib = 1 << 10
    assert [chunk_of(8, room_bytes) for room_bytes in (0, 12 * kib - 1, 12 * kib)] == [16, 16, 32]
    assert [chunk_of(70, room_bytes) for room_bytes in (0, 21 * kib, 22 * kib, 43 * kib)] == [8, 8, 16, 32]
    assert records_room_bytes(2, 48 * kib) < 16 * kib  # L1 has the rest
    assert records_room_bytes(2, 227 * kib) < 44 * kib  # code may name no more
    assert records_room_bytes(2, 16 * kib) == 0
    check_room(MOST_ARRAYS, 8, "", room_bytes=227 * kib)


def test_more_arrays_than_a_kernel_takes():
    check_room(MOST_ARRAYS, 4, "")
    check_room(302, 302, "")
    with pytest.raises(TooManyArraysError, match="the model has 4083 inputs and outputs, a GPU's kernel takes 4082"):
        check_room(MOST_ARRAYS + 1, 4, "")
    with pytest.raises(TooManyArraysError, match="an operator with 3000 operands") as caught:
        check_room(2, 3000, "Sum node 'all'")
    assert (caught.value.code, caught.value.where) == ("R505", "Sum node 'all'")
    with pytest.raises(TooManyArraysError, match="there are 1024"):
        check_room(2, 302, "Sum node 'all'", room_bytes=1024)


# --- Runs that were given up ------------------------------------------------------------------------------------------


def stall(queues, reached, seen, steps=None):
    """The stall of a program of two rOperators, from each vEU's (opcode, a, b, c); the second takes from the first."""
    manifest = Manifest(
        abi=1,
        kernels=(KernelEntry(symbol="k", where="'op'"),),
        operators=(
            OperatorEntry(where="'op'", first_slot=0),
            OperatorEntry(where="'next'", first_slot=2, takes_from=(0,)),
        ),
        steps=steps or (tuple(map(len, queues)),),
        first_counters=(0,) if steps is None else (0, 1),
        array_bytes=(4, 4),
        arena_bytes=0,
        alignment_bytes=128,
        table_bytes={},
    )
    records = np.array([record for queue in queues for record in queue], dtype=RECORD)
    return Stall(
        manifest=manifest,
        records=records,
        reached=np.array(reached, dtype=np.uint32),
        seen=np.array(seen, dtype=np.uint32),
        timeout_s=0.5,
    )


def test_stall_names_the_wait_that_nobody_can_end():
    queues = [
        [(WAIT, 1, 1, 0), (EXECUTE, 0, 3, 0)],
        [(WAIT, 0, 2, 0), (EXECUTE, 0, 4, 0), (SIGNAL, 1, 0, 0)],
        [(EXECUTE, 0, 5, 0), (SIGNAL, 0, 0, 0)],
    ]
    error = stall(queues, [0, 0, DONE], [0, 1, 0]).error()
    assert error.code == "R504"
    assert "vEU 1 is at step 0 of rProgram 0, a Wait for counter 0, which saw 1 of 2 signals; " in error.message
    assert error.message.endswith("no vEU has a signal left to give: rTask 5 of 'op' on vEU 2 signalled")
    assert error.where == "before rTask 4 of 'op'"
    error = stall(queues[:2], [0, 0], [0, 0]).error()
    assert error.message.endswith("no vEU has a signal left to give")


def test_stall_names_who_should_have_signalled():
    queues = [
        [(WAIT, 0, 2, 0), (SIGNAL, 1, 0, 0)],
        [(EXECUTE, 0, 1, 0), (WAIT, 1, 1, 0), (EXECUTE, 0, 2, 2), (SIGNAL, 0, 0, 0)],
        [(EXECUTE, 0, 3, 0), (SIGNAL, 0, 0, 0)],
    ]
    error = stall(queues, [0, 1, DONE], [1, 0, 0]).error()
    assert "vEU 0 is at step 0" in error.message
    assert error.message.endswith("; rTask 2 of 'next' on vEU 1 should have signalled")
    assert error.where == "behind the last rTask of the vEU"


def test_stall_names_a_few_of_many():
    queues = [[(WAIT, 0, 5, 0)], *[[(WAIT, 1, 1, 0), (EXECUTE, 0, i, 0), (SIGNAL, 0, 0, 0)] for i in range(5)]]
    queues[0] += [(SIGNAL, 1, 0, 0)]
    error = stall(queues, [0] * 6, [0] * 6).error()
    assert "; rTask 0 of 'op' on vEU 1, rTask 1 of 'op' on vEU 2, rTask 2 of 'op' on vEU 3 and 2 more " in error.message


def test_stall_of_a_slow_rtask_says_that_it_came():
    queues = [[(WAIT, 0, 1, 0)], [(EXECUTE, 0, 7, 0), (SIGNAL, 0, 0, 0)]]
    error = stall(queues, [0, DONE], [0, 0]).error()
    assert error.message.endswith("which saw 0 of 1 signals; rTask 7 of 'op' on vEU 1 signalled, but too late")


def test_stall_at_the_barrier_between_two_programs():
    queues = [
        [(EXECUTE, 0, 0, 0), (SIGNAL, 0, 0, 0), (WAIT, 0, 2, 0), (EXECUTE, 0, 0, 2)],
        [(SIGNAL, 0, 0, 0), (WAIT, 0, 2, 0), (WAIT, 1, 1, 0)],
    ]
    error = stall(queues, [2, 0], [1, 0], steps=((1, 0), (1, 1))).error()
    assert "vEU 0 is at the barrier behind rProgram 0, which saw 1 of 2 signals; " in error.message
    assert error.message.endswith("vEU 1 before its first rTask should have signalled")


def test_stall_names_the_rtask_whose_tagged_elements_did_not_come():
    queues = [
        [(EXECUTE, 0, 3, 2), (SIGNAL, 0, 0, 0)],
        [(WAIT, 0, 1, 0), (EXECUTE, 0, 4, 0)],
        [(EXECUTE, 0, 5, 0)],
    ]
    error = stall(queues, [0, 0, DONE], [0, 0, 0]).error()
    place = "vEU 0 is at step 0 of rProgram 0, an rTask whose tagged elements did not come; "
    assert error.message.endswith(place + "rTask 4 of 'op' on vEU 1 should have written them")
    assert error.where == "before rTask 3 of 'next'"
    error = stall(queues, [0, DONE, DONE], [0, 0, 0]).error()
    assert error.message.endswith(place + "rTask 4 of 'op' on vEU 1, rTask 5 of 'op' on vEU 2 ended before")
    error = stall(queues[:1], [0], [0]).error()
    assert error.message.endswith(place + "no rTask of the run writes them")


def test_manifest_knows_who_writes_tagged_tensors():
    device = find_device("cuda:sm_90")
    options = CompileOptions(device=device.name)
    vdevice = replace(device.describe(options), veus=device.describe(options).veus[:5], stationary_bytes=1 << 12)
    plan = plan_graph(load_graph(NETWORKS["lstm_tc"](layers=2, steps=3, hidden=16)), vdevice, options)
    manifest = Manifest.from_bytes(bytes(device.emit(plan, vdevice).files[MANIFEST]))
    numbers = {entry.first_slot: i for i, entry in enumerate(manifest.operators)}
    taken = {i: [numbers[slot] for slot in entry.takes_from] for i, entry in enumerate(manifest.operators)}
    assert sum(map(len, taken.values())) == 7  # the states within two layers of three cells, and those of the first
    assert all(maker < taker for taker, makers in taken.items() for maker in makers)


# --- Records ----------------------------------------------------------------------------------------------------------


def records_of(queues, signals, stationary=None, slots=((1, 0, 8), (0, 0, 16), (1, 0, 24), (0, 0, 32))):
    """Device records of queues of (opcode, a, b, c), two operands each, and where each vEU's begin."""
    steps = np.array([step for queue in queues for step in queue], dtype=RECORD)
    starts = np.cumsum([0, *map(len, queues)]).tolist()
    return device_records(
        steps, starts, np.array(list(slots), dtype=SLOT), np.array(signals, dtype=np.uint32), 2, stationary or {}
    )


def stationary(kept, weights=(0,), registers=8):
    return Stationary(family=Family(arrangement=(), registers=registers, vectors=32), kept=kept, weights=weights)


def test_record_holds_an_rtask_with_its_waits_and_signals():
    queue = [(WAIT, 1, 2, 0), (WAIT, 0, 1, 0), (EXECUTE, 5, 6, 2), (SIGNAL, 1, 0, 0), (SIGNAL, 0, 0, 0)]
    (record,), starts = records_of([queue], [4, 9])
    assert record["waits"].tolist() == [(1, 2, 9), (0, 1, 4)]
    assert (record["kernel"], record["tile"], record["run"], record["step"]) == (5, 6, 0, 0)
    assert (record["wait_count"], record["signal_count"]) == (2, 2)
    assert record["signals"].tolist() == [1] + [0] * (SIGNALS - 1)
    assert record["operands"].tolist() == [(1 << SEGMENT_SHIFT) + 24, 32]
    assert starts.tolist() == [0, 1]


def test_a_record_of_an_rtask_with_a_predicate_has_it_behind_its_operands():
    queue = [(EXECUTE_IF, 5, 6, 1), (EXECUTE, 5, 7, 1), (SIGNAL, 0, 0, 0), (EXECUTE_IF, 5, 8, 3), (SIGNAL, 0, 0, 0)]
    records, _ = records_of([queue], [2], {5: stationary(kept=())})
    assert records["predicated"].tolist() == [1, 0, 1]
    assert records["operands"][:, -1].tolist() == [
        (1 << SEGMENT_SHIFT) + 8,
        (1 << SEGMENT_SHIFT) + 24,
        (1 << SEGMENT_SHIFT) + 24,
    ]
    assert (records["kernel"].tolist(), records["tile"].tolist()) == ([5, 5, 5], [6, 7, 8])
    assert records["busy"].tolist() == [1, 1, 1]


def test_more_steps_than_a_record_holds_take_several():
    queues = [
        [(WAIT, i, 1, 0) for i in range(5)] + [(EXECUTE, 0, 0, 0)] + [(SIGNAL, i, 0, 0) for i in range(SIGNALS + 2)],
        [],
        [(EXECUTE, 0, 0, 0), (EXECUTE, 0, 1, 0), (SIGNAL, 0, 0, 0), (WAIT, 0, 1, 0)],
    ]
    records, starts = records_of(queues, [1] * (SIGNALS + 2))
    assert starts.tolist() == [0, 4, 4, 7]
    assert records["wait_count"].tolist() == [2, 2, 1, 0, 0, 0, 1]
    assert records["signal_count"].tolist() == [0, 0, SIGNALS, 2, 0, 1, 0]
    assert records["step"].tolist() == [0, 2, 4, 6 + SIGNALS, 0, 1, 3]
    assert (records["kernel"] == NOTHING).tolist() == [True, True, False, True, False, False, True]
    assert records["signals"][3].tolist() == [SIGNALS, SIGNALS + 1] + [0] * (SIGNALS - 2)


def test_run_is_one_rtask_over_the_same_constants():
    task, other_tile, other_constants = (EXECUTE, 3, 1, 0), (EXECUTE, 3, 2, 0), (EXECUTE, 3, 1, 2)
    queues = [[task, task, task, other_tile, other_tile, other_constants, (EXECUTE, 4, 1, 0)], [task]]
    slots = ((1, 0, 8), (0, 0, 16), (1, 0, 24), (0, 0, 32))
    records, _ = records_of(queues, [], {3: stationary(kept=(0,))}, slots)
    assert records["run"].tolist() == [3, 2, 1, 2, 1, 1, 0, 1]
    records, _ = records_of(queues, [], {3: stationary(kept=(1,))}, ((1, 0, 8), (0, 0, 16), (1, 0, 24), (0, 0, 16)))
    assert records["run"].tolist() == [3, 2, 1, 2, 1, 1, 0, 1]


def test_run_joins_one_of_another_rkernel_over_the_same_weights():
    slots = ((1, 0, 8), (0, 0, 16), (1, 0, 24), (1, 0, 8), (1, 0, 24), (1, 0, 16))
    queue = [(EXECUTE, 3, 1, 0), (EXECUTE, 5, 1, 2), (EXECUTE, 5, 1, 2), (EXECUTE, 3, 1, 4), (WAIT, 0, 1, 0)]
    here, there = stationary(kept=(0, 1), weights=(0,)), stationary(kept=(1,), weights=(1,))
    records, _ = records_of([queue], [1], {3: here, 5: there}, slots)
    assert records["run"].tolist() == [1, 2, 1, 1, 0]
    assert records["joins"].tolist() == [1, 0, 0, 0, 0]
    records, _ = records_of([queue], [1], {3: here, 5: stationary(kept=(1,), weights=(1,), registers=9)}, slots)
    assert not records["joins"].any()


def test_run_is_busy_if_one_of_its_records_is():
    task, signal = (EXECUTE, 3, 1, 0), (SIGNAL, 0, 0, 0)
    records, _ = records_of([[task, task, signal, task], [task, task]], [1], {3: stationary(kept=(0,))})
    assert records["run"].tolist() == [3, 2, 1, 2, 1]
    assert records["busy"].tolist() == [1, 1, 0, 0, 0]


def test_times_of_records_become_times_of_steps():
    queue = [(WAIT, 0, 1, 0), (WAIT, 0, 1, 0), (EXECUTE, 0, 0, 0), (SIGNAL, 0, 0, 0), (WAIT, 0, 1, 0)]
    records, _ = records_of([queue], [1])
    spans = np.array([(0, 5, 9, 11), (12, 20, 21, 22)], dtype=SPAN)
    ratios = np.array([1.0, 0.5])
    assert step_times(records, spans, ratios).tolist() == [[0, 5], [0, 5], [5, 9], [9, 11], [6, 10]]


# --- Without a GPU ----------------------------------------------------------------------------------------------------


def test_source_follows_from_the_model(tmp_path):
    device = find_device("cuda:sm_90")
    options = CompileOptions(device=device.name, cache_dir=tmp_path)
    vdevice = device.describe(options)
    graph = load_graph(layer_model())
    sources = [device.emit(plan_graph(graph, vdevice, options), vdevice) for _ in range(2)]
    first, second = ({name: bytes(content) for name, content in source.files.items()} for source in sources)
    assert first == second
    code = first["program.cu"].decode()
    assert "restrict" not in code  # the read-only path does not see what other blocks wrote
    assert code.count("__device__ __noinline__ void") == 1


def test_code_is_the_same_wherever_tensors_lie():
    device = CudaDevice(architecture="sm_90")
    options = CompileOptions(device=device.name)
    vdevice = device.describe(options)
    plan = plan_graph(load_graph(layer_model()), vdevice, options)
    apart = {tensor: 2 * offset + 4096 for tensor, offset in plan.memory.offsets_bytes.items()}
    elsewhere = replace(plan, memory=replace(plan.memory, offsets_bytes=apart, arenas_bytes=(1 << 20,)))
    code = device.code(plan.graph, plan.schedule, vdevice)
    assert list(code.files) == [CODE]
    for each in (plan, elsewhere):
        emitted, completed = device.emit(each, vdevice), device.complete(each, vdevice, code)
        assert dict(completed.files) == dict(emitted.files)
        assert completed.files[CODE] == code.files[CODE]


def test_precision_error_is_the_users():
    with pytest.raises(OptionError, match="fp8"):
        rammer.compile(layer_model(), "cuda:sm_90", precision="fp8")
