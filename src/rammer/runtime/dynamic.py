"""A model for several shapes: a program for each that is needed, and calls that are padded to the next one."""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from rammer.devices.base import DeviceArray
from rammer.errors import InputShapeError, OptionError, ShapeNotReadyError, ShapeRangeError
from rammer.ir.dimensions import Dim
from rammer.ir.schema import OrNull, Schema, SchemaError, check_schema
from rammer.runtime.container import Json
from rammer.runtime.executable import Executable
from rammer.runtime.programs import ProgramSet, Shapes
from rammer.runtime.tensors import FindLibrary, TensorLibrary

MODES = ("ahead", "request", "background")
"""When programs are compiled: all of them at once, or each when a call first needs it, which waits or is refused."""

MOST_AHEAD = 256
KEPT = 64
"""Programs that are kept where they are compiled as calls need them."""

_ROUTES = 4096  # that are kept

_ABOUT: Schema = {
    "dimensions": [{"name": str, "low": int, "high": int, "buckets": OrNull([int]), "mask": OrNull(str)}],
    "padded": [str],
    "shapes": [[int]],
    "inputs": [[(int, str)]],
    "outputs": [[(int, str)]],
}


Spread = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[Any]]
"""The arrays among the arguments of a call; see `Executable.spread`."""


class Place(NamedTuple):
    """An axis of an input or output, and the name of the dimension that it is."""

    axis: int
    dimension: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePlan:
    """Which dimensions a model has, where, and which of them calls are padded along.

    Attributes:
        dimensions: all of them.
        padded: the names of those that are padded; the others have a program for each extent.
        shapes: of the inputs, for some extents.
        inputs: where the dimensions are, for each input.
        outputs: where the padded dimensions are, for each output.
        reasons: why a dimension is not padded.
    """

    dimensions: tuple[Dim, ...]
    padded: frozenset[str]
    shapes: Shapes
    inputs: tuple[tuple[Place, ...], ...]
    outputs: tuple[tuple[Place, ...], ...]
    reasons: Mapping[str, str]

    def shapes_for(self, extents: Mapping[str, int]) -> Shapes:
        """The shapes of the inputs for extents of the dimensions."""
        found = []
        for shape, places in zip(self.shapes, self.inputs, strict=True):
            extended = list(shape)
            for axis, name in places:
                extended[axis] = extents[name]
            found.append(tuple(extended))
        return tuple(found)

    def all_shapes(self) -> list[Shapes]:
        """The shapes of all programs.

        Raises:
            OptionError: there are too many.
        """
        choices = [
            dim.padded_extents() if dim.name in self.padded else range(dim.low, dim.high + 1) for dim in self.dimensions
        ]
        count = math.prod(map(len, choices))
        if count > MOST_AHEAD:
            reasons = "".join(f"; '{name}' is not padded: {reason}" for name, reason in self.reasons.items())
            raise OptionError(
                f"{count} programs, for all extents of {', '.join(dim.name for dim in self.dimensions)}{reasons}",
                hint=f"at most {MOST_AHEAD} are compiled ahead: give fewer buckets, a mask, or shapes='request'",
            )
        names = [dim.name for dim in self.dimensions]
        return [self.shapes_for(dict(zip(names, extents, strict=True))) for extents in itertools.product(*choices)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Route:
    """What calls with inputs of some shapes do.

    Attributes:
        shapes: of the inputs of the program that runs.
        padded: the positions of the inputs that are padded.
        cut: the extents along axes of outputs that are cut, by position.
    """

    shapes: Shapes
    padded: Sequence[int]
    cut: Mapping[int, Mapping[int, int]]


class DynamicModel:
    """A model compiled for several shapes of its inputs, called like one that is compiled for a single shape.

    A call with fewer rows than the program has is padded with zeros, and what comes of them is cut off. Calls from
    several threads are safe.

    Attributes:
        plan: the dimensions.
        programs: by shapes of the inputs.
    """

    def __init__(
        self, plan: ShapePlan, programs: ProgramSet, spread: Spread, find_library: FindLibrary, *, mode: str
    ) -> None:
        self.plan = plan
        self._spread = spread
        self.programs = programs
        self._find_library = find_library
        self._mode = mode
        self._background: dict[Shapes, Future[Executable]] = {}
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="rammer-shapes")
        self._lock = threading.Lock()
        self._routes: dict[Shapes, _Route] = {}
        self._libraries: dict[type, TensorLibrary | None] = {np.ndarray: None}
        if mode == "ahead":
            self.prepare()

    def prepare(self) -> None:
        """Compile all programs that there are not yet.

        Raises:
            OptionError: there are too many.
        """
        for shapes in self.plan.all_shapes():
            self.programs.select(shapes)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the model takes and gives
        """Run the model on arguments of any shape within its ranges.

        Raises:
            ShapeRangeError: an extent is outside of its range.
            ShapeNotReadyError: the program for these shapes is being compiled in the background.
            CallError: the arguments are not like those that the model was compiled for.
        """
        program, results = self._called(self._spread(args, kwargs))
        return program.assemble(results)

    def call_arrays(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs for the inputs in order, as arrays; raises as a call does."""
        return self._called(arrays)[1]

    def program_for(self, shapes: Shapes) -> Executable:
        """The program that a call with inputs of these shapes runs; raises as a call does."""
        extents = self._extents_of(shapes)
        if (there := self.plan.shapes_for(extents)) != shapes:
            raise InputShapeError(f"inputs of {_text(shapes)}, not of {_text(there)}")
        return self._program(self.plan.shapes_for(self._program_extents(extents)))

    def wait(self) -> None:
        """Wait for the programs that are being compiled in the background."""
        with self._lock:
            works = list(self._background.values())
        wait(works)

    def clone(self) -> Self:
        """The same model once more, whose programs are clones; see `Executable.clone`.

        `copy.copy` and `copy.deepcopy` make clones.
        """
        return type(self)(self.plan, self.programs.clone(), self._spread, self._find_library, mode=self._mode)

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: object) -> Self:
        return self.clone()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all programs that there are to one file, each constant once. `rammer.load` reads it.

        Raises:
            ArtifactWriteError: the file cannot be written, or the device's programs live in memory only.
        """
        self.programs.save(path, kind="dynamic", about=self._about())

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes; `rammer.load` takes it, too.

        Raises:
            ArtifactWriteError: the device's programs live in memory only.
        """
        return self.programs.to_bytes(kind="dynamic", about=self._about())

    def _about(self) -> dict[str, Json]:
        """The plan as JSON data."""
        plan = self.plan
        return {
            "dimensions": [
                asdict(dim) | {"buckets": None if dim.buckets is None else list(dim.buckets)} for dim in plan.dimensions
            ],
            "padded": sorted(plan.padded),
            "shapes": [list(shape) for shape in plan.shapes],
            "inputs": [[list(place) for place in places] for places in plan.inputs],
            "outputs": [[list(place) for place in places] for places in plan.outputs],
        }

    def _called(self, given: Sequence[Any]) -> tuple[Executable, Sequence[Any]]:
        """The program for arrays, and its outputs without what came of the padding."""
        arrays = [array if hasattr(array, "shape") else np.asarray(array) for array in given]
        route = self._route(tuple(tuple(array.shape) for array in arrays))
        program = self._program(route.shapes)
        for position in route.padded:
            arrays[position] = self._padded(program, position, arrays[position])
        results = list(program.call_arrays(arrays))
        for position, extents in route.cut.items():
            results[position] = _cut(results[position], extents)
        return program, results

    def _route(self, shapes: Shapes) -> _Route:
        """What a call with inputs of these shapes does."""
        found = self._routes.get(shapes)
        if found is None:
            if len(self._routes) >= _ROUTES:
                self._routes = {}
            found = self._routes[shapes] = self._found_route(shapes)
        return found

    def _found_route(self, shapes: Shapes) -> _Route:
        extents = self._extents_of(shapes)
        wanted = self._program_extents(extents)
        more = {name for name, extent in extents.items() if wanted[name] != extent}
        cut = [
            {place.axis: extents[place.dimension] for place in places if place.dimension in more}
            for places in self.plan.outputs
        ]
        return _Route(
            shapes=self.plan.shapes_for(wanted),
            padded=[i for i, places in enumerate(self.plan.inputs) if any(name in more for _, name in places)],
            cut={position: axes for position, axes in enumerate(cut) if axes},
        )

    def _extents_of(self, shapes: Shapes) -> dict[str, int]:
        """The extents of the dimensions in a call."""
        found: dict[str, int] = {}
        for given, shape, places in zip(shapes, self.plan.shapes, self.plan.inputs, strict=True):
            if len(given) != len(shape):
                raise InputShapeError(f"an input of shape {list(given)}, not of {len(shape)} dimensions")
            for axis, name in places:
                if found.setdefault(name, given[axis]) != given[axis]:
                    raise InputShapeError(f"inputs with {found[name]} and {given[axis]} along '{name}'")
        return found

    def _program_extents(self, extents: Mapping[str, int]) -> dict[str, int]:
        """Those of the program for a call."""
        return {name: self._program_extent(name, extent) for name, extent in extents.items()}

    def _program_extent(self, name: str, extent: int) -> int:
        """That of the program for a call."""
        dim = next(dim for dim in self.plan.dimensions if dim.name == name)
        if not dim.low <= extent <= dim.high:
            raise ShapeRangeError(
                f"{extent} along '{name}', which goes from {dim.low} to {dim.high}",
                hint="compile the model for a wider range, or split the call",
            )
        if name not in self.plan.padded:
            return extent
        return next(size for size in dim.padded_extents() if size >= extent)

    def _program(self, shapes: Shapes) -> Executable:
        if self._mode != "background":
            return self.programs.select(shapes)
        if any(key.shapes == shapes for key in self.programs.programs):
            return self.programs.select(shapes)
        with self._lock:
            work = self._background.get(shapes)
            if work is None:
                work = self._background[shapes] = self._workers.submit(self.programs.select, shapes)
            elif work.done():  # it failed, or the program has gone since to make room for others
                del self._background[shapes]
                return work.result()
        raise ShapeNotReadyError(
            f"the program for inputs of {_text(shapes)} is being compiled",
            hint="call again later, with shapes that there are programs for, or compile with shapes='ahead'",
        )

    def _padded(self, program: Executable, position: int, array: Any) -> Any:  # noqa: ANN401 - of any library
        kind = type(array)
        if kind not in self._libraries:
            self._libraries[kind] = self._find_library(kind)
        library = self._libraries[kind]
        if library is None:
            return program.padded(position, array)
        return library.padded(array, program.signature.inputs[position].type.shape)

    def __repr__(self) -> str:
        dims = ", ".join(
            f"{dim.name} {dim.low} to {dim.high} ({'padded' if dim.name in self.plan.padded else 'exact'})"
            for dim in self.plan.dimensions
        )
        return f"<rammer.DynamicModel of {len(self.programs)} programs: {dims}>"


def _text(shapes: Shapes) -> str:
    return " and ".join(map(str, map(list, shapes)))


def _cut(result: Any, extents: Mapping[int, int]) -> Any:  # noqa: ANN401 - as above
    """A result without what came of the padding along axes."""
    shape = tuple(extents.get(axis, extent) for axis, extent in enumerate(result.shape))
    return result.cut(shape) if isinstance(result, DeviceArray) else result[tuple(map(slice, shape))]


def read_dynamic(programs: ProgramSet, about: Json, find_library: FindLibrary) -> DynamicModel:
    """The model whose programs were saved; it has the shapes that it was saved with.

    Raises:
        SchemaError: the plan that it was saved with is none.
    """
    check_schema(about, _ABOUT, "its plan of shapes")
    stored: Any = about
    try:
        dimensions = tuple(
            Dim(
                name=dim["name"],
                low=dim["low"],
                high=dim["high"],
                buckets=None if dim["buckets"] is None else tuple(dim["buckets"]),
                mask=dim["mask"],
            )
            for dim in stored["dimensions"]
        )
    except OptionError as error:
        raise SchemaError(str(error)) from error
    inputs, outputs = (
        tuple(tuple(Place(axis, name) for axis, name in places) for places in stored[side])
        for side in ("inputs", "outputs")
    )
    plan = ShapePlan(
        dimensions=dimensions,
        padded=frozenset(stored["padded"]),
        shapes=tuple(map(tuple, stored["shapes"])),
        inputs=inputs,
        outputs=outputs,
        reasons={},
    )
    _check_plan(plan, programs)
    spread = next(iter(programs.programs.values())).spread
    return DynamicModel(plan, programs, spread, find_library, mode="request")


def _check_plan(plan: ShapePlan, programs: ProgramSet) -> None:
    """See whether a plan fits the programs that it was saved with."""
    names = {dim.name for dim in plan.dimensions}
    fits = plan.padded <= names and len(plan.inputs) == len(plan.shapes) and len(programs) > 0
    for places in (*plan.inputs, *plan.outputs):
        fits = fits and all(name in names for _, name in places)
    for program in programs.programs.values():
        ports = program.signature.inputs
        fits = fits and [len(port.type.shape) for port in ports] == [len(shape) for shape in plan.shapes]
        fits = fits and len(program.signature.outputs) == len(plan.outputs)
        both = (*zip(ports, plan.inputs, strict=False), *zip(program.signature.outputs, plan.outputs, strict=False))
        fits = fits and all(axis < port.type.rank for port, places in both for axis, _ in places)
    if not fits:
        raise SchemaError("its plan of shapes does not fit its programs")
