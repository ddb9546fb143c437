"""What a branch that is not taken costs: `python -m benchmarks.branches --help`.

A model that multiplies its input by six matrices, or by none, as the sum of the input decides; and a loop of at most 16
products whose condition ends it sooner. Times are medians of calls, all of a table in turn.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import onnx
from onnx import numpy_helper

import rammer
from benchmarks.pipelines import measured

ROWS, WIDTH, PRODUCTS, TRIPS = 16, 512, 6, 16
_HEADER = '<ir_version: 10, opset_import: ["": 21]> branches'
_VALUE = f"float[{ROWS}, {WIDTH}]"


def branches(how: str) -> onnx.ModelProto:
    """Products in one branch of an `If`; or in both sides of a `Where` by rows, which takes both; or no products."""
    chain = " ".join(f"p{i} = MatMul({f'p{i - 1}' if i else 'x'}, w)" for i in range(PRODUCTS))
    last = f"p{PRODUCTS - 1}"
    body = {
        "if": f"""zero = Constant<value_float = 0.0>() s = ReduceSum<keepdims = 0>(x) c = Greater(s, zero)
            y = If (c) <
                then_branch = products () => ({_VALUE} {last}) {{ {chain} }},
                else_branch = none () => ({_VALUE} n) {{ n = Neg(x) }}
            >""",
        "both": f"""zero = Constant<value_float = 0.0>() axes = Constant<value_ints = [1]>()
            s = ReduceSum(x, axes) c = Greater(s, zero) {chain} n = Neg(x) y = Where(c, {last}, n)""",
        "none": "y = Neg(x)",
    }[how]
    return _model(body)


def loop() -> onnx.ModelProto:
    """Products as long as all elements are below 1."""
    return _model(f"""
        n = Constant<value_int = {TRIPS}>() limit = Constant<value_float = 1.0>()
        first = ReduceMax<keepdims = 0>(x) t = Less(first, limit)
        y = Loop (n, t, x) <
            body = step (int64 i, bool go, {_VALUE} v) => (bool again, {_VALUE} p) {{
                p = MatMul(v, w) m = ReduceMax<keepdims = 0>(p) again = Less(m, limit)
            }}
        >""")


def _model(body: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{_HEADER} ({_VALUE} x) => ({_VALUE} y) {{ {body} }}")
    weight = 2 * np.eye(WIDTH, dtype=np.float32)  # doubles
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return model


def main() -> None:
    """Print a table of branches and one of trips."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--veus", type=int)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each table")
    options = parser.parse_args()
    x = np.full((ROWS, WIDTH), 1e-3, np.float32)
    made = partial(rammer.compile, device=options.device, veus=options.veus)
    nets = {how: made(branches(how)) for how in ("if", "both", "none")}
    calls = {
        "both computed": partial(nets["both"], x),
        "taken": partial(nets["if"], x),
        "not taken": partial(nets["if"], -x),
        "no branches": partial(nets["none"], x),
    }
    _print(f"{PRODUCTS} products, where they are", measured(calls, options.seconds))
    net = made(loop())
    ends = {
        f"{trips} of {TRIPS} trips": partial(net, np.float32(1.5 * 2.0**-trips) * (x / x)) for trips in (1, 4, TRIPS)
    }
    _print("a loop", measured({"0 of 16 trips": partial(net, x + 1), **ends}, options.seconds))


def _print(title: str, us: dict[str, float]) -> None:
    longest = max(us.values())
    print(f"| {title} | us | of the longest |\n|---|---|---|")
    for name, time_us in us.items():
        print(f"| {name} | {time_us:.0f} | {time_us / longest:.2f} |")


if __name__ == "__main__":
    main()
