"""Proof that a plan is sound (DESIGN D7): with a sound task graph (`verify.tasks`), it computes what the graph says.

Every rTask runs exactly once, no execution comes to a halt, and whatever the speed of the vEUs, an rTask starts after
the writers of all it reads have ended, or takes what they write tag by tag, and arena bytes change hands after the last
access to what they held. So no two rTasks race, and every execution gives the same result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from rammer.errors import VerificationError
from rammer.ir.kernel_form import FlashAttentionForm, GemmForm, WarpgroupGemmForm
from rammer.ir.program import Plan, RProgram, Signal, Wait
from rammer.ir.task import Tensor, TensorRole
from rammer.ir.vdevice import VDevice
from rammer.verify.footprints import Footprints, IntArray, Region
from rammer.verify.naming import describe_operator, describe_step, describe_tensor, sources_of
from rammer.verify.order import Order, happens_before
from rammer.verify.owners import NOBODY, Owners, Touch
from rammer.verify.placement import Placement, place
from rammer.verify.updates import check_order

RULES: Mapping[str, str] = MappingProxyType(
    {
        "P01": "For each rOperator one of its candidate rKernels is chosen.",
        "P02": "Only rTasks that exist are run.",
        "P03": "No rTask is run twice.",
        "P04": "Every rTask is run.",
        "P05": "There are no more queues than vEUs, so that all of them run at once and a Wait cannot starve.",
        "P06": "Waits and Signals name counters that the rProgram has.",
        "P07": "A threshold is at least 1 and at most the number of signals that its counter gets.",
        "P08": "Queue order, Waits and tagged results together have no cycle: every execution reaches the end.",
        "P09": "The memory plan places all intermediate root tensors and nothing else.",
        "P10": "Placed tensors are aligned as the device asks and lie within the arena of a memory that it has.",
        "P11": "An rTask starts after the writers of all that it reads have ended, tagged results excepted.",
        "P12": "No two rTasks write the same element.",
        "P13": "Arena bytes are given to a tensor after all accesses to the one that they held have ended.",
        "P14": "Every element of an output is written, but for states in place.",
        "P15": "The scratch memory of an rTask, and the weights that it keeps in registers, fit what one vEU has.",
        "P16": "The device has the skeleton and the instruction of every chosen rKernel.",
        "P17": "Only devices that wait for tags get tagged tensors, and their arena bytes are theirs alone.",
        "P18": "An rTask takes the threads that a vEU has.",
        "P19": "A state in place is written after all reads of what was there have ended.",
    }
)
_OF_INSTRUCTIONS = (GemmForm, WarpgroupGemmForm, FlashAttentionForm)


def verify(plan: Plan, device: VDevice) -> None:
    """Prove a plan for a device; its task graph is taken to be verified.

    Raises:
        VerificationError: a rule of `RULES` is broken; the message names the rTasks and their places.
    """
    _check_choice(plan, device)
    for number, program in enumerate(plan.schedule.programs):
        _check_shape(number, program, device)
    _check_memory(plan, device)
    placement = place(plan)
    accesses = _accesses(plan, placement)
    order = happens_before(placement, _takers(plan, accesses))
    for tensor in accesses:
        if tensor not in plan.graph.updated:
            _check_elements(plan.graph.tensors[tensor], accesses[tensor], placement, order)
    check_order(plan, placement, order)
    _check_reuse(plan, accesses, placement, order)


def _check_choice(plan: Plan, device: VDevice) -> None:
    operators, choice = plan.graph.operators, plan.schedule.choice
    if len(choice) != len(operators):
        raise VerificationError("P01", f"{len(choice)} rKernels are chosen for {len(operators)} rOperators")
    private = [level.capacity_bytes for level in device.levels if not level.shared]
    for operator, pick in zip(operators, choice, strict=True):
        name, where = describe_operator(operator), sources_of(operator)
        if not 0 <= pick < len(operator.kernels):
            message = f"rKernel {pick} is chosen for {name}, which has {len(operator.kernels)}"
            raise VerificationError("P01", message, where=where)
        kernel = operator.kernels[pick]
        if kernel.form.skeleton not in device.skeletons:
            message = (
                f"{name} needs the skeleton '{kernel.form.skeleton}'; {device.name} has {', '.join(device.skeletons)}"
            )
            raise VerificationError("P16", message, where=where)
        if isinstance(kernel.form, _OF_INSTRUCTIONS) and kernel.form.instruction not in device.instructions:
            message = f"{name} needs the instruction {kernel.form.instruction.value}, which {device.name} has not"
            raise VerificationError("P16", message, where=where)
        if private and kernel.form.scratch_bytes > max(private):
            message = f"an rTask of {name} takes {kernel.form.scratch_bytes} bytes of {max(private)}"
            raise VerificationError("P15", message, where=where)
        kept_bytes = kernel.form.kept_bytes
        if kept_bytes > device.stationary_bytes:
            message = f"an rTask of {name} keeps {kept_bytes} bytes in registers of {device.stationary_bytes}"
            raise VerificationError("P15", message, where=where)
        if kernel.form.threads != device.threads:
            message = f"an rTask of {name} takes {kernel.form.threads} threads; a vEU has {device.threads}"
            raise VerificationError("P18", message, where=where)


def _check_shape(number: int, program: RProgram, device: VDevice) -> None:
    """Queues, counters and thresholds of one rProgram."""
    if program.veus > device.veu_count:
        message = f"rProgram {number} has {program.veus} queues; {device.name} has {device.veu_count} vEUs"
        raise VerificationError("P05", message)
    steps = [
        (veu, position, step)
        for veu, queue in enumerate(program.steps)
        for position, step in enumerate(queue)
        if isinstance(step, Wait | Signal)
    ]
    signals = Counter(step.counter for _, _, step in steps if isinstance(step, Signal))
    for veu, position, step in steps:
        here = describe_step(number, veu, position)
        if not 0 <= step.counter < program.counter_count:
            message = f"{here} uses counter {step.counter} of {program.counter_count}"
            raise VerificationError("P06", message)
        if isinstance(step, Wait) and not 1 <= step.threshold <= signals[step.counter]:
            message = (
                f"{here} waits for signal {step.threshold} of counter {step.counter}, "
                f"which gets {signals[step.counter]}"
            )
            raise VerificationError("P07", message)


def _check_memory(plan: Plan, device: VDevice) -> None:
    memory = plan.memory
    wanted = {tensor.id for tensor in plan.graph.tensors if _in_arena(tensor)}
    for tensor in sorted(wanted.symmetric_difference(memory.offsets_bytes)):
        is_missing = tensor in wanted
        what = "has no place in the arena" if is_missing else "is no intermediate root tensor, and has a place"
        raise VerificationError("P09", f"tensor {tensor} {what}")
    if memory.alignment_bytes < 1 or memory.alignment_bytes % device.alignment_bytes:
        message = f"the arena is aligned to {memory.alignment_bytes} bytes, {device.name} asks {device.alignment_bytes}"
        raise VerificationError("P10", message)
    if len(memory.arenas_bytes) != device.memories:
        message = f"there are arenas in {len(memory.arenas_bytes)} memories, {device.name} has {device.memories}"
        raise VerificationError("P10", message)
    for tensor, offset in sorted(memory.offsets_bytes.items()):
        end, number = offset + plan.graph.tensors[tensor].nbytes, memory.memory_of(tensor)
        name = describe_tensor(plan.graph.tensors[tensor])
        if not 0 <= number < device.memories:
            raise VerificationError("P10", f"{name} lies in memory {number}; {device.name} has {device.memories}")
        arena_bytes = memory.arenas_bytes[number]
        if offset < 0 or end > arena_bytes or offset % memory.alignment_bytes:
            message = (
                f"{name} lies at bytes {offset} to {end} of an arena of {arena_bytes}, "
                f"aligned to {memory.alignment_bytes}"
            )
            raise VerificationError("P10", message)
    _check_tagged(plan, device)


def _check_tagged(plan: Plan, device: VDevice) -> None:
    """Tagged tensors are possible, and have bytes of their own."""
    memory = plan.memory
    ids = np.array(list(memory.offsets_bytes), dtype=np.int64)
    starts = np.array(list(memory.offsets_bytes.values()), dtype=np.int64)
    ends = starts + np.array([plan.graph.tensors[tensor].nbytes for tensor in memory.offsets_bytes], dtype=np.int64)
    memories = np.array([memory.memory_of(tensor) for tensor in memory.offsets_bytes], dtype=np.int64)
    for tagged in (tensor for tensor in plan.graph.tensors if tensor.layout.tagged):
        root = plan.graph.root(tagged.id)
        is_possible = device.tagged_handover_us is not None and tagged.type.dtype.can_be_tagged
        if not is_possible or not root.layout.tagged or not _in_arena(root):
            raise VerificationError("P17", f"{describe_tensor(tagged)} cannot be tagged on {device.name}")
        start = memory.offsets_bytes[root.id]
        near = (memories == memory.memory_of(root.id)) & (ids != root.id)
        sharing = ids[near & (starts < start + root.nbytes) & (start < ends)]
        if sharing.size:
            both = f"{describe_tensor(root)} and {describe_tensor(plan.graph.tensors[int(sharing[0])])}"
            raise VerificationError("P17", f"{both} share bytes of the arena, and the first is tagged")


def _in_arena(tensor: Tensor) -> bool:
    return tensor.role is TensorRole.INTERMEDIATE and tensor.alias_of is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accesses:
    """All that happens to one root tensor: regions with the numbers of the rTasks, one per tile."""

    reads: list[Touch] = field(default_factory=list)
    writes: list[Touch] = field(default_factory=list)


def _accesses(plan: Plan, placement: Placement) -> dict[int, _Accesses]:
    """The accesses to every root tensor that rTasks write."""
    graph, footprints = plan.graph, Footprints(plan.graph)
    found = {
        tensor.id: _Accesses()
        for tensor in graph.tensors
        if tensor.alias_of is None and tensor.role in (TensorRole.INTERMEDIATE, TensorRole.OUTPUT) and tensor.type.size
    }

    def note(region: Region, numbers: IntArray, *, is_read: bool) -> None:
        if region.tensor in found:
            accesses = found[region.tensor]
            (accesses.reads if is_read else accesses.writes).append(Touch(region=region, numbers=numbers))

    for operator, kernel in zip(graph.operators, plan.kernels, strict=True):
        numbers = placement.numbers(operator.id)
        for region in footprints.reads(operator, kernel.expr, kernel.tile.task):
            note(region, numbers, is_read=True)
        for region in footprints.writes(operator, kernel.expr, kernel.tile.task):
            note(region, numbers, is_read=False)
    return found


def _check_elements(tensor: Tensor, accesses: _Accesses, placement: Placement, order: Order) -> None:
    """Each element written once, and read after that."""
    owners = Owners(tensor.type.shape, accesses.writes)
    if owners.clash is not None:
        pair = (owners.clash.first, owners.clash.second)
        names = " and ".join(map(placement.describe, pair))
        message = f"{names} write the same element of {describe_tensor(tensor)}"
        raise VerificationError("P12", message, where=placement.where(pair))
    if tensor.role is TensorRole.OUTPUT and not owners.complete:
        raise VerificationError("P14", f"output {describe_tensor(tensor)} has elements that no rTask writes")
    if not accesses.reads or tensor.layout.tagged:
        return
    if owners.only is not None and all(order.follow(read.numbers, owners.only) for read in accesses.reads):
        return
    reads = [_touching(read) for read in accesses.reads]
    readers = np.concatenate([numbers for numbers, _ in reads])
    boxes, kind = _distinct(np.concatenate([ends for _, ends in reads]))
    if not len(boxes):
        return
    writers = _writers(owners, boxes)
    needed = np.stack([order.after_all(numbers) for numbers in writers])
    late = np.flatnonzero((order.known[readers] < needed[kind]).any(axis=1))
    if late.size:
        reader, read_kind = min((int(readers[i]), int(kind[i])) for i in late)
        writer = int(order.unordered(writers[read_kind], reader)[0])
        lo, hi = boxes[read_kind].reshape(2, -1).tolist()
        box = ", ".join(f"{first}:{last}" for first, last in zip(lo, hi, strict=True))
        message = (
            f"{placement.describe(reader)} reads {describe_tensor(tensor)}[{box}], "
            f"and may start before {placement.describe(writer)} has written there"
        )
        raise VerificationError("P11", message, where=placement.where((reader, writer)))


def _takers(plan: Plan, accesses: Mapping[int, _Accesses]) -> dict[int, list[int]]:
    """The writers of the tagged results that each rTask takes."""
    takers: dict[int, list[int]] = {}
    for tensor, accessed in accesses.items():
        if plan.graph.tensors[tensor].layout.tagged:
            owners = Owners(plan.graph.tensors[tensor].type.shape, accessed.writes)
            for read in accessed.reads:
                readers, ends = _touching(read)
                boxes, kind = _distinct(ends)
                writers = [found.tolist() for found in _writers(owners, boxes)]
                for reader, place in zip(readers.tolist(), kind.tolist(), strict=True):
                    takers.setdefault(reader, []).extend(writers[place])
    return takers


def _touching(access: Touch) -> tuple[IntArray, IntArray]:
    """The rTasks with boxes that are not empty, and these boxes as rows of `lo` and `hi`."""
    touched = access.region.touched
    return access.numbers[touched], np.hstack([access.region.lo, access.region.hi])[touched]


def _distinct(boxes: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows in order of first appearance, and the place of each row among them."""
    places: dict[tuple[int, ...], int] = {}
    kind = [places.setdefault(tuple(row), len(places)) for row in boxes.tolist()]
    distinct = np.array(list(places), dtype=np.int64).reshape(len(places), boxes.shape[1])
    return distinct, np.array(kind, dtype=np.int64)


def _writers(owners: Owners, boxes: IntArray) -> list[IntArray]:
    """The writers of the elements of each box, a row of `lo` and `hi`, ascending."""
    lo, hi = np.hsplit(boxes, 2)
    return [found if found[0] != NOBODY else found[1:] for found in owners.of(lo, hi)]


def _check_reuse(plan: Plan, accesses: Mapping[int, _Accesses], placement: Placement, order: Order) -> None:
    """Arena bytes change hands in time.

    Tensors take their bytes in the order of their first writes in one execution. If a tensor's writers come after all
    accesses to the holders whose bytes they take, they come after those of all earlier holders too.
    """
    takers = []
    for tensor, accessed in accesses.items():
        writers = _all_numbers(accessed.writes)
        if tensor in plan.memory.offsets_bytes and writers.size:
            takers.append((int(order.turn[writers].min()), tensor, writers))
    holders = [_Holders() for _ in plan.memory.arenas_bytes]
    for _, tensor, writers in sorted(takers, key=lambda taker: taker[:2]):
        offset, there = plan.memory.offsets_bytes[tensor], holders[plan.memory.memory_of(tensor)]
        for before in there.take(offset, offset + plan.graph.tensors[tensor].nbytes, tensor):
            users = _all_numbers(accesses[before].reads + accesses[before].writes)
            late = np.flatnonzero((order.known[writers] < order.after_all(users)).any(axis=1))
            if late.size:
                writer = int(writers[late].min())
                user = int(order.unordered(users, writer)[0])
                old, new = (describe_tensor(plan.graph.tensors[other]) for other in (before, tensor))
                message = (
                    f"{placement.describe(writer)} writes {new} in bytes of {old}, "
                    f"and may start before {placement.describe(user)} is done with that"
                )
                raise VerificationError("P13", message, where=placement.where((writer, user)))


def _all_numbers(accesses: list[Touch]) -> IntArray:
    """The rTasks that touch anything, in order, once each."""
    parts = [access.numbers[access.region.touched] for access in accesses]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)


class _Holders:
    """Who holds which bytes: disjoint spans in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._spans: list[tuple[int, int, int]] = []

    def take(self, start: int, end: int, holder: int) -> list[int]:
        """Give bytes to a new holder; returns those who lose some, once each."""
        first = max(0, bisect_right(self._starts, start) - 1)
        last = first
        while last < len(self._spans) and self._spans[last][0] < end:
            last += 1
        losing = [span for span in self._spans[first:last] if span[1] > start]
        kept = [span for span in self._spans[first:last] if span[1] <= start]
        for lo, hi, other in losing:
            kept.extend(part for part in ((lo, start, other), (end, hi, other)) if part[0] < part[1])
        self._spans[first:last] = sorted([*kept, (start, end, holder)])
        self._starts[first:last] = [span[0] for span in self._spans[first : first + len(kept) + 1]]
        return list(dict.fromkeys(other for _, _, other in losing))
