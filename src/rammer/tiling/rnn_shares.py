"""How the threads of a block share out the products of a persistent recurrent layer.

A row is a gate of a unit, a column an element of the batch. Vectors are cut into slices; the warps that have the same
slice have different rows. Within a warp `across` lanes have different rows and the others split the slice.

One vector is multiplied by multiply-adds: each warp has a slice and all rows. Several are the columns of what tensor
cores multiply: a warp then has few rows, so that few sums have to be added. All warps multiply a slice of every part,
or, of few columns, each part has a team of warps of its own: what one brings and multiplies takes the others no time.
So is one vector, where its weights stay as the 16 bits that they are: twice as many then have registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from rammer.ir.kernel_form import Instruction
from rammer.tiling.gemm import WARP

_ACROSS = (32, 16, 8, 4, 2, 1)  # the more, the fewer exchanges between lanes
_TENSOR_ACROSS = 8
_TILE_ROWS = 16  # of an instruction of a tensor core, two of each lane
_TILE_ELEMENTS = 16
TILE_COLUMNS = 8
"""Columns of an instruction of a tensor core."""
_MAX_REGISTERS = 108  # of a thread, for weights and sums of tensor cores: with more, the compiler stores some
_SLICE_COST = 2
_TEAM_SLICE_COST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RnnProducts:
    """How tensor cores multiply: a lane has `elements` neighbours of a row in an instruction, as `words`.

    A vector's element takes `element_bytes` of each of `planes` of shared memory. Columns lie an odd multiple of
    `padding` elements apart, so that what a warp reads together lies in different banks. A result has `sums`, which are
    added at the end. With more than `registers` of a thread for weights and sums, weights are stored as long as there
    is room for them. An rTask may have `columns`: of more, the compiler stores sums.
    """

    elements: int = 4
    words: int = 2
    element_bytes: int = 2
    planes: int = 1
    padding: int = 16
    sums: int = 1
    registers: int = 60
    columns: int = 64


_BESIDE = RnnProducts(words=4, sums=2, registers=72)
RNN_PRODUCTS: Mapping[Instruction, RnnProducts] = {
    Instruction.MMA_3XF16: RnnProducts(words=4, planes=2, sums=2, columns=32),
    Instruction.MMA_SCALED_F16: RnnProducts(),
    Instruction.MMA_BF16: RnnProducts(),
    Instruction.MMA_F16: RnnProducts(),
}
"""By instruction."""
_NARROW = RnnProducts(registers=84, columns=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What each thread has of `rows` by `columns` sums; see above.

    Weights of a lane's first `stored` elements lie in shared memory, for want of registers. Vectors that are
    `overlaid` take each other's place there. `teams` are the slices of each part, if each has warps of its own: those
    of the last part are the first ones, and `slices` are all.
    """

    warps: int
    rows: int
    columns: int
    instruction: Instruction
    across: int
    slices: int
    stored: int = 0
    overlaid: bool = False
    teams: tuple[int, ...] = ()

    @property
    def tensor(self) -> RnnProducts | None:
        """How tensor cores multiply, if they do."""
        if self.is_beside:
            return _BESIDE
        return _NARROW if self.is_narrow else RNN_PRODUCTS.get(self.instruction)

    @property
    def is_narrow(self) -> bool:
        """Whether tensor cores multiply one vector, by weights that stay the 16 bits that they are."""
        return self.columns == 1 and self.instruction in {Instruction.MMA_F16, Instruction.MMA_BF16}

    @property
    def is_beside(self) -> bool:
        """Whether the two parts of float32 are columns of one instruction, beside each other."""
        return self.instruction is Instruction.MMA_3XF16 and self.columns <= TILE_COLUMNS // 2

    @property
    def is_scaled(self) -> bool:
        """Whether weights are multiplied with a power of two, which is kept."""
        return self.instruction in {Instruction.MMA_3XF16, Instruction.MMA_SCALED_F16}

    @property
    def halves(self) -> int:
        """Numbers of 16 bits that an element of a vector is."""
        return 2 if self.instruction is Instruction.MMA_3XF16 else 1

    def instructions(self, slots: int, elements: int) -> int:
        """Of tensor cores, for so many rows and elements of a lane by all columns."""
        tiles = slots * self.across // _TILE_ROWS * (self.padded // TILE_COLUMNS)
        each = 1 if self.halves == 1 else 2 if self.is_beside else 3
        return tiles * -(-elements * self.deep // _TILE_ELEMENTS) * each

    @property
    def deep(self) -> int:
        """Lanes that split a slice."""
        return WARP // self.across

    @property
    def groups(self) -> int:
        """Warps that have the same slice."""
        return self.warps // self.slices

    @property
    def slots(self) -> int:
        """Rows that a lane adds to."""
        if self.tensor is None:
            return -(-self.rows // self.across)
        return -(-self.rows // (_TILE_ROWS * self.groups)) * _TILE_ROWS // self.across

    def slices_of(self, parts: int) -> tuple[int, ...]:
        """Into how many slices the vectors of each of so many parts are cut."""
        return self.teams or (self.slices,) * parts

    def team(self, number: int) -> range:
        """The warps that bring and multiply part `number`, some of which may be idle."""
        if not self.teams:
            return range(self.warps)
        first = sum(self.teams[number + 1 :]) * self.groups
        return range(first, first + self.teams[number] * self.groups if number else self.warps)

    def slice(self, length: int, slices: int) -> int:
        """Elements of a vector in one of so many slices."""
        return -(-length // slices) if self.tensor is None else self._elements(length, slices) * self.deep

    def elements_of(self, lengths: Sequence[int]) -> list[int]:
        """Elements of each part's vector that a lane takes."""
        return [self._elements(*part) for part in zip(lengths, self.slices_of(len(lengths)), strict=True)]

    def _elements(self, length: int, slices: int) -> int:
        return -(-length // (slices * self.deep * self.step)) * self.step

    @property
    def step(self) -> int:
        """Neighbouring elements whose weights a lane has together."""
        return 1 if self.tensor is None else self.tensor.elements

    def words(self, elements: int) -> int:
        """Words that hold a lane's weights of a row."""
        return elements // self.step * (1 if self.tensor is None else self.tensor.words)

    def stored_words(self, slots: int, stored: int) -> int:
        """Words of shared memory for a lane's weights of so many rows and elements."""
        return slots * self.words(stored)

    def stored_of(self, lengths: Sequence[int]) -> list[int]:
        """Of how many of a lane's elements of each vector the weights are stored.

        Registers keep about as many of each: what is stored takes as long to be read as it takes to be multiplied.
        """
        elements, stored = self.elements_of(lengths), [0] * len(lengths)
        for _ in range(self.stored // self.step):
            left = [of_part - done for of_part, done in zip(elements, stored, strict=True)]
            if not any(left):
                break
            stored[left.index(max(left))] += self.step
        return stored

    @property
    def padded(self) -> int:
        """Columns in shared memory."""
        return 1 if self.tensor is None else _up(self.columns, TILE_COLUMNS)

    @property
    def row_pitch(self) -> int:
        """Words between the sums of columns: lanes that have several write to different banks."""
        return self.rows if self.tensor is None else _up(self.rows - 4, 16) + 4

    def at_once(self, weights: int) -> int:
        """Columns whose sums a thread holds together beside its weights, 0 if there is no room for any."""
        if self.tensor is None:
            return 1
        each = self.slots * TILE_COLUMNS // self.deep * self.tensor.sums
        most = min(self.padded // TILE_COLUMNS, (_MAX_REGISTERS - weights) // each)
        return max((count for count in range(1, most + 1) if self.padded // TILE_COLUMNS % count == 0), default=0) * (
            TILE_COLUMNS
        )


def ways(
    instruction: Instruction,
    warps: int,
    rows: int,
    columns: int,
    lengths: Sequence[int],
    *,
    stored: int = 0,
    overlaid: bool = False,
    apart: bool = False,
) -> Iterator[Shares]:
    """The ways to share out the products of an rTask that may be worth it, of tensor cores the best.

    Args:
        instruction: what multiplies.
        warps: of the block.
        rows: of the rTask.
        columns: of the rTask.
        lengths: of the vectors.
        stored: elements of a lane whose weights lie in shared memory.
        overlaid: whether vectors take each other's place.
        apart: whether each part has warps of its own, of tensor cores.
    """

    def one(across: int, slices: int, teams: tuple[int, ...] = ()) -> Shares:
        return Shares(
            warps=warps,
            rows=rows,
            columns=columns,
            instruction=instruction,
            across=across,
            slices=slices,
            stored=stored,
            overlaid=overlaid,
            teams=teams,
        )

    if instruction not in RNN_PRODUCTS:
        yield from (one(across, warps) for across in _ACROSS)
        return
    if apart:
        teams = (each for each in product(range(1, warps + 1), repeat=len(lengths)) if sum(each) <= warps)
        tensor = [one(_TENSOR_ACROSS, sum(each), each) for each in teams]
    else:
        tensor = [one(_TENSOR_ACROSS, slices) for slices in range(1, warps + 1)]
    if columns == 1:  # of one slice, products wait for each other: they add to the same sums
        tensor = [shares for shares in tensor if shares.slices > 1 and shares.at_once(_NARROW.registers)] or tensor
    yield min(tensor, key=lambda shares: _cost(shares, lengths))


def _cost(shares: Shares, lengths: Sequence[int]) -> tuple[int, int]:
    """Weights that a lane multiplies, and what its sums cost beside them: they are written and read for each slice.

    The last part comes last, from the step before: of equal ways that one is best that multiplies it soonest.
    """
    elements, slice_cost = shares.elements_of(lengths), _TEAM_SLICE_COST if shares.teams else _SLICE_COST
    return shares.slots * sum(elements) + slice_cost * shares.slices, elements[-1]


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
