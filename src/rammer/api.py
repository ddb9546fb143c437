"""The public functions: they read a user's arguments and hand over to `kinds` and `compiler`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.errors import OptionError
from rammer.frontends.dispatch import Example, Explanation, explain_model, is_estimator, open_dimensions
from rammer.ir.dimensions import GivenDynamic, dynamic_dimensions
from rammer.options import CompileOptions
from rammer.pipelines.adapting import adapt_with
from rammer.pipelines.group import check_common, examples_of, priorities_of
from rammer.pipelines.kinds import compile_dynamic, compile_estimator, compile_group, compile_training, compile_with
from rammer.pipelines.planning import Progress, silent
from rammer.runtime.adaptive import AdaptiveModel
from rammer.runtime.dynamic import MODES
from rammer.runtime.step import CompiledStep


def compile(
    model: object,
    device: str | None = None,
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
    priorities: Sequence[float] | None = None,
    policy: str = "wavefront",
    precision: str = "fp32",
    numerics: str = "default",
    trees: str = "auto",
    tune: str = "none",
    veus: int | None = None,
    input_shapes: Mapping[str, Sequence[int] | int] | None = None,
    constants: Mapping[str, object] | None = None,
    state: Mapping[str, str] | None = None,
    seed: int = 0,
    dynamic: GivenDynamic | None = None,
    shapes: str = "ahead",
    dump_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Any:  # noqa: ANN401 - what is called as the model is
    """Compile a model for a device.

    Args:
        model: an ONNX file's path, its bytes or the loaded model; a PyTorch module in evaluation mode, or an exported
            program; a fitted estimator of scikit-learn. Several models in a list, estimators excepted, become one
            program (docs/several-models.md).
        device: "cpu", "cuda" (the first NVIDIA GPU), "cuda:sm_90" and the like (a GPU of that architecture, which need
            not be here) or "reference"; None takes `RAMMER_DEVICE`, else "cpu".
        args: arguments by position that a module is captured with; what is no tensor in them is part of the program.
            Of several models, a tuple for each.
        kwargs: arguments by name; of several models, a dictionary for each.
        priorities: of several models: how much the end of each counts where execution units are shared out; None
            counts all alike.
        policy: "wavefront" (Algorithm 1 of the Rammer paper), "sequential" (operator after operator), "ios" (stages by
            dynamic programming), "ios-tiles" (the same stages, tiles waiting for tiles), "wavefront-fast" (always the
            fastest rKernel), "critical-path" (rKernels by what they do to the waves behind) or "auto" (the best of
            several of these, by simulated or, with `tune`, measured times).
        precision: "fp32" is IEEE float32 products and sums. On GPUs, "tf32", "bf16" and "fp16" round the operands of
            products for tensor cores; sums and all else stay float32 (ADR 0007).
        numerics: "default" may compute sums of products otherwise than the model writes them, within stated bounds
            (docs/numerics.md); "strict" sums what the model says, in an order that one rTask chooses.
        trees: of models with decision trees, the strategy that finds leaves: "gemm", "perfect", "traversal", and on
            processors "quickscorer" and "permutes" (docs/sklearn.md); "auto" chooses by predicted times.
        tune: "none" chooses by predicted times; "programs" measures whole programs where "auto" and several models
            leave a choice; "measured" all rKernels, too. Measured times are kept for later.
        veus: execution units to use; None takes all there are.
        input_shapes: of an ONNX model, shapes of inputs with symbolic dimensions by the input's name, or values of such
            dimensions by theirs: {"x": (8, 3)}, {"batch": 8}; of a sequence those of its tensors, {"xs[0]": (8, 3)}.
        constants: values of inputs of an ONNX model that are the same in every call, by name; the program does not have
            these inputs: {"sample_rate": 16000}.
        state: inputs of an ONNX model that a run takes from an output of the run before (zeros at first), by the names
            of both: {"past": "present"}. Buffers that a PyTorch module writes to are state by themselves.
        seed: of the model's random numbers, where it draws some; they follow from it and the number of the call.
        dynamic: dimensions of inputs that calls choose, by the input's name and the axis, or by the name that an ONNX
            model has for a dimension: a `Dim`, or the least and the greatest extent. See docs/shapes.md.
        shapes: "ahead" compiles the programs for all of them now; "request" lets a call that needs another one wait
            for it; "background" refuses that call, and compiles meanwhile.
        dump_dir: a folder for every intermediate form.
        progress: told (stage, units done, units in all) as work goes on, from any thread. Stages are "read", "passes",
            "lower", "measure", "schedule" and "build". Programs that are compiled later do not tell.

    Returns:
        An `Executable`; a `DynamicModel` where there is `dynamic`; a `CompiledModule` of a PyTorch module or of
        several models; a `CompiledEstimator` of a fitted estimator.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    if isinstance(model, list | tuple):
        check_common(device=device, policy=policy, precision=precision, numerics=numerics, tune=tune, veus=veus)
    options = CompileOptions(
        policy=policy,
        precision=precision,
        numerics=numerics,
        trees=trees,
        tune=tune,
        input_shapes=_shapes(input_shapes),
        constants=_arrays(constants),
        states=dict(state or {}),
        seed=seed,
        dump_dir=None if dump_dir is None else Path(dump_dir),
    )
    options = _on(options, device, veus)
    if isinstance(model, list | tuple):
        if dynamic:
            raise OptionError("dynamic= for several models", hint="compile those by themselves")
        examples = examples_of(len(model), args, kwargs)
        return compile_group(model, options, examples, priorities_of(len(model), priorities), progress or silent)
    if priorities is not None:
        raise OptionError("priorities= for one model", hint="leave it out, or give a list of models")
    example = _example(args, kwargs)
    if dynamic:
        if shapes not in MODES:
            raise OptionError(f"shapes='{shapes}'", hint=f"choose one of {', '.join(MODES)}")
        return compile_dynamic(
            model, options, example, dynamic_dimensions(dynamic, partial(open_dimensions, model)), shapes
        )
    if is_estimator(model):
        return compile_estimator(model, options, example)
    return compile_with(model, options, progress or silent, example)


def adapt(
    model: object,
    device: str | None = None,
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    budget_runs: int = 2000,
    max_slowdown: float = 1.5,
    bits: str = "same",
    budget_bytes: int = 1 << 30,
    store: str | os.PathLike[str] | None = None,
    policy: str = "wavefront",
    precision: str = "fp32",
    numerics: str = "default",
    tune: str = "none",
    veus: int | None = None,
    input_shapes: Mapping[str, Sequence[int] | int] | None = None,
) -> AdaptiveModel:
    """Compile a model that tries other programs of itself while it is called, and keeps what is quicker.

    Every call gives a right answer. Programs are compared in pairs of calls, in turns; one that is quicker in a sign
    test and by at least one in a hundred takes over. For models without state.

    Args:
        model: as for `compile`, estimators and lists excepted.
        device: as for `compile`.
        args: as for `compile`.
        kwargs: as for `compile`.
        budget_runs: calls that may be given to programs that are tried; then nothing is tried any more.
        max_slowdown: programs that are predicted to take longer than so many times the first are not tried, and one
            that does so in two calls is not called again.
        bits: "same" tries programs that give the same bits: other places and another order of the same work. "any" also
            tries other rKernels, which may round otherwise.
        budget_bytes: of a GPU's memory, what programs may take that are loaded beside the first one. They have the same
            constants and, where rKernels are the same, the same code; what would take more is not tried.
        store: a folder for what is learnt, which later processes with the same model on alike machines begin with;
            None keeps nothing.
        policy: of the first program, as for `compile`.
        precision: as for `compile`.
        numerics: as for `compile`.
        tune: as for `compile`.
        veus: as for `compile`.
        input_shapes: as for `compile`.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used, or the model has state.
        DeviceError: the machine cannot do what was asked.
    """
    options = CompileOptions(
        policy=policy,
        precision=precision,
        numerics=numerics,
        tune=tune,
        input_shapes=_shapes(input_shapes),
    )
    options = _on(options, device, veus)
    example = _example(args, kwargs)
    folder = None if store is None else Path(store)
    return adapt_with(
        model,
        options,
        example,
        budget_runs=budget_runs,
        max_slowdown=max_slowdown,
        bits=bits,
        budget_bytes=budget_bytes,
        store=folder,
    )


def compile_step(
    fn: Callable[..., object],
    module: object,
    optimizer: object,
    device: str | None = None,
    *,
    args: Sequence[object] = (),
    kwargs: Mapping[str, object] | None = None,
    seed: int = 0,
    policy: str = "wavefront",
    precision: str = "fp32",
    numerics: str = "default",
    tune: str = "none",
    veus: int | None = None,
    dump_dir: str | os.PathLike[str] | None = None,
) -> CompiledStep:
    """Compile a training step of a PyTorch module: forward, loss, backward and the optimiser's update.

    Args:
        fn: a function of the module and the arguments that returns the loss, a scalar, or a tuple of the loss and
            further results that want no gradient.
        module: whose parameters are trained, as its `training` flags say.
        optimizer: `torch.optim.SGD`, `Adam` or `AdamW` over parameters of the module.
        device: as for `compile`.
        args: arguments by position that the step is captured with, behind the module.
        kwargs: arguments by name.
        seed: of dropout and other random numbers.
        policy: as for `compile`.
        precision: as for `compile`.
        numerics: as for `compile`.
        tune: as for `compile`.
        veus: as for `compile`.
        dump_dir: as for `compile`.

    Raises:
        ModelError: the step cannot be captured, or uses what Rammer does not have.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    options = CompileOptions(
        policy=policy,
        precision=precision,
        numerics=numerics,
        tune=tune,
        seed=seed,
        dump_dir=None if dump_dir is None else Path(dump_dir),
    )
    options = _on(options, device, veus)
    example = _example(args, kwargs)
    return compile_training(fn, module, optimizer, options, example)


def explain(model: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None) -> Explanation:
    """What a PyTorch module would be compiled from: its operators and those that are missing, state, shapes.

    Args:
        model: a module in evaluation mode, or an exported program.
        args: arguments by position that it is captured with.
        kwargs: arguments by name.

    Raises:
        ModelError: it cannot be captured, or is no module.
        OptionError: arguments are given for an exported program.
    """
    return explain_model(model, _example(args, kwargs))


def _on(options: CompileOptions, device: str | None, veus: int | None) -> CompileOptions:
    """Options for a device and so many execution units; None leaves what there is."""
    return replace(
        options, device=options.device if device is None else device, veus=options.veus if veus is None else veus
    )


def _shapes(given: Mapping[str, Sequence[int] | int] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by name; the value of a dimension as a shape of one.

    Raises:
        OptionError: one is none.
    """
    found = {}
    for name, shape in (given or {}).items():
        try:
            found[name] = tuple(map(index, shape if isinstance(shape, Iterable) else (shape,)))
        except TypeError as error:
            raise OptionError(
                f"input_shapes= of '{name}': {shape!r}", hint="give a tuple of integers, or an integer for a dimension"
            ) from error
    return found


def _arrays(given: Mapping[str, object] | None) -> dict[str, npt.NDArray[Any]]:
    """Constants by name.

    Raises:
        OptionError: one holds no numbers.
    """
    found = {}
    for name, value in (given or {}).items():
        try:
            found[name] = array = np.asarray(value)
        except ValueError as error:
            raise OptionError(f"constants= of '{name}': {error}", hint="give a number or an array") from error
        if array.dtype.kind not in "biuf":
            raise OptionError(
                f"constants= of '{name}' holds {array.dtype}", hint="give a number or an array of numbers"
            )
    return found


def _example(args: object, kwargs: object) -> Example:
    """The arguments that a module is captured with.

    Raises:
        OptionError: they are no sequence and no mapping: one tensor, for example.
    """
    if not isinstance(args, Sequence) or isinstance(args, str):
        raise OptionError(f"args= is of class {type(args).__name__}", hint="give a tuple, as in args=(x,)")
    if not isinstance(kwargs, Mapping | None):
        raise OptionError(f"kwargs= is of class {type(kwargs).__name__}", hint='give a dictionary: kwargs={"x": x}')
    return Example(args=tuple(args), kwargs=dict(kwargs or {}))
