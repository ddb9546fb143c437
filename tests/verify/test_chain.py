"""Every rule about chains: a chain that breaks it is rejected with its code, and the message says where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rammer.errors import VerificationError
from rammer.ir.chain import Argument, Chain, Link
from rammer.ir.schema import SchemaError
from rammer.verify import chain as verify_chain

X, H, Y, LAST, MADE, ONE, OTHER = range(7)
MOVING = Argument(X, 0, 8)
CARRIED, LEFT = Argument(H, turns=(ONE, OTHER)), Argument(MADE, turns=(ONE, OTHER))


def base() -> Chain:
    """Five runs that read 8 bytes of 40 each, carry 4 and write 16 of 80; then a run that reads what is left."""
    loop = Link(runs=5, array_bytes=(4, 8, 4, 16), inputs=(CARRIED, MOVING), outputs=(LEFT, Argument(Y, 64, 16, True)))
    end = Link(runs=1, array_bytes=(4, 4), inputs=(Argument(MADE),), outputs=(Argument(LAST),))
    return Chain(
        states=0,
        input_bytes=(40, 4),
        output_bytes=(80, 4),
        scratch=((0, 4), (256, 4), (512, 4)),
        links=(loop, end),
    )


def with_loop(**changes: object) -> Chain:
    whole = base()
    return replace(whole, links=(replace(whole.links[0], **changes), whole.links[1]))  # type: ignore[arg-type]


def with_end(**changes: object) -> Chain:
    whole = base()
    return replace(whole, links=(whole.links[0], replace(whole.links[1], **changes)))  # type: ignore[arg-type]


def overwritten(place: int) -> Chain:
    """With a link in between that writes a further piece of the scratch memory, at `place`."""
    loop, end = base().links
    between = Link(runs=1, array_bytes=(4, 4), inputs=(Argument(H),), outputs=(Argument(7),))
    return replace(base(), scratch=(*base().scratch, (place, 4)), links=(loop, between, end))


BROKEN: dict[str, tuple[str, Callable[[], Chain], str]] = {
    "no runs": ("C01", lambda: with_loop(runs=0), "link 0 has 0 runs"),
    "too few arguments": ("C01", lambda: with_end(inputs=()), "link 1 has 1 runs of 2 arrays"),
    "past the end": ("C01", lambda: with_loop(inputs=(CARRIED, Argument(X, 8, 8))), "run 4 of link 0 leaves buffer 0"),
    "before the front": (
        "C01",
        lambda: with_loop(outputs=(LEFT, Argument(Y, 48, 16, True))),
        "run 4 of link 0 leaves buffer 2 at byte -16",
    ),
    "no such buffer": ("C01", lambda: with_end(inputs=(Argument(7),)), "leaves buffer 7"),
    "over what it reads": ("C02", lambda: with_end(outputs=(Argument(MADE),)), "buffer 4 over what it uses"),
    "over what lies there, too": (
        "C02",
        lambda: replace(base(), scratch=((0, 4), (256, 4), (258, 4))),
        "link 0 writes in turns",
    ),
    "where the last one goes": (
        "C02",
        lambda: replace(base(), scratch=((0, 4), (2, 4), (512, 4))),
        "link 0 writes in turns",
    ),
    "the same bytes in each run": (
        "C02",
        lambda: with_loop(outputs=(LEFT, Argument(Y, 16, 8))),
        "runs of link 0 write the same bytes of buffer 2",
    ),
    "turns that are one": (
        "C02",
        lambda: with_loop(outputs=(replace(LEFT, turns=(ONE, ONE)), Argument(Y, 64, 16, True))),
        "link 0 writes in turns",
    ),
    "other turns": ("C03", lambda: with_loop(inputs=(replace(CARRIED, turns=(OTHER, ONE)), MOVING)), "other turns"),
    "turns that nobody writes": (
        "C03",
        lambda: with_loop(outputs=(Argument(MADE, turns=(Y, LAST)), Argument(Y, 64, 16, True))),
        "link 0",
    ),
    "nobody wrote": ("C03", lambda: with_end(inputs=(Argument(ONE),)), "link 1 reads what nobody wrote"),
    "overwritten": ("C03", lambda: overwritten(2), "link 2 reads what nobody wrote to buffer 4"),
    "an input is written": ("C04", lambda: with_end(outputs=(Argument(H),)), "link 1 writes buffer 1, an input"),
    "an output in part": ("C04", lambda: with_loop(runs=4), "buffer 2, an output, is not written entirely"),
}


def test_a_sound_chain_is_accepted() -> None:
    verify_chain.verify(base())
    verify_chain.verify(overwritten(4))


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_chain_is_rejected(name: str) -> None:
    code, broken, words = BROKEN[name]
    with pytest.raises(VerificationError, match=words) as caught:
        verify_chain.verify(broken())
    assert caught.value.code == code


def test_every_rule_has_a_broken_chain() -> None:
    assert {code for code, _, _ in BROKEN.values()} == set(verify_chain.RULES)


def test_runs_find_their_places() -> None:
    loop = base().links[0]
    places = list(loop.runs_at([1000, 2000, 3000, 4000, 5000, 6000, 7000]))
    assert places == [
        [2000, 1000, 6000, 3064],
        [6000, 1008, 7000, 3048],
        [7000, 1016, 6000, 3032],
        [6000, 1024, 7000, 3016],
        [7000, 1032, 5000, 3000],
    ]


@pytest.mark.parametrize("runs", range(1, 7))
def test_places_are_those_of_each_run(runs: int) -> None:
    loop = replace(base().links[0], runs=runs)
    buffers = [1000 * number for number in range(7)]
    wanted = [[buffers[buffer] + offset for buffer, offset in loop.places(run)] for run in range(runs)]
    assert list(loop.runs_at(buffers)) == wanted
    assert wanted[0][0] == buffers[H]
    assert wanted[-1][2] == buffers[MADE]


def test_as_json() -> None:
    assert Chain.from_bytes(base().to_bytes()) == base()
    for name in (
        "no runs",
        "too few arguments",
        "past the end",
        "before the front",
        "no such buffer",
        "an input is written",
    ):
        with pytest.raises(SchemaError):
            Chain.from_bytes(BROKEN[name][1]().to_bytes())
