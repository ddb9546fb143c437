"""Calls with tensors: they are used where they lie, and results are tensors of PyTorch's own memory.

This module is what `runtime.tensors.TensorLibrary` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import torch

from rammer.errors import AutogradError, PlacementError
from rammer.frontends.torch.forms import make
from rammer.frontends.torch.private import current_stream, has_tangent, room
from rammer.frontends.torch.types import dtype_of, torch_dtype

__all__ = ["calls", "make", "padded"]


def calls(signature: Any, model: Any, refuse: Callable[..., None]) -> Callable[[Sequence[Any]], Sequence[torch.Tensor]]:
    """A function from tensors in the order of the inputs to fresh ones for the outputs.

    Args:
        signature: names and types of inputs and outputs, a `runtime.signature.Signature`.
        model: runs on the addresses of all inputs, then all outputs, on a stream of the GPU or None; a
            `runtime.tensors.Addressed`. An input that does not lie row by row, or begins at no multiple of its
            alignment, as parts of other tensors may, is copied; PyTorch's memory for the results begins where it
            has to.
        refuse: raises the error for an input of another element type or shape, by its position.
    """
    on_gpu, alignment_bytes, run = model.on_gpu, model.alignment_bytes, model.run
    expected = [(torch_dtype(port.type.dtype), torch.Size(port.type.shape)) for port in signature.inputs]
    place = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    is_kind, ordinal = attrgetter("is_cuda" if on_gpu else "is_cpu"), 0 if on_gpu else -1
    made, stream_now = rooms(signature, on_gpu=on_gpu), stream_of(place)
    misfit = _Misfit(signature, refuse, place)
    is_learning, tensor_class = torch.is_grad_enabled, torch.Tensor

    def call(given: Sequence[Any]) -> Sequence[torch.Tensor]:
        tensors = given
        if not all([isinstance(tensor, tensor_class) for tensor in given]):  # noqa: C419 - a list is quicker
            tensors = [torch.as_tensor(tensor) for tensor in given]
        addresses, copies = [], []
        learning = is_learning()
        for i, (dtype, shape) in enumerate(expected):
            tensor = tensors[i]
            if (
                tensor.dtype is not dtype
                or tensor.shape != shape
                or not is_kind(tensor)
                or tensor.get_device() != ordinal
                or (learning and tensor.requires_grad)
            ):
                misfit.explain(i, tensor)
            if not tensor.is_contiguous() or tensor.is_neg() or tensor.data_ptr() % alignment_bytes:
                tensor = tensor.clone(memory_format=torch.contiguous_format).resolve_neg()
                copies.append(tensor)  # kept until the run is given to the stream that copies
            addresses.append(tensor.data_ptr())
        if has_tangent(tensors):
            raise _unwanted("the tangent of an input")
        results = [room() for room in made]
        for result in results:
            addresses.append(result.data_ptr())
        run(addresses, stream_now())
        return results

    return call


def trusting(
    model: Any, inputs: Sequence[int], results: Sequence[torch.Tensor]
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]:
    """As `calls`, from arguments that somebody else has checked: types, shapes, strides and places are as compiled.

    Args:
        model: as for `calls`.
        inputs: which of the arguments are the model's inputs.
        results: tensors like the results, whose data nobody reads.
    """
    alignment_bytes, run = model.alignment_bytes, model.run
    made = [room(tuple(each.shape), each.dtype, on_gpu=model.on_gpu, strides=tuple(each.stride())) for each in results]
    stream_now = stream_of(torch.device("cuda", 0) if model.on_gpu else torch.device("cpu"))

    def call(args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        addresses, copies = [args[i].data_ptr() for i in inputs], []
        if alignment_bytes > 1:
            for i, address in enumerate(addresses):
                if address % alignment_bytes:
                    copies.append(args[inputs[i]].clone(memory_format=torch.preserve_format))
                    addresses[i] = copies[-1].data_ptr()
        results = [room() for room in made]
        for result in results:
            addresses.append(result.data_ptr())
        run(addresses, stream_now())
        return results

    return call


def rooms(signature: Any, *, on_gpu: bool) -> list[Callable[[], torch.Tensor]]:
    """What makes room for each output, row by row."""
    return [room(tuple(port.type.shape), torch_dtype(port.type.dtype), on_gpu=on_gpu) for port in signature.outputs]


def stream_of(place: torch.device) -> Callable[[], int | None]:
    """What tells the current stream of a device; the processor has none."""
    return current_stream(place) if place.type == "cuda" else _no_stream


def _no_stream() -> None:
    """The stream of the processor."""


def padded(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of a shape that begins with a given one, and is 0 elsewhere."""
    more = [0] * (2 * tensor.dim())  # before and behind each dimension, the last one first
    more[1::2] = [extent - given for extent, given in zip(reversed(shape), reversed(tensor.shape), strict=True)]
    return torch.constant_pad_nd(tensor, more)


class _Misfit:
    """Says what is wrong with a tensor."""

    def __init__(self, signature: Any, refuse: Callable[..., None], place: torch.device) -> None:
        self._signature = signature
        self._refuse = refuse
        self._place = place

    def explain(self, position: int, tensor: torch.Tensor) -> None:
        """Raise the error for an input that cannot be used.

        Raises:
            CallError: always.
        """
        name = self._signature.inputs[position].name
        self._refuse(position, dtype_of(tensor.dtype, f"input '{name}'"), tuple(tensor.shape))
        if tensor.device != self._place:
            raise PlacementError(
                f"input '{name}' lies on {tensor.device}, the model runs on {self._place}",
                hint=f"move it with .to('{self._place}'), or compile the model for the other device",
            )
        raise _unwanted(f"the gradient of input '{name}'")


def _unwanted(what: str) -> AutogradError:
    return AutogradError(
        f"{what} is wanted, which a program for inference does not follow",
        hint="call the model under torch.no_grad(), or detach() the input",
    )
