"""A predicted run as a picture for the documents: SVG with a bar for each rTask and a line for each hand-over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.ir.program import Execute, Plan, Signal, Wait
from rammer.ir.timeline import Span, Timeline

COLOURS = ("#8ab4f8", "#efb118", "#ff725c", "#c79bf2", "#6cc5b0")
_LEFT, _TOP, _WIDTH = 70, 36, 840
_CHARACTER = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a picture says: the title and description for those who do not see it, and a line above it."""

    title: str
    description: str
    caption: str


def drawn(
    plan: Plan, timeline: Timeline, words: Words, colours: Sequence[str], labels: Sequence[str], lane: int = 104
) -> str:
    """The run of a plan of one rProgram.

    Args:
        plan: the plan.
        timeline: its run, as predicted.
        words: what the picture says.
        colours: of each rOperator's bars.
        labels: of each rOperator; a bar that has no room for its label, turned neither, has none.
        lane: from one vEU to the next, in pixels.
    """
    (program,) = plan.schedule.programs
    scale = (_WIDTH - _LEFT - 30) / timeline.total_us
    bottom, bar = _TOP + program.veus * lane, lane - 30

    def x(time_us: float) -> str:
        return f"{_LEFT + time_us * scale:.1f}"

    bars, lines = [], []
    for span in timeline.spans:
        y = _TOP + span.veu * lane
        width = (span.end_us - span.start_us) * scale
        bars.append(
            f'<rect x="{x(span.start_us)}" y="{y}" width="{max(width - 1, 0.5):.1f}" height="{bar}" rx="3" '
            f'fill="{colours[span.task.operator]}"/>'
        )
        middle, label = x((span.start_us + span.end_us) / 2), f"{labels[span.task.operator]}[{span.task.tile}]"
        is_turned = width < _CHARACTER * len(label)
        if is_turned and (width < 2 * _CHARACTER or bar < _CHARACTER * (len(label) - 1)):
            continue
        turned = f' transform="rotate(-90 {middle} {y + bar / 2:g})"' if is_turned else ""
        bars.append(f'<text class="bar" x="{middle}" y="{y + bar / 2 + 4:g}"{turned}>{label}</text>')
    for giver, taker in _hand_overs(plan, timeline):
        y0, y1 = (_TOP + span.veu * lane + (bar if span is upper else 0) for span, upper in _ends(giver, taker))
        lines.append(f'<path class="wait" d="M{x(giver.end_us)} {y0}L{x(taker.start_us)} {y1}"/>')
    lanes = [
        f'<text class="veu" x="{_LEFT - 10}" y="{_TOP + veu * lane + bar / 2 + 4:g}">vEU {veu}</text>'
        f'<rect class="lane" x="{_LEFT}" y="{_TOP + veu * lane}" width="{timeline.total_us * scale:.1f}" '
        f'height="{bar}"/>'
        for veu in range(program.veus)
    ]
    return _SVG.format(
        title=words.title,
        description=words.description,
        caption=words.caption,
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


_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-labelledby="title desc">
<title id="title">{title}</title>
<desc id="desc">{description}</desc>
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
<text x="{left}" y="20">{caption}</text>
{body}
<path class="axis" d="M{left} {axis}H{right}m-6 -4l6 4l-6 4"/>
<text x="{left}" y="{below}">time, as the cost model predicts it</text>
<text class="total" x="{right}" y="{below}">{total} us</text>
</svg>
"""
