"""A compiled training step: called for the loss, it moves the parameters, which are its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rammer.errors import RefreshError
from rammer.ir.calling import StateOwner
from rammer.runtime.module import CompiledModule
from rammer.runtime.state import State


class CompiledStep(CompiledModule):
    """Forward pass, loss, backward pass and update, as one program.

    Its state is the module's trained parameters, the buffers that it writes to, and what the optimiser keeps. The
    module and the optimiser themselves stay as they were until `sync`.
    """

    def __init__(self, *, owner: StateOwner, **module: Any) -> None:  # noqa: ANN401 - as for `CompiledModule`
        super().__init__(**module)
        self._owner = owner
        self._up_to_date: tuple[State | None, int, Mapping[str, float]] = (None, 0, {})  # no run changes rates

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the step takes and gives
        """Make one step, at the learning rates that the optimiser has now.

        Returns:
            what the function that was compiled returns: the loss, before the update.

        Raises:
            StepChangedError: the module or the optimiser was changed behind the step's back.
            CallError: the arguments are not like those that the step was compiled for.
        """
        state = self._chosen(dict(kwargs)) if kwargs else self._state
        assert state is not None  # a step keeps parameters
        rates = self._owner.rates()
        known, version, before = self._up_to_date
        if known is not state or version != state.version or before != rates:
            for name, rate in rates.items():
                if state[name] != rate:
                    state[name] = np.array(rate)
            self._up_to_date = state, state.version, rates
        return super().__call__(*args, **kwargs)

    def sync(self) -> None:
        """Write the state into the module and the optimiser, whose `state_dict` is then a checkpoint.

        Raises:
            StepChangedError: the module or the optimiser was changed behind the step's back.
        """
        self._owner.rates()
        self._owner.write(dict(self.state))

    def refresh(self, module: object = None) -> None:
        """Take over the values that the module and the optimiser have, from a checkpoint for example.

        Raises:
            RefreshError: a module is given: a step has its own.
        """
        if module is not None:
            raise RefreshError("another module for a training step", hint="load its values into the step's own module")
        for name, value in self._owner.read(list(self.state)).items():
            self.state[name] = value
