"""Networks in int8 on a processor, beside ONNX Runtime, OpenVINO (where it is installed) and our own float32.

    python -m benchmarks.quantised --networks resnet bert lstm_tc-dynamic

ONNX Runtime's own quantiser makes the models: `NETWORK` and `NETWORK-qoperator` statically, by one random input, uint8
by int8, weights by channels, as QDQ and as its operators of integers; `NETWORK-dynamic` by ranges that are found as the
model runs. Each contestant is in a process of its own; they take turns, all on the same inputs. `rammer, vectors` is
Rammer on the same machine described without tiles. Printed are medians; `--small --rounds 1` tries the command.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import onnx

import rammer
from benchmarks.harness.alone import Alone, RemoteClock
from benchmarks.harness.cases import Case, Form
from benchmarks.harness.contestant import Array, Contestant, Prepared
from benchmarks.harness.kept import Kept
from benchmarks.harness.measure import Timing, in_turns
from benchmarks.harness.onnx_runtime import OnnxRuntime
from benchmarks.harness.open_vino import OpenVino
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import random_inputs
from rammer.devices.cpu.device import CpuDevice
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions

FORMS = ("", "-qoperator", "-dynamic")
DEFAULT = (
    *("mobilenet", "resnet", "bert", "lstm_tc-dynamic"),
    *("mobilenet-qoperator", "resnet-qoperator", "mobilenet-dynamic", "resnet-dynamic", "bert-dynamic"),
)
OURS, FLOATS = "rammer", "rammer, float32"


class _Samples:
    """Inputs that a quantiser finds ranges with."""

    def __init__(self, sample: Mapping[str, Array]) -> None:
        self._left = [sample]

    def get_next(self) -> Mapping[str, Array] | None:
        """The next inputs, None behind the last."""
        return self._left.pop() if self._left else None


def quantised(
    model: onnx.ModelProto, inputs: Mapping[str, Array], form: str, *, signed: bool = True
) -> onnx.ModelProto:
    """A float32 model in int8.

    Args:
        model: of float32.
        inputs: what ranges are found with.
        form: one of `FORMS`.
    """
    from onnxruntime import quantization as q

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared, made = (str(Path(folder) / f"{name}.onnx") for name in ("plain", "prepared", "quantised"))
        onnx.save(model, plain)
        q.shape_inference.quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        if form == "-dynamic":
            q.quantize_dynamic(prepared, made, weight_type=q.QuantType.QInt8)
        else:
            q.quantize_static(
                prepared,
                made,
                _Samples(inputs),
                quant_format=q.QuantFormat.QOperator if form else q.QuantFormat.QDQ,
                per_channel=True,
                activation_type=q.QuantType.QUInt8,
                weight_type=q.QuantType.QInt8,
            )
        return onnx.load(made)


def case_of(name: str, kept: Kept, *, small: bool = False) -> Case:
    """A network in int8 with its inputs, by its name and form."""
    network, dash, form = name.partition("-")
    plain = NETWORKS[network](**(SMALL[network] if small else {}))
    inputs = random_inputs(plain, seed=0)

    def made() -> bytes:
        return quantised(plain, inputs, dash + form).SerializeToString()

    model = onnx.ModelProto.FromString(kept.get(f"{name}{'-small' * small}", made))
    sizes = dict(SMALL[network]) if small else {}
    return Case(name=name, form=Form(network=network, sizes=sizes), model=model, inputs=inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8:
    """Rammer with the model as it is.

    Attributes:
        threads: how many vEUs.
        in_floats: with the network before it was quantised.
        tiles: whether the machine is described with its tiles, where it has them.
    """

    threads: int
    in_floats: bool = False
    tiles: bool = True

    @property
    def name(self) -> str:
        """What the table calls it."""
        return FLOATS if self.in_floats else OURS if self.tiles else "rammer, vectors"

    def version(self) -> str | None:
        """Rammer's version; none without tiles where there are none, which would be the same once more."""
        return rammer.__version__ if self.tiles or has_tiles() else None

    def prepare(self, case: Case) -> Prepared:
        """Compile the model."""
        model = NETWORKS[case.form.network](**case.form.sizes) if self.in_floats else case.model
        describe = CpuDevice.describe

        def without_tiles(device: CpuDevice, options: CompileOptions) -> VDevice:
            return replace(describe(device, options), tile_flops_per_us=None)

        if self.tiles:
            net = rammer.compile(model, veus=self.threads)
        else:
            with mock.patch.object(CpuDevice, "describe", without_tiles):
                net = rammer.compile(model, veus=self.threads)
        return Prepared(run=lambda: net.run(case.inputs), outputs=lambda: list(net.run(case.inputs).values()))


def has_tiles() -> bool:
    """Whether the machine multiplies bytes by tiles."""
    return CpuDevice().describe(CompileOptions(device="cpu")).tile_flops_per_us is not None


def contestants(threads: int) -> list[Contestant]:
    """Who takes part: those that are installed."""
    everybody: list[Contestant] = [
        Int8(threads=threads),
        Int8(threads=threads, tiles=False),
        Int8(threads=threads, in_floats=True),
        OnnxRuntime(threads=threads),
        OpenVino(threads=threads, in_float32=False),
    ]
    return [one for one in everybody if one.version() is not None]


def measured(case: Case, threads: int, rounds: int) -> tuple[dict[str, Timing], dict[str, list[Array]]]:
    """Times and outputs of one case by contestant; those that refuse the model have none, and it is said."""
    prepared = {}
    for one in contestants(threads):
        try:
            prepared[one.name] = Alone(one).prepare(case)
        except RuntimeError as error:
            print(f"{case.name}: refused by {str(error).splitlines()[0]}", flush=True)
    outputs = {name: one.outputs() for name, one in prepared.items()}
    times_us = in_turns(prepared, RemoteClock(), rounds, lambda number: None)
    return {name: Timing.of(times) for name, times in times_us.items()}, outputs


def line(case: str, timings: Mapping[str, Timing], outputs: Mapping[str, Sequence[Array]]) -> str:
    """Medians in ms, the ratios that count, and how far results are from ONNX Runtime's."""
    medians = {name: timing.median_us / 1e3 for name, timing in timings.items()}
    times = ", ".join(f"{name} {medians[name]:.2f} ms" for name in medians)
    ratios = (
        f"the better peer over ours {ratio(timings):.2f}, our float32 over ours {medians[FLOATS] / medians[OURS]:.2f}"
    )
    ours, theirs = (outputs[name][0].astype(np.float64) for name in (OURS, "onnxruntime"))
    off = float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-30))
    return f"{case}: {times}; {ratios}; off by {off:.1e} of ONNX Runtime's greatest result"


def ratio(timings: Mapping[str, Timing]) -> float:
    """The median of the better peer over ours."""
    peers = [timing.median_us for name, timing in timings.items() if not name.startswith(OURS)]
    return min(peers) / timings[OURS].median_us


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each network, and the geometric mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [network + form for network in NETWORKS for form in FORMS]
    parser.add_argument("--networks", nargs="+", default=DEFAULT, choices=names, metavar="NETWORK[-FORM]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="small sizes of the networks")
    parser.add_argument("--keep", type=Path, help="a folder for quantised models, which take minutes to make")
    chosen = parser.parse_args(arguments)
    ratios = []
    for name in chosen.networks:
        case = case_of(name, Kept(chosen.keep), small=chosen.small)
        timings, outputs = measured(case, chosen.threads, chosen.rounds)
        ratios.append(ratio(timings))
        print(line(name, timings, outputs), flush=True)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"geometric mean of the better peer over ours: {mean:.2f}")


if __name__ == "__main__":
    main()
