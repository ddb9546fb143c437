"""Networks in int8 on a processor, beside ONNX Runtime and OpenVINO (those that are installed).

    python -m benchmarks.quantised --networks resnet bert mobilenet

Models are quantised by ONNX Runtime's own quantiser: QDQ, uint8 by int8, weights per channel, calibrated on two random
inputs. Contestants take turns, and the least time of each counts, so that other work on the machine costs all the same.
`rammer, vectors` is Rammer on the same machine described without tiles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx

import rammer
from benchmarks.networks import NETWORKS
from rammer.devices.cpu.device import CpuDevice
from rammer.ir.graph import Array
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.runtime.arrays import random_inputs

Run = Callable[[], Sequence[Array]]


class _Samples:
    """Inputs that a quantiser finds ranges with."""

    def __init__(self, samples: Sequence[Mapping[str, Array]]) -> None:
        self._samples: Iterator[Mapping[str, Array]] = iter(samples)

    def get_next(self) -> Mapping[str, Array] | None:
        """The next inputs, None behind the last."""
        return next(self._samples, None)


def quantised(model: onnx.ModelProto, samples: Sequence[Mapping[str, Array]], folder: Path) -> onnx.ModelProto:
    """A float32 model in int8."""
    from onnxruntime import quantization

    plain, prepared, made = (folder / f"{name}.onnx" for name in ("plain", "prepared", "quantised"))
    onnx.save(model, plain)
    quantization.shape_inference.quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(prepared),
        str(made),
        _Samples(samples),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return onnx.load(made)


def _without_tiles(model: onnx.ModelProto, veus: int) -> Any:  # noqa: ANN401 - as `rammer.compile` gives it
    """Rammer for the machine described without tiles."""
    describe = CpuDevice.describe

    def described(self: CpuDevice, options: CompileOptions) -> VDevice:
        return replace(describe(self, options), tile_flops_per_us=None)

    with mock.patch.object(CpuDevice, "describe", described):
        return rammer.compile(model, veus=veus)


def contestants(model: onnx.ModelProto, inputs: Mapping[str, Array], threads: int) -> dict[str, Run]:
    """A call of the model by each."""
    found: dict[str, Run] = {}
    for name, net in (
        ("rammer", rammer.compile(model, veus=threads)),
        ("rammer, vectors", _without_tiles(model, threads)),
    ):
        found[name] = lambda net=net: list(net.run(inputs).values())  # type: ignore[misc]
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found["onnxruntime"] = lambda: session.run(None, dict(inputs))
    try:
        import openvino
    except ImportError:
        return found
    core = openvino.Core()
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    compiled: Any = core.compile_model(core.read_model(model.SerializeToString()), "CPU", config)
    found["openvino"] = lambda: [np.asarray(one) for one in compiled(dict(inputs)).values()]
    return found


def least_ms(runs: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """The least time of each in rounds of a few calls."""
    best = dict.fromkeys(runs, float("inf"))
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        for name, run in runs.items():
            for _ in range(4):
                start_s = time.perf_counter()
                run()
                best[name] = min(best[name], 1e3 * (time.perf_counter() - start_s))
    return best


def main() -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["mobilenet", "resnet", "bert"], choices=NETWORKS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    for name in arguments.networks:
        model = NETWORKS[name]()
        inputs = random_inputs(rammer.compile(model, device="reference").signature)
        with tempfile.TemporaryDirectory() as folder:
            model = quantised(model, [inputs] * 2, Path(folder))
        runs = contestants(model, inputs, arguments.threads)
        outputs = {one: run()[0] for one, run in runs.items()}
        same = np.array_equal(outputs["rammer"], outputs["rammer, vectors"])
        best = least_ms(runs, arguments.seconds)
        times = ", ".join(f"{one} {best[one]:.2f} ms ({best[one] / best['rammer']:.2f})" for one in runs)
        print(f"{name}: {times}; tiles and vectors give {'the same' if same else 'DIFFERENT'} bits", flush=True)


if __name__ == "__main__":
    main()
