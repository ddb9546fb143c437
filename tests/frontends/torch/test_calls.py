"""Addresses that a run is given for tensors: where they lie, unless they begin where a device cannot take them."""

import ctypes

import pytest

torch = pytest.importorskip("torch")

from rammer.frontends.torch.calls import calls, trusting  # noqa: E402 - after the check for PyTorch
from rammer.ir.types import DType, TensorType  # noqa: E402
from rammer.runtime.signature import Port, Signature  # noqa: E402
from rammer.runtime.tensors import Addressed  # noqa: E402

pytestmark = pytest.mark.torch
TYPE = TensorType(DType.FLOAT32, (3,))
SIGNATURE = Signature(inputs=(Port("x", TYPE), Port("y", TYPE)), outputs=(Port("z", TYPE),))


def given_to(inputs, alignment_bytes):
    """The addresses that a run is given, and what lies at those of the inputs then."""
    seen = []

    def run(addresses, stream):
        seen.append((list(addresses), [list((ctypes.c_float * 3).from_address(one)) for one in addresses[:2]]))

    model = Addressed(run=run, on_gpu=False, alignment_bytes=alignment_bytes)
    calls(SIGNATURE, model, lambda *_: None)(inputs)
    trusting(model, [1, 2], [torch.empty(3)])([torch.zeros(1), *inputs])
    (given, values), (trusted, trusted_values) = seen
    assert trusted_values == values
    aligned = [i for i in (0, 1) if given[i] == inputs[i].data_ptr()]
    assert [trusted[i] for i in aligned] == [given[i] for i in aligned]
    assert all(address % alignment_bytes == 0 for address in trusted)
    return given, values


def test_copies_lie_as_their_originals_and_results_as_they_are_wanted():
    """Nobody says how a trusted argument lies: its elements are read in their order in memory."""
    seen = []

    def run(addresses, stream):
        seen.append([list((ctypes.c_float * 6).from_address(one)) for one in addresses[:1]])

    lying = torch.arange(7.0)[1:].view(2, 3).t()
    model = Addressed(run=run, on_gpu=False, alignment_bytes=16)
    (result,) = trusting(model, [0], [torch.empty(2, 3, 4, 5, memory_format=torch.channels_last)])([lying])
    assert seen == [[[1, 2, 3, 4, 5, 6]]]
    assert result.stride() == (60, 1, 15, 3)


def test_parts_of_other_tensors_are_copied_where_they_begin_between():
    x, whole = torch.tensor([1.0, 2.0, 3.0]), torch.arange(8.0)
    addresses, values = given_to([x, whole[1:4]], 16)
    assert all(address % 16 == 0 for address in addresses)
    assert addresses[0] == x.data_ptr()
    assert addresses[1] != whole[1:4].data_ptr()
    assert values == [[1, 2, 3], [1, 2, 3]]


def test_others_are_used_where_they_lie():
    x, whole = torch.zeros(3), torch.arange(8.0)
    addresses, _ = given_to([x, whole[1:4]], 1)
    assert addresses[:2] == [x.data_ptr(), whole[1:4].data_ptr()]
    assert given_to([x, whole[4:7]], 16)[0][1] == whole[4:7].data_ptr()


@pytest.mark.parametrize(
    "x",
    [torch.arange(6.0)[::2], torch.tensor(2.0).expand(3), torch._neg_view(torch.arange(3.0))],
    ids=["every other", "one for all", "the other sign"],
)
def test_what_does_not_lie_row_by_row_is_copied(x):
    seen = []

    def run(addresses, stream):
        seen.append(list((ctypes.c_float * 3).from_address(addresses[0])))

    calls(SIGNATURE, Addressed(run=run, on_gpu=False, alignment_bytes=1), lambda *_: None)([x, torch.ones(3)])
    assert seen == [x.tolist()]
