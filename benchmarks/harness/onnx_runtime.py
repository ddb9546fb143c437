"""ONNX Runtime on the processor."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness.cases import Case
from benchmarks.harness.contestant import Prepared, installed_version


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxRuntime:
    """Its default optimisations. `spinning` is its default too: idle threads poll for work instead of sleeping."""

    threads: int
    spinning: bool = True

    @property
    def name(self) -> str:
        """What the table calls it."""
        return "onnxruntime" if self.spinning else "onnxruntime, no spinning"

    def version(self) -> str | None:
        """The package's version."""
        return installed_version("onnxruntime")

    def prepare(self, case: Case) -> Prepared:
        """Open a session."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(self.spinning)))
        session = onnxruntime.InferenceSession(
            case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        feeds = dict(case.inputs)
        return Prepared(run=lambda: session.run(None, feeds), outputs=lambda: list(session.run(None, feeds)))
