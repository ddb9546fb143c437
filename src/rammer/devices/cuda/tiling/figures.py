"""What the model of a GPU counts with beside the vDevice's own figures, and where that comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rammer.ir.kernel_form import Instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCoreCycles:
    """What a warp's tensor core takes, in cycles of a quarter of a multiprocessor.

    Attributes:
        product: 16 rows by 8 lanes of 16 elements.
        read: 4 elements that each thread of a warp reads and rounds.
    """

    product: float
    read: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of blocks whose warps multiply each for itself, and of all that is no product.

    Cycles are of a quarter of a multiprocessor, which multiplies for one warp at a time, and not while it reads shared
    memory.

    Attributes:
        provenance: of all figures.
        issued: the part of the instructions that could be started and are.
        latency_us: pointers, the first operands, and what the rest reads, one after the other.
        loads_in_flight: of a thread.
        stage_cycles: a barrier, and the first reads after it.
        copy_cycles: up to 16 bytes.
        partial_sum_cycles: a sum of one slice.
        result_cycles: one result.
        multiply_add_cycles: one of each thread of a warp.
        read_cycles: 16 bytes by each thread of a warp, from shared memory.
        tensor_cores: by instruction.
    """

    provenance: str
    issued: float
    latency_us: float
    loads_in_flight: int
    stage_cycles: float
    copy_cycles: float
    partial_sum_cycles: float
    result_cycles: float
    multiply_add_cycles: float
    read_cycles: float
    tensor_cores: Mapping[Instruction, TensorCoreCycles] = field(hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupFigures:
    """Of products that warpgroups multiply.

    Attributes:
        provenance: of all figures.
        latency_us: barriers, the first operands and the results, one after the other.
        slab_us: until a slab's products can be followed by the next one's.
        column_cycles: an instruction, for each of its columns.
        cycles_per_us: of the clock.
        own_bytes_per_us: from L2 into one multiprocessor.
        all_bytes_per_us: into all of them.
        result_us: one result.
        sums_us: putting a column of sums of a warpgroup into shared memory.
    """

    provenance: str
    latency_us: float
    slab_us: float
    column_cycles: float
    cycles_per_us: float
    own_bytes_per_us: float
    all_bytes_per_us: float
    result_us: float
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
        bytes_per_us: from L2 into one multiprocessor.
    """

    provenance: str
    latency_us: float
    step_us: float
    score_cycles: float
    product_cycles: float
    bytes_per_us: float


H200 = Figures(
    provenance="measured on an NVIDIA H200 by whole products",
    issued=0.6,
    latency_us=1.3,
    loads_in_flight=16,
    stage_cycles=600,
    copy_cycles=1.2,
    partial_sum_cycles=0.4,
    result_cycles=1.0,
    multiply_add_cycles=1.03,
    read_cycles=4.85,
    tensor_cores={
        Instruction.MMA_TF32: TensorCoreCycles(product=10.0, read=14.0),
        Instruction.MMA_BF16: TensorCoreCycles(product=6.0, read=10.0),
        Instruction.MMA_F16: TensorCoreCycles(product=6.0, read=10.0),
    },
)

H200_WARPGROUPS = WarpgroupFigures(
    provenance="measured on an NVIDIA H200 in 900 chains of products, fp16: off by 1.09, rank correlation 0.97",
    latency_us=0.9,
    slab_us=0.062,
    column_cycles=0.54,
    cycles_per_us=1980.0,
    own_bytes_per_us=113e3,
    all_bytes_per_us=8.5e6,
    result_us=1.06e-4,
    sums_us=3.1e-3,
)

H200_ATTENTION = AttentionFigures(
    provenance="measured on an NVIDIA H200 in 21 blocks of attention, fp16: off by 1.06",
    latency_us=1.2,
    step_us=0.3,
    score_cycles=10.0,
    product_cycles=10.0,
    bytes_per_us=113e3,
)
