"""Each skeleton alone, in a program of its own: it compiles for GPUs, and gives what NumPy does, here and on a GPU."""

import shutil
import subprocess
from functools import partial

import numpy as np
import pytest

from rammer.devices.cuda.encoded_maps import FORMATS
from rammer.devices.cuda.tables import TENSOR_MAP
from rammer.devices.cuda.toolchain import find_toolchain
from rammer.ir.evaluate import converted
from rammer.ir.types import DType
from tests.support.host_cuda import ORDERS
from tests.support.skeletons import ENTRY, Program, maps_of, run_on_gpu


def depthwise(height, width, channels, taps, stride=1, dilation=1, vector=1, points=1):
    x, w = random(height, width, channels), random(taps, taps, channels, seed=1)
    padding = (taps - 1) * dilation // 2
    padded = np.pad(x.astype(np.float64), ((padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, [(taps - 1) * dilation + 1] * 2, (0, 1))
    windows = windows[::stride, ::stride, :, ::dilation, ::dilation]
    wanted = np.maximum(np.einsum("ijcuv,uvc->ijc", windows, w), 0)
    names = ("HEIGHT", "WIDTH", "CHANNELS", "TAPS", "STRIDE", "DILATION", "PADDING", "VECTOR", "POINTS")
    sizes = (height, width, channels, taps, stride, dilation, padding, vector, points)
    return Program(name="depthwise", macros=dict(zip(names, sizes, strict=True)), inputs=[x, w], wanted=wanted)


def warpgroup_gemm(
    rows, columns, k, dtype=DType.FLOAT16, groups=1, slabs=1, stages=3, swapped=False, constant="B", beside=False
):
    """A product of matrices of 16 bits or TF32 in one tile; `constant` may be copied before the rTask waits.

    Results are made by all threads, or by those that do not multiply, `beside` those.
    """
    bits = 32 if dtype is DType.TF32 else 16
    first, second = (columns, rows) if swapped else (rows, columns)
    tile = -(-second // 8) * 8
    a, b = (random(side, k, seed=side) / np.sqrt(k).astype(np.float32) for side in (first, second))
    stored = [
        one.astype(np.float16) if bits == 16 else (one.view(np.uint32) & 0xFFFFE000).view(np.float32) for one in (a, b)
    ]
    squares, bias = 1 + random(rows) ** 2, random(columns)
    product = stored[0].astype(np.float64) @ stored[1].astype(np.float64).T
    wanted = np.maximum((product.T if swapped else product) / np.sqrt(squares)[:, np.newaxis] + bias, 0)
    slab = 1024 // bits
    whole, per_row = k % slab == 0, k * bits // 8
    table = np.array(
        [
            (
                *(i, list(FORMATS).index(dtype), 0),
                (slab if whole else k, side, k // slab if whole else 1, 1),
                (per_row, 128, per_row),
                (slab, points, slabs, 1),
            )
            for i, (side, points) in enumerate(((first, groups * 64), (second, tile)))
        ],
        dtype=TENSOR_MAP,
    )
    macros = {
        "FORMAT": "RAMMER_TF32" if bits == 32 else "RAMMER_F16",
        "ELEMENT": "float" if bits == 32 else "uint16_t",
        **dict(zip(("GROUPS", "N", "SLABS", "STAGES"), (groups, tile, slabs, stages), strict=True)),
        "SWAPPED": str(swapped).lower(),
        "FINISHERS": 512 - 128 * groups * beside,
        **dict(zip(("ROWS", "COLUMNS", "K"), (rows, columns, k), strict=True)),
        **{f"{one}_IS_CONSTANT": str(one in constant).lower() for one in "AB"},
    }
    inputs = [*(one.view(np.uint16) if bits == 16 else one for one in stored), squares, bias]
    return Program(name="warpgroup_gemm", macros=macros, inputs=inputs, wanted=wanted, threads=512, table=table)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


GEMM_DEFAULTS = {
    "BATCHES": 2,
    "M": 32,
    "N": 64,
    "TILE_K": 32,
    "SLICES": 1,
    "STAGES": 3,
    "PADDING": 4,
    "OVERLAPPED": "false",
    "AT_ONCE": "false",
    "ELEMENT": "float",
    "WEIGHT": "ELEMENT",
    "WARP_TILE": "rammer_multiply_adds<32, 16>",
}


def gemm(rows, columns, k, dtype=np.float32, **macros):
    macros = {**GEMM_DEFAULTS, "ROWS": rows, "COLUMNS": columns, "K": k, **macros}
    a, b = (random(macros["BATCHES"], side, k, seed=side).astype(dtype) for side in (rows, columns))
    bias = random(columns)
    product = a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2)
    inputs = [one.view(np.uint16) if dtype == np.float16 else one for one in (a, b)]
    return Program(name="gemm", macros=macros, inputs=[*inputs, bias], wanted=np.maximum(product + bias, 0))


def gemm_of_bytes(rows, columns, k, dtypes=("uint8", "int8"), **macros):
    """Integers of all values: sums are exact, and so is float32 of those that are short."""
    names = {name: f"{dtype}_t" for name, dtype in zip(("ELEMENT", "WEIGHT"), dtypes, strict=True)}
    tile = {"PADDING": 16, "WARP_TILE": "rammer_byte_products<32, 16>", **names}
    macros = {**GEMM_DEFAULTS, "ROWS": rows, "COLUMNS": columns, "K": k, **tile, **macros}
    rng, limits = np.random.default_rng(0), [np.iinfo(dtype) for dtype in dtypes]
    a, b = (
        rng.integers(limit.min, limit.max + 1, (macros["BATCHES"], side, k)).astype(dtype)
        for limit, side, dtype in zip(limits, (rows, columns), dtypes, strict=True)
    )
    bias = rng.integers(-1000, 1000, columns).astype(np.float32)
    wanted = np.maximum(a.astype(np.int64) @ b.astype(np.int64).swapaxes(1, 2) + bias, 0)
    return Program(name="gemm", macros=macros, inputs=[a, b, bias], wanted=wanted, tolerance=1e-12)


def gemv(columns, k, width, vector=1, meets="false"):
    x, w, bias = random(k), random(k, columns), random(columns)
    macros = {"COLUMNS": columns, "K": k, "WIDTH": width, "VECTOR": vector, "MEETS": meets}
    wanted = np.maximum(x.astype(np.float64) @ w + bias, 0)
    return Program(name="gemv", macros=macros, inputs=[x, w, bias], wanted=wanted)


def gemv_rows(points, k, across, batch, meets="false"):
    x, bias = random(k), random(points)
    w, u = (random(points, k, seed=seed).astype(np.float16) for seed in (1, 2))
    product, gate = (matrix.astype(np.float64) @ x for matrix in (w, u))
    wanted = np.maximum(product, 0) * gate / (1 + x.astype(np.float64) @ x) + bias
    macros = {"POINTS": points, "K": k, "ACROSS": across, "BATCH": batch, "MEETS": meets}
    return Program(
        name="gemv_rows", macros=macros, inputs=[x, w.view(np.uint16), u.view(np.uint16), bias], wanted=wanted
    )


def gemv_packed(points, k, across, batch, bits, magnitude=1.0):
    rng = np.random.default_rng(0)
    x, vector = random(k) * np.float32(magnitude), 128 // bits
    numbers, scales = rng.integers(1 << bits, size=(points, k)), random(points, k // vector, seed=1)
    shifted = numbers.reshape(points, -1, 8 // bits) << np.arange(0, 8, bits)
    zero = 1 << (bits - 1)
    matrix = (numbers - zero).astype(np.float64) * np.repeat(scales.astype(np.float64), vector, axis=1)
    wide = x.astype(np.float64)
    macros = {"POINTS": points, "K": k, "ACROSS": across, "BATCH": batch, "BITS": bits, "ZERO": zero}
    return Program(
        name="gemv_packed",
        macros=macros,
        inputs=[x, shifted.sum(axis=-1).astype(np.uint8), scales],
        wanted=matrix @ wide / (1 + wide @ wide),
    )


def pointwise(count, vector, turns):
    columns = 24
    x, shift = random(count // columns, columns), random(columns, seed=1)
    macros = {"COUNT": count, "COLUMNS": columns, "VECTOR": vector, "TURNS": turns}
    return Program(name="map", macros=macros, inputs=[x, shift], wanted=np.maximum(x.astype(np.float64) + shift, 0))


def reduce_rows(rows, length, team, vector=1, turns=1):
    x = random(rows, length)
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(axis=1, keepdims=True)) / wide.std(axis=1, keepdims=True)
    macros = {"ROWS": rows, "LENGTH": length, "TEAM": team, "VECTOR": vector, "TURNS": turns}
    return Program(name="reduce_rows", macros=macros, inputs=[x], wanted=wanted)


def reduce_columns(length, columns, across, vector=1, turns=1):
    x = random(length, columns)
    mean = x.mean(axis=0, keepdims=True, dtype=np.float64)
    macros = {"LENGTH": length, "COLUMNS": columns, "ACROSS": across, "VECTOR": vector, "TURNS": turns}
    return Program(name="reduce_columns", macros=macros, inputs=[x], wanted=np.concatenate([x - mean, mean]))


def epilogue(rows, columns, width, pitch, ahead, threads=128):
    x, bias = random(rows, columns), random(columns, seed=1)
    macros = {"ROWS": rows, "COLUMNS": columns, "WIDTH": width, "PITCH": pitch, "AHEAD": int(ahead), "THREADS": threads}
    return Program(name="epilogue", macros=macros, inputs=[x, bias], wanted=np.maximum(x.astype(np.float64) + bias, 0))


KEPT_AS = {"f16": DType.FLOAT16, "bf16": DType.BFLOAT16}


def recurrent(name, units, length, columns=1, steps=5, threads=256, tolerance=1e-5, times=1.0, half=None, **macros):
    """Some elements of the input are so many times as large; weights are of 16 bits if `half` says which."""
    x, bias, scale = random(steps, columns, length), random(2, units), random(units)
    x[1:, :, ::7] *= np.float32(times)
    weights, recurrent = random(2, units, length) / np.sqrt(length), random(units, units) / np.sqrt(units)
    stored = [converted(one.astype(np.float32), half or DType.FLOAT32) for one in (weights, recurrent)]
    weights, recurrent = (one.astype(np.float64) for one in stored)
    states = np.zeros((steps + 1, columns, units))
    states[0] = random(columns, units, seed=1)
    first = np.full(states.shape, np.nan, np.float32)
    first[0] = states[0]
    for step in range(steps):
        gate, value = (x[step] @ one.T + shift for one, shift in zip(weights, bias, strict=True))
        value += states[step] @ recurrent.T
        states[step + 1] = np.tanh(value) / (1 + np.exp(-np.maximum(gate, -700.0))) * scale
    return Program(
        name=name,
        macros={"UNITS": units, "LENGTH": length, "STEPS": steps, "MEETS": "false"} | macros,
        inputs=[x, *(one if half is None else one.view(np.uint16) for one in stored), bias, scale],
        wanted=states,
        first=first,
        threads=threads,
        tolerance=tolerance,
    )


def persistent_rnn(units, length, across, words="floats", **macros):
    weight = "float" if words == "floats" else "uint16_t"
    macros = {"TOGETHER": "false", "WORDS": f"rammer_rnn_{words}", "WEIGHT": weight} | macros
    return recurrent("persistent_rnn", units, length, half=KEPT_AS.get(words.split("_")[-1]), ACROSS=across, **macros)


QUARTER = "(RAMMER_THREADS / 4)"
TEAMS = {"APART": 1, "BRINGERS": QUARTER, "NEIGHBOURS": 2}


def persistent_rnn_batch(units, length, columns, slices, precision="f32", at_once=None, tolerance=1e-5, **macros):
    macros |= {"COLUMNS": columns, "SLICES": slices, "FORMAT": f"rammer_rnn_{precision}"}
    macros["HAS_ROOM"] = str(precision == "f16" or columns == 1 or "APART" in macros).lower()
    macros["AT_ONCE"] = at_once or -(-columns // 8) * 8
    return recurrent(
        "persistent_rnn_batch",
        units,
        length,
        columns,
        tolerance=tolerance,
        **{"STORED": 0, "OVERLAID": 0, "APART": 0, "NEIGHBOURS": 1, "BRINGERS": "RAMMER_THREADS"} | macros,
    )


def attention(queries, keys, depth, width, dtype=np.float16, heads=1, extreme=False, doubles=False, **macros):
    """Attention of `heads` heads of queries to one of keys; with `extreme`, with scores that are not finite."""
    half = dtype == np.float16
    warp = "half_attention<rammer_f16, " if half else "double_attention<" if doubles else "float_attention<"
    unit = 16 if half or doubles else 32
    macros = {"ROW_WARPS": 1, "COLUMN_WARPS": 1, "TEAMS": 4, "TEAM_KEYS": 16 if half else 8, **macros}
    columns = -(-width // (unit * macros["COLUMN_WARPS"])) * unit
    tile = f"{depth}, {macros['TEAM_KEYS']}, {columns}"
    sizes = {
        "HEADS": heads,
        "QUERIES": queries,
        "KEYS": keys,
        "DEPTH": depth,
        "WIDTH": width,
        "TILE_COLUMNS": columns * macros["COLUMN_WARPS"],
        "TILE_ROWS": 16 * macros["ROW_WARPS"],
        "STAGES": 2,
        "CAUSAL": "false",
        "ELEMENT": "uint16_t" if half else "float",
        "PADDING": 8 if half or doubles else 4,
        "WARP_TILE": f"rammer_{warp}{tile}>",
    }
    macros = sizes | macros
    q, k, v = random(heads, queries, depth), random(keys, depth, seed=1), random(keys, width, seed=2)
    q, k, v = (one.astype(dtype) for one in (q, k, v))
    bias = random(queries, keys, seed=3)
    if extreme:
        bias[2] = -np.inf
        bias[3, : keys - 1] = -np.inf
        bias[4, keys // 2] = np.inf
        bias[5, 1] = np.nan
        bias[6] = -1e30
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 8 + bias
    if macros["CAUSAL"] == "true":
        scores[:, np.arange(keys) > np.arange(queries)[:, np.newaxis] + keys - queries] = -np.inf
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        wanted = weights / weights.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
    if extreme:
        wanted[:, 6] = v.astype(np.float64).mean(axis=0)  # all scores round to the same
    inputs = [one.view(np.uint16) if half else one for one in (q, k, v)]
    tolerance = 1e-3 if half else 1e-5
    return Program(name="attention", macros=macros, inputs=[*inputs, bias], wanted=wanted, tolerance=tolerance)


def trees(rows, count, depth, width=1, capacity=0, dtype=np.uint8, **macros):
    """Full trees over three columns of codes."""
    rng, size, inner = np.random.default_rng(0), (2 << depth) - 1, (1 << depth) - 1
    node = np.arange(size)
    codes = rng.integers(0, 16, (3, rows)).astype(dtype)
    column, bound = rng.integers(0, 3, (count, size)), rng.integers(0, 15, (count, size))
    words = np.where(node < inner, column << 30 | (node + 1) << 4 | 15 - bound, 0).astype(np.uint32)
    values = rng.normal(size=(count, size, width)).astype(np.float32)
    at, tree, row = np.zeros((count, rows), int), np.arange(count)[:, None], np.arange(rows)
    for _ in range(depth):
        at = 2 * at + 1 + (bound[tree, at] < codes[column[tree, at], row])
    sizes = {"ROWS": rows, "TREES": count, "NODES": count * size, "DEPTH": depth, "WIDTH": width, "CAPACITY": capacity}
    macros = {
        "CODE": "uint8_t" if dtype is np.uint8 else "uint16_t",
        "EACH": 0,
        "SIDE": 2,
        "ROOM": 1,
        "STRATEGY": "rammer_trees_traversal",
        **macros,
    }
    roots = (np.arange(count) * size).astype(np.int32)
    wanted = values[tree, at].astype(np.float64).sum(axis=0)
    return Program(name="trees", macros=sizes | macros, inputs=[codes, roots, words, values], wanted=wanted)


HALVES = {
    "dtype": np.float16,
    "ELEMENT": "uint16_t",
    "PADDING": 16,
    "WARP_TILE": "rammer_half_products<rammer_f16, 32, 16>",
}
DOUBLES = {"PADDING": 8, "WARP_TILE": "rammer_double_products<32, 16>"}
PROGRAMS = {
    "gemm": gemm(50, 100, 70),
    "gemm, overlapped": gemm(50, 100, 70, OVERLAPPED="true"),
    "gemm, one tile": gemm(30, 60, 70, BATCHES=1, M=32, AT_ONCE="true"),
    "gemm, two tiles at once": gemm(30, 40, 70, M=16, AT_ONCE="true", WARP_TILE="rammer_multiply_adds<16, 16>"),
    "gemm, slices": gemm(13, 60, 100, M=16, SLICES=2, WARP_TILE="rammer_multiply_adds<16, 32>"),
    "gemm, one step": gemm(
        32, 64, 32, STAGES=2, OVERLAPPED="true", AT_ONCE="true", M=16, WARP_TILE="rammer_multiply_adds<16, 16>"
    ),
    "gemm of halves": gemm(50, 100, 70, **HALVES),
    "gemm of halves, overlapped": gemm(50, 100, 70, OVERLAPPED="true", **HALVES),
    "gemm in doubles": gemm(50, 100, 70, **DOUBLES),
    "gemm in doubles, overlapped": gemm(50, 100, 70, OVERLAPPED="true", **DOUBLES),
    "gemm in doubles, stages by address": gemm(50, 100, 70, RAMMER_STAGES_BY_ADDRESS="", **DOUBLES),
    "gemm, overlapped, stages by address": gemm(50, 100, 70, OVERLAPPED="true", RAMMER_STAGES_BY_ADDRESS=""),
    "gemm of bytes": gemm_of_bytes(50, 100, 68),
    "gemm of bytes, overlapped": gemm_of_bytes(50, 100, 68, OVERLAPPED="true"),
    "gemm of bytes, slices": gemm_of_bytes(
        13, 24, 200, ("int8", "int8"), M=16, N=32, TILE_K=64, SLICES=2, WARP_TILE="rammer_byte_products<16, 32>"
    ),
    "gemm of bytes, eight columns": gemm_of_bytes(
        30, 8, 132, ("int8", "uint8"), M=32, N=8, WARP_TILE="rammer_byte_products<16, 8>", AT_ONCE="true"
    ),
    "gemm of unsigned bytes": gemm_of_bytes(50, 100, 68, ("uint8", "uint8")),
    "attention": attention(20, 150, 64, 64, heads=2),
    "attention, several warps of rows": attention(50, 70, 32, 24, ROW_WARPS=2, TEAMS=2, TEAM_KEYS=32),
    "attention, one warp of keys": attention(50, 70, 64, 64, ROW_WARPS=4, TEAMS=1, STAGES=3),
    "attention, teams of three warps and one left over": attention(48, 150, 64, 64, ROW_WARPS=3, TEAMS=1),
    "attention, a helper in each team": attention(16, 150, 64, 64, TEAMS=2),
    "attention, wide": attention(16, 40, 256, 256, COLUMN_WARPS=2, TEAMS=2),
    "attention, causal": attention(60, 90, 64, 64, CAUSAL="true", ROW_WARPS=2, TEAMS=2),
    "attention, one query": attention(1, 300, 64, 64, heads=2),
    "attention, one step": attention(16, 64, 64, 64, STAGES=1),
    "attention, scores that are not finite": attention(20, 150, 64, 64, extreme=True),
    "attention of floats": attention(20, 150, 64, 64, np.float32, heads=2),
    "attention of floats, several warps of rows": attention(
        50, 70, 40, 24, np.float32, ROW_WARPS=2, TEAMS=2, TEAM_KEYS=32
    ),
    "attention of floats, wide": attention(16, 40, 128, 256, np.float32, COLUMN_WARPS=2, TEAMS=2),
    "attention of floats, causal": attention(60, 90, 64, 64, np.float32, CAUSAL="true", ROW_WARPS=2, TEAMS=2),
    "attention of floats, scores that are not finite": attention(20, 150, 64, 64, np.float32, extreme=True),
    "attention in doubles": attention(20, 150, 64, 64, np.float32, heads=2, doubles=True),
    "attention in doubles, several warps of rows": attention(
        50, 70, 48, 24, np.float32, doubles=True, ROW_WARPS=2, TEAMS=2, TEAM_KEYS=32
    ),
    "attention in doubles, wide": attention(16, 40, 128, 128, np.float32, doubles=True, COLUMN_WARPS=2, TEAMS=2),
    "attention in doubles, causal": attention(
        60, 90, 64, 64, np.float32, doubles=True, CAUSAL="true", ROW_WARPS=2, TEAMS=2
    ),
    "attention in doubles, scores that are not finite": attention(
        20, 150, 64, 64, np.float32, extreme=True, doubles=True
    ),
    "trees, rows of threads": trees(256, 9, 3, capacity=40, EACH=4),
    "trees, rows of threads, many values": trees(250, 7, 2, width=11, capacity=49, EACH=2, dtype=np.uint16),
    "trees, rows of threads, trees without room": trees(128, 5, 3, capacity=8, EACH=1, SIDE=4),
    "trees, pairs": trees(7, 50, 4, width=3, ROOM=20),
    "trees, pairs, nodes with room": trees(5, 40, 3, capacity=200, ROOM=30, SIDE=1),
    "trees, pairs, trees without room": trees(3, 10, 3, capacity=8, ROOM=4),
    "trees, all nodes compared": trees(64, 9, 4, capacity=100, EACH=2, STRATEGY="rammer_trees_gemm"),
    "trees, pairs of known steps": trees(7, 30, 4, ROOM=20, STRATEGY="rammer_trees_perfect"),
    "gemv": gemv(100, 70, 64),
    "gemv, vectors": gemv(96, 301, 64, vector=4),
    "gemv, few points": gemv(8, 1000, 8, vector=4, meets="true"),
    "gemv, one point": gemv(1, 1000, 1),
    "gemv by rows": gemv_rows(40, 512, 32, 4),
    "gemv by rows, one team": gemv_rows(9, 1024, 128, 2, meets="true"),
    "gemv by rows, points and vectors left over": gemv_rows(37, 808, 64, 8),
    "gemv by rows, a point at a time": gemv_rows(5, 256, 32, 1),
    "gemv by rows of 4 bits": gemv_packed(40, 1024, 32, 4, 4),
    "gemv by rows of 4 bits, points and vectors left over": gemv_packed(37, 3072, 128, 8, 4),
    "gemv by rows of 4 bits, large numbers": gemv_packed(8, 1024, 32, 2, 4, magnitude=1e9),
    "gemv by rows of 4 bits, small numbers": gemv_packed(8, 1024, 32, 2, 4, magnitude=1e-9),
    "gemv by rows of 8 bits": gemv_packed(21, 1536, 64, 4, 8),
    "gemv, a point a thread": gemv(300, 20, 128),
    "depthwise": depthwise(7, 9, 12, 3),
    "depthwise, vectors and runs of points": depthwise(8, 10, 32, 5, vector=4, points=4),
    "depthwise, strides": depthwise(9, 11, 8, 3, stride=2, vector=2, points=2),
    "depthwise, dilations": depthwise(9, 8, 4, 3, dilation=2, vector=4, points=3),
    "gemm of a warpgroup": warpgroup_gemm(64, 32, 256),
    "gemm of a warpgroup, ragged": warpgroup_gemm(50, 21, 200, slabs=1),
    "gemm of a warpgroup, one stage": warpgroup_gemm(60, 40, 64, stages=2, constant=""),
    "gemm of two warpgroups, two slabs": warpgroup_gemm(128, 64, 512, groups=2, slabs=2, stages=2, constant="AB"),
    "gemm of a warpgroup, swapped": warpgroup_gemm(16, 64, 320, swapped=True, constant="A"),
    "gemm of a warpgroup, results by others": warpgroup_gemm(60, 24, 320, beside=True),
    "gemm of two warpgroups, results by others": warpgroup_gemm(100, 40, 256, groups=2, slabs=2, beside=True),
    "gemm of a warpgroup of TF32": warpgroup_gemm(64, 24, 160, dtype=DType.TF32),
    "map": pointwise(24 * 70, 1, 1),
    "map, vectors in turns": pointwise(24 * 70, 4, 2),
    "rows of a block": reduce_rows(3, 600, 128, 4, 2),
    "rows in blocks": reduce_rows(2, 2000, 128, 2, 2),
    "rows of a warp": reduce_rows(9, 96, 32, 4),
    "rows of parts of a warp": reduce_rows(37, 21, 8, 1, 3),
    "rows of two warps": reduce_rows(5, 150, 64, 1, 3),
    "rows of a thread": reduce_rows(200, 6, 1, 2, 3),
    "columns": reduce_columns(20, 300, 128, turns=4),
    "columns, vectors": reduce_columns(50, 96, 16, 4, turns=2),
    "columns, few": reduce_columns(300, 7, 8),
    "epilogue": epilogue(40, 64, 4, 72, ahead=True),
    "epilogue of half the threads": epilogue(40, 24, 4, 32, ahead=True, threads=64),
    "epilogue, more threads than whole rows take": epilogue(97, 24, 2, 28, ahead=True),
    "epilogue, element by element": epilogue(5, 7, 1, 8, ahead=False),
    "persistent RNN": persistent_rnn(24, 100, 16),
    "persistent RNN, vectors together": persistent_rnn(20, 64, 8, TOGETHER="true"),
    "persistent RNN, lanes apart": persistent_rnn(40, 72, 32, MEETS="true"),
    "persistent RNN, one row across": persistent_rnn(3, 50, 1),
    "persistent RNN, several elements of a thread": persistent_rnn(16, 300, 32),
    "persistent RNN, weights of 16 bits": persistent_rnn(24, 100, 16, "widened_f16"),
    "persistent RNN, weights of 16 bits, odd": persistent_rnn(3, 50, 1, "widened_bf16"),
    "persistent RNN of a batch": persistent_rnn_batch(20, 100, 3, slices=2),
    "persistent RNN of a batch, lanes apart": persistent_rnn_batch(12, 72, 9, slices=1, MEETS="true"),
    "persistent RNN of a batch, some columns at once": persistent_rnn_batch(32, 64, 16, slices=3, at_once=8),
    "persistent RNN of a batch, several rows of a lane": persistent_rnn_batch(
        40, 24, 4, slices=8, NEIGHBOURS=4, BRINGERS=QUARTER
    ),
    "persistent RNN of a batch, halves beside": persistent_rnn_batch(20, 100, 3, 2, "f32_beside", NEIGHBOURS=2),
    "persistent RNN of a batch, halves beside, rows": persistent_rnn_batch(40, 24, 4, 8, "f32_beside"),
    "persistent RNN of a batch, weights in shared memory": persistent_rnn_batch(40, 24, 4, 1, STORED=8),
    "persistent RNN of a batch, more weights in shared memory": persistent_rnn_batch(
        40, 24, 9, 2, "f16", tolerance=1e-3, STORED=8
    ),
    "persistent RNN of a batch, vectors in one place": persistent_rnn_batch(40, 40, 20, 2, "tf32", 8, 1e-3, OVERLAID=1),
    "persistent RNN of a batch, large elements": persistent_rnn_batch(
        12, 72, 9, 1, tolerance=1e-4, times=300.0, MEETS="true", NEIGHBOURS=4
    ),
    "persistent RNN of a batch, huge elements, some columns at once": persistent_rnn_batch(
        40, 40, 16, 2, at_once=8, times=1e30, OVERLAID=1
    ),
    "persistent RNN of a batch, huge elements, halves beside": persistent_rnn_batch(
        20, 100, 3, 2, "f32_beside", times=1e30, NEIGHBOURS=4, BRINGERS=QUARTER
    ),
    "persistent RNN of a batch, huge elements, TF32": persistent_rnn_batch(24, 100, 20, 2, "tf32", 8, 1e-3, times=1e30),
    "RNN in teams": persistent_rnn_batch(20, 100, 3, 3, "f32_beside", STORED=8, **TEAMS),
    "RNN in teams, lanes apart": persistent_rnn_batch(24, 100, 3, 2, "f32_beside", times=1e30, MEETS="true", **TEAMS),
    "RNN in teams, fp16": persistent_rnn_batch(40, 24, 7, 4, "f16", tolerance=1e-3, STORED=4, **TEAMS),
    "persistent RNN of a batch, TF32": persistent_rnn_batch(24, 100, 20, 2, "tf32", 8, 1e-3, NEIGHBOURS=4),
    "persistent RNN of a batch, fp16": persistent_rnn_batch(
        20, 70, 16, 2, "f16", tolerance=1e-3, NEIGHBOURS=2, BRINGERS=QUARTER
    ),
    "persistent RNN by tensor cores": persistent_rnn_batch(20, 100, 1, 2, "f16", tolerance=1e-3),
    "persistent RNN by tensor cores, pairs": persistent_rnn_batch(20, 100, 1, 2, "f16_pairs", tolerance=1e-3),
    "persistent RNN by tensor cores, pairs, lanes apart": persistent_rnn_batch(
        40, 70, 1, 4, "f16_pairs", tolerance=1e-3, STORED=8, MEETS="true"
    ),
    "persistent RNN by tensor cores, pairs of bf16": persistent_rnn_batch(
        36, 64, 1, 3, "bf16_pairs", tolerance=1e-2, STORED=4, NEIGHBOURS=4
    ),
    "persistent RNN of a batch, bf16": persistent_rnn_batch(36, 64, 11, 3, "bf16", tolerance=1e-2, NEIGHBOURS=4),
}
FIRST = tuple({program.name: name for name, program in reversed(PROGRAMS.items())}.values())


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in FIRST)) for n in PROGRAMS])
def test_compiles_alone(name):  # one of each skeleton in make test, all in make test-cuda
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    assert find_toolchain().cubin(PROGRAMS[name].text, "sm_90")[:4] == b"\x7fELF"


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", FIRST)
def test_compiles_alone_by_nvcc(name, tmp_path):
    (source := tmp_path / "program.cu").write_text(PROGRAMS[name].text)
    command = ["nvcc", "-arch=sm_90a", "-std=c++17", "-w", "-cubin", str(source), "-o", str(tmp_path / "program.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_host(name, gpu):
    program = PROGRAMS[name]

    def run(arrays, order):
        addresses = [one.ctypes.data for one in arrays]
        maps = [] if program.table is None else [maps_of(gpu.api, program.table, addresses)]
        gpu.launch(program.text, ENTRY, 1, program.threads, [*maps, *arrays], program.scratch_bytes, order)

    for order in ORDERS:
        program.check(partial(run, order=order))


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_a_gpu(name):
    program = PROGRAMS[name]
    program.check(
        lambda arrays: run_on_gpu(program.text, program.threads, program.scratch_bytes, arrays, program.table)
    )
