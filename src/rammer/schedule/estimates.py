"""What policies and the simulator take things to cost, and the choice of an rKernel by cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from rammer.ir.task import RKernel, ROperator, TaskGraph, TensorRole
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.handovers import Handovers

_PerCandidate = tuple[tuple[float, ...], ...]


class Estimates:
    """Times of a task graph's candidates on a device, in microseconds.

    Attributes:
        handovers: from the end of an rTask to the start of one that waits for it on another vEU.
        tagged_handovers: the same of tagged results.
        handover_us: the least of the first.
        step_us: what it adds to a chain of rTasks on several vEUs; less where the next one starts while it waits.
        program_us: from the end of an rProgram to the start of the next. At the least that is a global barrier: one
            hand-over to learn that all vEUs are done and one to tell them all.
        overhead_us: what the interpreter adds to an rTask.
        task_us: per rOperator and candidate rKernel, one rTask with the interpreter's overhead. What keeps weights that
            other rOperators have too, as the steps of a recurrent layer do, finds them there and walks from rTask to
            rTask by itself.
        fetch_us: likewise, what it takes before it waits to load weights that others have taken the place of, which is
            as long as an rTask takes that does so; 0 for what keeps none.
        early_us: likewise, how long before its inputs are there an rTask may have started: that overhead, where rTasks
            wait by themselves.
        load_us: likewise, what it takes before that, or while it waits, to bring what no rTask writes: weights that it
            keeps and nobody left on its vEU, which come from memory in about the time of a hand-over, or what its form
            brings whole, as attention does the rows of a cache.
    """

    def __init__(self, graph: TaskGraph, device: VDevice, costs: CostModel, *, is_held: bool = False) -> None:
        """Of a graph's candidates.

        Args:
            graph: the task graph.
            device: on what.
            costs: the times of rTasks.
            is_held: whether hand-overs take as long as the last of many does, and `task_us` and `early_us` have in them
                what holds up an rTask that has Waits, as in simulation.
        """
        if is_held and device.last_handover_us is not None:
            device = replace(device, handover_us=device.last_handover_us)
        self.handovers = Handovers(device)
        self.tagged_handovers = Handovers(device, tagged=True)
        self.handover_us = self.handovers.least_us
        self.program_us = 2 * self.handovers.most_us
        self.overhead_us = overhead_us = device.task_overhead_us.value
        self.step_us = self.handover_us - (overhead_us if device.starts_early else 0.0)
        self._device = device
        unwritten = {TensorRole.INPUT, TensorRole.CONSTANT}
        self._unwritten = {tensor.id for tensor in graph.tensors if graph.root(tensor.id).role in unwritten}
        self._readers = Counter(binding.tensor for operator in graph.operators for binding in operator.reads)
        known: dict[RKernel, float] = {}
        for operator in graph.operators:
            for kernel in operator.kernels:
                if kernel not in known:
                    known[kernel] = costs.task_us(kernel).value
        self.task_us = tuple(
            tuple(self._whole_us(operator, kernel, known[kernel]) for kernel in operator.kernels)
            for operator in graph.operators
        )

        self.fetch_us = tuple(
            tuple(
                known[kernel] + overhead_us if self._is_kept(operator, kernel) else 0.0 for kernel in operator.kernels
            )
            for operator in graph.operators
        )
        self.early_us = tuple(
            tuple(
                overhead_us if device.starts_early and not self._is_kept(operator, kernel) else 0.0
                for kernel in operator.kernels
            )
            for operator in graph.operators
        )
        if is_held:
            held_us = tuple(
                tuple(self.held_us(operator, pick) for pick in range(len(operator.kernels)))
                for operator in graph.operators
            )
            self.task_us, self.early_us = _sums(self.task_us, held_us), _sums(self.early_us, held_us)
        self._first_read_bytes = _first_read_bytes(graph)
        self._busy_bytes = busy_bytes(graph)
        shared = next((level for level in device.levels if level.shared), device.levels[-1])
        self._shared_bytes = shared.capacity_bytes if device.streams_constants else math.inf
        self._is_far = shared.copies * self._busy_bytes > self._shared_bytes
        own = next((level for level in reversed(device.levels) if not level.shared), None)
        rates = [level.share_bytes_per_us(device.veu_count) for level in (own or shared, shared)]
        self._fetch_us_per_byte = max(0.0, 1 / rates[1] - 1 / rates[0]) if device.own_cache_bytes else 0.0
        self.load_us = tuple(
            tuple(
                self._load_us(operator, kernel) if early_us > 0 else 0.0
                for kernel, early_us in zip(operator.kernels, early, strict=True)
            )
            for operator, early in zip(graph.operators, self.early_us, strict=True)
        )

    def late_us(self, count: int) -> float:
        """How much later than usual the last of so many vEUs goes on that wait for the same.

        It grows as the largest of so many samples does, about with their logarithm. Policies choose by the usual time.
        """
        return self._device.late_us * math.log(count) / math.log(max(2, self._device.veu_count))

    def held_us(self, operator: ROperator, pick: int) -> float:
        """How much longer than usual an rTask is held up that has Waits, where all that it waits for is there.

        It copies constants first, or has them copied meanwhile, and a look at counters takes as long as it takes.
        Policies do not count it.
        """
        device, own = self._device, self._device.own_handover_us
        if self.early_us[operator.id][pick] == 0.0:
            return 0.0
        look_us = 0.0 if own is None else max(0.0, own.value - device.task_overhead_us.value)
        brought = device.rules.brought(operator.kernels[pick])
        beside_us = self._early_us(brought.beside_bytes) - device.task_overhead_us.value
        return max(look_us + self._early_us(brought.early_bytes), beside_us)

    def rest_us(self, kernel: RKernel) -> float | None:
        """What an rTask still takes when it sees what it takes late; None: it takes nothing late. Likewise."""
        return self.overhead_us + self._device.rules.late_us(kernel) if kernel.form.takes_late else None

    def stream_us(self, operator: ROperator, pick: int) -> float:
        """How much longer an rTask takes whose constants come from far, as all of a model do that has too many."""
        device, kernel = self._device, operator.kernels[pick]
        if not self._is_far or kernel.form.kept_bytes:
            return 0.0
        own_bytes = device.rules.brought(kernel).constant_bytes
        whole_bytes = sum(kernel.expr.inputs[slot].nbytes for slot in kernel.constants)
        rounds = -(-kernel.task_count // device.veu_count)
        return self._far_us(operator, pick, min(own_bytes, whole_bytes / (rounds * device.veu_count)))

    def written_bytes(self, operator: ROperator, pick: int) -> int:
        """Results of an rTask whose lines are fetched before they are written."""
        return self._device.rules.brought(operator.kernels[pick]).written_bytes

    def leaving_us(self, operator: ROperator, pick: int) -> float:
        """How much longer an rTask takes whose results leave its vEU's cache, where a run comes back to too much.

        Their lines are fetched from far, and go back there.
        """
        return self._far_us(operator, pick, 2 * self.written_bytes(operator, pick)) if self._is_far else 0.0

    def fetched_us(self, size_bytes: float) -> float:
        """How much longer results take to be read that a vEU's own cache does not hold; nothing where it has none."""
        return size_bytes * self._fetch_us_per_byte

    def _far_us(self, operator: ROperator, pick: int, far_bytes: float) -> float:
        """How much longer an rTask takes for what comes from far or goes there while it computes."""
        device = self._device
        rate = device.levels[-1].share_bytes_per_us(device.veu_count) * device.streamed_share.value
        return max(0.0, far_bytes / rate - (self.task_us[operator.id][pick] - device.task_overhead_us.value))

    def keep_us(self, kernel: RKernel) -> float:
        """What an rTask takes, before it waits, to load weights that its vEU has not kept; likewise."""
        device = self._device
        far_us = kernel.form.kept_bytes / device.levels[-1].share_bytes_per_us(device.veu_count)
        return far_us if self._is_far else self._early_us(kernel.form.kept_bytes)

    def _early_us(self, size_bytes: int) -> float:
        """What constants take that are copied before a Wait."""
        rate = self._device.early_bytes_per_us
        return 0.0 if rate is None else size_bytes / rate.value

    def code_us(self, kernel: RKernel, first: int, last: int) -> float:
        """What the first rTask of an rKernel on a vEU takes longer, since its code comes from far; likewise.

        It does where the level that all vEUs share does not hold what is read from the `last` rOperator that it is
        chosen for until the `first` one of the next run. That counts once, for what one vEU reads few others do.
        """
        near, far = self._device.instruction_fetch_us
        if near.value == far.value == 0.0:
            return 0.0
        brought = self._device.rules.brought(kernel)
        is_far = self._busy_bytes - sum(self._first_read_bytes[first:last]) > self._shared_bytes
        return brought.instructions * far.value if is_far else brought.straight_instructions * near.value

    def _load_us(self, operator: ROperator, kernel: RKernel) -> float:
        """What an rTask takes to bring what no rTask writes, where it does so before it waits."""
        if kernel.form.kept_bytes:
            return self.handover_us
        unwritten = {slot for slot, binding in enumerate(operator.reads) if binding.tensor in self._unwritten}
        size_bytes = self._device.rules.first_bytes(kernel, unwritten)
        return size_bytes / self._device.levels[-1].share_bytes_per_us(kernel.task_count)

    def _is_kept(self, operator: ROperator, kernel: RKernel) -> bool:
        """Whether an rTask finds its constants on its vEU, where another rOperator's left them."""
        return kernel.form.kept_bytes > 0 and self._readers[self.kept_constant(operator, kernel)] > 1

    @staticmethod
    def kept_constant(operator: ROperator, kernel: RKernel) -> int:
        """The tensor of the weights that an rKernel keeps: the largest constant that it reads."""
        return operator.reads[_largest_constant(kernel)].tensor

    def _whole_us(self, operator: ROperator, kernel: RKernel, task_us: float) -> float:
        """The time of an rTask, with what it takes beyond that of the rKernel alone or saves of it."""
        if self._is_kept(operator, kernel):
            return task_us * self._device.kept_share
        return task_us + self._device.task_overhead_us.value

    def best_kernel(self, operator: ROperator, veus: int, picks: Sequence[int] | None = None) -> int:
        """The candidate, of `picks` or of all, that ends first when the rOperator has `veus` execution units to itself.

        With all of a device's vEUs that is the paper's *fastest* rKernel, with one its *most efficient* (least
        rTasks x time). Ties go to the earlier candidate.
        """
        times = self.task_us[operator.id]
        return min(
            range(len(times)) if picks is None else picks,
            key=lambda pick: (-(-operator.kernels[pick].task_count // veus) * times[pick], pick),
        )

    def work_us(self, operator: ROperator, pick: int) -> float:
        """Time of all rTasks of a candidate, one after another."""
        return operator.kernels[pick].task_count * self.task_us[operator.id][pick]


def _sums(some: _PerCandidate, others: _PerCandidate) -> _PerCandidate:
    """Of two numbers for each candidate, the sum."""
    return tuple(
        tuple(one + other for one, other in zip(own, added, strict=True))
        for own, added in zip(some, others, strict=True)
    )


def busy_bytes(graph: TaskGraph) -> int:
    """Bytes that a run comes back to: of all constants, and of other tensors as many as one rOperator moves."""
    constant_bytes = sum(
        tensor.nbytes for tensor in graph.tensors if tensor.role is TensorRole.CONSTANT and tensor.alias_of is None
    )
    moved_bytes = 0
    for operator in graph.operators:
        roots = {graph.root(binding.tensor).id: graph.root(binding.tensor) for binding in operator.bindings}
        others = (root.nbytes for root in roots.values() if root.role is not TensorRole.CONSTANT)
        moved_bytes = max(moved_bytes, sum(others))
    return constant_bytes + moved_bytes


def _first_read_bytes(graph: TaskGraph) -> list[int]:
    """By rOperator, the bytes of constants that it is the first to read."""
    seen: set[int] = set()
    found = []
    for operator in graph.operators:
        roots = {graph.root(binding.tensor).id: graph.root(binding.tensor) for binding in operator.reads}
        new = [root for root in roots.values() if root.role is TensorRole.CONSTANT and root.id not in seen]
        seen.update(root.id for root in new)
        found.append(sum(root.nbytes for root in new))
    return found


@lru_cache(maxsize=4096)
def _largest_constant(kernel: RKernel) -> int:
    """The slot of the largest constant that an rKernel reads."""
    return max(kernel.constants, key=lambda slot: kernel.expr.inputs[slot].nbytes)
