"""Random damage to plans: what a faulty policy or memory planner might hand over."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from rammer.ir.program import Execute, Plan, RProgram, Signal, Step, Wait

Queues = list[list[Step]]
Mutation = Callable[[random.Random, Plan], Plan]


def _with_queues(plan: Plan, number: int, queues: Queues) -> Plan:
    programs = list(plan.schedule.programs)
    programs[number] = replace(programs[number], steps=tuple(map(tuple, queues)))
    return replace(plan, schedule=replace(plan.schedule, programs=tuple(programs)))


def _on_queues(change: Callable[[random.Random, RProgram, Queues], None]) -> Mutation:
    """A mutation of one rProgram's queues, in place."""

    def mutate(generator: random.Random, plan: Plan) -> Plan:
        number = generator.randrange(len(plan.schedule.programs))
        queues = [list(queue) for queue in plan.schedule.programs[number].steps]
        change(generator, plan.schedule.programs[number], queues)
        return _with_queues(plan, number, queues)

    return mutate


def _places(queues: Queues, *kinds: type[Step]) -> list[tuple[int, int]]:
    return [
        (veu, position)
        for veu, queue in enumerate(queues)
        for position, step in enumerate(queue)
        if type(step) in kinds
    ]


def _drop(kind: type[Step]) -> Callable[[random.Random, RProgram, Queues], None]:
    def change(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
        places = _places(queues, kind)
        if places:
            veu, position = generator.choice(places)
            del queues[veu][position]

    return change


def _threshold(by: int) -> Callable[[random.Random, RProgram, Queues], None]:
    def change(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
        places = _places(queues, Wait)
        if places:
            veu, position = generator.choice(places)
            wait = queues[veu][position]
            if isinstance(wait, Wait):
                queues[veu][position] = replace(wait, threshold=wait.threshold + by)

    return change


def _forget_predecessor(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    """A Signal goes, and the Waits on its counter ask for one less, or go with it."""
    places = _places(queues, Signal)
    if not places:
        return
    veu, position = generator.choice(places)
    gone = queues[veu].pop(position)
    for queue in queues:
        for place in reversed(range(len(queue))):
            step = queue[place]
            if isinstance(step, Wait) and isinstance(gone, Signal) and step.counter == gone.counter:
                queue[place : place + 1] = [replace(step, threshold=step.threshold - 1)] if step.threshold > 1 else []


def _swap_neighbours(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    queue = generator.choice(queues)
    if len(queue) > 1:
        position = generator.randrange(len(queue) - 1)
        queue[position : position + 2] = queue[position + 1], queue[position]


def _swap_any(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    places = _places(queues, Execute, Wait, Signal)
    if places:
        (veu, position), (other, there) = generator.choice(places), generator.choice(places)
        queues[veu][position], queues[other][there] = queues[other][there], queues[veu][position]


def _move_task(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    places = _places(queues, Execute)
    if places:
        veu, position = generator.choice(places)
        step = queues[veu].pop(position)
        target = generator.choice(queues)
        target.insert(generator.randint(0, len(target)), step)


def _move_tail(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    """The end of a queue goes on at the end of another."""
    source, target = generator.choice(queues), generator.choice(queues)
    if source and source is not target:
        position = generator.randrange(len(source))
        target.extend(source[position:])
        del source[position:]


def _duplicate_task(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    places = _places(queues, Execute)
    if places:
        veu, position = generator.choice(places)
        target = generator.choice(queues)
        target.insert(generator.randint(0, len(target)), queues[veu][position])


def _exchange_counters(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    """A Wait or Signal takes another's counter, and the other way round."""
    places = _places(queues, Wait, Signal)
    if places:
        (veu, position), (other, there) = generator.choice(places), generator.choice(places)
        one, two = queues[veu][position], queues[other][there]
        if isinstance(one, Wait | Signal) and isinstance(two, Wait | Signal):
            queues[veu][position] = replace(one, counter=two.counter)
            queues[other][there] = replace(two, counter=one.counter)


def _merge_counters(generator: random.Random, rprogram: RProgram, queues: Queues) -> None:
    """Two counters become one; half the time the Waits are for all signals of the one."""
    if rprogram.counter_count < 2:
        return
    kept, gone = generator.sample(range(rprogram.counter_count), 2)
    whole = generator.random() < 0.5
    total = sum(isinstance(step, Signal) and step.counter in (kept, gone) for queue in queues for step in queue)
    for queue in queues:
        for position, step in enumerate(queue):
            if isinstance(step, Wait | Signal) and step.counter in (kept, gone):
                step = replace(step, counter=kept)
                queue[position] = replace(step, threshold=total) if whole and isinstance(step, Wait) else step


def _move_buffer(generator: random.Random, plan: Plan) -> Plan:
    memory = plan.memory
    offsets = dict(memory.offsets_bytes)
    if not offsets:
        return plan
    number = generator.choice(sorted(offsets))
    unit = memory.alignment_bytes
    anywhere = unit * generator.randint(0, memory.arena_bytes // unit + 1)
    near = offsets[number] + generator.choice([-1, 1, 2]) * unit
    offsets[number] = generator.choice([offsets[generator.choice(sorted(offsets))], anywhere, near, anywhere + 4])
    return replace(plan, memory=replace(memory, offsets_bytes=offsets))


def _change_choice(generator: random.Random, plan: Plan) -> Plan:
    choice = list(plan.schedule.choice)
    number = generator.randrange(len(choice))
    choice[number] = generator.randint(0, len(plan.graph.operators[number].kernels))
    return replace(plan, schedule=replace(plan.schedule, choice=tuple(choice)))


def _swap_rprograms(generator: random.Random, plan: Plan) -> Plan:
    """Two rProgram run in each other's place; where there is one, it is cut in two at random."""
    programs = list(plan.schedule.programs)
    if len(programs) > 1:
        one, two = generator.sample(range(len(programs)), 2)
        programs[one], programs[two] = programs[two], programs[one]
    else:
        cuts = [generator.randint(0, len(queue)) for queue in programs[0].steps]
        head = tuple(queue[:cut] for queue, cut in zip(programs[0].steps, cuts, strict=True))
        tail = tuple(queue[cut:] for queue, cut in zip(programs[0].steps, cuts, strict=True))
        programs = [replace(programs[0], steps=head), replace(programs[0], steps=tail)]
    return replace(plan, schedule=replace(plan.schedule, programs=tuple(programs)))


MUTATIONS: dict[str, Mutation] = {
    "drop a Wait": _on_queues(_drop(Wait)),
    "drop a Signal": _on_queues(_drop(Signal)),
    "lower a threshold": _on_queues(_threshold(-1)),
    "raise a threshold": _on_queues(_threshold(1)),
    "forget a predecessor": _on_queues(_forget_predecessor),
    "swap neighbours": _on_queues(_swap_neighbours),
    "swap any two steps": _on_queues(_swap_any),
    "move a task": _on_queues(_move_task),
    "move the end of a queue": _on_queues(_move_tail),
    "duplicate a task": _on_queues(_duplicate_task),
    "exchange counters": _on_queues(_exchange_counters),
    "merge counters": _on_queues(_merge_counters),
    "move a buffer": _move_buffer,
    "choose another rKernel": _change_choice,
    "swap rPrograms": _swap_rprograms,
}
