"""The skeleton `depthwise` (`skeletons/depthwise.cuh`): where the patch and the weights lie, and a thread's points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rammer.devices.codegen.scalar import C_TYPES, sum_text
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.loads import is_constant
from rammer.devices.cuda.emit.patches import Patch, write_copies
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.vectors import Registers, Vector, pending, store_vector
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.expr import Axis, Expr, Load
from rammer.ir.kernel_form import DepthwiseForm
from rammer.tiling.depthwise import Depthwise, chunks, depthwise


def emit_depthwise(scope: Scope, sides: Sequence[Side], form: DepthwiseForm) -> None:
    """Write what computes one rTask."""
    kernel, writer = scope.operands.kernel, scope.writer
    found = depthwise(kernel.expr, kernel.layouts, kernel.alignments)
    if found is None:
        raise ValueError("no depthwise convolution")
    task = _Task(scope=scope, found=found, form=form, sides={side.axis: side for side in sides})
    task.declare()
    if is_constant(scope, found.weight):
        task.copy_weights()
        emit_wait(writer)
    else:
        emit_wait(writer)
        task.copy_weights()
    task.copy_patch()
    writer.line("rammer_cp_async_wait_all();")
    writer.line("__syncthreads();")
    task.compute()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """An rTask: `sides` are what it has of each axis."""

    scope: Scope
    found: Depthwise
    form: DepthwiseForm
    sides: Mapping[Axis, Side]

    @property
    def _sizes(self) -> dict[Axis, int]:
        return {axis: side.size for axis, side in self.sides.items()}

    @property
    def _channels(self) -> Side:
        return self.sides[self.found.channel]

    def declare(self) -> None:
        """Write the types of what lies in shared memory: the patch, then weights."""
        found, channels = self.found, self._channels.size
        points = (math.prod(found.patch(self._sizes)), math.prod(window.taps for window in found.windows))
        places = (0, found.image_bytes(self._sizes))
        for name, load, at, number in zip(
            ("patch", "weights"), (found.image, found.weight), places, points, strict=True
        ):
            sizes = f"{C_TYPES[load.type]}, {at}, {number}, {channels}, {channels}"
            self.scope.writer.line(f"typedef rammer_operand<{sizes}> {name};")
        run, unrolled = found.run, str(self.form.unrolled).lower()
        row = f"{self.form.vector}, {self.form.points}, {run.stride}, {run.taps}, {run.dilation}"
        rows = math.prod(window.taps for window in found.windows[:-1])
        self.scope.writer.line(f"typedef rammer_window<{row}, {rows}, {unrolled}, {count(self._items)}> window;")

    def copy_weights(self) -> None:
        """Write what asks for the weights."""
        taps = [Side.whole(axis) for axis in reversed(self.found.taps)]
        weight, chunk = self.found.weight, self._chunks[1]
        write_copies(self.scope, "weights", "scratch", weight, taps, self._channels, chunk)

    def copy_patch(self) -> None:
        """Write what asks for the patch."""
        found = self.found
        patch = Patch(
            name="patch",
            memory="scratch",
            image=found.image,
            windows=found.windows,
            channel=self._channels,
            sides=self.sides,
        )
        patch.write_copies(self.scope, self._chunks[0])

    @property
    def _chunks(self) -> tuple[int, int]:
        kernel = self.scope.operands.kernel
        found = chunks(self.found, kernel.expr, kernel.layouts, kernel.alignments)
        assert found is not None  # it is a depthwise convolution
        size = self._channels.size
        return math.gcd(found[0], size), math.gcd(found[1], size)

    @property
    def _others(self) -> list[Side]:
        """What it has of the axes of points beside those that a thread takes together, the fastest first."""
        return [self.sides[window.axis] for window in self.found.windows[-2::-1] if window.axis is not None]

    @property
    def _items(self) -> list[Side]:
        """The points and channels of threads, by their numbers."""
        sides = [(self._channels, self.form.vector), (self.sides[self.found.along], self.form.points)]
        sides += [(side, 1) for side in self._others]
        return [replace(side, lo="", size=side.size // size) for side, size in sides]

    def compute(self) -> None:
        """Write what computes a thread's points."""
        writer, form, found, others = self.scope.writer, self.form, self.found, self._others
        with writer.block("window::each_item([&](uint32_t item)", ");"):
            at = {axis: place.text for axis, place in decode(writer, "item", self._items)[0].items()}
            widths = {found.channel: form.vector, found.along: form.points, **{side.axis: 1 for side in others}}
            first = {axis: self._first(axis, at[axis], width) for axis, width in widths.items()}
            inside = [
                f"{first[side.axis]} < {side.axis.extent}" for side in (self._channels, *others) if side.is_ragged
            ]
            with guarded(writer, inside):
                self._at_points(at, first)

    def _first(self, axis: Axis, number: str, size: int) -> str:
        """The name of a thread's first point along an axis."""
        writer, side = self.scope.writer, self.sides[axis]
        terms = {text: factor for text, factor in ((side.lo, 1), (number, size)) if text}
        return writer.let(writer.index_type, f"{axis.name}_first", sum_text(terms, 0))

    def _at_points(self, at: Mapping[Axis, str], first: Mapping[Axis, str]) -> None:
        """Write the sums and the results of a thread's points."""
        writer, form, found = self.scope.writer, self.form, self.found
        run = found.along
        fixed = {axis: Position(text) for axis, text in first.items() if axis not in (run, found.channel)}
        in_row = self.scope.enter(fixed)
        vector = Vector(
            axis=found.channel, first=Position(first[found.channel], multiple=form.vector), size=form.vector
        )
        sums = Registers(found.channel, form.vector, form.points)
        early, late = Registers(found.channel, form.vector, 1), Registers(found.channel, form.vector, form.points)
        sums.declare(in_row, [found.reduce])
        writer.line(f"rammer_fill<{form.points * form.vector}>(&{sums.name(found.reduce)}[0][0], 0.0f);")
        loads = [node for node in pending(in_row.operands.results, [found.reduce]) if isinstance(node, Load)]
        free = in_row.operands.free
        of_points = [load for load in loads if run in free[load]]
        of_channels = [load for load in loads if load not in of_points]
        early.declare(in_row, of_channels)
        early.bring(in_row, vector, of_channels)
        late.declare(in_row, of_points)

        @contextmanager
        def each() -> Iterator[Scope]:
            with writer.block("window::each_point([&](int turn)", ");"):
                place = f"({first[run]} + turn)"
                with guarded(writer, [f"{place} < {run.extent}"] if self.sides[run].is_ragged else []):
                    yield in_row.enter({run: Position(place)})

        if of_points:
            with each() as at_point:
                late.bring(at_point, vector, of_points)
        self._add(at, sums.name(found.reduce))
        with each() as at_point:
            store_vector(at_point, vector, sums, early, late)

    def _add(self, at: Mapping[Axis, str], sums: str) -> None:
        """Write what adds up the rows of windows."""
        writer, found, form = self.scope.writer, self.found, self.form
        lane = {at[found.channel]: form.vector} if at[found.channel] else {}
        image, weight = dict(lane), dict(lane)
        pitch = tap_pitch = self._channels.size
        taps = [Side.whole(window.tap) for window in found.windows[-2::-1] if window.tap is not None]
        with writer.block("window::each_row([&](int row)", ");"):
            places = decode(writer, "row", taps)[0]
            for window, extent in zip(reversed(found.windows), reversed(found.patch(self._sizes)), strict=True):
                if window.axis is not None and at[window.axis]:
                    points = form.points if window is found.run else 1
                    image[at[window.axis]] = points * window.stride * pitch
                if window.tap in places and (tap := places[window.tap].text):
                    image[tap] = window.dilation * pitch
                    weight[tap] = tap_pitch
                pitch, tap_pitch = pitch * extent, tap_pitch * window.taps
            writer.let("uint32_t", "image_at", sum_text(image, 0))
            writer.let("uint32_t", "weight_at", sum_text(weight, 0))
            of_image = self._factor("patch", found.image, found.of_image, "image_at")
            of_weight = self._factor("weights", found.weight, found.of_weight, "weight_at")
            writer.line(f"window::add({sums}, {of_image}, {of_weight});")

    def _factor(self, name: str, load: Load, factor: Expr, at: str) -> str:
        """Write the functor of a factor's channels of an element in shared memory; returns its name."""
        writer, vector = self.scope.writer, self.form.vector
        functor = writer.name("factor")
        with writer.block(f"const auto {functor} = [&](int element, float *into)", ";"):
            writer.line(f"{C_TYPES[load.type]} stored[{vector}];")
            place = f"{name}::place(scratch, element, {at})"
            writer.line(f"rammer_load_vector<{vector}>(stored, {place});")
            writer.line("#pragma unroll")
            with writer.block(f"for (int lane = 0; lane < {vector}; ++lane)"):
                at_lane = self.scope.enter({})
                at_lane.bind(load, "stored[lane]")
                writer.line(f"into[lane] = {at_lane.value(factor)};")
        return functor
