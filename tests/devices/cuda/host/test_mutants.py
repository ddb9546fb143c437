"""What is left out between threads or vEUs shows: each barrier, each wait for copies, each Wait of a program."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from benchmarks.networks import NETWORKS, SMALL
from examples.two_branches import build_model
from tests.support.agreement import run_onnx_runtime
from tests.support.attention import attention_model
from tests.support.host_cuda.mutants import Findings, try_statements, unmissed_waits
from tests.support.host_cuda.programs import Program
from tests.support.small_models import (
    long_row_model,
    mlp_model,
    rows_model,
    states_model,
    streams_model,
    trees_model,
    vectors_model,
    windows_model,
)


def large_elements(gpu):
    """Cells of a batch of which some inputs are beyond what float16 has."""
    model = NETWORKS["lstm_tc"](batch=2, **SMALL["lstm_tc"])
    program = Program.of(gpu, model, veus=4)
    sequence = np.array(program.inputs[0], np.float32)
    sequence[:, :, ::3] *= np.float32(1e4)
    wanted = run_onnx_runtime(model, {model.graph.input[0].name: sequence})
    return replace(program, inputs=[sequence], wanted=wanted)


PROGRAMS = {
    "products": lambda gpu: Program.of(gpu, mlp_model(), veus=3),
    "two branches": lambda gpu: Program.of(gpu, build_model(), veus=2),
    "padded vectors": lambda gpu: Program.of(gpu, vectors_model(64, layers=2), veus=4),
    "vectors that stream": lambda gpu: Program.of(gpu, streams_model(), veus=4),
    "states of one vEU": lambda gpu: Program.of(gpu, states_model(64), veus=1),
    "states": lambda gpu: Program.of(gpu, states_model(), veus=4),
    "states of one vEU, each a result": lambda gpu: Program.of(gpu, states_model(64, apart=True), veus=1),
    "states, each a result": lambda gpu: Program.of(gpu, states_model(64, apart=True), veus=4),
    "one row": lambda gpu: Program.of(gpu, long_row_model(), veus=1),
    "rows": lambda gpu: Program.of(gpu, rows_model(), veus=2),
    "tiles": lambda gpu: Program.of(gpu, NETWORKS["lstm_tc"](steps=1, layers=1, hidden=32, batch=128), veus=1),
    "cells that stream": lambda gpu: Program.of(gpu, NETWORKS["lstm_tc"](steps=1, layers=1, hidden=128), veus=1),
    "cells": lambda gpu: Program.of(gpu, NETWORKS["lstm_tc"](**SMALL["lstm_tc"]), veus=4),
    "vectors of a batch": lambda gpu: Program.of(gpu, vectors_model(64, layers=2, rows=8), veus=4),
    "cells of a batch": lambda gpu: Program.of(gpu, NETWORKS["lstm_tc"](batch=2, **SMALL["lstm_tc"]), veus=4),
    "vectors of a batch, in fp16": lambda gpu: Program.of(
        gpu, vectors_model(64, layers=2, rows=8), veus=4, precision="fp16"
    ),
    "cells of a batch, large elements": large_elements,
    "rows that stream": lambda gpu: Program.of(gpu, vectors_model(512, layers=2), veus=4),
    "windows": lambda gpu: Program.of(gpu, windows_model(), veus=2),
    "trees of many rows": lambda gpu: Program.of(gpu, trees_model(1000), veus=1),
    "trees of few rows": lambda gpu: Program.of(gpu, trees_model(20, trees=200, depth=6), veus=1),
    "attention": lambda gpu: attention(gpu, 128, 704, "fp16"),
    "attention of a team": lambda gpu: attention(gpu, 64, 704, "fp32"),
    "attention of a team, exact products of threads": lambda gpu: attention(gpu, 64, 704, "fp32", "cuda:sm_80"),
    "attention of teams of a warp": lambda gpu: attention(gpu, 16, 1600, "fp16"),
    "attention of a step": lambda gpu: attention(gpu, 16, 160, "fp32"),
}
# What no program comes to, and why.
UNREACHED = {
    "step 2: __syncthreads();": "batches with a state that is tagged and an input that another rTask writes, untagged",
    "go_on 1: __syncthreads();": "vectors take each other's place only where a large batch leaves no room",
    "rammer_is_needed 1: rammer_cp_async_wait_all();": "none has branches, whose programs alone have this statement",
}
# What no program misses, and why.
REDUNDANT = {
    "keep_constants 1: __syncwarp();": "a lane reads back what it wrote itself",
    "keep_constants 2: __syncwarp();": "likewise",
    "keep_constants 3: __syncthreads();": "all are through with a record before a vEU changes to another rKernel",
    "combine 1: rammer_meet();": "it gathers lanes for the compiler of GPUs",
    "gemv 1: rammer_meet();": "likewise",
    "begin 1: rammer_meet();": "likewise, of rows that stream",
    "begin 3: __syncthreads();": "the next rTask's sums come later in every order that is tried",
    "add_values 2: __syncwarp();": "the next step's scores meet before weights are written again",
    "meet 3: __syncwarp();": "the lanes of a warp meet where they read fragments",
    "run 4: rammer_cp_async_wait_all();": "copies were waited for step by step; what is left are empty groups",
}


def attention(gpu, rows, keys, precision, device="cuda:sm_90"):
    """The program of one head of depth 16; float32 is multiplied in float64 on some devices."""
    model = attention_model([(1, 1, rows, 16), (1, 1, keys, 16), (1, 1, keys, 16)])
    return Program.of(gpu, model, veus=1, precision=precision, device=device)


@pytest.mark.long  # it tries the other tests of this folder, and skeletons change seldom
def test_statements(gpu):
    found = Findings()
    for make in PROGRAMS.values():
        program = make(gpu)
        found |= try_statements(gpu, program.source, partial(program.is_right, chosen=program.orders), found.missed)
    assert found.all - found.came_to == UNREACHED.keys()
    assert found.came_to - found.missed == REDUNDANT.keys()


@pytest.mark.parametrize("name", ["products", "two branches"])
def test_waits(name, gpu):
    program = PROGRAMS[name](gpu)
    loaded = gpu.load(program.source)
    tried, unmissed = unmissed_waits(gpu, loaded, partial(program.is_right, chosen=program.one_sided))
    assert tried > 0
    assert not unmissed
