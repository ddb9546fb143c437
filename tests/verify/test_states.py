"""What a run reads of a state may be kept as a constant is, unless the state is in place."""

from dataclasses import replace

import pytest

from rammer.errors import VerificationError
from rammer.verify import tasks
from tests.verify.test_tasks import base, with_kernel


def kept(**changes: object) -> None:
    """Verify a graph whose first rKernel takes the graph's input for a constant."""
    tasks.verify(replace(with_kernel(base(), 0, constants=frozenset({0})), **changes))  # type: ignore[arg-type]


def test_a_state_is_the_same_throughout_a_run() -> None:
    kept(states=1)


def test_an_input_or_a_state_in_place_is_no_constant() -> None:
    for changes in ({}, {"states": 1, "in_place": (0,)}):
        with pytest.raises(VerificationError) as raised:
            kept(**changes)
        assert raised.value.code == "T18"
