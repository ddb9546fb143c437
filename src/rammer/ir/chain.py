"""A model of several programs that run one after another, some of them many times: the body of a loop.

Trips of long loops are no tasks of one program. The body of some trips is a program of its own, which runs again and
again while the addresses of what it reads and writes move on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rammer.ir.schema import Schema, SchemaError, read_json

_ARGUMENT: Schema = (int, int, int, bool, [int])
_LINK: Schema = {"runs": int, "array_bytes": [int], "inputs": [_ARGUMENT], "outputs": [_ARGUMENT]}
_CHAIN: Schema = {
    "states": int,
    "input_bytes": [int],
    "output_bytes": [int],
    "scratch": [(int, int)],
    "links": [_LINK],
}


@dataclass(frozen=True, slots=True)
class Argument:
    """Where the runs of a program find one of its inputs, or leave one of its outputs.

    Attributes:
        buffer: its number among the chain's.
        first_bytes: where in the buffer the first run's begins.
        step_bytes: how much further each next run's does.
        backward: whether that is towards the front.
        turns: of a value that each run reads as the run before left it, the two buffers that hold it by turns: `buffer`
            is what the first run reads, or what the last one writes. Empty for all else.
    """

    buffer: int
    first_bytes: int = 0
    step_bytes: int = 0
    backward: bool = False
    turns: tuple[int, ...] = ()

    def place(self, run: int) -> tuple[int, int]:
        """The buffer of a run, and where in it; of a value in turns, -1 stands for the run that is not in them."""
        if self.turns and run >= 0:
            return self.turns[run % 2], 0
        moved = max(run, 0) * self.step_bytes
        return self.buffer, self.first_bytes + (-moved if self.backward else moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One program, how often it runs, and an argument for each of its inputs and outputs.

    `array_bytes` is what each of these takes.
    """

    runs: int
    array_bytes: tuple[int, ...]
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    def places(self, run: int) -> list[tuple[int, int]]:
        """Buffer and offset of each input, then output, of a run."""
        last = run == self.runs - 1
        return [
            *(argument.place(run - 1 if argument.turns else run) for argument in self.inputs),
            *(argument.place(-1 if argument.turns and last else run) for argument in self.outputs),
        ]

    def runs_at(self, buffers: Sequence[int]) -> Iterator[list[int]]:
        """The addresses of each run's inputs, then outputs, by those of the buffers: `places`, run after run."""
        count, last = len(self.inputs), self.runs - 1
        arguments = (*self.inputs, *self.outputs)
        now = [buffers[buffer] + offset for buffer, offset in self.places(0)]
        steps = [(i, -a.step_bytes if a.backward else a.step_bytes) for i, a in enumerate(arguments) if a.step_bytes]
        turns = [(i, [buffers[buffer] for buffer in a.turns]) for i, a in enumerate(arguments) if a.turns]
        for run in range(self.runs):
            yield now
            now = now.copy()
            for i, step in steps:
                now[i] += step
            for i, sides in turns:
                if i < count:
                    now[i] = sides[run % 2]
                else:
                    now[i] = sides[1 - run % 2] if run + 1 < last else buffers[arguments[i].buffer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Links one after another. Buffers are the model's inputs, its outputs, then pieces of a scratch memory.

    Attributes:
        states: how many of the model's last inputs and last outputs are states.
        input_bytes: what each of its inputs takes.
        output_bytes: what each of its outputs takes.
        scratch: of each further buffer, where in the scratch memory it begins and what it takes, in bytes.
        links: what runs, in order.
    """

    states: int
    input_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    scratch: tuple[tuple[int, int], ...]
    links: tuple[Link, ...]

    @property
    def array_bytes(self) -> tuple[int, ...]:
        """What each array of a run takes: inputs, then outputs."""
        return (*self.input_bytes, *self.output_bytes)

    @property
    def scratch_bytes(self) -> int:
        """What the scratch memory takes."""
        return max((begin + size for begin, size in self.scratch), default=0)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """What each buffer takes."""
        return (*self.array_bytes, *(size for _, size in self.scratch))

    def buffers(self, arrays: Sequence[int], scratch: int) -> list[int]:
        """Where the buffers begin, by the addresses of the model's arrays and of the scratch memory."""
        return [*arrays, *(scratch + begin for begin, _ in self.scratch)]

    def to_bytes(self) -> bytes:
        """As JSON, the same each time."""
        links = [
            {
                "runs": link.runs,
                "array_bytes": link.array_bytes,
                "inputs": [*map(_row, link.inputs)],
                "outputs": [*map(_row, link.outputs)],
            }
            for link in self.links
        ]
        own = {
            "states": self.states,
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "scratch": self.scratch,
        }
        return json.dumps({**own, "links": links}).encode()

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Chain:
        """The chain that `to_bytes` wrote.

        Raises:
            SchemaError: it has another form, or a run would write an input, or read or write beside a buffer.
        """
        found = read_json(data, _CHAIN, "its chain")
        links = [
            Link(
                runs=link["runs"],
                array_bytes=tuple(link["array_bytes"]),
                inputs=tuple(map(_argument, link["inputs"])),
                outputs=tuple(map(_argument, link["outputs"])),
            )
            for link in found["links"]
        ]
        chain = cls(
            states=found["states"],
            input_bytes=tuple(found["input_bytes"]),
            output_bytes=tuple(found["output_bytes"]),
            scratch=tuple((begin, size) for begin, size in found["scratch"]),
            links=tuple(links),
        )
        for number, link in enumerate(chain.links):
            _check_inside(chain, number, link)
        return chain


def _row(argument: Argument) -> list[object]:
    return [
        argument.buffer,
        argument.first_bytes,
        argument.step_bytes,
        argument.backward,
        list(argument.turns),
    ]


def _argument(row: Sequence[Any]) -> Argument:
    buffer, first_bytes, step_bytes, backward, turns = row
    if len(turns) not in (0, 2):
        raise SchemaError(f"its chain has a value in {len(turns)} turns")
    return Argument(buffer, first_bytes, step_bytes, backward, tuple(turns))


def _check_inside(chain: Chain, number: int, link: Link) -> None:
    """Whether the first runs and the last read and write within the buffers: what lies between them does, then.

    Inputs are not written: they may be read-only.

    Raises:
        SchemaError: one does not.
    """
    sizes = chain.sizes_bytes
    if link.runs < 1 or len(link.array_bytes) != len(link.inputs) + len(link.outputs):
        raise SchemaError(f"link {number} of its chain has {link.runs} runs of {len(link.array_bytes)} arrays")
    if any(buffer < len(chain.input_bytes) for to in link.outputs for buffer in (to.buffer, *to.turns)):
        raise SchemaError(f"link {number} of its chain writes an input")
    for run in {0, min(1, link.runs - 1), max(0, link.runs - 2), link.runs - 1}:
        for (buffer, offset), size in zip(link.places(run), link.array_bytes, strict=True):
            if buffer >= len(sizes) or not 0 <= offset <= sizes[buffer] - size:
                raise SchemaError(f"run {run} of link {number} of its chain leaves buffer {buffer}")
