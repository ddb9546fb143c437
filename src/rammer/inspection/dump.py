"""`--dump-dir`: every level of a compilation as a numbered text file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rammer.errors import OptionError
from rammer.ir.graph import Graph
from rammer.ir.program import Execute, Plan, Signal, Wait
from rammer.ir.task import Binding, TaskGraph
from rammer.printable import printable


class Dump:
    """Writes `<number>-<step>.txt` into a folder, or nothing where there is none.

    Raises:
        OptionError: the folder cannot be made.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._count = 0
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OptionError(
                    f"cannot use {folder} for dumps: {error.strerror}", hint="name a folder that can be written"
                ) from error

    def write(self, step: str, content: Graph | TaskGraph | Plan) -> None:
        """Write one level.

        Raises:
            OptionError: the folder cannot be written.
        """
        if self._folder is None:
            return
        path = self._folder / f"{self._count:02d}-{step}.txt"
        self._count += 1
        try:
            path.write_text("".join(f"{printable(line)}\n" for text in lines(content) for line in text.split("\n")))
        except OSError as error:
            raise OptionError(f"cannot write {path}: {error.strerror}", hint="name another folder") from error


def lines(content: Graph | TaskGraph | Plan) -> Iterator[str]:
    """A level as text, one item a line."""
    match content:
        case Graph():
            yield str(content)
            for operator in content.operators:
                yield f"\n{operator.name}:\n{operator.expr}"
        case TaskGraph():
            yield from _task_lines(content)
        case Plan():
            yield from _plan_lines(content)


def _task_lines(graph: TaskGraph) -> Iterator[str]:
    def show(binding: Binding) -> str:
        origin = "" if not any(binding.origin) else f"+{list(binding.origin)}"
        return f"t{binding.tensor}{origin}"

    yield f"tasks {graph.name}"
    for tensor in graph.tensors:
        alias = "" if tensor.alias_of is None else f" = t{tensor.alias_of}"
        strides = f"strides {list(tensor.layout.strides)}{' tagged' if tensor.layout.tagged else ''}"
        yield f"  t{tensor.id}{alias}: {tensor.type} {tensor.role.value} {strides}  # {tensor.name}"
    for operator in graph.operators:
        writes, reads = ", ".join(map(show, operator.writes)), ", ".join(map(show, operator.reads))
        only = "" if operator.predicate is None else f" if {show(operator.predicate)}"
        yield f"  {writes} = {operator.kind}({reads}){only}  # {operator.id} {operator.name}"
        for kernel in operator.kernels:
            yield f"    {kernel.form.skeleton} task {list(kernel.tile.task)} x {kernel.task_count}"


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"plan {plan.graph.name}, policy {plan.schedule.policy}, arena {plan.memory.arena_bytes} bytes"
    for number, program in enumerate(plan.schedule.programs):
        for veu, queue in enumerate(program.steps):
            yield f"  program {number}, vEU {veu}"
            for step in queue:
                match step:
                    case Execute(task):
                        operator = plan.graph.operators[task.operator]
                        yield f"    execute {operator.name}[{task.tile}]"
                    case Wait(counter, threshold):
                        yield f"    wait    c{counter} >= {threshold}"
                    case Signal(counter):
                        yield f"    signal  c{counter}"
