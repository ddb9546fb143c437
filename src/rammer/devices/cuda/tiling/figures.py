"""What the model of a GPU counts with beside the vDevice's own figures, and where that comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rammer.ir.kernel_form import Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreCycles:
    """What a warp's tensor core takes, in cycles of a quarter of a multiprocessor.

    Attributes:
        product: 16 rows by 8 lanes of 16 elements, or 32 bytes.
        read: 4 elements, or 8 bytes, that each thread of a warp reads and rounds.
        idle: how much longer a product takes if all warps but one are idle, and less in proportion if fewer are.
    """

    product: float
    read: float
    idle: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of blocks whose warps multiply each for itself.

    Cycles are of a quarter of a multiprocessor, which multiplies for one warp at a time, and not while it reads shared
    memory.

    Attributes:
        provenance: of all figures.
        latency_us: pointers, the first operands, and what the rest reads, one after the other.
        window_cycles: of elements of an operand that are sums themselves: a turn of all threads, a load of a warp, each
            conversion that goes with it.
        beside_windows: how much longer that takes beside other models.
        cut_windows: likewise, and where extents are no multiples of a tile's, so that rTasks at the end are smaller.
        byte_windows: how much longer that takes where the sums are of bytes and rounded to bytes.
        computed_cycles: of elements of an operand that are elementwise work: until what they load is there.
        stage_cycles: a barrier, and the first reads after it.
        copy_cycles: up to 16 bytes of operands that are summed along one axis, along several.
        partial_sum_cycles: a sum of one slice.
        result_cycles: one result.
        instruction_cycles: one instruction for it, beyond its sums.
        multiply_add_cycles: one of each thread of a warp.
        read_cycles: 16 bytes by each thread of a warp, from shared memory.
        tensor_cores: by instruction.
    """

    provenance: str
    latency_us: float
    window_cycles: tuple[float, float, float]
    beside_windows: float
    cut_windows: float
    byte_windows: float
    computed_cycles: float
    stage_cycles: float
    copy_cycles: tuple[float, float]
    partial_sum_cycles: float
    result_cycles: float
    instruction_cycles: float
    multiply_add_cycles: float
    read_cycles: float
    tensor_cores: Mapping[Instruction, TensorCoreCycles] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFigures:
    """Of blocks whose threads work each for itself, or in teams: maps, reductions, products with few sums.

    Attributes:
        provenance: of all figures.
        start_us: until the first loads are on their way, and from the last result to the end.
        wait_us: for what is loaded.
        issued: instructions as they are counted, for each that could be started.
        found_us: a line that a warp asks for.
        missed_us: a line that the multiprocessor's own cache has not, or that is stored.
        l2_us, memory_us: a byte from or to L2 and memory, while all multiprocessors read and write.
        exchange_us: a value, within a warp.
        barrier_us: a barrier of several warps, and what passes through shared memory there.
    """

    provenance: str
    start_us: float
    wait_us: float
    issued: float
    found_us: float
    missed_us: float
    l2_us: float
    memory_us: float
    exchange_us: float
    barrier_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFigures:
    """Of cells of recurrent layers, whose weights stay.

    Attributes:
        provenance: of all figures.
        stationary_us: of an rTask of one vector that loads weights into registers to keep them, and of each of these
            registers.
        narrow_us: likewise, where weights stay 16 bits, of each word of them, and what it takes longer if there is no
            register for it.
        instruction_us: of several vectors, where weights are there: an instruction of a subcore's tensor core.
        element_us: likewise an element of 16 bits of the vectors, which a thread brings.
        sum_us: likewise a sum of a slice, which a thread adds.
    """

    provenance: str
    stationary_us: tuple[float, float]
    narrow_us: tuple[float, float, float]
    instruction_us: float
    element_us: float
    sum_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupFigures:
    """Of products that warpgroups multiply.

    Attributes:
        provenance: of all figures.
        latency_us: barriers, the first operands and the results, one after the other.
        slab_us: until a slab's products can be followed by the next one's.
        window_slab_us: likewise of windows of an image, a stage for each.
        column_cycles: an instruction, for each of its columns.
        cycles_per_us: of the clock.
        own_bytes_per_us: from L2 into one multiprocessor.
        all_bytes_per_us: into all of them.
        result_us: one result.
        instruction_us: one more instruction for each result than a bias and a residual take.
        sums_us: putting a column of sums of a warpgroup into shared memory.
    """

    provenance: str
    latency_us: float
    slab_us: float
    window_slab_us: float
    column_cycles: float
    cycles_per_us: float
    own_bytes_per_us: float
    all_bytes_per_us: float
    result_us: float
    instruction_us: float
    sums_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFigures:
    """Of attention, in cycles of a quarter of a multiprocessor.

    Attributes:
        provenance: of all figures.
        latency_us: pointers, the first operands and the results, one after the other.
        step_us: a barrier, and what follows on each other within a step of keys.
        score_cycles: a score of each thread of a warp, beside its products.
        product_cycles: 16 rows by 8 columns of 16 elements by tensor cores, with reading them.
        double_cycles: likewise of 8 elements in float64.
        bytes_per_us: from L2 into one multiprocessor.
        computed_per_us: elements of operands that do not lie in memory as they are multiplied; nominal.
    """

    provenance: str
    latency_us: float
    step_us: float
    score_cycles: float
    product_cycles: float
    double_cycles: float
    bytes_per_us: float
    computed_per_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseFigures:
    """Of depthwise convolutions from shared memory.

    Attributes:
        provenance: of all figures.
        latency_us: pointers, the patch, a barrier and the results, one after the other.
        copy_us: up to 16 bytes, while all multiprocessors copy.
        item_instructions: of a thread, for where its points are.
        row_instructions: of a thread, for where a row of its windows is.
        alone: cycles of an instruction of a warp that has a quarter of a multiprocessor to itself.
        cycles_per_us: of the clock.
    """

    provenance: str
    latency_us: float
    copy_us: float
    item_instructions: float
    row_instructions: float
    alone: float
    cycles_per_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFigures:
    """Of walks through decision trees. Cycles are of a multiprocessor.

    Attributes:
        provenance: of all figures.
        near_step_cycles: of a warp, for a step of a path through nodes in shared memory, while others are busy, too.
        far_step_cycles: likewise, through nodes in L2 that all multiprocessors read.
        far_alone_cycles: likewise, while one of them does.
        near_latency_cycles: from the beginning of a step to its end, where nothing else is to be done.
        far_latency_cycles: likewise.
        group_cycles: for a group of trees, until their nodes are there.
        bytes_per_cycle: of nodes, from L2.
        sum_cycles: to add a tree's leaf, one after the other.
        cycles_per_us: of the clock.
    """

    provenance: str
    near_step_cycles: float
    far_step_cycles: float
    far_alone_cycles: float
    near_latency_cycles: float
    far_latency_cycles: float
    group_cycles: float
    bytes_per_cycle: float
    sum_cycles: float
    cycles_per_us: float


H200 = Figures(
    provenance="fitted to 384 products of 14 networks, multiply-adds and fp16, on all multiprocessors of an NVIDIA "
    "H200: off by 1.13, rank correlation 0.98; tf32 by whole products; windows fitted to 84 products of NASNet, fp16: "
    "1.08; computed operands to 16 products of EfficientNet, fp16; windows of bytes to 7 products of MobileNetV2, "
    "int8, whose other products of bytes, and 49 of ResNet-50's, took what those of fp16 are predicted to take for "
    "half the elements",
    latency_us=0.43,
    window_cycles=(218, 3.4, 0.4),
    beside_windows=1.0,
    byte_windows=1.64,
    cut_windows=2.0,
    computed_cycles=500,
    stage_cycles=619,
    copy_cycles=(1.21, 1.21),
    partial_sum_cycles=0.142,
    result_cycles=0.908,
    instruction_cycles=0.0371,
    multiply_add_cycles=1.36,
    read_cycles=4.69,
    tensor_cores={
        Instruction.MMA_TF32: TensorCoreCycles(product=10.0, read=14.0),
        Instruction.MMA_BF16: TensorCoreCycles(product=5.64, read=7.75),
        Instruction.MMA_F16: TensorCoreCycles(product=5.64, read=7.75),
        Instruction.MMA_I8: TensorCoreCycles(product=5.64, read=7.75),
    },
)

H200_DOUBLES = replace(
    H200,
    provenance="fitted to 221 products of six networks on all multiprocessors of an NVIDIA H200, windows apart: off by "
    "1.06; idle warps by which of ConvNeXt's tiles is quicker; windows beside other models to 101 products of NASNet "
    "beside NASNet and beside ResNeXt",
    beside_windows=2.0,
    copy_cycles=(0.93, 1.38),
    partial_sum_cycles=0.376,
    result_cycles=0.361,
    tensor_cores={Instruction.MMA_F64: TensorCoreCycles(product=33.1, read=0.41, idle=4.0)},
)
"""The same of products in float64."""

H200_THREADS = ThreadFigures(
    provenance="fitted to 1,170 rKernels of 14 networks, fp32 and fp16, on all 132 multiprocessors of an NVIDIA H200",
    start_us=0.277,
    wait_us=0.127,
    issued=1.09,
    found_us=8.65e-5,
    missed_us=4.76e-4,
    l2_us=1.59e-5,
    memory_us=2.71e-5,
    exchange_us=0.0142,
    barrier_us=0.149,
)

H200_CELLS = CellFigures(
    provenance="steps of layers on an NVIDIA H200: of one vector by its registers; of 4 to 64 fitted to 47 rKernels of "
    "two layers of 128 to 512 units in fp32 and fp16, beside hand-overs of 0.52 us: off by 1.09",
    stationary_us=(0.8, 0.02),
    narrow_us=(1.5, 0.02, 0.06),
    instruction_us=4.6e-3,
    element_us=0.0312,
    sum_us=0.0334,
)

H200_WARPGROUPS = WarpgroupFigures(
    provenance="measured on an NVIDIA H200 in 900 chains of products, fp16: off by 1.09, rank correlation 0.97",
    latency_us=0.9,
    slab_us=0.062,
    window_slab_us=0.19,
    column_cycles=0.54,
    cycles_per_us=1980.0,
    own_bytes_per_us=113e3,
    all_bytes_per_us=8.5e6,
    result_us=1.06e-4,
    instruction_us=3e-6,
    sums_us=3.1e-3,
)

H200_ATTENTION = AttentionFigures(
    provenance="measured on an NVIDIA H200 in 21 blocks of attention, fp16: off by 1.06",
    latency_us=1.2,
    step_us=0.3,
    score_cycles=10.0,
    product_cycles=10.0,
    double_cycles=36.0,
    bytes_per_us=113e3,
    computed_per_us=800.0,
)

H200_DEPTHWISE = DepthwiseFigures(
    provenance="nominal, then made to fit rTasks of ConvNeXt and EfficientNet on an NVIDIA H200",
    latency_us=0.7,
    copy_us=3e-4,
    item_instructions=60,
    row_instructions=12,
    alone=3.0,
    cycles_per_us=1980.0,
)
H200_TREES = TreeFigures(
    provenance="nominal, but for steps: 500 trees of depth 6 through shared memory by a program of its own, and of one "
    "row through L2, on an NVIDIA H200",
    near_step_cycles=4.2,
    far_step_cycles=55.0,
    far_alone_cycles=34.0,
    near_latency_cycles=90.0,
    far_latency_cycles=600.0,
    group_cycles=1500.0,
    bytes_per_cycle=32.0,
    sum_cycles=8.0,
    cycles_per_us=1980.0,
)
