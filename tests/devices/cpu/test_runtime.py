"""The runtime alone, in C programs of its own: no data races, and which threads take part in a run."""

import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from rammer.devices.cpu.build import RUNTIME_FILES
from rammer.devices.cpu.toolchain import RUNTIME_FLAGS, find_toolchain
from rammer.errors import CompilerFailedError

# Two callers, each with a model of four vEUs whose rTasks add up what the others left, with any number of threads.
STRESS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "rammer_runtime.h"

enum { VEUS = 4, ROUNDS = 12, RUNS = 300 };

/* out[tile] = 1 + in[(tile + 1) % VEUS] */
static void add(char *const *restrict pointers, int32_t tile) {
    const float *in = (const float *)pointers[0];
    ((float *)pointers[1])[16 * tile] = 1 + in[16 * ((tile + 1) % VEUS)];
}

static int measure(uint32_t threads) {
    static const rammer_kernel kernels[] = {add};
    rammer_record records[VEUS][3 * ROUNDS];
    uint32_t starts[VEUS + 1] = {0}, signals[ROUNDS];
    rammer_slot slots[2 * (ROUNDS + 1)];
    int32_t cores[VEUS];
    float *arena = calloc(64 * (ROUNDS + 1), sizeof *arena), in[64] = {0}, out[64];
    for (uint32_t round = 0; round < ROUNDS; ++round) {
        signals[round] = VEUS;
        for (uint32_t side = 0; side < 2; ++side) {
            const uint32_t at = round + side;
            slots[2 * round + side] = (rammer_slot){.segment = at == 0 ? 2 : at == ROUNDS ? 3 : 0,
                                                    .offset_bytes = at == 0 || at == ROUNDS ? 0 : 256 * at};
        }
    }
    for (uint32_t veu = 0; veu < VEUS; ++veu) {
        cores[veu] = -1;
        starts[veu + 1] = starts[veu] + 3 * ROUNDS;
        for (uint32_t round = 0; round < ROUNDS; ++round) {
            records[veu][3 * round] = (rammer_record){RAMMER_WAIT, round > 0 ? round - 1 : 0, round > 0 ? VEUS : 0, 0};
            records[veu][3 * round + 1] = (rammer_record){RAMMER_EXECUTE, 0, veu, 2 * round};
            records[veu][3 * round + 2] = (rammer_record){RAMMER_SIGNAL, round, 0, 0};
        }
    }
    const rammer_program program = {
        .veu_count = VEUS, .counter_count = ROUNDS, .slot_count = 2 * ROUNDS, .wait_polls = 32, .thread_count = threads,
        .kernels = kernels, .records = records[0], .starts = starts, .slots = slots, .signals = signals, .cores = cores,
        .arena = (char *)arena, .constants = NULL, .spin_ns = 1000, .timeout_ns = 10000000000};
    rammer_model *model = rammer_model_new(&program);
    char *arrays[] = {(char *)in, (char *)out};
    int wrong = 0;
    for (int run = 0; run < RUNS; ++run) {
        rammer_stall stall;
        for (int veu = 0; veu < VEUS; ++veu)
            in[16 * veu] = run + veu;
        int result = rammer_model_run(model, arrays, NULL, &stall);
        while (result == RAMMER_PAUSED)
            result = rammer_model_resume(model, &stall);
        wrong += result != RAMMER_OK;
        for (int veu = 0; veu < VEUS; ++veu)
            wrong += out[16 * veu] != ROUNDS + run + (veu + ROUNDS) % VEUS;
    }
    rammer_model_free(model);
    free(arena);
    return wrong;
}

static void *call(void *wrong) {
    for (uint32_t threads = 1; threads <= VEUS; ++threads)
        *(int *)wrong += measure(threads);
    return NULL;
}

int main(void) {
    int wrong[2] = {0};
    pthread_t other;
    pthread_create(&other, NULL, call, &wrong[0]);
    call(&wrong[1]);
    pthread_join(other, NULL);
    printf("%d\n", wrong[0] + wrong[1]);
    return 0;
}
"""

# Thread 1 loses its core to others, at times of our own making.
LOSSES = r"""
#include <stdio.h>
#include "pool.h"

enum { MS = 1000000 };

static void join(struct rammer_work *work, uint32_t thread) { (void)work; (void)thread; }

int main(void) {
    static const int32_t cores[] = {-1, -1};
    struct rammer_work work = {.join = join, .thread_count = 2, .cores = cores};
    const char *kind; long long now_ms; int value;
    while (scanf("%ms %lld %d", &kind, &now_ms, &value) == 3) {
        if (*kind == 'l') {
            printf("%d\n", rammer_pool_note_loss(1, (int64_t)value * MS, (int64_t)now_ms * MS));
        } else {
            uint32_t guests = 0;
            for (int i = 0; i < value; ++i) {
                guests = rammer_pool_invite(&work, (int64_t)now_ms * MS);
                rammer_pool_leave();
                rammer_pool_dismiss(&work);
            }
            printf("%u\n", guests);
        }
    }
    return 0;
}
"""


def program(folder: Path, text: str, *flags: str) -> Path:
    """An executable of the runtime's files and a main program."""
    source = files("rammer.devices.cpu") / "runtime"
    for name in RUNTIME_FILES:
        (folder / name).write_bytes((source / name).read_bytes())
    (folder / "main.c").write_text(text)
    units = [name for name in RUNTIME_FILES if name.endswith(".c")]
    arguments = [*RUNTIME_FLAGS, *flags, *units, "main.c", "-o", "main", "-lm"]
    find_toolchain(None).run(arguments, folder=folder, timeout_s=120)
    return folder / "main"


def output(path: Path, lines: str = "") -> list[int]:
    done = subprocess.run([path], input=lines, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_runs_with_any_number_of_threads_and_callers_are_sound(tmp_path, sanitizer):
    try:
        path = program(tmp_path, STRESS, "-g", f"-fsanitize={sanitizer}")
    except CompilerFailedError:
        pytest.skip("this compiler has no such sanitizer")
    assert output(path) == [0]


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    return program(tmp_path_factory.mktemp("pool"), LOSSES)


def test_a_thread_that_loses_its_core_now_and_then_is_kept(losses):
    events = [f"loss {300 * i} 3\ninvite {300 * i + 1} 1" for i in range(1, 20)]
    assert output(losses, "\n".join(events)) == [0, 1] * 19


def test_a_thread_that_loses_its_core_often_is_left_out_and_tried_again(losses):
    events = ["loss 100 3", "loss 108 6", "invite 109 1", "invite 350 1", "invite 359 1"]
    assert output(losses, "\n".join(events)) == [0, 1, 0, 0, 1]


def test_the_second_time_it_is_left_out_for_twice_as_long(losses):
    events = ["loss 100 6", "invite 351 1", "loss 352 1", "invite 603 1", "invite 851 1", "invite 853 1"]
    assert output(losses, "\n".join(events)) == [1, 1, 1, 0, 0, 1]


def test_after_many_good_runs_it_is_the_first_time_again(losses):
    events = ["loss 100 6", "invite 351 200", "loss 400 6", "invite 600 1", "invite 651 1"]
    assert output(losses, "\n".join(events)) == [1, 1, 1, 0, 1]
