"""The example that docs/architecture.md follows through the compiler: what the page quotes, and the picture of its run.

python -m tests.support.traced_example      # writes the quotations and docs/images/timeline.svg anew

In the page, `<!-- quote: STEP PART -->` stands before a block. STEP is a step of the compilation as `--dump-dir` names
it, or "kernel", the C code; PART is "graph" or the name of an operator, and nothing where the step has one part.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from examples.two_branches import VEUS, build_model
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.program import Plan
from rammer.ir.timeline import Timeline
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from rammer.roller.model import ModelCosts
from rammer.schedule.simulator import simulate
from tests.support.run_picture import COLOURS, Words, drawn

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "architecture.md"
PICTURE = DOCS / "images" / "timeline.svg"

QUOTE = re.compile(
    r"(<!-- quote: (?P<step>\w+) ?(?P<part>\w*) -->\n```\w*\n)(?P<text>.*?)(?=^```$)", re.DOTALL | re.MULTILINE
)


class Example:
    """The compiled example: its plan, and every level as text by (step, part)."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = CompileOptions(veus=VEUS, dump_dir=Path(folder))
            self.vdevice: VDevice = find_device("reference").describe(options)
            self.plan: Plan = plan_graph(load_graph(build_model()), self.vdevice, options)
            steps = {path.stem.split("-", 1)[1]: path.read_text() for path in sorted(Path(folder).iterdir())}
        self._quotes: dict[tuple[str, str], str] = {}
        for step, text in steps.items():
            self._quotes[step, ""] = text.rstrip() + "\n"
            for part in text.rstrip().split("\n\n"):
                name = part.split(maxsplit=1)[0].rstrip(":")
                self._quotes[step, name] = part + "\n"
        # The C text follows from the plan; the processor's vDevice gives it the alignment of constants alone.
        source = find_device("cpu").emit(self.plan, self.vdevice)
        code = [bytes(text).decode() for name, text in source.files.items() if name.endswith(".c")]
        for operator, text in zip(self.plan.graph.operators, code, strict=True):
            self._quotes["kernel", operator.name] = text.rstrip() + "\n"

    def quote(self, step: str, part: str) -> str:
        """A part of a level as the page quotes it."""
        return self._quotes[step, part]

    def timeline(self) -> Timeline:
        """The run that the cost model predicts."""
        return simulate(self.plan.graph, self.plan.schedule, self.vdevice, ModelCosts(self.vdevice))


def picture(example: Example) -> str:
    """The predicted run of the example as SVG: a bar for each rTask, a line for each hand-over."""
    operators = example.plan.graph.operators
    words = Words(
        title="The traced example on two vEUs",
        description="The run that the cost model predicts: the rTasks of each vEU in order, and lines from rTasks "
        "that\nsignal to rTasks of the other vEU that wait for them.",
        caption="One run of the example. Bars are rTasks, dashed lines hand-overs, the rest is waiting.",
    )
    colours = [COLOURS[operator.id % len(COLOURS)] for operator in operators]
    return drawn(example.plan, example.timeline(), words, colours, [operator.name for operator in operators])


def quoted(page: str, example: Example) -> str:
    """The page with every quotation as the compiler writes it now."""
    return QUOTE.sub(lambda found: found[1] + example.quote(found["step"], found["part"]), page)


def main() -> None:
    """Write the page and the picture anew."""
    example = Example()
    PAGE.write_text(quoted(PAGE.read_text(encoding="utf-8"), example), encoding="utf-8")
    PICTURE.write_text(picture(example), encoding="utf-8")


if __name__ == "__main__":
    main()
