"""The README's table of networks on a GPU as a picture.

python -m tests.support.measured_chart      # draws docs/images/networks.svg anew
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from tests.support.walkthroughs import ROOT

TABLE = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "networks.svg"

_HEAD = "| network | best peer, float32 | Rammer |"
_LEFT, _RIGHT, _TOP, _WIDTH = 130, 70, 50, 720
_ROW, _BAR = 46, 16

_SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" \
aria-labelledby="title desc">
<title id="title">Six networks on an NVIDIA H200, float32, batch 1</title>
<desc id="desc">{told}</desc>
<style>
  text {{ font: 13px system-ui, sans-serif; fill: #24292f; }}
  .head {{ font-weight: 600; }}
  .name {{ text-anchor: end; }}
  .us {{ font-size: 12px; fill: #57606a; }}
  .peer {{ fill: #b7bfc8; }}
  .ours {{ fill: #3b7dd8; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e6edf3; }}
    .us {{ fill: #9198a1; }}
    .peer {{ fill: #57606a; }}
    .ours {{ fill: #6cb0f8; }}
  }}
</style>
<text class="head" x="{left}" y="24">Time on the GPU in microseconds: the best peer above, Rammer below</text>
{body}
</svg>
"""


@dataclass(frozen=True, slots=True)
class Row:
    """A network's times in float32, in microseconds, as the table has them."""

    network: str
    peer_us: float
    ours_us: float


def rows(page: str) -> list[Row]:
    """The rows of the README's table."""
    _, _, below = page.partition(_HEAD)
    found = []
    for line in below.splitlines()[2:]:
        if not line.startswith("|"):
            break
        network, peer, ours, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        name = re.sub(r"[,(].*", "", network).strip()
        found.append(Row(name, float(peer.replace(",", "")), float(ours.replace(",", ""))))
    return found


def picture(page: str) -> str:
    """The table as SVG: a pair of bars for each network, all on one scale."""
    found = rows(page)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(row.peer_us for row in found)
    lines = []
    for number, row in enumerate(found):
        top = _TOP + number * _ROW
        lines.append(f'<text class="name" x="{_LEFT - 10}" y="{top + _BAR + 5}">{escape(row.network)}</text>')
        for place, (kind, us) in enumerate((("peer", row.peer_us), ("ours", row.ours_us))):
            y, width = top + place * _BAR, round(us * scale, 1)
            lines.append(f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width}" height="{_BAR - 2}"/>')
            lines.append(f'<text class="us" x="{_LEFT + width + 6:.1f}" y="{y + _BAR - 5}">{us:,.0f}</text>')
    told = "; ".join(f"{row.network}: best peer {row.peer_us:,.0f} us, Rammer {row.ours_us:,.0f}" for row in found)
    return _SVG.format(
        width=_WIDTH, height=_TOP + len(found) * _ROW, left=_LEFT, told=escape(told), body="\n".join(lines)
    )


def main() -> None:
    """Draw the picture anew."""
    PICTURE.write_text(picture(TABLE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
