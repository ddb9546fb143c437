"""Recurrent cells whose weights stay in registers, as far as they can be tried without a GPU."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from rammer.devices.cuda.emit.kernel import emit_kernel
from rammer.devices.cuda.emit.persistent_rnn import loaded_together
from rammer.devices.cuda.source import translation_unit
from rammer.devices.registry import find_device
from rammer.ir.expr import Load, ScalarFn, const, rebuild
from rammer.ir.kernel_form import Instruction, PersistentRnnForm
from rammer.options import CompileOptions
from rammer.roller.construct import construct
from rammer.roller.model import predict
from rammer.tiling.gemm import WARP
from rammer.tiling.gemv import gemv_form
from rammer.tiling.persistent_rnn import can_be_narrow, persistent_rnn_form, plan_of
from rammer.tiling.rnn_shares import ways
from tests.support.kernel_cases import CELLS
from tests.support.kernels import Bound, lstm_cell

H200, IN_HALVES = (find_device("cuda:sm_90").describe(CompileOptions(veus=veus)) for veus in (132, 264))
TOO_LARGE = ("lstm of long inputs",)  # for halves of a multiprocessor
SIGMOID, TANH = ScalarFn.SIGMOID, ScalarFn.TANH


def persistent(name, vdevice=H200):
    """Each candidate that keeps its weights, with how it keeps them."""
    expr, constants = CELLS[name]
    workload = Bound(expr, constants, vdevice).workload
    kernels = construct(workload.tagged() if "batch" in name else workload, vdevice)
    return [(kernel, plan_of(kernel)) for kernel in kernels if isinstance(kernel.form, PersistentRnnForm)]


def first(workload):
    """Of the candidates that keep weights, that of the fewest rTasks."""
    return H200.rules.persistent(workload, H200)[0]


ON_DEVICES = pytest.mark.parametrize(
    ("name", "vdevice"),
    [
        *(pytest.param(name, H200, id=name) for name in CELLS),
        *(pytest.param(name, IN_HALVES, id=f"{name}, in halves") for name in CELLS if name not in TOO_LARGE),
    ],
)


@ON_DEVICES
def test_every_product_is_some_lanes(name, vdevice):
    assert persistent(name, vdevice)
    for kernel, plan in persistent(name, vdevice):
        shares = plan.shares
        assert plan.weights == kernel.form.weight_registers
        assert kernel.form.kept_bytes <= vdevice.stationary_bytes
        for part in plan.parts:
            held: Counter[tuple[int, int]] = Counter()
            for thread in range(vdevice.threads):
                warp, lane = divmod(thread, WARP)
                if warp not in part.team:
                    continue
                (slice_, group), (deep, across) = divmod(warp, shares.groups), divmod(lane, shares.across)
                slice_ -= part.team.start // shares.groups
                places = [deep * part.elements + i for i in range(part.elements)]
                if shares.tensor is not None:
                    deep, across, step = lane % 4, lane // 4, shares.tensor.elements
                    places = [i // step * 4 * step + deep * step + i % step for i in range(part.elements)]
                first = group * shares.slots + part.first_slot
                rows = [slot * shares.across + across for slot in range(first, first + part.slots)]
                elements = [slice_ * part.slice + place for place in places if place < part.slice]
                if slice_ < part.slices:
                    held.update((row, element) for row in rows for element in elements)
            rows = [total * plan.units + unit for total in part.tables for unit in range(plan.units)]
            assert all(held[row, element] == 1 for row in rows for element in range(part.length))


@pytest.mark.parametrize(("name", "columns"), [("lstm of a batch", 4), ("lstm of an odd batch", 3), ("lstm", 1)])
def test_a_weight_is_multiplied_with_all_vectors_of_a_batch(name, columns):
    for kernel, plan in persistent(name):
        assert plan.columns == kernel.form.columns == columns
        assert (kernel.form.instruction is Instruction.FFMA) == (columns == 1)
        assert plan.units == kernel.tile.task[-1]
        assert plan.points == plan.units * plan.columns
        assert [axis.extent for axis in plan.column_axes] == ([] if columns == 1 else [columns])


@pytest.mark.parametrize(("batch", "most"), [(2, 2), (16, 16), (64, 32), (100, 0)])
def test_vectors_of_a_large_batch_are_shared_out_or_multiplied_in_tiles(batch, most):
    """Those of 64 elements in float32 would take more registers than there are."""
    workload = Bound(lstm_cell(batch, 256, 256), {3, 4, 5}, H200).workload.tagged()
    forms = [kernel.form for kernel in construct(workload, H200)]
    assert max((form.columns for form in forms if isinstance(form, PersistentRnnForm)), default=0) == most


@pytest.mark.parametrize(
    ("room_bytes", "overlaid"), [(200 << 10, False), (95 << 10, True), (84 << 10, True), (40 << 10, None)]
)
def test_vectors_take_each_others_place_where_that_leaves_registers(room_bytes, overlaid):
    workload = Bound(lstm_cell(16, 256, 256), {3, 4, 5}, H200).workload.tagged()
    kernel = first(workload)
    arguments = (kernel.expr, kernel.layouts, kernel.tile, kernel.constants, H200.threads, H200.stationary_bytes)
    form = persistent_rnn_form(*arguments, room_bytes)
    assert (form is None) == (overlaid is None)
    if form is not None:
        plan = plan_of(replace(kernel, form=form))
        assert form.scratch_bytes <= room_bytes
        assert form.overlaid == plan.shares.overlaid == overlaid
        assert [part.vector_at for part in plan.parts] == [0, 0 if overlaid else plan.parts[0].pitch * form.slices]
        assert plan.has_room


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_weights_for_which_no_registers_are_left_lie_in_shared_memory(batch):
    workload = Bound(lstm_cell(batch, 256, 256), {3, 4, 5}, H200).workload.tagged()
    plans = [plan_of(first(workload))] if batch > 1 else [plan for _, plan in persistent("lstm")]
    for plan in plans:
        assert (plan.shares.stored > 0) == (batch > 1)
        assert sum(part.stored for part in plan.parts) == plan.shares.stored
        left, right = (part.elements - part.stored for part in plan.parts)  # in registers: as many of both
        assert 0 <= right - left <= (0 if plan.shares.tensor is None else plan.shares.tensor.elements)
        sums = plan.shares.slices * plan.shares.row_pitch * plan.shares.padded
        stored = sum(plan.shares.slots * part.stored * len(part.team) * WARP for part in plan.parts)
        assert plan.kept_at == plan.vectors + sums + stored + int(batch > 1)
        if batch > 1:
            assert plan.has_room
            assert plan.weights == plan.shares.slots * (max(left, right) if batch == 4 else left + right)


def test_a_batch_is_cut_where_units_are_left():
    """First as few rTasks as there is room for; then more, of fewer units or of fewer vectors by the same weights."""
    expr, constants = lstm_cell(16, 128, 128), {3, 4, 5}
    tiles = [one.tile.task for one in H200.rules.persistent(Bound(expr, constants, H200).workload.tagged(), H200)]
    assert tiles[0] == (16, 32)
    assert {(16, 8), (8, 32), (4, 32), (4, 8)} <= {*tiles}
    assert len(tiles) == len({*tiles})


def test_weights_of_16_bits_stay_as_they_are_by_fewer_rtasks():
    kernels = dict(persistent("lstm, fp16"))
    counts = {kernel.task_count: kernel for kernel in kernels}
    narrow = {count: kernel for count, kernel in counts.items() if kernel.form.is_narrow}
    assert min(set(counts) - set(narrow)) == 13  # as float32
    assert sorted(narrow) == [4, 5, 6, 7]
    for count, kernel in narrow.items():
        plan = plan_of(kernel)
        assert kernel.form.instruction is Instruction.MMA_F16
        assert kernel.form.weight_bytes == 4 * kernel.tile.task[-1] * 512 * 2
        assert plan.shares.stored > 0
        assert plan.shares.slices > 1
        assert plan.has_room
        assert f"{plan.weights} registers of weights a thread" in kernel.form.details
        assert count * kernel.tile.task[-1] >= 256
        assert "rammer_rnn_f16, " in emit_kernel(kernel, "cell").text  # elements of a row lie side by side
    assert "rammer_rnn_widened_f16" in emit_kernel(counts[13], "cell").text


def test_fewer_rtasks_with_weights_of_16_bits_take_longer():
    kernels = sorted((kernel for kernel, _ in persistent("lstm, fp16")), key=lambda one: one.task_count)
    by_count = {kernel.task_count: predict(kernel, H200).task_us for kernel in kernels if kernel.task_count <= 13}
    times_us = [by_count[count] for count in (4, 5, 6, 7, 13)]
    assert times_us == sorted(times_us, reverse=True)


@pytest.mark.parametrize("name", ["lstm", "lstm of a batch", "gru"])
def test_other_weights_do_not_stay_as_they_are(name):
    expr, constants = CELLS[name]
    workload = Bound(expr, constants, H200).workload
    assert not can_be_narrow(workload.expr, workload.layouts, workload.constants)
    assert not any(kernel.form.is_narrow for kernel, _ in persistent(name))


@pytest.mark.parametrize(("batch", "teams"), [(1, ()), (2, (1, 2)), (4, (1, 2)), (8, (1, 2)), (9, ()), (16, ())])
def test_few_columns_have_a_team_of_warps_for_each_part(batch, teams):
    workload = Bound(lstm_cell(batch, 256, 256), {3, 4, 5}, H200).workload.tagged()
    plan = plan_of(first(workload))
    assert plan.shares.teams == teams
    inputs, states = plan.parts
    if teams:  # states, which come last, have most warps, and none of their weights to be read first
        assert (states.team, inputs.team) == (range(10), range(10, 16))
        assert (inputs.slices, states.slices) == teams
        assert inputs.weights_at == states.weights_at == 0
        assert (inputs.stored, states.stored) == (32, 0)
    else:
        assert inputs.team == states.team == range(16)


def test_the_first_cell_of_a_batch_stays_which_waits_for_nothing():
    """What it computes is tagged: weights stay from it to those that wait for that."""
    workload = Bound(lstm_cell(4, 256, 256), {3, 4, 5}, H200).workload
    count = len(workload.expr.inputs)
    for tagged in (False, True):
        layouts = tuple(replace(one, tagged=tagged and slot >= count) for slot, one in enumerate(workload.layouts))
        kernels = construct(replace(workload, layouts=layouts), H200)
        assert any(isinstance(kernel.form, PersistentRnnForm) for kernel in kernels) == tagged


@pytest.mark.parametrize(("inputs", "alignment", "together"), [(256, 32, 2), (256, 1, 0), (255, 32, 1)])
def test_neighbouring_weights_are_loaded_together(inputs, alignment, together):
    workload = Bound(lstm_cell(4, inputs, 256), {3, 4, 5}, H200).workload.tagged()
    workload = replace(workload, alignments=(alignment,) * len(workload.layouts))
    kernel = first(workload)
    assert emit_kernel(kernel, "cell").text.count("rammer_load_vector<4>(loaded") == together


@pytest.mark.parametrize(
    ("batch", "alignment", "widths", "bringers"),
    [
        (16, 32, [2, 2], [512, 512]),
        (16, 1, [1, 1], [512, 512]),
        (4, 32, [2, 2], [128, 256]),  # of teams
        (4, 1, [1, 1], [128, 256]),
    ],
)
def test_neighbours_are_brought_by_one_load(batch, alignment, widths, bringers):
    workload = Bound(lstm_cell(batch, 256, 256), {3, 4, 5}, H200).workload.tagged()
    workload = replace(workload, alignments=(alignment,) * len(workload.layouts))
    kernel = first(workload)
    text = emit_kernel(kernel, "cell").text
    assert [int(width) for width in re.findall(r"WIDTH = (\d+)", text)] == widths
    assert [int(threads) for threads in re.findall(r"rammer_rnn_batch_part<.*, (\d+)>", text)] == bringers


def test_vectors_of_a_batch_stay_only_where_they_are_tagged_themselves():
    workload = Bound(lstm_cell(4, 256, 256), {3, 4, 5}, H200).workload
    plan = plan_of(first(workload.tagged()))
    vectors = {load.slot for part in plan.parts for load in part.loads}
    others = set(range(len(workload.expr.inputs))) - vectors - workload.constants
    assert vectors
    assert others
    for slots, stay in ((vectors, True), (others, False)):
        layouts = tuple(replace(one, tagged=slot in slots) for slot, one in enumerate(workload.layouts))
        kernels = construct(replace(workload, layouts=layouts), H200)
        assert any(isinstance(kernel.form, PersistentRnnForm) for kernel in kernels) == stay


def test_strict_numerics_do_not_split_float32():
    cell = lstm_cell(4, 256, 256)
    for numerics, stay in (("default", True), ("strict", False)):
        device = replace(H200, numerics=numerics)
        kernels = construct(Bound(cell, {3, 4, 5}, device).workload.tagged(), device)
        assert any(isinstance(kernel.form, PersistentRnnForm) for kernel in kernels) == stay
    assert find_device("cuda:sm_90").describe(CompileOptions(numerics="strict")).numerics == "strict"


@ON_DEVICES
def test_what_a_warp_reads_together_lies_in_different_banks(name, vdevice):
    for _, plan in persistent(name, vdevice):
        tensor = plan.shares.tensor
        if tensor is not None:
            together = 16 // (tensor.elements * tensor.element_bytes) * 8  # lanes that read 128 bytes
            places = [lane // 4 * plan.column_pitch + lane % 4 * tensor.elements for lane in range(together)]
            chunk_bytes = tensor.elements * tensor.element_bytes
            assert (
                len({place * tensor.element_bytes // chunk_bytes % (128 // chunk_bytes) for place in places})
                == together
            )
            stored = {(lane % 4 * 2 * plan.shares.row_pitch + lane // 4) % WARP for lane in range(WARP)}
            assert len(stored) == WARP


def test_vectors_of_a_batch_are_tagged():
    """Where they are not, nobody says that the weights stay from one rTask to the next."""
    expr, constants = CELLS["lstm of a batch"]
    assert not any(isinstance(kernel.form, PersistentRnnForm) for kernel in Bound(expr, constants, H200).kernels)


def test_all_that_a_gate_adds_up_is_one_total():
    for kernel, plan in persistent("lstm"):
        assert [len(total.terms) for total in plan.gates] == [2] * 4
        assert Counter(total.function for total in plan.gates) == {SIGMOID: 3, TANH: 1}
        biases = [bias.slot for total in plan.gates for bias in total.biases]
        assert len(biases) == len(set(biases)) == 8
        assert kernel.constants.issuperset(biases)


def test_sums_that_something_else_uses_stay_apart():
    for _, plan in persistent("gru"):
        assert sorted((len(total.terms), total.function is SIGMOID) for total in plan.gates) == [
            (1, False),
            (1, False),
            (2, True),
            (2, True),
        ]
        assert all(part.tables.keys() == set(range(min(part.tables), max(part.tables) + 1)) for part in plan.parts)


@pytest.mark.parametrize(
    ("stored", "of_each"), [(0, [0, 0]), (4, [4, 0]), (12, [12, 0]), (24, [20, 4]), (32, [24, 8]), (36, [24, 8])]
)
def test_longer_vectors_have_more_of_their_weights_stored(stored, of_each):
    (shares,) = ways(Instruction.MMA_3XF16, 16, 80, 4, [256, 96], stored=stored)
    assert shares.elements_of([256, 96]) == [24, 8]
    assert shares.stored_of([256, 96]) == of_each


def test_what_is_no_constant_does_not_stay():
    expr, constants = CELLS["lstm"]
    workload = Bound(expr, constants, H200).workload
    for without, vdevice in (
        (replace(workload, constants=frozenset()), H200),
        (workload, replace(H200, stationary_bytes=1 << 10)),
        (workload, H200),
    ):
        stays = {kernel.form.skeleton == "persistent_rnn" for kernel in construct(without, vdevice)}
        assert (True in stays) == (without is workload and vdevice is H200)


def with_tagged_vectors(kernel, plan):
    vectors = {part.vector.slot for part in plan.parts}
    return replace(kernel, layouts=tuple(replace(one, tagged=i in vectors) for i, one in enumerate(kernel.layouts)))


@pytest.mark.parametrize(("name", "times"), [("lstm", 2), ("lstm of short vectors", 1), ("lstm of odd sizes", 1)])
def test_tagged_vectors_are_loaded_at_once_where_a_thread_loads_one_element(name, times):
    kernel, plan = persistent(name)[0]
    assert len(loaded_together(plan, with_tagged_vectors(kernel, plan).layouts)) == times
    assert len(loaded_together(plan, kernel.layouts)) == 2


def test_lanes_of_a_gemv_wait_for_elements_one_by_one():
    kernel, plan = persistent("lstm")[0]
    form = gemv_form(kernel.expr, kernel.layouts, kernel.tile, kernel.form.threads, ())
    streams = replace(kernel, form=form)
    assert not emit_kernel(streams, "k").apart
    assert emit_kernel(with_tagged_vectors(streams, plan), "k").apart


def test_lanes_that_have_padding_do_not_vote():
    kernel, plan = persistent("lstm of short vectors")[0]
    vectors = {part.vector.slot for part in plan.parts}

    def padded(node):
        if isinstance(node, Load) and node.slot in vectors:
            return Load(node.slot, node.indices, node.type, const(0.0, node.type))
        return None

    expr, tagged = kernel.expr, with_tagged_vectors(kernel, plan)
    bodies = rebuild(expr.roots, padded)
    outputs = tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True))
    assert not emit_kernel(tagged, "k").apart
    assert emit_kernel(replace(tagged, expr=replace(expr, outputs=outputs)), "k").apart


def test_the_compiler_learns_that_a_warp_is_whole_only_of_walks_in_which_it_is():
    kernel, _ = persistent("lstm of short vectors")[0]
    emitted = emit_kernel(kernel, "k")
    for kernels, apart in (([emitted], False), ([emitted, replace(emitted, apart=True)], True)):
        unit = translation_unit({f"k{number}": one for number, one in enumerate(kernels)}, H200.threads, 8, 8)
        to = ", ".join(["apart" if apart else "call_walk_0"] * len(kernels))
        assert f"targets: .branchtargets {to};" in unit
        assert ("targets_apart: .branchtargets call_walk_0, call_walk_0;" in unit) == apart
        assert unit.count("uint32_t walk_0(uint32_t position)") == 1
