"""The module and optimiser that a training step was compiled from: where its state comes from and goes back to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from rammer.errors import OptimizerError, StepChangedError
from rammer.frontends.torch.optimizers import Options, Rule, rule_of, settings_of
from rammer.frontends.torch.private import mark_stepped
from rammer.frontends.torch.types import array_of, tensor_of
from rammer.ir.graph import Array

RATE, COUNT, KEPT = "optimizer:lr.{}", "optimizer:step.{}", "{}:{}"
"""Names of states: a group's learning rate and number of steps; what is kept for a parameter."""

_VERSION, _ADDRESS = attrgetter("_version"), torch.Tensor.data_ptr


class Owner:
    """Reads and writes the states of a step by their names.

    A parameter or buffer has the module's name; what the optimiser keeps for it is "weight:exp_avg". The learning rate
    of group 0 is "optimizer:lr.0", its number of steps "optimizer:step.0".

    Attributes:
        rule: the optimiser's.
        groups: the names of each group's trained parameters, and the group's settings.

    Raises:
        OptimizerError: the optimiser is none that Rammer has, or not of this module.
    """

    def __init__(
        self, module: torch.nn.Module, optimizer: torch.optim.Optimizer, with_gradient: Collection[str]
    ) -> None:
        self._module = module
        self._optimizer = optimizer
        self.rule: Rule = rule_of(optimizer)
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        self.groups: list[tuple[list[str], Options]] = []
        for group in optimizer.param_groups:
            trained = [names.get(id(parameter), "") for parameter in group["params"]]
            if "" in trained:
                raise OptimizerError(
                    "the optimiser has a parameter that is none of the module's",
                    hint="give the module that holds all parameters of the optimiser",
                )
            self.groups.append(
                ([name for name in trained if name in with_gradient], settings_of(self.rule, optimizer, group))
            )
        self._rates = [RATE.format(group) for group in range(len(self.groups))]
        self._settings = self._settings_now()
        self._tensors = self._tensors_now()
        self._versions = self._versions_now()

    def optimizer_states(self) -> list[str]:
        """The names of the optimiser's states: those of the groups, then those of each parameter."""
        own = [RATE, COUNT] if self.rule.counts else [RATE]
        of_groups = [name.format(group) for group in range(len(self.groups)) for name in own]
        return of_groups + [KEPT.format(name, kept) for name, kept in self._kept()]

    def _kept(self) -> Iterator[tuple[str, str]]:
        """The names of each parameter and tensor that the optimiser keeps."""
        for names, options in self.groups:
            for name in names:
                for kept in self.rule.kept(options):
                    yield name, kept

    def _initial_of(self, parameter: str, kept: str) -> Array:
        """What the optimiser keeps for a parameter, zeros where it has not begun."""
        owner = self._module.get_parameter(parameter)
        found = self._optimizer.state.get(owner, {}).get(kept)
        tensor = torch.zeros_like(owner) if found is None else found
        return array_of(tensor, f"'{kept}' of {parameter}").copy()

    def _count_of(self, group: int) -> Array:
        """How many steps a group has made.

        Raises:
            OptimizerError: its parameters differ in that.
        """
        names = self.groups[group][0]
        states = [self._optimizer.state.get(self._module.get_parameter(name), {}) for name in names]
        counts = {float(state.get("step", 0)) for state in states}
        if len(counts) > 1:
            raise OptimizerError(
                f"the parameters of group {group} have made {sorted(counts)} steps",
                hint="put them in groups of their own",
            )
        return np.array(counts.pop() if counts else 0, np.float32)

    def rates(self) -> dict[str, float]:
        """The learning rates as the optimiser has them now.

        Raises:
            StepChangedError: the module's parameters or the optimiser's other settings are no longer what they were.
        """
        if self._versions_now() != self._versions:
            raise StepChangedError(
                "parameters or buffers of the module were written to behind the step's back",
                hint="call step.refresh() to take their values over",
            )
        if self._settings_now() != self._settings:
            raise StepChangedError(
                "settings of the optimiser have changed, which are part of the program",
                hint="compile the step again; the learning rate alone may change",
            )
        groups = self._optimizer.param_groups
        return {self._rates[i]: float(group["lr"]) for i, group in enumerate(groups)}

    def read(self, names: Sequence[str]) -> dict[str, Array]:
        """The values that the module and the optimiser have now for states of such names."""
        self._tensors = self._tensors_now()
        self._versions = self._versions_now()
        known = {
            **{name: np.array(rate) for name, rate in self.rates().items()},
            **{KEPT.format(name, kept): self._initial_of(name, kept) for name, kept in self._kept()},
        }
        known |= {COUNT.format(i): self._count_of(i) for i in range(len(self.groups))}
        tensors = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        known |= {name: array_of(tensors[name], name).copy() for name in names if name in tensors}
        return {name: known[name] for name in names if name in known}

    def write(self, states: Mapping[str, Array]) -> None:
        """Put the states' values into the module and the optimiser."""
        tensors: dict[str, torch.Tensor] = {
            **dict(self._module.named_parameters()),
            **dict(self._module.named_buffers()),
        }
        with torch.no_grad():
            for name, array in states.items():
                if name in tensors:
                    tensors[name].copy_(tensor_of(array))
        for name, kept in self._kept():
            self._kept_of(name)[kept] = tensor_of(states[KEPT.format(name, kept)]).to(tensors[name].device)
        for i, (names, _) in enumerate(self.groups if self.rule.counts else ()):
            for name in names:
                self._kept_of(name)["step"] = torch.tensor(float(states[COUNT.format(i)]))
        mark_stepped(self._optimizer)
        self._versions = self._versions_now()

    def _kept_of(self, parameter: str) -> dict[str, Any]:
        found: dict[str, Any] = self._optimizer.state[self._module.get_parameter(parameter)]
        return found

    def _settings_now(self) -> list[tuple[object, ...]]:
        return [tuple(map(group.get, self.rule.settings)) for group in self._optimizer.param_groups]

    def _tensors_now(self) -> list[torch.Tensor]:
        return [*self._module.parameters(), *self._module.buffers()]

    def _versions_now(self) -> list[int]:
        return [*map(_VERSION, self._tensors), *map(_ADDRESS, self._tensors)]
