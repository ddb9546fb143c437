"""Every setting of a compilation, and the only place that reads the environment.

A field that is not given takes the value of the environment variable named in its description, else its default.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rammer.errors import OptionError

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")
_PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
NUMERICS = ("default", "strict")
POLICY_NAMES = ("wavefront", "sequential", "ios", "ios-tiles", "wavefront-fast", "critical-path", "auto")
"""Of the scheduling policies, which `rammer.schedule.policies` holds."""

TREES = ("auto", "gemm", "perfect", "traversal", "quickscorer", "permutes")
"""Strategies for decision trees, which `rammer.ir.tree_forms.TreeStrategy` explains; "auto" leaves it to Roller."""

TUNINGS = ("none", "programs", "measured")
_FIGURES = ("described", "measured")


def _variable(name: str, parse: Callable[[str], T], default: Callable[[], T]) -> Callable[[], T]:
    """A default factory: the variable where it is set and not empty, else `default()`."""

    def read() -> T:
        text = os.environ.get(name, "")
        if not text:
            return default()
        try:
            return parse(text)
        except ValueError as error:
            raise OptionError(f"{name}={text}: {error}", hint=f"correct or unset {name}") from error

    return read


def _switch(text: str) -> bool:
    if text not in {"0", "1"}:
        raise ValueError("neither 0 nor 1")
    return text == "1"


def _default_cache_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home else Path("~/.cache").expanduser()) / "rammer"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInputs:
    """What is said of an ONNX model's inputs, by their names.

    Attributes:
        shapes: of inputs with symbolic dimensions, or of these, each a shape of one, by the dimension's name.
        constants: of inputs that have the same value in every call, and are none of the program.
        states: outputs of a run that the next one takes for inputs.
    """

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        """The options of `compile` that say something."""
        said = {"input_shapes=": self.shapes, "constants=": self.constants, "state=": self.states}
        return [option for option, by_name in said.items() if by_name]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """How to compile and run a model.

    Attributes:
        device: where it runs (`RAMMER_DEVICE`, else "cpu").
        policy: the scheduling policy.
        precision: arithmetic of float32 products and sums; "fp32" is IEEE float32; "tf32", "bf16" and "fp16" round the
            operands of products.
        numerics: "default" may compute sums of products otherwise than the model writes them, within stated bounds
            (docs/numerics.md); "strict" sums what the model says, in an order that one rTask chooses.
        trees: how decision trees find the leaf of a row: one of `TREES` (docs/sklearn.md), "auto" by predicted times.
        veus: execution units to use (`RAMMER_VEUS`); None leaves it to the device. More than a GPU has multiprocessors,
            up to twice as many, are two on each.
        input_shapes: shapes for inputs with symbolic dimensions, by name.
        constants: values of inputs of an ONNX model that are the same in every call, by name.
        states: inputs of an ONNX model that a run takes from an output of the run before, by the names of both.
        seed: of a model's random numbers.
        tune: "none" predicts all times; "programs" measures whole programs where the policy "auto", or several models,
            leave a choice; "measured" rKernels, too: their costs are those of the profile database, where what it lacks
            is measured, which compiles and runs up to ten candidates of each rOperator.
        figures: of the machine (`RAMMER_FIGURES`): "described" from what it says about itself, so that alike machines
            give the same code; "measured" once and kept in the cache; None takes those of a processor as described
            unless `tune` measures, those of a GPU as measured.
        dump_dir: a folder for every intermediate form of the model; None writes nothing.
        cc: the C compiler, a command with arguments if need be (`CC`); None looks for one.
        cache_dir: compiled code (`RAMMER_CACHE_DIR`, else `$XDG_CACHE_HOME/rammer`, else `~/.cache/rammer`).
        cache_bytes: what compiled code may take there; what was used least recently goes first (`RAMMER_CACHE_BYTES`).
        compile_timeout_s: after which one call of a compiler counts as hung (`RAMMER_COMPILE_TIMEOUT_S`).
        run_timeout_s: after which a run without progress ends with an error (`RAMMER_RUN_TIMEOUT_S`).
        spin_us: how long idle workers poll for the next run before they sleep (`RAMMER_SPIN_US`).
        delays: for stress tests on GPUs: any warp stands still now and then, so that others wait long for what it makes
            (`RAMMER_DELAYS`, 0 or 1).

    Raises:
        OptionError: a value that cannot be used, here or in the environment.
    """

    device: str = field(default_factory=_variable("RAMMER_DEVICE", str, lambda: "cpu"))
    policy: str = "wavefront"
    precision: str = "fp32"
    numerics: str = "default"
    trees: str = "auto"
    veus: int | None = field(default_factory=_variable("RAMMER_VEUS", int, lambda: None))
    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    tune: str = "none"
    figures: str | None = field(default_factory=_variable("RAMMER_FIGURES", str, lambda: None))
    dump_dir: Path | None = None
    cc: str | None = field(default_factory=_variable("CC", str, lambda: None))
    cache_dir: Path = field(default_factory=_variable("RAMMER_CACHE_DIR", Path, _default_cache_dir))
    cache_bytes: int = field(default_factory=_variable("RAMMER_CACHE_BYTES", int, lambda: 4 << 30))
    compile_timeout_s: float = field(default_factory=_variable("RAMMER_COMPILE_TIMEOUT_S", float, lambda: 300.0))
    run_timeout_s: float = field(default_factory=_variable("RAMMER_RUN_TIMEOUT_S", float, lambda: 10.0))
    spin_us: float = field(default_factory=_variable("RAMMER_SPIN_US", float, lambda: 50.0))
    delays: bool = field(default_factory=_variable("RAMMER_DELAYS", _switch, lambda: False))

    def __post_init__(self) -> None:
        if self.precision not in _PRECISIONS:
            raise OptionError(f"precision '{self.precision}'", hint=f"choose one of {', '.join(_PRECISIONS)}")
        if self.numerics not in NUMERICS:
            raise OptionError(f"numerics '{self.numerics}'", hint=f"choose one of {', '.join(NUMERICS)}")
        if self.trees not in TREES:
            raise OptionError(f"trees '{self.trees}'", hint=f"choose one of {', '.join(TREES)}")
        if self.tune not in TUNINGS:
            raise OptionError(f"tune '{self.tune}'", hint=f"choose one of {', '.join(TUNINGS)}")
        if not 0 <= self.seed < 2**64:
            raise OptionError(f"seed {self.seed}", hint="give a number from 0 up to 2**64 - 1")
        if self.figures not in (None, *_FIGURES):
            raise OptionError(f"figures '{self.figures}'", hint=f"choose one of {', '.join(_FIGURES)}, or none")
        if self.cache_bytes < 0:
            raise OptionError(f"cache_bytes={self.cache_bytes}", hint="give a number of bytes, 0 to keep nothing")
        if self.veus is not None and self.veus < 1:
            raise OptionError(f"veus={self.veus}", hint="give a number of execution units from 1 on, or none")
        for name in ("compile_timeout_s", "run_timeout_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise OptionError(f"{name}={value}", hint="give a positive number of seconds")
        if not (math.isfinite(self.spin_us) and self.spin_us >= 0):
            raise OptionError(f"spin_us={self.spin_us}", hint="give a number of microseconds, 0 to sleep at once")
        for name, shape in self.input_shapes.items():
            if any(extent < 0 for extent in shape):
                raise OptionError(f"shape {list(shape)} for input '{name}'", hint="extents are 0 or more")

    @property
    def given(self) -> GivenInputs:
        """What they say of a model's inputs."""
        return GivenInputs(shapes=self.input_shapes, constants=self.constants, states=self.states)
