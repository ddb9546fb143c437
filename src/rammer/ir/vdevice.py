"""The vDevice: an accelerator as data, with parallel virtual execution units (paper section 4)."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rammer.ir.extern import ExternKernel
from rammer.ir.kernel_form import Instruction
from rammer.ir.task import RKernel
from rammer.ir.tree_forms import TreeStrategy
from rammer.ir.types import DType
from rammer.ir.workload import Workload


@dataclass(frozen=True, slots=True)
class Figure:
    """A number about a device and where it comes from ("measured ...", "nominal: ...")."""

    value: float
    provenance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of the memory hierarchy as one vEU sees it, innermost first in `VDevice.levels`.

    `total_bandwidth_bytes_per_us` is what all vEUs get together; None means as much as one alone gets, times the vEUs.
    What units of all its parts read lies in it `copies` times. A `scratchpad` is filled by code for each rTask: nothing
    is in it when one begins.
    """

    name: str
    capacity_bytes: int
    bandwidth_bytes_per_us: Figure
    total_bandwidth_bytes_per_us: Figure | None = None
    transaction_bytes: int
    copies: int = 1
    shared: bool
    scratchpad: bool = False

    def share_bytes_per_us(self, veus: int) -> float:
        """What each of so many vEUs gets that move data side by side."""
        own, total = self.bandwidth_bytes_per_us.value, self.total_bandwidth_bytes_per_us
        return own if total is None else min(own, total.value / max(1, veus))


@dataclass(frozen=True, slots=True, kw_only=True)
class VEU:
    """One execution unit: a pinned thread on a processor, a resident block on a GPU.

    `home` is the number of the memory that is its own. All units reach all memories.
    """

    index: int
    core: int | None = None
    home: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What an rTask brings from far beside its results.

    Attributes:
        early_bytes: constants that it copies before it waits.
        beside_bytes: constants that something copies meanwhile, before and while it looks at what it waits for.
        constant_bytes: all constants that it reads.
        written_bytes: results whose lines a cache fetches before they are written, and writes back later.
        instructions: of its code, where they are not few.
        straight_instructions: those of them that follow on each other without a loop.
    """

    early_bytes: int = 0
    beside_bytes: int = 0
    constant_bytes: int = 0
    written_bytes: int = 0
    instructions: float = 0.0
    straight_instructions: float = 0.0


class TileRules(Protocol):
    """How rKernels are constructed for a device and how long they compute: what figures alone do not say.

    Each device brings its own, with what it counts with; Roller asks them and knows no device.
    """

    def candidates(self, workload: Workload, vdevice: VDevice, *, to_measure: bool) -> Sequence[RKernel]:
        """Candidate rKernels, in no order.

        Args:
            workload: what they compute, of what.
            vdevice: the device, all or a share of its units.
            to_measure: whether measured times will decide; then there may be more.

        Raises:
            ValueError: the device has no skeleton for the expression.
        """
        ...

    def persistent(self, workload: Workload, vdevice: VDevice) -> Sequence[RKernel]:
        """More candidates, whose constants stay on few vEUs: the quickest first, then those on fewer; perhaps none."""
        ...

    def late_slots(self, workload: Workload, vdevice: VDevice) -> frozenset[int]:
        """The slots whose elements rTasks would first look at when most of their work is done, if those were tagged."""
        ...

    def first_bytes(self, kernel: RKernel, unwritten: Collection[int]) -> int:
        """What a full rTask brings whole before it waits, of the slots `unwritten` by any rTask; 0: hardly anything."""
        ...

    def brought(self, kernel: RKernel) -> Brought:
        """What a full rTask brings from far, which simulated runs count where the device says how fast."""
        ...

    def late_us(self, kernel: RKernel) -> float:
        """How long a full rTask still takes when it sees the elements that it takes late, in microseconds."""
        ...

    def compute_us(self, kernel: RKernel, vdevice: VDevice) -> float:
        """The time of one full rTask but for what it moves through memory, in microseconds."""
        ...

    def results_us(self, kernel: RKernel, vdevice: VDevice) -> float:
        """Of `compute_us`, what follows on sums: where these wait for memory, it comes behind them."""
        ...


class ByteProducts(enum.StrEnum):
    """How an instruction takes bytes whose products it sums."""

    QUADS = "quads"  # four neighbours of uint8 by four of int8: weights are laid out by fours
    PLAIN = "plain"  # of either sign, as the operands lie


@dataclass(frozen=True, slots=True, kw_only=True)
class VDevice:
    """What scheduling and construction may know about a machine.

    Attributes:
        kind: of device: what users call it.
        name: of the machine.
        veus: its execution units.
        vector_bytes: what an instruction takes at a time.
        vector_registers: of one vEU.
        levels: of memory, as one vEU sees them, innermost first.
        flops_per_us: what a vEU computes at its peak, a multiply-add counted as two.
        handover_us: until a vEU can go on that waits for another one of the same home.
        task_overhead_us: what each rTask takes beyond its work.
        start_us: from the start of a run until its first rTasks start, with what comes behind the last ones.
        starts_early: whether an rTask waits by itself, so that `task_overhead_us` passes while it does.
        skeletons: that it has.
        rules: construct and cost rKernels.
        instructions: that products may be made of.
        byte_products: how bytes are multiplied where an instruction sums several products into an int32; None: it has
            none.
        tile_flops_per_us: what a vEU computes of such products by tiles (`Instruction.TDPBUSD`); None: it has none.
        threads: of a vEU, which share out an rTask.
        alignment_bytes: what addresses of tensors are multiples of.
        array_alignment_bytes: what addresses of callers' arrays are multiples of.
        streams_constants: whether simulated runs bring constants and code, and take results, from the outermost level
            where constants of a model, with what an rOperator moves, find no room in one that all share.
        streamed_share: of that level's bandwidth, what large constants get then.
        stream_bytes: what a stream of constants wants side by side at a time.
        stream_ahead_bytes: how far ahead code asks for such a stream where no vEU's own cache holds it; 0: it does not.
        streams_rows: whether matrices that vectors are multiplied with are to lie with what is summed over innermost,
            where they are constants that do not stay on vEUs.
        staged_rows: contractions of so many rows (None: none) stage both operands, and want what their sums run over
            innermost in weights; others want the lanes innermost.
        precisions: those that products of float32 can run in.
        precision: the one that was asked for.
        numerics: likewise (docs/numerics.md).
        most_filtered: results in a row that minimal filtering may compute together; 1: it is not to be used.
        tree_strategies: ways through decision trees that it has rKernels for.
        trees: the one that was asked for; "auto": none.
        compiler: what makes its code.
        stationary_bytes: constants that a vEU keeps for the next rTask that uses the same; 0 where it keeps none.
        kept_share: of an rTask's time, what it takes where its vEU has kept its constants already.
        own_cache_bytes: so much of what was written on a vEU is in a cache of its own; 0 where it has none.
        longest_task_us: what an rTask may take, since a run hears signals between rTasks; None: as long as it needs.
        last_handover_us: until the last of many vEUs can go on that wait for others of the same home, which is what a
            run of many hand-overs waits for; None: they all go on alike.
        own_handover_us: until a vEU goes on itself that waits, where all is there already; policies count
            `task_overhead_us`, which this has in it. None: no longer than that.
        early_bytes_per_us: at which an rTask copies constants before it waits; None: they take no time.
        instruction_fetch_us: what an instruction takes longer that a vEU runs for the first time: one outside of loops
            from the innermost level that all share, any from the outermost, where constants have taken its place.
        tagged_handover_us: until another vEU has data that it waits for by their tags; None where it cannot.
        products_reach_peak: whether products take about what `flops_per_us` says.
        remote_handover_us: `[i][j]` is `handover_us` from a vEU at home in memory i to one in another memory j.
        has_neighbours: whether other models run on other vEUs of the same machine meanwhile.
        busy_us: per vEU, how long other models have it when a run begins; empty: all are free.
        externs: users' own rKernels for it.
    """

    kind: str
    name: str
    veus: tuple[VEU, ...]
    vector_bytes: int
    vector_registers: int
    levels: tuple[MemoryLevel, ...]
    flops_per_us: Mapping[DType, Figure] = field(hash=False)
    handover_us: Figure
    task_overhead_us: Figure
    skeletons: tuple[str, ...]
    rules: TileRules
    instructions: tuple[Instruction, ...] = ()
    byte_products: ByteProducts | None = None
    tile_flops_per_us: Figure | None = None
    threads: int = 1
    alignment_bytes: int = 64
    array_alignment_bytes: int = 1
    streams_constants: bool = False
    streamed_share: Figure = Figure(1.0, "taken for all")
    stream_bytes: int = 64
    stream_ahead_bytes: int = 0
    streams_rows: bool = False
    staged_rows: int | None = None
    precisions: tuple[str, ...] = ("fp32",)
    precision: str = "fp32"
    numerics: str = "default"
    most_filtered: int = 4
    tree_strategies: tuple[TreeStrategy, ...] = ()
    trees: str = "auto"
    compiler: str = ""
    stationary_bytes: int = 0
    kept_share: float = 1.0
    own_cache_bytes: int = 0
    longest_task_us: float | None = None
    last_handover_us: Figure | None = None
    own_handover_us: Figure | None = None
    early_bytes_per_us: Figure | None = None
    instruction_fetch_us: tuple[Figure, Figure] = (Figure(0.0, "taken for nothing"), Figure(0.0, "taken for nothing"))
    tagged_handover_us: Figure | None = None
    start_us: Figure = Figure(0.0, "taken for nothing")
    starts_early: bool = False
    products_reach_peak: bool = True
    remote_handover_us: tuple[tuple[Figure, ...], ...] = ()
    has_neighbours: bool = False
    busy_us: tuple[float, ...] = ()
    externs: tuple[ExternKernel, ...] = ()

    @property
    def veu_count(self) -> int:
        """Number of execution units."""
        return len(self.veus)

    @property
    def homes(self) -> tuple[int, ...]:
        """The memory of each vEU."""
        return tuple(veu.home for veu in self.veus)

    @property
    def memories(self) -> int:
        """Number of memories, each as large as the outermost level: one but where vEUs have different homes."""
        return 1 + max(self.homes)

    @property
    def late_us(self) -> float:
        """How much later than usual the last of many vEUs goes on."""
        last = self.last_handover_us
        return 0.0 if last is None else max(0.0, last.value - self.handover_us.value)

    def handover_between(self, home: int, other: int) -> Figure:
        """What a hand-over takes from a vEU of one home to another vEU, of the same or another home."""
        return self.handover_us if home == other else self.remote_handover_us[home][other]


class CostModel(Protocol):
    """Durations of rTasks: measured where the profile database has them, the micro-performance model elsewhere."""

    def task_us(self, kernel: RKernel) -> Figure:
        """Time of one full rTask of `kernel` alone on a vEU, in microseconds."""
        ...
