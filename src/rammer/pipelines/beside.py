"""Work of Python side by side, each piece in a process of its own: threads would take turns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from rammer.errors import DeviceError, RammerError
from rammer.pipelines.pipes import begin, pickled, receive, send, write

Result = TypeVar("Result")


def each_beside(function: Callable[..., Result], calls: Sequence[tuple[Any, ...]]) -> list[Result]:
    """What a function of a module gives for each of some arguments, as many at a time as there are processors.

    Raises:
        DeviceError: a process ended before it had its result.
        RammerError: the function raised it.
    """
    with ThreadPoolExecutor(min(len(calls), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda arguments: _ask(function, arguments), calls))


def _ask(function: Callable[..., Result], arguments: tuple[Any, ...]) -> Result:
    question = pickled((function, arguments))
    with begin(__name__) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write(process.stdin, question)
            answer = receive(process.stdout)
        except (OSError, EOFError) as error:
            hint = "if the system ended it for want of memory, compile with another policy"
            raise DeviceError(f"a process that schedules ended: {error}", hint=hint) from error
    if isinstance(answer, RammerError):
        raise answer
    result: Result = answer
    return result


def serve() -> None:
    """What such a process does."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed by chance is no answer
    with suppress(EOFError, BrokenPipeError):
        function, arguments = receive(sys.stdin.buffer)
        try:
            answer = function(*arguments)
        except RammerError as error:
            answer = error
        send(answers, answer)
        answers.close()
