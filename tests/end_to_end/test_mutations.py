"""Damaged plans: whatever the verifier accepts gives the right result under every interleaving tried (DESIGN D7)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from rammer.devices.reference.pickers import Behind, Bursts, Highest, Lowest, Picker, Random, Starving
from rammer.errors import VerificationError
from rammer.ir.graph import Array
from rammer.ir.program import Plan
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import VDevice
from rammer.verify import program, tasks
from tests.support.mutations import MUTATIONS
from tests.support.plans import integer_inputs, make_plan, run_reference, with_exact_constants
from tests.support.taskgraphs import device, random_task_graph
from tests.support.updates import COLUMNS, ROWS, cached_rows

# Rules about when things happen: a plan that breaks no other can be run, and may come out wrong.
TIMING = ("P11", "P13", "P19")


@dataclass(frozen=True)
class Mutant:
    """A damaged plan and what the sound one computes."""

    damage: tuple[str, ...]
    plan: Plan
    vdevice: VDevice
    inputs: list[Array]
    wanted: list[Array]


def random_graph(generator: random.Random) -> TaskGraph:
    return with_exact_constants(random_task_graph(generator, generator.randint(2, 7)))


def random_cache(generator: random.Random) -> TaskGraph:
    """A state in place, with what reads it as it was and anew, cut at random."""
    before, after = ((generator.randint(1, ROWS), generator.randint(1, COLUMNS)) for _ in range(2))
    return cached_rows(before, generator.randint(1, COLUMNS), after)


def mutants(count: int, seed: int, random_of: Callable[[random.Random], TaskGraph] = random_graph) -> Iterator[Mutant]:
    """Plans of random small graphs, each damaged a few times over in one to three ways."""
    generator = random.Random(seed)
    while True:
        graph = random_of(generator)
        tasks.verify(graph)
        if not graph.operators:  # It is all reshapes.
            continue
        vdevice = device(generator.randint(2, 4))
        plan = make_plan(graph, generator.choice(["wavefront", "wavefront", "sequential"]), vdevice)
        program.verify(plan, vdevice)
        inputs = integer_inputs(graph, generator.randrange(1000))
        wanted = run_reference(plan, inputs, Lowest())
        for _ in range(20):
            damage = tuple(generator.choice(sorted(MUTATIONS)) for _ in range(generator.choice([1, 1, 1, 2, 3])))
            changed = plan
            for name in damage:
                changed = MUTATIONS[name](generator, changed)
            if changed != plan:
                yield Mutant(damage, changed, vdevice, inputs, wanted)
                count -= 1
                if count == 0:
                    return


def pickers(veus: int, seed: int) -> list[Picker]:
    starving = [Starving(veu) for veu in range(veus)]
    return [Lowest(), Highest(), Behind(), *starving, Random(seed), Random(seed + 1), Bursts(seed), Bursts(seed + 1)]


def agrees(mutant: Mutant, picker: Picker) -> bool:
    outputs = run_reference(mutant.plan, mutant.inputs, picker)
    return all(_same_bits(*pair) for pair in zip(outputs, mutant.wanted, strict=True))


def _same_bits(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def check(
    count: int, seed: int, random_of: Callable[[random.Random], TaskGraph] = random_graph
) -> tuple[Counter[str], list[Mutant]]:
    """Verify mutants and run the accepted ones; returns how many had which outcome, and those rejected for timing."""
    outcomes: Counter[str] = Counter()
    mistimed = []
    for number, mutant in enumerate(mutants(count, seed, random_of)):
        try:
            program.verify(mutant.plan, mutant.vdevice)
        except VerificationError as error:
            outcomes[error.code] += 1
            if error.code in TIMING:
                mistimed.append(mutant)
            continue
        outcomes["accepted"] += 1
        for picker in pickers(mutant.vdevice.veu_count, number):
            assert agrees(mutant, picker), f"{mutant.damage} under {type(picker).__name__}: {mutant.plan.schedule}"
    return outcomes, mistimed


def show(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))


def test_accepted_mutants_compute_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes, _ = check(300, seed=0)
    with capsys.disabled():
        print(f"\n300 mutants: {show(outcomes)}")
    assert outcomes["accepted"] >= 30
    assert sum(outcomes[code] for code in TIMING) >= 30


def test_accepted_mutants_with_states_in_place_compute_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes, mistimed = check(300, 4, random_cache)
    with capsys.disabled():
        print(f"\n300 mutants of caches: {show(outcomes)}")
    assert outcomes["accepted"] >= 15
    assert outcomes["P19"] >= 20
    late = [mutant for mutant in mistimed if program_fault(mutant) == "P19"]
    shown = [mutant for mutant in late if any(not agrees(mutant, picker) for picker in pickers(4, 0))]
    assert len(shown) * 4 > len(late)  # a row that is overwritten too early is one of several that a reader may be at


def program_fault(mutant: Mutant) -> str:
    with pytest.raises(VerificationError) as caught:
        program.verify(mutant.plan, mutant.vdevice)
    return caught.value.code


@pytest.mark.long
def test_ten_thousand_accepted_mutants_compute_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes, _ = check(10_000, seed=1)
    with capsys.disabled():
        print(f"\n10,000 mutants: {show(outcomes)}")
    assert sum(outcomes.values()) == 10_000
    assert outcomes["accepted"] >= 1_000


def test_mistimed_mutants_show_on_the_reference_device() -> None:
    """The tests above mean something only if a wrong order gives wrong results."""
    _, mistimed = check(150, seed=2)
    shown = [mutant for mutant in mistimed if any(not agrees(mutant, picker) for picker in pickers(4, 0))]
    print(f"\n{len(shown)} of {len(mistimed)} mistimed mutants gave wrong results")
    assert len(shown) * 2 > len(mistimed)


def test_mutations_change_something() -> None:
    generator = random.Random(0)
    graph = random_task_graph(generator, 7)
    plan = make_plan(graph, "wavefront", device(3))
    for name, mutate in MUTATIONS.items():
        assert any(mutate(generator, plan) != plan for _ in range(20)), name


def test_the_same_mutants_come_each_time() -> None:
    def plans() -> Sequence[Plan]:
        return [mutant.plan for mutant in mutants(25, seed=3)]

    first, second = plans(), plans()
    assert [plan.schedule for plan in first] == [plan.schedule for plan in second]
    assert [plan.memory for plan in first] == [plan.memory for plan in second]
    assert all(
        np.array_equal(one, other)
        for one, other in zip(integer_inputs(first[0].graph), integer_inputs(second[0].graph), strict=True)
    )
