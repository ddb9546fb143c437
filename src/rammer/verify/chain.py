"""Proof that the programs of a chain, each sound by itself, hand each other what they should.

It follows the bytes: which of a buffer's hold what was written for it, link after link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from types import MappingProxyType

from rammer.errors import VerificationError
from rammer.ir.chain import Argument, Chain, Link

RULES: Mapping[str, str] = MappingProxyType(
    {
        "C01": "A link has runs, an argument for each array of its program, and all of a run lies within the buffers.",
        "C02": "What runs of a link write lies apart from all else that they read or write, values in turns excepted.",
        "C03": "A run reads inputs of the model, or bytes that runs before it wrote and nothing has overwritten since.",
        "C04": "Inputs of the model are not written, and its outputs are written entirely.",
    }
)

_Spans = list[tuple[int, int]]
"""Bytes of a buffer from one place to another, in order and apart."""


def verify(chain: Chain) -> None:
    """Prove a chain; its programs are taken to be sound.

    Raises:
        VerificationError: a rule of `RULES` is broken; the message names the link and the buffer.
    """
    held: dict[int, _Spans] = {number: [(0, size)] for number, size in enumerate(chain.input_bytes)}
    for number, link in enumerate(chain.links):
        _check_inside(chain, number, link)
        read, written = (
            [_spans(link, argument, size) for argument, size in side]
            for side in (
                list(zip(link.inputs, link.array_bytes, strict=False)),
                list(zip(link.outputs, link.array_bytes[len(link.inputs) :], strict=True)),
            )
        )
        _check_apart(chain, number, link, read, written)
        for argument, spans in zip(link.inputs, read, strict=True):
            if not _covers(held.get(argument.buffer, []), spans[argument.buffer]):
                raise VerificationError("C03", f"link {number} reads what nobody wrote to buffer {argument.buffer}")
        for argument, spans in zip(link.outputs, written, strict=True):
            if argument.buffer < len(chain.input_bytes):
                raise VerificationError("C04", f"link {number} writes buffer {argument.buffer}, an input")
            for buffer, own in spans.items():
                _overwrite(chain, held, buffer, own)
            held[argument.buffer] = _joined([*held.get(argument.buffer, []), *spans[argument.buffer]])
    for number, size in enumerate(chain.output_bytes, start=len(chain.input_bytes)):
        if not _covers(held.get(number, []), [(0, size)]):
            raise VerificationError("C04", f"buffer {number}, an output, is not written entirely")


def _check_inside(chain: Chain, number: int, link: Link) -> None:
    sizes = chain.sizes_bytes
    if link.runs < 1 or len(link.array_bytes) != len(link.inputs) + len(link.outputs):
        raise VerificationError("C01", f"link {number} has {link.runs} runs of {len(link.array_bytes)} arrays")
    # Places move evenly: what lies between the first runs and the last is inside, too.
    for run in sorted({0, min(1, link.runs - 1), max(0, link.runs - 2), link.runs - 1}):
        for (buffer, offset), size in zip(link.places(run), link.array_bytes, strict=True):
            if not (0 <= buffer < len(sizes) and 0 <= offset <= sizes[buffer] - size):
                raise VerificationError("C01", f"run {run} of link {number} leaves buffer {buffer} at byte {offset}")


def _spans(link: Link, argument: Argument, size: int) -> dict[int, _Spans]:
    """What all runs of a link read or write of an argument, by buffer."""
    if argument.turns:
        return {buffer: [(0, size)] for buffer in (argument.buffer, *argument.turns)}
    begins = [argument.place(run)[1] for run in (0, link.runs - 1)]
    if argument.step_bytes > size:
        begins = [argument.place(run)[1] for run in range(link.runs)]
        return {argument.buffer: _joined([(begin, begin + size) for begin in begins])}
    return {argument.buffer: [(min(begins), max(begins) + size)]}


def _check_apart(
    chain: Chain, number: int, link: Link, read: list[dict[int, _Spans]], written: list[dict[int, _Spans]]
) -> None:
    """Each output lies apart from all else, and runs that follow each other write different parts of it (C02)."""
    for place, (argument, spans) in enumerate(zip(link.outputs, written, strict=True)):
        if link.runs > 1 and not argument.turns and argument.step_bytes < link.array_bytes[len(link.inputs) + place]:
            raise VerificationError("C02", f"runs of link {number} write the same bytes of buffer {argument.buffer}")
        pieces = [
            piece
            for buffer in (argument.buffer, *argument.turns)
            for piece in _absolute(chain, {buffer: spans[buffer]})
        ]
        if argument.turns and any(_meet(one, other) for one, other in combinations(pieces, 2)):
            raise VerificationError("C02", f"link {number} writes in turns to buffers that are not apart")
        same = [i for i, other in enumerate(link.inputs) if argument.turns and set(other.turns) == set(argument.turns)]
        if argument.turns and [link.inputs[i].turns for i in same] != [argument.turns]:
            raise VerificationError("C03", f"link {number} reads in other turns than it writes")
        own = list(_absolute(chain, spans))
        others = [
            {buffer: part for buffer, part in found.items() if not (i in same and buffer in argument.turns)}
            for i, found in enumerate(read)
        ] + written[:place]
        for other in others:
            if any(_meet(mine, theirs) for mine in own for theirs in _absolute(chain, other)):
                raise VerificationError("C02", f"link {number} writes buffer {argument.buffer} over what it uses")


def _absolute(chain: Chain, spans: Mapping[int, _Spans]) -> Iterator[tuple[int, int, int]]:
    """Spans with the memory that they lie in: a buffer of the caller's, or -1 for the scratch memory."""
    arrays = len(chain.array_bytes)
    for buffer, own in spans.items():
        shift = chain.scratch[buffer - arrays][0] if buffer >= arrays else 0
        memory = -1 if buffer >= arrays else buffer
        yield from ((memory, shift + begin, shift + end) for begin, end in own)


def _meet(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


def _overwrite(chain: Chain, held: dict[int, _Spans], buffer: int, written: _Spans) -> None:
    """Forget what other buffers held where a buffer is written."""
    marks = list(_absolute(chain, {buffer: written}))
    for other in [other for other in held if other != buffer]:
        parts = list(_absolute(chain, {other: held[other]}))
        if any(_meet(mark, part) for mark in marks for part in parts):
            held[other] = []


def _joined(spans: _Spans) -> _Spans:
    """Spans in order, those that touch each other as one."""
    found: _Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _covers(held: _Spans, wanted: _Spans) -> bool:
    return all(begin == end or any(a <= begin and end <= b for a, b in held) for begin, end in wanted)
