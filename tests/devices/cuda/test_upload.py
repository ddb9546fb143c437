"""Large arrays on their way to a GPU. The driver here is a fake, whose memory is the host's: no GPU is needed."""

import ctypes
import mmap
from typing import Any

import numpy as np
import pytest

from rammer.devices.cuda import upload as uploads
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.upload import upload
from rammer.errors import DeviceError
from tests.support.cuda_driver import Api, Status

PIECE, PIECES = 4 * mmap.PAGESIZE, 4


class Registering(Api):
    """A driver that registers only so many pieces, and copies from them when it is waited for."""

    def __init__(self, pieces=100, **answers):
        super().__init__(
            cuMemHostRegister=self._register,
            cuMemHostUnregister=self._unregister,
            cuMemcpyHtoDAsync=self._copy_later,
            cuMemcpyHtoD=self._copy,
            cuStreamSynchronize=self._copy_all,
            **answers,
        )
        self.pieces = pieces
        self.registered: set[int] = set()
        self.asked: list[tuple[int, int, int]] = []

    def _register(self, address, size_bytes, flags):
        if len(self.registered) == self.pieces:
            return (Status.CUDA_ERROR_OUT_OF_MEMORY,)
        assert address % mmap.PAGESIZE == size_bytes % mmap.PAGESIZE == 0
        assert address not in self.registered
        self.registered.add(address)
        assert len(self.registered) <= PIECES
        return (Status.CUDA_SUCCESS,)

    def _unregister(self, address):
        assert not self.asked
        self.registered.remove(address)
        return (Status.CUDA_SUCCESS,)

    def _copy_later(self, to, source, size_bytes, _stream):
        assert source in self.registered
        self.asked.append((to, source, size_bytes))
        return (Status.CUDA_SUCCESS,)

    def _copy_all(self, _stream):
        while self.asked:
            self._copy(*self.asked.pop())
        return (Status.CUDA_SUCCESS,)

    def _copy(self, to, source, size_bytes):
        ctypes.memmove(to, source, size_bytes)
        return (Status.CUDA_SUCCESS,)


@pytest.fixture(autouse=True)
def few_short_pieces(monkeypatch):
    monkeypatch.setattr(uploads, "_PIECE_BYTES", PIECE)
    monkeypatch.setattr(uploads, "_PIECES", PIECES)


def constants(size_bytes, offset_bytes=0):
    """An array that begins so many bytes into a page."""
    memory = np.frombuffer(mmap.mmap(-1, offset_bytes + size_bytes or 1), np.uint8)
    memory[:] = np.random.default_rng(0).integers(0, 256, memory.size)
    return memory[offset_bytes : offset_bytes + size_bytes]


def copied(api: Any, array):
    there = np.zeros(array.size + 1, np.uint8)
    upload(Driver(api=api, device=0, context=0, pool=0), there.ctypes.data, array)
    assert there[-1] == 0
    return there[:-1]


@pytest.mark.parametrize(
    ("size_bytes", "offset_bytes", "can_register", "registered"),
    [
        (3 * PIECE + 5, 0, 100, 3),
        (4 * PIECE, 0, 100, 4),
        (9 * PIECE + 5, 0, 100, 9),
        (PIECE - 1, 0, 100, 0),
        (0, 0, 100, 0),
        (3 * PIECE, 64, 100, 0),
        (3 * PIECE, 0, 1, 1),
        (3 * PIECE, 0, 0, 0),
    ],
    ids=["pieces and a rest", "whole pieces", "many", "short", "nothing", "inside a page", "then refused", "refused"],
)
def test_an_array_arrives_and_nothing_stays_registered(size_bytes, offset_bytes, can_register, registered):
    api, array = Registering(can_register), constants(size_bytes, offset_bytes)
    np.testing.assert_array_equal(copied(api, array), array)
    assert api.log.count("cuMemHostUnregister") == registered
    assert not api.registered


def test_nothing_stays_registered_after_an_error():
    api = Registering()
    api._answers["cuMemcpyHtoD"] = (Status.CUDA_ERROR_LAUNCH_FAILED,)
    with pytest.raises(DeviceError, match="cuMemcpyHtoD reports CUDA_ERROR_LAUNCH_FAILED"):
        copied(api, constants(2 * PIECE + 5))
    assert api.log.count("cuMemHostUnregister") == 2
    assert not api.registered
