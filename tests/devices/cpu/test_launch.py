"""Running programs on the processor: hand-made plans on real threads."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from rammer.devices.codegen.tables import RECORD, SLOT
from rammer.devices.cpu.binary import ABI
from rammer.devices.cpu.instance import Program, Stall
from rammer.devices.cpu.machine import Machine
from rammer.devices.cpu.toolchain import RUNTIME_FLAGS, find_toolchain
from rammer.errors import RunTimeoutError
from rammer.ir.program import Execute, RProgram, Signal, Wait
from rammer.ir.task import RTask, TaskGraph, TensorRole
from tests.support.cpu import (
    chain,
    compiled,
    expected,
    map_kernel,
    operator,
    plan_of,
    run,
    tensor,
    without_first_signal,
)

ROOT = Path(__file__).parents[3]
FILES = Path("/proc/self/fd")
TASKS = Path("/proc/self/task")
X = np.linspace(-3, 5, 64, dtype=np.float32)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    "shape",
    [
        {"length": 1, "veus": 1},
        {"length": 1, "veus": 1, "tiles": 5},
        {"length": 2, "veus": 2},
        {"length": 9, "veus": 2, "tiles": 4},
        {"length": 9, "veus": 3, "tiles": 2, "programs": 4},
        {"length": 4, "veus": 1, "programs": 4},
        {"length": 8, "veus": 4, "tiles": 4, "programs": 2},
    ],
    ids=str,
)
def test_result(cache, shape):
    plan = chain(**shape)
    model = compiled(plan, cache)
    for scale in (1, -2, 0.5):
        x = X * np.float32(scale)
        np.testing.assert_array_equal(run(model, x), expected(plan, x))


def test_special_values_pass(cache):
    plan = chain(length=1, veus=1, size=6)
    x = np.array([np.nan, np.inf, -np.inf, 1e-40, -0.0, 3e38], dtype=np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(run(compiled(plan, cache), x), expected(plan, x))


@pytest.mark.parametrize(("veus", "runs"), [(2, 10_000), (4, 1_000)])
def test_every_run_gives_the_same_bits(cache, veus, runs):
    plan = chain(length=6, veus=veus, tiles=3)
    model, y = compiled(plan, cache), np.zeros_like(X)
    reference = expected(plan, X).tobytes()
    for _ in range(runs):
        y.fill(0)
        model.run([X], [y])
        assert y.tobytes() == reference


def test_arrays_may_change_between_calls(cache):
    model = compiled(chain(length=1, veus=1), cache)
    first, second = run(model, X), run(model, X.copy())
    np.testing.assert_array_equal(first, second)
    assert first is not second


def test_program_without_steps(cache):
    graph = TaskGraph(name="empty", tensors=(), constants={}, operators=(), inputs=(), outputs=())
    compiled(plan_of(graph), cache).run([], [])
    model = compiled(plan_of(graph, RProgram(steps=((), ()), counter_count=0)), cache)
    model.run([], [])
    assert [spans.shape for spans in model.trace([], []).spans_ns[0]] == [(0, 2), (0, 2)]


def test_wrong_number_of_arrays(cache):
    model = compiled(chain(length=1, veus=1), cache)
    with pytest.raises(ValueError, match="2 in all"):
        model.run([X], [])


# --- Runs that get stuck ----------------------------------------------------------------------------------------------


def test_missing_signal_is_named(cache):
    plan = without_first_signal(chain(length=3, veus=2))
    model = compiled(plan, cache, run_timeout_s=0.05)
    for _ in range(2):  # the second run finds the counters as the first one did
        with pytest.raises(RunTimeoutError) as caught:
            run(model, X)
        error = caught.value
        assert error.code == "R504"
        assert "vEU 1 is at step 0 of rProgram 0, a Wait for counter 0, which saw 0 of 1 signals" in error.message
        assert error.where == "before rTask 0 of 'op1'"


def test_missing_signal_in_a_later_program(cache):
    plan = chain(length=6, veus=2, tiles=2, programs=3)
    program = plan.schedule.programs[2]
    steps = (tuple(step for step in program.steps[0] if not isinstance(step, Signal)), program.steps[1])
    broken = RProgram(steps=steps, counter_count=program.counter_count)
    graph, programs = plan.graph, (*plan.schedule.programs[:2], broken)
    model = compiled(plan_of(graph, *programs), cache, run_timeout_s=0.05)
    with pytest.raises(RunTimeoutError, match="of rProgram 2, a Wait for counter 0, which saw 1 of 2 signals"):
        run(model, X)


def test_veu_that_never_reaches_the_barrier(cache):
    plan = chain(length=2, veus=2, programs=2)
    first, second = plan.schedule.programs
    stuck = RProgram(steps=((*first.steps[0], Wait(0, 2)), ()), counter_count=1)
    model = compiled(plan_of(plan.graph, stuck, second), cache, run_timeout_s=0.05)
    with pytest.raises(RunTimeoutError, match="vEU 0 is at step 2 of rProgram 0") as caught:
        run(model, X)
    assert caught.value.where == "behind the last rTask of the vEU"


def test_deadlock_of_two_waits(cache):
    kernel = map_kernel(64, 1, 1, lambda x: x * 2.0)
    graph = TaskGraph(
        name="cycle",
        tensors=tuple(tensor(i, 64, role) for i, role in enumerate((TensorRole.INPUT, TensorRole.OUTPUT))),
        constants={},
        operators=(operator(0, kernel, (0,), 1),),
        inputs=(0,),
        outputs=(1,),
    )
    steps = ((Wait(0, 1), Signal(1)), (Wait(1, 1), Signal(0), Execute(RTask(0, 0))))
    model = compiled(plan_of(graph, RProgram(steps=steps, counter_count=2)), cache, run_timeout_s=0.05)
    with pytest.raises(RunTimeoutError, match="vEU 0 is at step 0 of rProgram 0, a Wait for counter 0"):
        run(model, X)


def test_veu_that_waits_at_the_barrier(cache):
    plan = chain(length=1, veus=1)
    cycle = RProgram(steps=((), (Wait(0, 1), Signal(1)), (Wait(1, 1), Signal(0))), counter_count=2)
    model = compiled(plan_of(plan.graph, cycle, plan.schedule.programs[0]), cache, run_timeout_s=0.05)
    with pytest.raises(RunTimeoutError, match="vEU 0 is at the barrier behind rProgram 0, which saw 1 of 3") as caught:
        run(model, X)
    assert caught.value.where == "before rTask 0 of 'op0'"


def test_stuck_run_does_not_harm_others(cache):
    stuck = compiled(without_first_signal(chain(length=3, veus=2)), cache, run_timeout_s=0.05)
    plan = chain(length=5, veus=2)
    sound = compiled(plan, cache)
    for _ in range(3):
        with pytest.raises(RunTimeoutError):
            run(stuck, X)
        np.testing.assert_array_equal(run(sound, X), expected(plan, X))


INTERRUPTED_CALLS = """
import signal, sys
from pathlib import Path
import numpy as np
from tests.support.cpu import chain, compiled, expected, run

def run_until_interrupted():
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        while True:
            run(model, x)
    except KeyboardInterrupt:
        pass

x = np.linspace(-3, 5, 64, dtype=np.float32)
plan = chain(length=100, veus=2)
model = compiled(plan, Path(sys.argv[1]))
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(10):
    run_until_interrupted()
    assert np.array_equal(run(model, x), expected(plan, x))
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")
def test_interrupted_call_does_not_harm_later_ones(cache):
    """In a process of its own: an interrupt may hit coverage's tracer, which keeps its lock then."""
    command = [sys.executable, "-c", INTERRUPTED_CALLS, cache]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


LONG_RUN = """
import signal, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from rammer.ir.program import Execute, RProgram, Signal, Wait
from rammer.ir.task import RTask
from tests.support.cpu import chain, compiled, plan_of, run

VEUS, REPEATS, SIZE = int(sys.argv[2]), int(sys.argv[3]), 1_000_000
first, last = Execute(RTask(0, 0)), Execute(RTask(1, 0))
queues = [[first] * (REPEATS // VEUS) for _ in range(VEUS)]
for queue in queues[1:]:
    queue.append(Signal(0))
queues[0] += [*([Wait(0, VEUS - 1)] if VEUS > 1 else []), last]
plan = plan_of(chain(length=2, veus=1, size=SIZE).graph, RProgram(steps=tuple(map(tuple, queues)), counter_count=1))
model = compiled(plan, Path(sys.argv[1]))
x, y = np.ones(SIZE, np.float32), np.full(SIZE, np.nan, np.float32)
heard = []

def unfinished():
    return bool(np.isnan(y).all())
"""

INTERRUPTED_RUN = """
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(2):  # the second time it is as the first time
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        model.run([x], [y])
    except KeyboardInterrupt:
        heard.append(unfinished())
assert heard == [True, True], heard
short = chain(length=3, veus=2)
assert np.isfinite(run(compiled(short, Path(sys.argv[1])), np.ones(64, np.float32))).all()
"""

HANDLED_SIGNALS = """
signal.signal(signal.SIGALRM, lambda *_: heard.append(unfinished()))
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
model.run([x], [y])
signal.setitimer(signal.ITIMER_REAL, 0)
assert heard[0], "handled as the run went on"
assert not unfinished()
"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")
@pytest.mark.parametrize("veus", [1, 2])
@pytest.mark.parametrize(
    ("script", "repeats"), [(INTERRUPTED_RUN, 100_000), (HANDLED_SIGNALS, 4_000)], ids=["interrupted", "handled"]
)
def test_signals_are_heard_during_a_long_run(cache, veus, script, repeats):
    """A run of a minute ends with KeyboardInterrupt; one whose handlers return goes on."""
    command = [sys.executable, "-c", LONG_RUN + script, cache, str(veus), str(repeats)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr


def test_rtask_longer_than_the_timeout_is_no_stall(cache):
    plan = chain(length=2, veus=2, size=4_000_000)
    x = np.ones(4_000_000, dtype=np.float32)
    np.testing.assert_array_equal(run(compiled(plan, cache, run_timeout_s=0.0005), x), expected(plan, x))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("veus", "programs"), [(1, 1), (2, 4), (4, 2), (40, 1)])
def test_a_run_ends_with_any_number_of_threads(cache, monkeypatch, veus, programs, threads):
    """Threads that wait go on with the vEUs that have none."""
    monkeypatch.setattr(Machine, "computing_cores", threads)
    plan = chain(length=8, veus=veus, tiles=5, programs=programs)
    model = compiled(plan, cache)
    for _ in range(20):
        np.testing.assert_array_equal(run(model, X), expected(plan, X))


def test_a_stall_is_found_with_any_number_of_threads(cache, monkeypatch):
    monkeypatch.setattr(Machine, "computing_cores", 1)
    model = compiled(without_first_signal(chain(length=3, veus=2)), cache, run_timeout_s=0.05)
    with pytest.raises(RunTimeoutError, match="vEU 1 is at step 0 of rProgram 0, a Wait for counter 0"):
        run(model, X)


def test_more_veus_than_there_can_be_threads(cache):
    plan = plan_of(chain(length=1, veus=1).graph, RProgram(steps=((Signal(0),),) * 1100, counter_count=1))
    compiled(plan, cache).run([X], [np.empty_like(X)])


@pytest.mark.skipif(not TASKS.exists(), reason="no /proc here")
def test_veus_without_steps_are_not_woken(cache, monkeypatch):
    monkeypatch.setattr(Machine, "computing_cores", 100)
    busy = chain(length=2, veus=1)
    (program,) = busy.schedule.programs
    idle = ((),) * 100
    plan = plan_of(busy.graph, RProgram(steps=(*program.steps, *idle), counter_count=program.counter_count))
    before = len(list(TASKS.iterdir()))
    assert np.array_equal(run(compiled(plan, cache), X), expected(plan, X))
    assert len(list(TASKS.iterdir())) - before < len(idle) // 2


# --- The process around it --------------------------------------------------------------------------------------------


def test_calls_from_several_threads(cache):
    plans = [chain(length=3 + i, veus=1 + i, tiles=2) for i in range(3)]
    models = [compiled(plan, cache) for plan in plans]
    failures = []

    def user(seed):
        random = np.random.default_rng(seed)
        for _ in range(150):
            plan, model = (pair[seed % 3] for pair in (plans, models))
            x = random.standard_normal(64, dtype=np.float32)
            if not np.array_equal(run(model, x), expected(plan, x)):
                failures.append(seed)

    threads = [threading.Thread(target=user, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_child_has_a_pool_of_its_own(cache):
    plan = chain(length=5, veus=2, tiles=2)
    model = compiled(plan, cache)
    stop = threading.Event()

    def keep_running():
        while not stop.is_set():
            run(model, X)

    other = threading.Thread(target=keep_running)  # so that forks catch runs under way
    other.start()
    try:
        for _ in range(10):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                correct = False
                try:
                    signal.alarm(300)  # a child that hangs is ended, and the test fails
                    correct = all(np.array_equal(run(model, X), expected(plan, X)) for _ in range(20))
                finally:
                    os._exit(0 if correct else 1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        other.join()
    np.testing.assert_array_equal(run(model, X), expected(plan, X))


def test_idle_pool_uses_no_processor_time(cache):
    model = compiled(chain(length=2, veus=4), cache)
    run(model, X)

    def used_s():
        before_s = time.process_time()
        time.sleep(0.5)
        return time.process_time() - before_s

    # A worker that polls uses it all the time, what else the process may do only now and then.
    assert any(used_s() < 0.1 for _ in range(20))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity here")
def test_callers_affinity_stays(cache):
    model = compiled(chain(length=2, veus=2), cache)
    before = os.sched_getaffinity(0)
    run(model, X)
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not FILES.exists(), reason="no /proc here")
def test_models_give_back_what_they_took(cache):
    plan = chain(length=2, veus=2)
    run(compiled(plan, cache), X)
    gc.collect()
    before = len(list(FILES.iterdir()))
    for _ in range(5):
        run(compiled(plan, cache), X)
    gc.collect()
    assert len(list(FILES.iterdir())) == before


def test_callers_rounding_mode_does_not_matter(cache):
    try:
        math = ctypes.CDLL("libm.so.6")
    except OSError:
        pytest.skip("no glibc here")
    plan = chain(length=8, veus=2)
    model, x = compiled(plan, cache), X / np.float32(3)
    reference = run(model, x)
    upward = 0x800  # x86; elsewhere the call fails and changes nothing
    mode = math.fegetround()
    math.fesetround(upward)
    try:
        changed = math.fegetround()
        result = run(model, x)
        assert math.fegetround() == changed
    finally:
        math.fesetround(mode)
    np.testing.assert_array_equal(result, reference)


# --- Traces and tables ------------------------------------------------------------------------------------------------


def test_trace_has_a_span_for_each_step(cache):
    plan = chain(length=6, veus=2, tiles=3, programs=2)
    model, y = compiled(plan, cache), np.zeros_like(X)
    trace = model.trace([X], [y])
    np.testing.assert_array_equal(y, expected(plan, X))
    assert len(trace.spans_ns) == len(plan.schedule.programs)
    ends = []
    for program, spans in zip(plan.schedule.programs, trace.spans_ns, strict=True):
        assert [len(span) for span in spans] == [len(queue) for queue in program.steps]
        for span in spans:
            times = span.reshape(-1)
            assert times.dtype == np.int64
            assert np.all(times >= 0)
            assert np.all(np.diff(times) >= 0)
        ends.append((min(span[0, 0] for span in spans), max(span[-1, 1] for span in spans)))
    assert ends[0][1] <= ends[1][0]  # nothing of the second program before the end of the first


def test_trace_shows_that_a_wait_ends_after_its_signal(cache):
    plan = chain(length=2, veus=2)
    model = compiled(plan, cache)
    (first, second) = model.trace([X], [np.zeros_like(X)]).spans_ns[0]
    signal, wait = first[1], second[0]
    assert wait[1] >= signal[0]


def test_c_and_python_agree_on_every_shared_type(tmp_path):
    sizes = {"rammer_program": ctypes.sizeof(Program), "rammer_stall": ctypes.sizeof(Stall)}
    sizes |= {"rammer_record": RECORD.itemsize, "rammer_slot": SLOT.itemsize}
    offsets = {
        (name, field[0]): getattr(kind, field[0]).offset
        for name, kind in (("rammer_program", Program), ("rammer_stall", Stall))
        for field in kind._fields_
    }
    for name, kind in (("rammer_record", RECORD), ("rammer_slot", SLOT)):
        offsets |= {(name, field): found[1] for field, found in (kind.fields or {}).items()}
    lines = [f'printf("%zu\\n", sizeof({name}));' for name in sizes]
    lines += [f'printf("%zu\\n", offsetof({name}, {field}));' for name, field in offsets]
    lines += ['printf("%d\\n", RAMMER_ABI);']
    header = files("rammer.devices.cpu") / "runtime" / "rammer_runtime.h"
    (tmp_path / "rammer_runtime.h").write_text(header.read_text())
    program = '#include <stdio.h>\n#include "rammer_runtime.h"\nint main(void) { ' + " ".join(lines) + " }\n"
    (tmp_path / "main.c").write_text(program)
    find_toolchain(None).run([*RUNTIME_FLAGS, "main.c", "-o", "main"], folder=tmp_path, timeout_s=60)
    output = subprocess.run([tmp_path / "main"], capture_output=True, check=True, text=True).stdout.split()
    assert list(map(int, output)) == [*sizes.values(), *offsets.values(), ABI]
