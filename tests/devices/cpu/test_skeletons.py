"""Each skeleton alone, in a program of its own: it compiles, and gives what NumPy does."""

import ctypes
from dataclasses import dataclass

import numpy as np
import pytest

from rammer.devices.cpu.machine import read_machine
from tests.support.kernels import CLANG, GCC, Compiler

WIDTHS = (4, 8, 16)
GRANTED = "-DRAMMER_TILES_GRANTED"
TILES_HERE = "amx_int8" in read_machine().features  # else vectors stand for them


@dataclass(frozen=True, kw_only=True)
class Program:
    """A file of `skeletons`, what it is compiled with, what it reads and what it is to write."""

    name: str
    macros: dict
    inputs: list
    wanted: np.ndarray


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tile(rows, vectors, width, **macros):
    return {"ROWS": rows, "VECTORS": vectors, "WIDTH": width, "N": 3 * vectors * width, **macros}


def gemm(rows, vectors, width=16, k=37, images=2, taps=1, padding=0):
    macros = tile(rows, vectors, width, K=k, IMAGES=images, TAPS=taps, PADDING=padding)
    x, w, bias = random(images, rows, k), random(taps, k, macros["N"], seed=1), random(macros["N"], seed=2)
    padded = np.pad(x.astype(np.float64), ((0, 0), (padding, taps - 1 - padding), (0, 0)))
    product = sum(padded[:, tap : tap + rows] @ w[tap] for tap in range(taps))
    return Program(name="gemm", macros=macros, inputs=[x, w, bias], wanted=np.maximum(product + bias, 0))


def gemm_of_bytes(rows, vectors, width, k=40):
    """Bytes of all values."""
    rng, macros = np.random.default_rng(0), tile(rows, vectors, width, K=k)
    x = rng.integers(0, 256, (rows, k)).astype(np.uint8)
    w = rng.integers(-128, 128, (k, macros["N"])).astype(np.int8)
    quads = np.ascontiguousarray(w.reshape(k // 4, 4, -1).swapaxes(1, 2))
    return Program(
        name="gemm_of_bytes", macros=macros, inputs=[x, quads], wanted=x.astype(np.int32) @ w.astype(np.int32)
    )


def gemm_by_tiles(upper, lower, vectors, k, step=64, shift=0):
    """Bytes of all values."""
    rng, n = np.random.default_rng(0), 32 * vectors
    sizes = {"UPPER": upper, "LOWER": lower, "HALVES": 3 if lower else 1, "VECTORS": vectors}
    x = rng.integers(0, 256, (upper + lower - shift, k)).astype(np.uint8)
    w = rng.integers(-128, 128, (k, n)).astype(np.int8)
    panels = np.ascontiguousarray(w.reshape(k // 4, 4, n // 16, 16).transpose(2, 0, 3, 1))
    wanted = np.pad(x, ((shift, 0), (0, 0))).astype(np.int32) @ w.astype(np.int32)
    macros = {**sizes, "K": k, "N": n, "STEP": step, "SHIFT": shift}
    return Program(name="gemm_by_tiles", macros=macros, inputs=[x, panels], wanted=wanted)


def products_in_lanes(rows, vectors, width, k=9):
    macros = tile(rows, vectors, width, K=k)
    x, w = random(rows, k, macros["N"]), random(k, macros["N"], seed=1)
    wanted = np.einsum("rkn,kn->rn", x.astype(np.float64), w)
    return Program(name="products_in_lanes", macros=macros, inputs=[x, w], wanted=wanted)


def attention(queries, keys, depth, columns, block, width=16, **macros):
    sizes = {"QUERY_COUNT": queries, "KEY_COUNT": keys, "DEPTH": depth, "COLUMNS": columns, "BLOCK_ROWS": block}
    usual = {"KEYS": 24, "KEY_SIDE": 6, "COLUMN_SIDE": 6, "STAGE_KEYS": 0, "STAGE_VALUES": 0}
    vectors = {"WIDTH": width, "BLOCK_VECTORS": block // width, "REST_VECTORS": -(-(queries % block) // width)}
    macros = sizes | vectors | {"CAUSAL": 0, "TRANSPOSED_QUERIES": 1} | usual | macros
    q, k, v = random(queries, depth), random(keys, depth, seed=1), random(keys, columns, seed=2)
    bias = random(queries, keys, seed=3)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 8 + bias
    if macros["CAUSAL"]:
        scores[np.arange(keys) > np.arange(queries)[:, np.newaxis] + keys - queries] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    wanted = weights / weights.sum(axis=-1, keepdims=True) @ v.astype(np.float64)
    return Program(name="attention", macros=macros, inputs=[q, k, v, bias], wanted=wanted)


def reduce(count, width, fn="sum", within=False):
    x = random(7, count)
    combined, first = {"sum": ("a + b", "0.0f"), "max": ("rammer_max_f32(a, b)", "-INFINITY")}[fn]
    sizes = {"ROWS": 7, "COUNT": count, "WIDTH": width, "WITHIN": int(within)}
    macros = {**sizes, "COMBINED(a, b)": f"({combined})", "FIRST": first}
    numbers = np.triu(x.astype(np.float64)) if within else x.astype(np.float64)
    return Program(name="reduce", macros=macros, inputs=[x], wanted=getattr(numbers, fn)(axis=1))


def runs(rows, columns, channels, first=0, past=None, padding=0.5):
    past = rows if past is None else past
    sizes = {"ROWS": rows, "COLUMNS": columns, "CHANNELS": channels, "FIRST": first, "PAST": past}
    x = random(rows, columns, channels)
    around = np.pad(x.astype(np.float64), ((1, 1), (1, 1), (0, 0)), constant_values=padding)
    wanted = around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]
    macros = {**sizes, "PADDING": f"{padding}f"}
    return Program(name="runs", macros=macros, inputs=[x], wanted=wanted[first:past])


def pack(rows, columns, lanes, first, present):
    macros = {"ROWS": rows, "COLUMNS": columns, "LANES": lanes, "FIRST": first, "PRESENT": present}
    x = random(rows, columns)
    wanted = np.zeros((columns, lanes))
    wanted[:, :present] = 2 * x[first : first + present].T
    return Program(name="pack", macros=macros, inputs=[x], wanted=wanted)


def window(rows, columns, height, width, top, left, needed=None, padding=0.5):
    needed = width if needed is None else needed
    names = ("ROWS", "COLUMNS", "HEIGHT", "WIDTH", "TOP", "LEFT", "NEEDED")
    macros = dict(zip(names, (rows, columns, height, width, top, left, needed), strict=True))
    x = random(rows, columns)
    far = rows + columns + height + width
    around = np.pad(x, far, constant_values=padding)
    wanted = around[far + top : far + top + height, far + left : far + left + width].copy()
    wanted[:, needed:] = padding
    return Program(name="window", macros={**macros, "PADDING": f"{padding}f"}, inputs=[x], wanted=wanted)


def trees(rows, count, depth, width=1, block=1, **macros):
    """Full trees over three columns of codes, all of whose values are small integers."""
    rng, size, inner = np.random.default_rng(0), (2 << depth) - 1, (1 << depth) - 1
    node = np.arange(size)
    codes = rng.integers(0, 16, (3, rows)).astype(np.uint8)
    column, bound = rng.integers(0, 3, (count, size)), rng.integers(0, 15, (count, size))
    words = np.where(node < inner, column << 30 | (node + 1) << 4 | 15 - bound, 0).astype(np.uint32)
    values = rng.integers(-9, 9, (count, size, width)).astype(np.float32)
    at, tree, row = np.zeros((count, rows), int), np.arange(count)[:, None], np.arange(rows)
    for _ in range(depth):
        at = 2 * at + 1 + (bound[tree, at] < codes[column[tree, at], row])
    sizes = {"COUNT": rows, "TREES": count, "NODES": count * size, "WIDTH": width, "ROWS": block, "STEPS": depth}
    usual = {"PERMUTED": 0, "WORDS": max(block // 64, 1), "BLEND": 0, "TREE_NODES": size}
    roots = (np.arange(count) * size).astype(np.int32)
    wanted = values[tree, at].astype(np.float64).sum(axis=0).T
    return Program(name="trees", macros=sizes | usual | macros, inputs=[codes, roots, words, values], wanted=wanted)


PROGRAMS = {
    **{f"gemm, vectors of {width}": gemm(6, 2, width) for width in WIDTHS},
    "gemm, one row": gemm(1, 4),
    "gemm, many rows": gemm(31, 1),
    "gemm, windows with padding": gemm(11, 2, taps=3, padding=1),
    **{f"gemm of bytes, vectors of {width}": gemm_of_bytes(5, 2, width) for width in WIDTHS},
    "gemm by tiles": gemm_by_tiles(16, 16, 2, 192),
    "gemm by tiles, few rows": gemm_by_tiles(7, 0, 1, 128),
    "gemm by tiles, padding": gemm_by_tiles(14, 9, 2, 96, step=48, shift=3),
    "gemm by tiles, the last step is short": gemm_by_tiles(16, 5, 1, 148),
    **{f"products in lanes, vectors of {width}": products_in_lanes(4, 2, width) for width in WIDTHS},
    **{f"attention, vectors of {width}": attention(37, 70, 20, 24, 2 * width, width) for width in WIDTHS},
    "attention, one block": attention(5, 24, 8, 8, 16),
    "attention, causal": attention(60, 90, 32, 16, 32, CAUSAL=1),
    "attention, whole blocks": attention(64, 96, 64, 64, 64, KEY_SIDE=6, COLUMN_SIDE=5),
    "attention, groups of each size": attention(33, 61, 9, 31, 16, KEYS=31, KEY_SIDE=31, COLUMN_SIDE=29),
    "attention, operands are staged": attention(40, 50, 16, 12, 32, 8, STAGE_KEYS=1, STAGE_VALUES=1),
    "attention, queries are computed": attention(40, 50, 16, 12, 32, TRANSPOSED_QUERIES=0),
    **{f"reduce, {width} lanes": reduce(300, width) for width in (1, 2, 8, 32, 256)},
    "reduce, the greatest": reduce(100, 64, "max"),
    "reduce, each row another part": reduce(100, 16, within=True),
    "reduce, less than a turn": reduce(10, 16, within=True),
    "runs": runs(9, 11, 40),
    "runs of no position": runs(2, 2, 3),
    "runs, some rows": runs(9, 5, 16, first=3, past=9),
    "pack": pack(40, 9, 32, 5, 32),
    "pack, lanes are absent": pack(40, 9, 32, 30, 10),
    "window with padding on all sides": window(5, 6, 9, 10, -2, -3),
    "window that leaves its operand": window(8, 20, 4, 16, 6, 12),
    "window of which less is needed": window(8, 20, 4, 16, 2, 1, needed=11),
    "window in the padding alone": window(3, 4, 2, 4, -2, 1),
    "trees, row by row": trees(7, 50, 4, width=3),
    "trees, row by row to the end": trees(7, 50, 4, STEPS=-1),
    "trees by words": trees(100, 9, 4, block=64),
    "trees by words, several values": trees(300, 9, 3, width=2, block=256),
    "trees by words, blended": trees(130, 9, 3, block=128, BLEND=1),
    "trees by words, too large": trees(100, 9, 4, block=64, TREE_NODES=8),
    "trees by permutes": trees(100, 9, 6, width=2, block=64, PERMUTED=1),
}
FIRST = tuple({program.name: name for name, program in reversed(PROGRAMS.items())}.values())


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    return Compiler(tmp_path_factory.mktemp("skeletons"))


def check(name, cc, compiler):
    program = PROGRAMS[name]
    for flags in (("-O2",), ("-O2", GRANTED))[: 2 if TILES_HERE and "tiles" in program.name else 1]:
        library = compiler.program(program.name, program.macros, cc=cc, flags=flags)
        integers = program.wanted.dtype == np.int32
        found = np.full(program.wanted.shape, 77 if integers else np.nan, np.int32 if integers else np.float32)
        library.rammer_run(*(ctypes.c_void_p(array.ctypes.data) for array in (*program.inputs, found)))
        np.testing.assert_allclose(found, program.wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_alone(name, compiler):
    check(name, GCC, compiler)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.long] * (n not in FIRST)) for n in PROGRAMS])
def test_alone_by_clang(name, compiler):
    pytest.importorskip("ziglang", reason="clang comes with the extra cc")
    check(name, CLANG, compiler)
