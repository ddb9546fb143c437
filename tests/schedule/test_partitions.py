"""Which models of one program share execution units, and which get units of their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.schedule.partitions import Partition, find_partitions


def work(*works_us):
    """Models that take work over units."""
    return lambda model, veus: works_us[model] / veus


def steps(*least_us):
    """Models that no more than 4 units make quicker."""
    return lambda model, veus: least_us[model] * 4 / min(4, veus)


def spans(partitions):
    return {model: len(partition.veus) for partition in partitions for model in partition.models}


def test_models_that_cannot_use_all_units_run_side_by_side():
    assert find_partitions(8, (1, 1), steps(10, 10)) == (
        Partition(models=(0,), veus=range(4)),
        Partition(models=(1,), veus=range(4, 8)),
    )


def test_models_that_use_all_units_follow_each_other():
    """Of what each gains by all units nothing is left to share."""
    superlinear = [100.0, 25.0, 6.0, 1.0]
    partitions = find_partitions(4, (1, 1), lambda model, veus: superlinear[veus - 1])
    assert partitions == (Partition(models=(0, 1), veus=range(4)),)


def test_units_are_shared_out_so_that_all_end_together():
    partitions = find_partitions(100, (1, 1), lambda model, veus: 1 + (300, 100)[model] / veus)
    assert spans(partitions) == {0: pytest.approx(75, abs=2), 1: pytest.approx(25, abs=2)}


def test_of_more_models_than_units_some_follow_each_other():
    partitions = find_partitions(2, (1, 1, 1), lambda model, veus: (4.0, 3.0, 2.0)[model])
    assert sorted(partition.models for partition in partitions) == [(0,), (1, 2)]


def test_one_of_high_priority_gets_more_units_or_comes_first():
    shared = find_partitions(100, (1.2, 1), lambda model, veus: 10 + 300 / veus)
    assert spans(shared)[0] > 1.2 * spans(shared)[1]
    (partition,) = find_partitions(1, (1, 5), work(1, 1))
    assert partition.models == (1, 0)


def taking_over(veus, works_us, width):
    """Models of so much work that need so many units, and cannot use more, as `find_partitions` takes them."""

    def time_us(model, share):
        return works_us[model] / width[model] if share >= width[model] else 1e3 / share

    def cost_of(first, share):
        end_us, other = time_us(first, share), 1 - first
        left_us = works_us[other] - end_us * (veus - share)
        return end_us + left_us / veus if left_us > 0 else max(end_us, works_us[other] / (veus - share))

    return find_partitions(veus, (1, 1), time_us, cost_of)


def test_a_model_takes_over_the_units_of_one_that_cannot_use_more():
    """Until one ends on its 4 units, after 30 us, the other has 8."""
    first, last = taking_over(12, (4 * 30, 12 * 60), (4, 12))
    assert first == Partition(models=(0,), veus=range(4))
    assert last == Partition(models=(1,), veus=range(12), taken_over=4)


def test_shares_are_tried_in_steps_of_a_24th():
    """One model is quick on 11 units of 24 or more, and the other takes over the sooner the fewer the first one has."""

    def cost_of(first, share):
        return float(share) if (first, share >= 11) == (0, True) else 1e9

    times_us = (lambda veus: 5.0 if veus >= 11 else 1e3), (lambda _: 100.0)
    first, last = find_partitions(24, (1, 1), lambda model, veus: times_us[model](veus), cost_of)
    assert (first.models, first.veus) == ((0,), range(11))
    assert (last.models, last.taken_over) == ((1,), 11)


def test_nobody_takes_over_where_both_end_together():
    partitions = taking_over(12, (120, 120), (6, 6))
    assert [partition.taken_over for partition in partitions] == [0] * len(partitions)


def test_what_ends_too_late_on_few_units_takes_no_trial():
    """Its own end says that it costs more."""
    tried = []

    def cost_of(first, share):
        tried.append((first, share))
        return 1e9

    find_partitions(12, (1, 1), lambda model, veus: 100.0 if veus > 6 else 1e6, cost_of)
    assert tried == []


@given(
    veus=st.integers(1, 40),
    works_us=st.lists(st.floats(0, 1e3), min_size=1, max_size=9),
    overhead_us=st.floats(0, 10),
)
def test_partitions_hold_each_model_and_each_unit_once_and_never_lose_to_a_sequence(veus, works_us, overhead_us):
    def time_us(model, share):
        return works_us[model] / share + overhead_us

    partitions = find_partitions(veus, [1.0] * len(works_us), time_us)
    assert sorted(model for partition in partitions for model in partition.models) == list(range(len(works_us)))
    assert [veu for partition in partitions for veu in partition.veus] == list(range(veus))
    end_us = max(sum(time_us(model, len(partition.veus)) for model in partition.models) for partition in partitions)
    assert end_us <= sum(time_us(model, veus) for model in range(len(works_us))) * (1 + 1e-9)
