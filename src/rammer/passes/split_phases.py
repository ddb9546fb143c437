"""split_phases: a transposed convolution by finite weights becomes convolutions, one for each phase of its strides.

    y = ConvTranspose(x, w)             ->  y = Conv(x, w'), w' = w with taps reversed, features and channels swapped
    y = ConvTranspose(x, w), strides s  ->  y = the s0 * s1 results of Conv(x, w'[phase]), interleaved
    Add of two such y                   ->  the phases are added, then interleaved

To every s-th position of a result along a dimension lead the same taps, every s-th one: those positions are a phase, a
convolution by its taps alone. So no product is by a zero of the stretched input, and the weights do not depend on
the position: rows of tiles are pixels then, as in any convolution. (Shi et al. 2016 read this the other way round, as
convolutions whose channels are interleaved.) A convolution's gradient by its input is a transposed convolution. Phases
that no tap reaches are zeros; where the gradient of a shortcut of stride 2 is added, they cost nothing.

Weights that are known are swapped here; others are read through views. Interleaving is where results lie: each phase
is written to its places of one tensor.

Ordering restriction: after `finite_weights`, which allows padding to be multiplied; before `fold_batch_norm` and
`winograd`, which know convolutions by their kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.graph import Array, Attributes, Graph, Operator, SourceLocation
from rammer.ir.types import DType
from rammer.operators.attributes import integer, integers
from rammer.passes.helpers.rewrite import Rewriter


def run(graph: Graph) -> Graph:
    """Split transposed convolutions; see the module."""
    return _Splitting(graph).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """The results along one dimension at every `stride`-th position, as a convolution of part of an image.

    Its taps are those from `first` on, every `stride`-th, `taps` of them, in the reverse order. Of the image it takes
    `size` elements from `start` on, with `begin` and `end` of padding.
    """

    first: int
    stride: int
    taps: int
    start: int
    size: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """A value in phases: by the phase of each dimension, the last fastest, a value, or None for zeros."""

    phases: tuple[int | None, ...]
    strides: tuple[int, ...]
    name: str
    sources: tuple[SourceLocation, ...]


class _Splitting:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = Rewriter(graph)
        self._consumers = graph.consumers()
        self._split: dict[int, _Split] = {}  # not interleaved yet

    def run(self) -> Graph:
        """Walk the operators: what is split waits for another to be added to it."""
        for operator in self._graph.operators:
            split = self._sum(operator)
            if split is None:
                for value in operator.inputs:
                    self._settle(value)
                split = self._convolutions(operator)
            if split is None:
                self._rewriter.insert(operator)
                continue
            (result,) = operator.outputs
            self._split[result] = split
            if result in self._graph.outputs or len(self._consumers.get(result, ())) != 1:
                self._settle(result)
        for value in tuple(self._split):
            self._settle(value)
        return self._rewriter.finish()

    def _sum(self, operator: Operator) -> _Split | None:
        """The sum of two values in the same phases, in these; of zeros, what they are added to."""
        if operator.kind != "Add" or not all(value in self._split for value in operator.inputs):
            return None
        left, right = (self._split[value] for value in operator.inputs)
        types = {self._graph.values[value].type for value in (*operator.inputs, *operator.outputs)}
        if left is right or left.strides != right.strides or len(types) > 1:
            return None
        for value in operator.inputs:
            del self._split[value]
        phases = tuple(
            self._added(operator, number, *pair)
            for number, pair in enumerate(zip(left.phases, right.phases, strict=True))
        )
        return _Split(phases=phases, strides=left.strides, name=operator.name, sources=operator.sources)

    def _added(self, operator: Operator, number: int, left: int | None, right: int | None) -> int | None:
        if left is None or right is None:
            return right if left is None else left
        name = f"{operator.name}.{number}"
        return self._rewriter.add("Add", [left, right], operator.attributes, name=name, sources=operator.sources)

    def _convolutions(self, operator: Operator) -> _Split | None:
        """A transposed convolution in phases; None for one that stays, and for any other operator."""
        lines = self._lines(operator)
        if lines is None:
            return None
        each = list(itertools.product(*lines))
        phases: list[int | None] = []
        for number, line in enumerate(each):
            name = operator.name if len(each) == 1 else f"{operator.name}.{number}"
            phases.append(self._convolution(operator, line, name) if all(phase.taps for phase in line) else None)
        strides = integers(operator.attributes, "strides")
        return _Split(phases=tuple(phases), strides=strides, name=operator.name, sources=operator.sources)

    def _convolution(self, operator: Operator, line: Sequence[_Phase], name: str) -> int:
        """One phase."""
        operands = [self._image(operator, line, name), self._weight(operator, line, name), *operator.inputs[2:]]
        attributes: Attributes = {
            "strides": (1,) * len(line),
            "dilations": integers(operator.attributes, "dilations"),
            "pads": (*(phase.begin for phase in line), *(phase.end for phase in line)),
            "group": integer(operator.attributes, "group"),
            "finite_weights": True,
        }
        return self._rewriter.add("Conv", operands, attributes, name=name, sources=operator.sources)

    def _lines(self, operator: Operator) -> list[list[_Phase]] | None:
        """The phases of each dimension of a transposed convolution that is split; None for any other operator."""
        if operator.kind != "ConvTranspose" or not operator.attributes.get("finite_weights"):
            return None
        x, w = (self._graph.values[value].type for value in operator.inputs[:2])
        y = self._graph.values[operator.outputs[0]].type
        strides, dilations, pads = (integers(operator.attributes, name) for name in ("strides", "dilations", "pads"))
        if not x.size or not y.size or any(math.gcd(*both) > 1 for both in zip(strides, dilations, strict=True)):
            return None
        lines = [
            [_phase(number, *of_one) for number in range(of_one[0])]
            for of_one in zip(strides, dilations, pads, x.shape[2:], w.shape[2:], y.shape[2:], strict=False)
        ]
        phases = [phase for line in lines for phase in line]
        has_bias = len(operator.inputs) > 2
        if any(phase.size <= 0 if phase.taps else has_bias for phase in phases):  # zeros, or nothing but the bias
            return None
        return lines

    def _image(self, operator: Operator, line: Sequence[_Phase], name: str) -> int:
        """What of the image the convolution of a phase reads."""
        x = operator.inputs[0]
        shape = self._rewriter.type(x).shape
        sizes = (*shape[:2], *(phase.size for phase in line))
        if sizes == shape:
            return x
        starts = (0, 0, *(phase.start for phase in line))
        part: Attributes = {"starts": starts, "steps": (1,) * len(shape), "sizes": sizes}
        return self._rewriter.add("Slice", [x], part, name=f"{name}.input", sources=operator.sources)

    def _weight(self, operator: Operator, line: Sequence[_Phase], name: str) -> int:
        """The taps of a phase, reversed, `[m, c / group, *taps]` of weights `[c, m / group, *kernel]`."""
        rewriter, w = self._rewriter, operator.inputs[1]
        group = integer(operator.attributes, "group")
        channels, features, *_ = rewriter.type(w).shape
        starts = (0, 0, *(phase.first + (phase.taps - 1) * phase.stride for phase in line))
        steps = (1, 1, *(-phase.stride for phase in line))
        sizes = (channels, features, *(phase.taps for phase in line))
        shape = (features * group, channels // group, *sizes[2:])
        apart = (group, channels // group, features, *sizes[2:])
        turned = (0, 2, 1, *range(3, len(apart)))
        own = rewriter.array(w)
        if own is not None:
            return rewriter.constant(_taken(own, line).reshape(apart).transpose(turned).reshape(shape), f"{name}.taps")

        def add(kind: str, value: int, attributes: Attributes) -> int:
            return rewriter.add(kind, [value], attributes, name=f"{name}.taps", sources=operator.sources)

        taps = add("Slice", w, {"starts": starts, "steps": steps, "sizes": sizes})
        if group == 1:
            return add("Transpose", taps, {"perm": (1, 0, *range(2, len(sizes)))})
        if group == channels:
            return add("Reshape", taps, {"shape": shape})
        taps = add("Transpose", add("Reshape", taps, {"shape": apart}), {"perm": turned})
        return add("Reshape", taps, {"shape": shape})

    def _settle(self, value: int) -> None:
        """Interleave the phases of a value, if it is in phases."""
        split = self._split.pop(value, None)
        if split is None:
            return
        rewriter, type_ = self._rewriter, self._rewriter.type(value)
        if len(split.phases) == 1 and split.phases[0] is not None:
            rewriter.replace(value, split.phases[0])
            return

        def add(kind: str, values: Sequence[int], attributes: Attributes) -> int:
            return rewriter.add(kind, values, attributes, name=split.name, sources=split.sources)

        batch, channels, *extents = type_.shape
        counts = tuple(-(-extent // stride) for extent, stride in zip(extents, split.strides, strict=True))
        apart = (batch, channels, *itertools.chain.from_iterable((count, 1) for count in counts))
        parts = [
            self._zeros(split, apart, type_.dtype) if phase is None else add("Reshape", [phase], {"shape": apart})
            for phase in split.phases
        ]
        for dim in reversed(range(len(counts))):
            stride = split.strides[dim]
            if stride > 1:
                parts = [
                    add("Concat", parts[at : at + stride], {"axis": 3 + 2 * dim}) for at in range(0, len(parts), stride)
                ]
        (whole,) = parts
        shape = (batch, channels, *(count * stride for count, stride in zip(counts, split.strides, strict=True)))
        whole = add("Reshape", [whole], {"shape": shape})
        if shape != type_.shape:
            rank = len(shape)
            whole = add("Slice", [whole], {"starts": (0,) * rank, "steps": (1,) * rank, "sizes": type_.shape})
        rewriter.replace(value, whole)

    def _zeros(self, split: _Split, shape: Sequence[int], dtype: DType) -> int:
        zero = self._rewriter.constant(np.zeros((1,) * len(shape), dtype.numpy), f"{split.name}.zero")
        attributes: Attributes = {"shape": tuple(shape)}
        return self._rewriter.add("Expand", [zero], attributes, name=f"{split.name}.zero", sources=split.sources)


def _phase(number: int, stride: int, dilation: int, begin: int, extent: int, taps: int, results: int) -> _Phase:
    """Phase `number` of `results` of `taps` taps over `extent` elements.

    Result `q * stride + number` is the sum of `x[q + offset - j * dilation] * w[first + j * stride]`: the taps whose
    elements there are are those that `first` is congruent to (`operators.taps`).
    """
    count = -(-results // stride)
    first = (number + begin) * pow(dilation, -1, stride) % stride if stride > 1 else 0
    own = len(range(first, taps, stride))
    offset = (number + begin - first * dilation) // stride
    before, behind = (own - 1) * dilation - offset, count - 1 + offset - (extent - 1)
    start = max(0, -before)
    return _Phase(
        first=first,
        stride=stride,
        taps=own,
        start=start,
        size=extent - start - max(0, -behind),
        begin=max(0, before),
        end=max(0, behind),
    )


def _taken(weights: Array, line: Sequence[_Phase]) -> Array:
    """The taps of a phase, reversed."""
    whole = slice(None)
    taps = weights[(whole, whole, *(slice(phase.first, None, phase.stride) for phase in line))]
    return np.flip(taps, tuple(range(2, taps.ndim)))
