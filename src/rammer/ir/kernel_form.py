"""Kernel forms: which skeleton an rKernel is, with its tiles inside an rTask and what it takes of a vEU.

A form is chosen by Roller, costed, printed and verified; the emitters of devices read it and decide nothing. What it
leaves out (which axes are M and N, where elements lie) follows from the expression and the layouts alone.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

_WORD_BYTES = 4  # of a register
ATTENTION_ROWS = 16
"""Rows of a warp in the skeleton `attention` of GPUs."""


class Skeleton(enum.StrEnum):
    """The loop structure of an rKernel, by the name that libraries give it."""

    MAP = "map"  # no reduction
    REDUCE = "reduce"  # any expression with reductions
    GEMM = "gemm"  # sums of products of matrices
    IMPLICIT_GEMM = "implicit_gemm"  # likewise, of a matrix that is not in memory: windows of an image
    GEMV = "gemv"  # matrix times vector, the sums split among threads
    DEPTHWISE = "depthwise"  # both operands of each product have the axis that runs along lanes
    ATTENTION = "attention"  # sums weighted with a softmax, in one pass over the keys
    TREES = "trees"  # sums of leaves of decision trees
    PERSISTENT_RNN = "persistent_rnn"  # matrix times vector, the matrix in registers from rTask to rTask
    EXTERN = "extern"  # a user's own code


PRODUCTS = frozenset(
    {Skeleton.GEMM, Skeleton.IMPLICIT_GEMM, Skeleton.GEMV, Skeleton.DEPTHWISE, Skeleton.PERSISTENT_RNN}
)
"""Skeletons of sums of products."""


class Instruction(enum.StrEnum):
    """What multiplies and adds."""

    FFMA = "ffma"  # float32, thread by thread
    MMA_TF32 = "mma.m16n8k8.tf32"  # tensor cores from here on: a warp at a time, float32 sums
    MMA_BF16 = "mma.m16n8k16.bf16"
    MMA_F16 = "mma.m16n8k16.f16"
    MMA_SCALED_F16 = "scaled mma.m16n8k16.f16"  # TF32 as float16: a TF32's bits in a range of their own
    MMA_3XF16 = "3 mma.m16n8k16.f16"  # float32 as sums of two such numbers; the product of the lesser ones is left out
    MMA_I8 = "mma.m16n8k32.i8"  # of bytes, signed or not: int32 sums
    MMA_F64 = "mma.m16n8k8.f64"  # likewise, of float32 that is widened: float64 products and sums
    WGMMA_TF32 = "wgmma.m64nNk8.tf32"  # a warpgroup at a time, from shared memory: float32 sums
    WGMMA_BF16 = "wgmma.m64nNk16.bf16"
    WGMMA_F16 = "wgmma.m64nNk16.f16"
    TDPBUSD = "tdpbusd"  # processors' tiles of 16 rows by 16 lanes: int32 sums of bytes, unsigned by signed (AMX)


class GemmShape(NamedTuple):
    """M, N and K of a tile: rows and columns of the result, and elements of its sums."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelForm:
    """What all forms have.

    `threads` of a vEU share out an rTask. `scratch_bytes` is the vEU's own memory that an rTask takes: shared memory of
    a block, the stack of a thread. `vector` neighbouring elements are one load or one operation.
    """

    threads: int = 1
    scratch_bytes: int = 0
    vector: int = 1

    @property
    def skeleton(self) -> Skeleton:
        """Which skeleton it is."""
        raise NotImplementedError

    @property
    def kept_bytes(self) -> int:
        """Registers of all threads that keep weights from rTask to rTask."""
        return 0

    @property
    def brings_operands(self) -> bool:
        """Whether what its arithmetic takes includes bringing operands, which may be small parts of one tensor."""
        return False

    @property
    def takes_late(self) -> bool:
        """Whether rTasks look at tagged elements when most of their work is done."""
        return False

    @property
    def copies_ahead(self) -> bool:
        """Whether a warp of its own copies constants before an rTask waits: all that its shared memory has room for."""
        return False

    @property
    def maps_operands(self) -> bool:
        """Whether rTasks know where operands lie before a call: none of them is a caller's array."""
        return False

    @property
    def details(self) -> str:
        """Its tiles and the like in a line, for people."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapForm(KernelForm):
    """Point by point. A `block` over the axes stays in the cache while it is transposed, if any is.

    A thread of several loads what `turns` vectors take before it uses the first.
    """

    turns: int = 1
    block: tuple[int, ...] = ()

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.MAP

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        if self.threads > 1:
            return f"{self.turns} vectors of {self.vector} at a time"
        return f"blocks of {_sizes(self.block)}" if self.block else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceForm(KernelForm):
    """Any reductions: a `team` of threads shares those of a point.

    A thread of several loads what `turns` vectors take before it uses the first.
    """

    team: int = 1
    turns: int = 1

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.REDUCE

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        return f"{self.team} threads a point, vectors of {self.vector}" if self.threads > 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroKernelForm(KernelForm):
    """Sums of products by one thread: a block of `register` points over the axes is kept in registers.

    `kind` is one of the skeletons of products; all of them have the same loops. Registers are vectors, or with an
    `instruction` the tiles that it multiplies: one for each 16 rows and vector of lanes of a block. Constants that are
    read once are prefetched `ahead_bytes` ahead; 0: not at all.
    """

    kind: Skeleton
    register: tuple[int, ...]
    instruction: Instruction | None = None
    ahead_bytes: int = 0

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return self.kind

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        instruction = "" if self.instruction is None else f", {self.instruction.value}"
        ahead = f", {self.ahead_bytes} bytes ahead" if self.ahead_bytes else ""
        return f"registers {_sizes(self.register)}{instruction}{ahead}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionForm(KernelForm):
    """Attention in one pass over the keys by one thread: blocks of `rows` by `keys` scores.

    Rows lie in lanes. The sums of `register` keys, or columns, are kept in vector registers together.
    """

    rows: int
    keys: int
    register: int

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.ATTENTION

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        return f"blocks of {self.rows} rows x {self.keys} keys, {self.register} in registers"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashAttentionForm(KernelForm):
    """Attention in one pass over the keys by a block, whose operands pass through shared memory (FlashAttention-2).

    A warp has `ATTENTION_ROWS` rows. So many warps beside each other along rows and columns of the result are a team;
    each along columns computes the scores again. A step has `team_keys` keys of each of `teams`, and `stages` steps'
    keys and values are in shared memory together.
    """

    instruction: Instruction
    row_warps: int
    column_warps: int
    teams: int
    team_keys: int
    stages: int

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.ATTENTION

    @property
    def brings_operands(self) -> bool:
        """See `KernelForm`."""
        return True

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.row_warps * ATTENTION_ROWS

    @property
    def keys(self) -> int:
        """Keys of a step."""
        return self.teams * self.team_keys

    @property
    def warps(self) -> int:
        """Warps that have a part."""
        return self.teams * self.row_warps * self.column_warps

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        team = f"{self.row_warps}x{self.column_warps}"
        return (
            f"{self.rows} rows, {self.teams} teams of {team} warps, {self.team_keys} keys each a step, "
            f"{self.stages} stages, {self.instruction.value}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmForm(KernelForm):
    """A tiled product whose operands pass through shared memory.

    A full rTask has `tiles` threadblock tiles. The operands of `threadblock.k` elements of the sums are one pipeline
    stage, `stages` of them are in shared memory together. Each warp has a `warp` tile: where `warp.k` is less than
    `threadblock.k`, several warps have the same sums and add them up in the end (sliced K). With `overlapped`, the next
    tile's operands are on their way during the epilogue, and sums have shared memory of their own. With a `patch`, rows
    are windows of what an rTask reaches of an image, which is in shared memory once; its whole sums are one stage then.
    """

    kind: Skeleton = Skeleton.GEMM
    instruction: Instruction
    threadblock: GemmShape
    warp: GemmShape
    stages: int
    tiles: int = 1
    overlapped: bool = False
    patch: bool = False

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return self.kind

    @property
    def warps(self) -> int:
        """Warps that together hold a threadblock tile's sums once."""
        return (self.threadblock.m // self.warp.m) * (self.threadblock.n // self.warp.n)

    @property
    def slices(self) -> int:
        """Warps that have the same sums."""
        return self.threadblock.k // self.warp.k

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        tiles = f"{self.tiles} tiles of " if self.tiles > 1 else ""
        patch = ", a patch" if self.patch else ""
        return f"{tiles}{self.threadblock}, warp {self.warp}, {self.stages} stages, {self.instruction.value}{patch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupGemmForm(KernelForm):
    """A product of two matrices that lie K-innermost in memory, by warpgroups that multiply from shared memory.

    One warp asks for copies by tensor map, of constants before the rTask waits: `stages` of `threadblock.k` elements of
    the sums are in shared memory together. An instruction takes `instruction_m` rows a warpgroup and `instruction_n`
    columns: those of the result, or with `swapped` operands its columns as rows. The last `finishers` threads make
    results of the sums: all, or those that do not multiply, which load what that takes while others do.
    """

    instruction: Instruction
    threadblock: GemmShape
    stages: int
    swapped: bool
    finishers: int

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.GEMM

    @property
    def maps_operands(self) -> bool:
        """See `KernelForm`."""
        return True

    @property
    def takes_late(self) -> bool:
        """See `KernelForm`: its epilogue does."""
        return True

    @property
    def copies_ahead(self) -> bool:
        """See `KernelForm`."""
        return True

    @property
    def instruction_m(self) -> int:
        """What the threadblock tile has of the instruction's rows."""
        return self.threadblock.n if self.swapped else self.threadblock.m

    @property
    def instruction_n(self) -> int:
        """What the threadblock tile has of the instruction's columns."""
        return self.threadblock.m if self.swapped else self.threadblock.n

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        swapped = ", operands swapped" if self.swapped else ""
        return f"{self.threadblock}, {self.stages} stages, {self.instruction.value}{swapped}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseForm(KernelForm):
    """A depthwise convolution by a block, whose part of the image and weights are copied into shared memory once.

    A thread has `vector` channels of `points` neighbouring points. The rows of windows are a loop, or `unrolled`.
    """

    points: int
    unrolled: bool

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.DEPTHWISE

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        return f"{self.points} points of {self.vector} channels a thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class GemvForm(KernelForm):
    """A product with few sums: threads take `width` points side by side, each `vector` neighbours with one load.

    Threads that are left over split the sums of the same points (split K within a block).
    """

    width: int

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.GEMV

    @property
    def across(self) -> int:
        """Threads that have different points."""
        return self.width // self.vector

    @property
    def splits(self) -> int:
        """Threads that have the same points."""
        return self.threads // self.across

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        return f"{self.width} points, vectors of {self.vector}, split K {self.splits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GemvRowsForm(KernelForm):
    """A matrix-vector product whose matrix lies with what is summed over side by side.

    `across` threads share the elements of a row, `vector` neighbours with each load, in `turns`; other threads have
    other rows. Those of `batch` points are on their way at a time, the first before the rTask waits where they are
    constants.
    """

    across: int
    turns: int
    batch: int

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.GEMV

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        return f"{self.across} threads a row, {self.turns} vectors of {self.vector}, {self.batch} points at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentRnnForm(KernelForm):
    """A cell of a recurrent layer whose weights stay in registers from rTask to rTask of its vEU.

    Vectors, `columns` of them (elements of the batch), are cut into `slices`; warps that have the same one have other
    rows (gates of units), and so have `across` lanes of a warp. Weights are `weight_bytes` and take `weight_registers`
    of each thread; those of `stored` elements of a lane lie in shared memory. Vectors that are `overlaid` take each
    other's place there. `teams` are the slices of each operand that is a vector, if each has warps of its own.
    """

    instruction: Instruction
    across: int
    slices: int
    columns: int
    weight_registers: int
    weight_bytes: int
    stored: int = 0
    overlaid: bool = False
    teams: tuple[int, ...] = ()

    @property
    def is_narrow(self) -> bool:
        """Whether weights that one vector is multiplied with stay 16 bits, for tensor cores."""
        return self.columns == 1 and self.instruction is not Instruction.FFMA

    @property
    def kept_bytes(self) -> int:
        """See `KernelForm`."""
        register_bytes = self.weight_registers * self.threads * _WORD_BYTES
        return min(self.weight_bytes, register_bytes) if self.is_narrow else self.weight_bytes

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.PERSISTENT_RNN

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        is_plain = self.instruction is Instruction.FFMA
        columns = "" if is_plain else f", {self.columns} columns, {self.slices} slices, {self.instruction}"
        return f"{self.weight_registers} registers of weights a thread, {self.across} rows across a warp{columns}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternForm(KernelForm):
    """A user's own code (`ir.extern`), whose function takes addresses and ranges in the order of the operator.

    `operands` are the slots of its operands, then the numbers of its results behind the slots; `axes` the positions of
    the axes of its domain (None: one of extent 1, which the rKernel does not have).
    """

    name: str
    code: str
    operands: tuple[int, ...]
    axes: tuple[int | None, ...]

    @property
    def skeleton(self) -> Skeleton:
        """See `KernelForm`."""
        return Skeleton.EXTERN

    @property
    def details(self) -> str:
        """See `KernelForm`."""
        return self.name


def _sizes(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes))
