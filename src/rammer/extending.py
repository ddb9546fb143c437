"""What users add: operators of their own, and rKernels for any operator, by decorators."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from rammer.errors import InvalidModelError, OptionError
from rammer.ir.expr import TensorExpr
from rammer.ir.extern import ExternKernel, KernelSource, MakeSource
from rammer.ir.graph import Attribute, Attributes
from rammer.ir.types import TensorType
from rammer.operators.registry import CustomDef, OperatorDef, definition_of, register_custom

Made = TypeVar("Made", bound=Callable[..., object])

_DEVICES = ("cpu", "cuda")
_TASK = re.compile(r"\bstatic\b[^;{}]*\btask\s*\(")
_KERNELS: dict[tuple[str, str, str], ExternKernel] = {}
"""Users' rKernels by device, kind of operator and name."""


def operator(name: str) -> Callable[[Made], Made]:
    """Define an operator of another domain than ONNX's: the decorated function gives its tensor expression.

    The function takes the operands' types by position and the operator's attributes by name, with their defaults if
    they have any, and returns a `TensorExpr` (`rammer.expressions` has what they are made of). From it follow shapes,
    fusion, tiles and code for every device; `kernel` adds code of your own.

    Args:
        name: of the operator as a model has it: domain and type, "com.example.Swish". A name that is defined once more
            means the latter from then on.

    Raises:
        OptionError: the name has no domain or is one of Rammer's own, or the function has other parameters.
    """

    def register(meaning: Made) -> Made:
        operands, defaults = [], {}
        for parameter in inspect.signature(meaning).parameters.values():
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty:
                operands.append(parameter.name)
            elif parameter.kind is parameter.KEYWORD_ONLY:
                defaults[parameter.name] = None if parameter.default is parameter.empty else parameter.default
            else:
                raise OptionError(
                    f"the parameter '{parameter}' of the operator '{name}'",
                    hint="name operands by position, without defaults, and attributes behind a *",
                )
        build = _builder(name, meaning, len(operands))
        register_custom(CustomDef(kind=name, build=build, operands=tuple(operands), defaults=defaults))
        return meaning

    if not re.fullmatch(r"\w+(\.\w+)+", name) or name.startswith("com.microsoft."):
        raise OptionError(
            f"an operator named '{name}'", hint='give a domain of your own and a type, "com.example.Swish"'
        )
    return register


def kernel(name: str, device: str) -> Callable[[MakeSource], MakeSource]:
    """Register an rKernel of your own: the decorated function gives its source for operands of certain types.

    The function takes the operands' types by position and the operator's attributes by name, as they are once the model
    was read, and returns a `KernelSource`, or None for what it is not made for. Each tile is then a candidate beside
    those that Rammer constructs, where operands and results lie row-major and dense. Before the first use it is
    compared with NumPy, on numbers, special values and NaN.

    Args:
        name: the operator's kind: one of `operator`'s names, or one of Rammer's, as in a report ("Softmax").
        device: "cpu" or "cuda".

    Raises:
        OptionError: there is no such operator or device.
    """

    def register(make: MakeSource) -> MakeSource:
        own = getattr(make, "__name__", type(make).__name__)
        _KERNELS[device, name, own] = ExternKernel(name=own, kind=name, make=_checked(own, make))
        return make

    if device not in _DEVICES:
        raise OptionError(f"a kernel for the device '{device}'", hint=f"choose one of {', '.join(_DEVICES)}")
    try:
        definition = definition_of(name)
    except KeyError:
        hint = "define it first: @rammer.operator(...)"
        raise OptionError(f"a kernel for '{name}', which is no operator", hint=hint) from None
    if not isinstance(definition, OperatorDef):
        raise OptionError(f"a kernel for '{name}', which is made of other operators", hint="choose one of those")
    return register


def kernels_for(device: str) -> tuple[ExternKernel, ...]:
    """Users' rKernels for a device."""
    return tuple(extern for (kind, _, _), extern in _KERNELS.items() if kind == device)


def _builder(
    name: str, meaning: Callable[..., object], count: int
) -> Callable[[Sequence[TensorType], Attributes], TensorExpr]:
    """The meaning as the table of operators has it."""

    def build(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
        if len(inputs) != count:
            raise InvalidModelError(f"{name} of {len(inputs)} operands, not {count}")
        expr = meaning(*inputs, **attributes)
        if not isinstance(expr, TensorExpr) or expr.inputs != tuple(inputs):
            raise OptionError(
                f"the function of the operator '{name}' gives no expression of its operands",
                hint="return rammer.expressions.plain_result([x, ...], ...) of all of them",
            )
        return expr

    return build


def _checked(name: str, make: Callable[..., object]) -> MakeSource:
    """The same, whose sources are seen to be such."""

    def source(*inputs: TensorType, **attributes: Attribute) -> KernelSource | None:
        made = make(*inputs, **attributes)
        if made is None or (isinstance(made, KernelSource) and made.tiles and _TASK.search(made.code)):
            return made
        raise OptionError(
            f"the kernel '{name}' gives no source",
            hint="return a KernelSource with a static function `task` and at least one tile, or None",
        )

    return source
