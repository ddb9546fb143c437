"""Bar charts as SVG, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_LEFT, _RIGHT, _TOP, _WIDTH, _BAR, _GAP = 150, 60, 44, 720, 14, 6
_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-labelledby="title desc">
<title id="title">{title}</title>
<desc id="desc">{told}</desc>
<style>
  text {{ font: 12px system-ui, sans-serif; fill: #24292f; }}
  .head {{ font-size: 13px; font-weight: 600; }}
  .name {{ text-anchor: end; }}
  .here {{ fill: #3b7dd8; }}
  .paper, .peer {{ fill: #b7bfc8; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e6edf3; }}
    .here {{ fill: #6cb0f8; }}
    .paper, .peer {{ fill: #57606a; }}
  }}
</style>
<text class="head" x="10" y="24">{title}</text>
{body}
</svg>
"""


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of one name, by their kind: "here", "paper" or "peer"."""

    name: str
    values: Mapping[str, float]


def chart(title: str, groups: Sequence[Bars], digits: int = 2) -> str:
    """Horizontal bars on one scale, each with its value."""
    scale = (_WIDTH - _LEFT - _RIGHT) / max((value for group in groups for value in group.values.values()), default=1.0)
    lines, y = [], _TOP
    for group in groups:
        lines.append(f'<text class="name" x="{_LEFT - 8}" y="{y + _BAR - 3}">{escape(group.name)}</text>')
        for kind, value in group.values.items():
            width = round(value * scale, 1)
            lines.append(f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width}" height="{_BAR - 2}"/>')
            lines.append(f'<text x="{_LEFT + width + 6:.1f}" y="{y + _BAR - 3}">{value:.{digits}f}</text>')
            y += _BAR
        y += _GAP
    told = "; ".join(
        f"{group.name}: {', '.join(f'{kind} {value:.{digits}f}' for kind, value in group.values.items())}"
        for group in groups
    )
    return _SVG.format(width=_WIDTH, height=y, title=escape(title), told=escape(told), body="\n".join(lines))
