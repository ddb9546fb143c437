"""OpenVINO on the processor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.harness.cases import Case
from benchmarks.harness.contestant import Array, Prepared, installed_version


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenVino:
    """Its settings for latency. Inputs are read and outputs left where they lie: no copies.

    Attributes:
        threads: how many it may use.
        in_float32: floats are computed in float32; otherwise as it likes, in bfloat16 where a processor multiplies it.
    """

    threads: int
    in_float32: bool = True

    @property
    def name(self) -> str:
        """What the table calls it."""
        return "openvino"

    def version(self) -> str | None:
        """The package's version."""
        return installed_version("openvino")

    def prepare(self, case: Case) -> Prepared:
        """Compile the model."""
        import openvino

        core = openvino.Core()
        settings: dict[str, str | int] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": self.threads}
        if self.in_float32:
            settings["INFERENCE_PRECISION_HINT"] = "f32"
        model = core.read_model(case.model.SerializeToString(), b"")
        request = core.compile_model(model, "CPU", settings).create_infer_request()
        feeds = dict(case.inputs)

        def run() -> object:
            return request.infer(feeds, share_inputs=True, share_outputs=True)

        def outputs() -> list[Array]:
            return [np.array(output) for output in request.infer(feeds).values()]

        return Prepared(run=run, outputs=outputs)
