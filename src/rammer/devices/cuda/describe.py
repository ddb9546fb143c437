"""A GPU as a vDevice: a vEU is a resident block, one on each multiprocessor or two that share it.

Facts come from the GPU or from the table of named ones, costs of handing over from a GPU that is here (`peaks.py`). For
one that is not, those of programs that tried the limits of persistent kernels on one H200 stand in. A vEU's share of
what others have, too (its multiprocessor, L2, memory) is an even one.
"""

from __future__ import annotations

from dataclasses import dataclass

from rammer.devices.cuda.architecture import ARRAY_ALIGNMENT_BYTES, KIND, MOST_BLOCKS, OLDEST, Gpu
from rammer.devices.cuda.tiling.rules import GpuRules
from rammer.devices.cuda.tiling.trees import STRATEGIES
from rammer.errors import DeviceUnavailableError, OptionError
from rammer.ir.kernel_form import Instruction, Skeleton
from rammer.ir.types import DType
from rammer.ir.vdevice import VEU, ByteProducts, Figure, MemoryLevel, VDevice
from rammer.tiling.gemm import LEAST_ROWS, WARP

MULTIPROCESSOR_THREADS = 512  # of all its blocks: with 128 registers each they take all 65,536
MAX_WEIGHTS = 80  # registers of a thread that hold stationary weights; the rest is for the work itself
SKELETONS = (
    Skeleton.MAP,
    Skeleton.REDUCE,
    Skeleton.GEMM,
    Skeleton.IMPLICIT_GEMM,
    Skeleton.GEMV,
    Skeleton.DEPTHWISE,
    Skeleton.ATTENTION,
    Skeleton.TREES,
    Skeleton.PERSISTENT_RNN,
    Skeleton.EXTERN,
)
INSTRUCTIONS = (
    Instruction.FFMA,
    Instruction.MMA_TF32,
    Instruction.MMA_BF16,
    Instruction.MMA_F16,
    Instruction.MMA_I8,
)
"""What products are made of."""

DOUBLE_INSTRUCTIONS = (Instruction.MMA_F64,)
"""What multiprocessors of compute capability 9.0 have beside these, with as many multiply-adds a cycle as FFMA."""

WARPGROUP_INSTRUCTIONS = (Instruction.WGMMA_TF32, Instruction.WGMMA_BF16, Instruction.WGMMA_F16)
"""What these have, too."""

_HOPPER = (9, 0)
_L2_PARTS, _IN_PARTS = 2, ((8, 0), _HOPPER)  # each keeps what its own half of the multiprocessors reads
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")  # on tensor cores but for the first
_SECTOR_BYTES = 32
_SHARED_BYTES_PER_CYCLE = 128  # of a multiprocessor
_L2_BYTES_PER_CYCLE = 64  # likewise, while the others read little
_ELSEWHERE = "by a program of its own on an NVIDIA H200 (CUDA 13.0), not by this device"
_HANDOVER_US = Figure(0.94, f"measured once, {_ELSEWHERE}: 132 blocks meet at one counter in L2")
_LAST_HANDOVER_US = Figure(
    1.09,
    "traces of NASNet, ResNeXt-29 and AlexNet on an NVIDIA H200: hand-overs of 0.9 us in the median, the longest of an "
    "rOperator 1.1 to 1.4; with 1.09 their simulated runs end when they do",
)
_OWN_HANDOVER_US = Figure(
    1.05,
    "traces of six networks on an NVIDIA H200: 0.45 to 0.7 us from the end of an rTask to the look at the counters of "
    "the next one, 0.4 to 0.5 us for that",
)
_EARLY_BYTES_PER_US = Figure(
    65e3,
    "the same traces: before they waited, products of ResNet-50 copied 37 KB of weights in 1.0 us, 74 KB in 1.4 us and "
    "147 KB in 2.0 us, those of AlexNet 25 to 45 KB in 0.5 us",
)
_INSTRUCTION_FETCH_US = (
    Figure(
        1.2e-3,
        "the least of networks on an NVIDIA H200: transforms of 370 to 1,370 instructions in ResNeXt-29 and "
        "DeepSpeech2 take 0.35 to 0.9 us longer in traces than run again and again",
    ),
    Figure(2e-3, "the most: those of AlexNet, of 360 to 1,420, whose weights L2 has no room for: 0.75 to 2.9 us"),
)
_STREAMED_SHARE = Figure(
    0.93,
    "traces on an NVIDIA H200: 151 MB of AlexNet's first classifier layer come in 33 to 34 us, 525 MB of Llama's last "
    "one in two times 58",
)
_TAGGED_HANDOVER_US = Figure(
    0.6, f"measured once, {_ELSEWHERE}: a flag goes through L2 from block to block, 0.41 to 0.59 us, rounded up"
)
_START_US = Figure(
    3.4,
    "programs of one to three rOperators on an NVIDIA H200 take 3.3 to 3.9 us longer by events around the launch than "
    "in their traces",
)
_TASK_OVERHEAD_US = Figure(0.3, "nominal: two block barriers and a call through the table")
_KEPT_SHARE = 0.25  # steps of recurrent layers on an H200: 0.15 us and 5.3 ns for each register of weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What was measured on a GPU, in microseconds, and how; what is missing here is nominal.

    Attributes:
        provenance: of all figures; why there are none, where there are none.
        handover_us: from the end of an rTask to the end of a Wait for it on another vEU.
        tagged_handover_us: from the end of an rTask until another vEU has what it tagged.
        task_overhead_us: what an rTask takes beyond its work.
    """

    provenance: str
    handover_us: float | None = None
    tagged_handover_us: float | None = None
    task_overhead_us: float | None = None

    def figure(self, measured: float | None, nominal: Figure) -> Figure:
        """A measured figure, or a nominal one with what it is based on and why it was not measured."""
        if measured is not None:
            return Figure(measured, self.provenance)
        return Figure(nominal.value, f"{nominal.provenance}; {self.provenance}")


NOT_MEASURED = Peaks(provenance="not measured here")


def describe(
    gpu: Gpu, veus: int | None, compiler: str = "", peaks: Peaks = NOT_MEASURED, *, others_wait: bool = False
) -> VDevice:
    """The vDevice of a GPU with `veus` execution units; None takes one for each multiprocessor.

    More than that have half a multiprocessor each.

    Args:
        gpu: the GPU.
        veus: execution units.
        compiler: that makes its code, with its version.
        peaks: what was measured on it.
        others_wait: whether a vEU computes as fast as it does while the other one of its multiprocessor stands still,
            instead of by an even share; the truth lies between.

    Raises:
        DeviceUnavailableError: the GPU is too old.
        OptionError: more units than can be resident together.
    """
    count = gpu.multiprocessors if veus is None else veus
    blocks = _blocks(gpu, count)
    clock = f"{gpu.clock_ghz:g} GHz; {gpu.provenance}"
    sharing = 1 if others_wait else blocks
    lanes = gpu.lanes_per_multiprocessor // sharing
    threads = MULTIPROCESSOR_THREADS // blocks
    return VDevice(
        kind=KIND,
        name=gpu.name,
        veus=tuple(VEU(index=i) for i in range(count)),
        vector_bytes=WARP * DType.FLOAT32.itemsize_bytes,
        vector_registers=gpu.registers_per_multiprocessor // WARP // blocks,
        levels=_levels(gpu, blocks, sharing, clock),
        flops_per_us={
            dtype: Figure(
                2 * lanes * gpu.clock_ghz * 1e3 / _slowdown(dtype),
                f"nominal: {lanes} float32 multiply-adds a cycle at {clock}",
            )
            for dtype in DType
        },
        handover_us=peaks.figure(peaks.handover_us, _HANDOVER_US),
        last_handover_us=_LAST_HANDOVER_US,
        own_handover_us=_OWN_HANDOVER_US,
        early_bytes_per_us=_EARLY_BYTES_PER_US,
        instruction_fetch_us=_INSTRUCTION_FETCH_US,
        tagged_handover_us=peaks.figure(peaks.tagged_handover_us, _TAGGED_HANDOVER_US),
        task_overhead_us=peaks.figure(peaks.task_overhead_us, _TASK_OVERHEAD_US),
        start_us=_START_US,
        starts_early=True,
        skeletons=SKELETONS,
        rules=GpuRules(),
        instructions=_instructions(gpu),
        byte_products=ByteProducts.PLAIN,
        threads=threads,
        alignment_bytes=WARP * DType.FLOAT32.itemsize_bytes,
        array_alignment_bytes=ARRAY_ALIGNMENT_BYTES,
        streams_constants=True,
        streamed_share=_STREAMED_SHARE,
        streams_rows=True,
        staged_rows=LEAST_ROWS,
        kept_share=_KEPT_SHARE,
        stationary_bytes=threads * MAX_WEIGHTS * DType.FLOAT32.itemsize_bytes,
        precisions=_PRECISIONS,
        tree_strategies=STRATEGIES,
        compiler=compiler,
        products_reach_peak=False,
    )


def _blocks(gpu: Gpu, count: int) -> int:
    """How many of so many blocks a multiprocessor holds; raises what `describe` says."""
    if gpu.capability < OLDEST:
        major, minor = OLDEST
        raise DeviceUnavailableError(
            f"{gpu.name} has compute capability {gpu.capability[0]}.{gpu.capability[1]}",
            hint=f"Rammer needs {major}.{minor} (Ampere) or newer; compile for the device 'cpu' instead",
        )
    blocks = -(-count // gpu.multiprocessors)
    if blocks > MOST_BLOCKS:
        raise OptionError(
            f"veus={count}",
            hint=f"{gpu.name} holds {gpu.multiprocessors} blocks, or {MOST_BLOCKS * gpu.multiprocessors}, "
            "two on a multiprocessor",
        )
    return blocks


def _instructions(gpu: Gpu) -> tuple[Instruction, ...]:
    """What multiplies."""
    return INSTRUCTIONS if gpu.capability != _HOPPER else INSTRUCTIONS + DOUBLE_INSTRUCTIONS + WARPGROUP_INSTRUCTIONS


def _slowdown(dtype: DType) -> int:
    """How much longer arithmetic takes than in float32; the half rate of float64 is that of data-centre GPUs."""
    return 2 if dtype is DType.FLOAT64 else 1


def _levels(gpu: Gpu, blocks: int, sharing: int, clock: str) -> tuple[MemoryLevel, ...]:
    """The memories of one of so many blocks of a multiprocessor, of which `sharing` use its own at a time."""
    share = gpu.memory_bytes_per_us / (blocks * gpu.multiprocessors)
    shared_bytes, l2_bytes = _SHARED_BYTES_PER_CYCLE // sharing, _L2_BYTES_PER_CYCLE // sharing
    return (
        MemoryLevel(
            name="shared memory",
            capacity_bytes=gpu.shared_bytes_per_multiprocessor // blocks - gpu.shared_bytes_reserved,
            bandwidth_bytes_per_us=Figure(
                shared_bytes * gpu.clock_ghz * 1e3, f"nominal: {shared_bytes} bytes a cycle at {clock}"
            ),
            transaction_bytes=WARP * DType.FLOAT32.itemsize_bytes,
            shared=False,
            scratchpad=True,
        ),
        MemoryLevel(
            name="L2",
            capacity_bytes=gpu.l2_bytes,
            bandwidth_bytes_per_us=Figure(
                l2_bytes * gpu.clock_ghz * 1e3, f"nominal: {l2_bytes} bytes a cycle for each block at {clock}"
            ),
            transaction_bytes=_SECTOR_BYTES,
            copies=_L2_PARTS if gpu.capability in _IN_PARTS else 1,
            shared=True,
        ),
        MemoryLevel(
            name="memory",
            capacity_bytes=gpu.memory_bytes,
            bandwidth_bytes_per_us=Figure(share, f"an even share of the peak; {gpu.provenance}"),
            transaction_bytes=_SECTOR_BYTES,
            shared=True,
        ),
    )
