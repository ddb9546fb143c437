"""Constants as blocks, and the memory that they lie in."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rammer.devices.codegen.constants import aligned_bytes, pack_constants
from rammer.ir.task import TaskGraph, Tensor, TensorRole
from rammer.ir.types import DType, Layout, TensorType
from tests.support.cpu import chain

LARGE_PAGE = 2 << 20
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.parametrize("size", [1, LARGE_PAGE - 1, LARGE_PAGE, 5 * LARGE_PAGE + 3])
@pytest.mark.parametrize("alignment", [64, 2 * LARGE_PAGE])
def test_memory_is_aligned_zeroed_and_writable(size, alignment):
    memory = aligned_bytes(size, alignment)
    assert (memory.nbytes, memory.ctypes.data % alignment) == (size, 0)
    assert not memory.any()
    memory.fill(1)


def advised(address):
    """Whether the system knows that large pages are wanted at an address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("nobody has this address")


@pytest.mark.skipif(not PAGES.exists(), reason="a system without large pages")
def test_whole_large_pages_are_asked_for():
    memory = aligned_bytes(3 * LARGE_PAGE - 1, 64)
    assert [advised(memory.ctypes.data + i * LARGE_PAGE) for i in range(3)] == [True, True, False]
    assert memory.ctypes.data % LARGE_PAGE == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere NumPy says so")
@pytest.mark.parametrize("size", [1 << 60, 1 << 70])
def test_what_no_machine_has_is_refused(size):
    with pytest.raises(MemoryError):
        aligned_bytes(size, 64)


def constant_graph(*arrays: np.ndarray) -> TaskGraph:
    """A graph whose tensors are constants."""
    tensors = [
        Tensor(
            id=i,
            name=f"c{i}",
            type=TensorType(DType.FLOAT32, array.shape),
            layout=Layout.row_major(array.shape),
            role=TensorRole.CONSTANT,
        )
        for i, array in enumerate(arrays)
    ]
    graph = chain(length=1, veus=1).graph
    return replace(
        graph, tensors=tuple(tensors), constants=dict(enumerate(arrays)), inputs=(), outputs=(), operators=()
    )


def test_blocks_below_a_large_page_share_memory_and_equal_ones_are_one():
    rng = np.random.default_rng(0)
    sizes = (3, 4000, 600_000, 5000)  # elements
    arrays = [rng.standard_normal(size, dtype=np.float32) for size in sizes]
    constants = pack_constants(constant_graph(*arrays, arrays[1]), range(5), 64)
    assert len(constants.names) == 4
    assert constants.offsets_bytes[4] == constants.offsets_bytes[1]
    blocks = [np.frombuffer(constants.blocks[name], np.float32) for name in constants.names]
    for block, array in zip(blocks[1:], arrays[1:], strict=True):
        assert np.array_equal(block, array)
    small, large, other = (block.ctypes.data for block in blocks[1:])
    assert other - small == 4 * 4000
    assert large % LARGE_PAGE == 0
