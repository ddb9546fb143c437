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
from rammer.compiler import plan_graph
from rammer.devices.registry import DEVICES
from rammer.frontends.onnx import load_graph
from rammer.ir.program import Execute, Plan, Signal, Wait
from rammer.ir.timeline import Span, Timeline
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.roller.model import ModelCosts
from rammer.schedule.simulator import simulate

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "architecture.md"
PICTURE = DOCS / "images" / "timeline.svg"

QUOTE = re.compile(
    r"(<!-- quote: (?P<step>\w+) ?(?P<part>\w*) -->\n```\w*\n)(?P<text>.*?)(?=^```$)", re.DOTALL | re.MULTILINE
)

_COLOURS = ("#8ab4f8", "#efb118", "#ff725c", "#c79bf2", "#6cc5b0")
_LEFT, _TOP, _LANE, _BAR, _WIDTH = 70, 36, 104, 74, 840
_CHARACTER = 7


class Example:
    """The compiled example: its plan, and every level as text by (step, part)."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            options = CompileOptions(veus=VEUS, dump_dir=Path(folder))
            self.vdevice: VDevice = DEVICES["reference"].describe(options)
            self.plan: Plan = plan_graph(load_graph(build_model()), self.vdevice, options)
            steps = {path.stem.split("-", 1)[1]: path.read_text() for path in sorted(Path(folder).iterdir())}
        self._quotes: dict[tuple[str, str], str] = {}
        for step, text in steps.items():
            self._quotes[step, ""] = text.rstrip() + "\n"
            for part in text.rstrip().split("\n\n"):
                name = part.split(maxsplit=1)[0].rstrip(":")
                self._quotes[step, name] = part + "\n"
        # The C text follows from the plan; the processor's vDevice gives it the alignment of constants alone.
        source = DEVICES["cpu"].emit(self.plan, self.vdevice)
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
    timeline = example.timeline()
    scale = (_WIDTH - _LEFT - 30) / timeline.total_us
    bottom = _TOP + VEUS * _LANE

    def x(time_us: float) -> str:
        return f"{_LEFT + time_us * scale:.1f}"

    bars, lines = [], []
    for span in timeline.spans:
        name, y = example.plan.graph.operators[span.task.operator].name, _TOP + span.veu * _LANE
        width = (span.end_us - span.start_us) * scale
        bars.append(
            f'<rect x="{x(span.start_us)}" y="{y}" width="{width - 1:.1f}" height="{_BAR}" rx="3" '
            f'fill="{_COLOURS[span.task.operator % len(_COLOURS)]}"/>'
        )
        middle, label = x((span.start_us + span.end_us) / 2), f"{name}[{span.task.tile}]"
        turned = f' transform="rotate(-90 {middle} {y + _BAR / 2:g})"' if width < _CHARACTER * len(label) else ""
        bars.append(f'<text class="bar" x="{middle}" y="{y + _BAR / 2 + 4:g}"{turned}>{label}</text>')
    for giver, taker in _hand_overs(example.plan, timeline):
        y0, y1 = (_TOP + span.veu * _LANE + (_BAR if span is upper else 0) for span, upper in _ends(giver, taker))
        lines.append(f'<path class="wait" d="M{x(giver.end_us)} {y0}L{x(taker.start_us)} {y1}"/>')
    lanes = [
        f'<text class="veu" x="{_LEFT - 10}" y="{_TOP + veu * _LANE + _BAR / 2 + 4:g}">vEU {veu}</text>'
        f'<rect class="lane" x="{_LEFT}" y="{_TOP + veu * _LANE}" width="{timeline.total_us * scale:.1f}" '
        f'height="{_BAR}"/>'
        for veu in range(VEUS)
    ]
    return _SVG.format(
        width=_WIDTH,
        height=bottom + 16,
        left=_LEFT,
        right=x(timeline.total_us),
        axis=bottom - 18,
        below=bottom,
        total=f"{timeline.total_us:.1f}",
        body="\n".join([*lanes, *lines, *bars]),
    )


def _ends(giver: Span, taker: Span) -> tuple[tuple[Span, Span], tuple[Span, Span]]:
    upper = giver if giver.veu < taker.veu else taker
    return (giver, upper), (taker, upper)


def _hand_overs(plan: Plan, timeline: Timeline) -> list[tuple[Span, Span]]:
    """Pairs of rTasks: one signals a counter that the other, on another vEU, waits for."""
    spans = {span.task: span for span in timeline.spans}
    givers: dict[int, list[Span]] = {}
    takers: dict[int, list[Span]] = {}
    for program in plan.schedule.programs:
        for queue in program.steps:
            last: Span | None = None
            waits: list[int] = []
            for step in queue:
                match step:
                    case Wait(counter, _):
                        waits.append(counter)
                    case Execute(task):
                        last = spans[task]
                        for counter in waits:
                            takers.setdefault(counter, []).append(last)
                        waits = []
                    case Signal(counter) if last is not None:
                        givers.setdefault(counter, []).append(last)
    return [
        (giver, taker)
        for counter, waiting in takers.items()
        for taker in waiting
        for giver in givers[counter]
        if giver.veu != taker.veu
    ]


def quoted(page: str, example: Example) -> str:
    """The page with every quotation as the compiler writes it now."""
    return QUOTE.sub(lambda found: found[1] + example.quote(found["step"], found["part"]), page)


_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-labelledby="title desc">
<title id="title">The traced example on two vEUs</title>
<desc id="desc">The run that the cost model predicts: the rTasks of each vEU in order, and lines from rTasks that
signal to rTasks of the other vEU that wait for them.</desc>
<style>
  text {{ font: 12px system-ui, sans-serif; fill: #57606a; }}
  .bar {{ fill: #16191d; text-anchor: middle; }}
  .veu {{ text-anchor: end; }}
  .total {{ text-anchor: end; }}
  .lane {{ fill: #eaeef2; }}
  .axis {{ stroke: #57606a; fill: none; }}
  .wait {{ stroke: #cf222e; fill: none; stroke-width: 1.5; stroke-dasharray: 4 3; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #9198a1; }}
    .bar {{ fill: #16191d; }}
    .lane {{ fill: #21262d; }}
    .axis {{ stroke: #9198a1; }}
    .wait {{ stroke: #ff7b72; }}
  }}
</style>
<text x="{left}" y="20">One run of the example. Bars are rTasks, dashed lines hand-overs, the rest is waiting.</text>
{body}
<path class="axis" d="M{left} {axis}H{right}m-6 -4l6 4l-6 4"/>
<text x="{left}" y="{below}">time, as the cost model predicts it</text>
<text class="total" x="{right}" y="{below}">{total} us</text>
</svg>
"""


def main() -> None:
    """Write the page and the picture anew."""
    example = Example()
    PAGE.write_text(quoted(PAGE.read_text(encoding="utf-8"), example), encoding="utf-8")
    PICTURE.write_text(picture(example), encoding="utf-8")


if __name__ == "__main__":
    main()
