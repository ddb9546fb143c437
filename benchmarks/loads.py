"""First loads of models in processes of their own, and the calls that follow.

    python -m benchmarks.loads bert mobilenet --precision fp16
    python -m benchmarks.loads model.onnx --beside ../before/src

A model is a network's name or an ONNX file. It is compiled once; then each of `--processes` imports Rammer, loads the
file and calls the model, then loads it again: NumPy's import is within the load in half of them, before it in the
others. Printed are medians, least and most, in ms: of the first load with its imports, of that and the first call
together, and of the second load; and the processor time, on all cores, of the first load. `--beside` names the source
folder of another version, which is measured in turns.

Modules are imported from bytecode, as where Rammer is installed: it is written to a folder of its own by a process
that is not counted, whatever `PYTHONDONTWRITEBYTECODE` says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from benchmarks.harness.cases import FORMS, build_case
from benchmarks.harness.environment import ROOT

_COMPILE = "import sys, rammer; rammer.compile(sys.argv[1], device='cpu', veus=int(sys.argv[3])).save(sys.argv[2])"
_LOAD = """
import json, resource, sys, time
if sys.argv[2] == "before":
    import numpy
def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
begin, began = time.perf_counter(), spent()
import rammer
net = rammer.load(sys.argv[1])
first, processor = time.perf_counter() - begin, spent() - began
import numpy
inputs = [numpy.zeros(port.type.shape, port.type.dtype.numpy) for port in net.signature.inputs]
called = time.perf_counter()
net(*inputs)
call = time.perf_counter() - called
begin = time.perf_counter()
rammer.load(sys.argv[1])
again = time.perf_counter() - begin
print(json.dumps({"load": first, "load and call": first + call, "again": again, "processor": processor}))
"""


def in_process(code: str, arguments: Sequence[str], source: Path, bytecode: Path) -> str:
    """What code prints in a process of its own, with Rammer from a source folder.

    Raises:
        CalledProcessError: it failed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": str(bytecode)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def measured(
    files: Mapping[Path, Path], bytecode: Path, numpy: str, processes: int
) -> dict[Path, dict[str, list[float]]]:
    """Times in seconds by version and what was measured, of processes in turns.

    Args:
        files: the saved model of each version, by its source folder.
        bytecode: where modules' bytecode lies.
        numpy: whether NumPy is imported "within" the load or "before".
        processes: of each version.
    """
    found: dict[Path, dict[str, list[float]]] = {source: {} for source in files}
    for turn in range(1 + processes):
        for number, (source, file) in enumerate(files.items()):
            times = json.loads(in_process(_LOAD, [str(file), numpy], source, bytecode / str(number)))
            for name, seconds in times.items() if turn else ():  # the first one writes bytecode
                found[source].setdefault(name, []).append(seconds)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile, load in processes of their own, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="networks or ONNX files")
    parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), default="fp32", help="of networks")
    parser.add_argument("--veus", type=int, default=os.cpu_count())
    parser.add_argument("--processes", type=int, default=7)
    parser.add_argument("--beside", type=Path, help="the source folder of another version")
    chosen = parser.parse_args(arguments)
    sources = [ROOT / "src", *([] if chosen.beside is None else [chosen.beside.resolve()])]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for model in chosen.models:
            path = folder / "model.onnx"
            if model in FORMS:
                onnx.save(build_case(model, chosen.precision).model, path)
            else:
                path = Path(model)
            files = {source: folder / f"{number}.rammer" for number, source in enumerate(sources)}
            for number, (source, file) in enumerate(files.items()):
                in_process(_COMPILE, [str(path), str(file), str(chosen.veus)], source, folder / str(number))
            size = files[sources[0]].stat().st_size / path.stat().st_size
            print(f"{model}: the file is {size:.2f} times the ONNX file", flush=True)
            for numpy in ("within", "before"):
                for source, times in measured(files, folder, numpy, chosen.processes).items():
                    print(f"  {source}, NumPy {numpy}: {_line(times)}", flush=True)


def _line(times: Mapping[str, Sequence[float]]) -> str:
    return "; ".join(
        f"{name} {1e3 * statistics.median(found):.0f} ({1e3 * min(found):.0f} to {1e3 * max(found):.0f})"
        for name, found in times.items()
    )


if __name__ == "__main__":
    main()
