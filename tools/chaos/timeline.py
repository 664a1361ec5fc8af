"""Timeline: the picture of a run, as SVG: acknowledgements a second, and the faults beneath them.

Pure: figures in, text out. Made by hand, since it is some rectangles; opens in every browser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from tools.chaos.schedule import Fault

_WIDTH: Final = 960
_LEFT: Final = 70
_PLOT: Final = 160
_ROW: Final = 18
_TOP: Final = 40
_CURVE: Final = 90
_COLOURS: Final = (
    *("#4878a8", "#c05a3c", "#3c8c5a", "#8c5ab0", "#b08c2c", "#2c98a0"),
    *("#a04878", "#707070", "#204060", "#705020"),
)


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure over the time of a run, with a line for each of what has it."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    """By name: (seconds, figure)."""


def draw_timeline(
    title: str,
    acks_a_bin: Sequence[int],
    bin_s: float,
    faults: Sequence[Fault],
    verdict: str,
    curves: Sequence[Curve] = (),
) -> str:
    """An SVG document. acks_a_bin: acknowledgements in each `bin_s` seconds since the start.
    curves: drawn beneath, over the same time."""
    seconds = max(len(acks_a_bin) * bin_s, bin_s)
    scale = (_WIDTH - _LEFT - 10) / seconds
    most = max([*acks_a_bin, 1])
    lanes = sorted({_lane(fault) for fault in faults})
    curves_from = _TOP + _PLOT + 30 + _ROW * len(lanes) + 20
    height = curves_from + (_CURVE + 30) * len(curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}: {escape(verdict)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="10" y="20" font-size="14">{escape(title)}: {escape(verdict)}</text>',
        f'<text x="10" y="{_TOP + 10}">{most / bin_s:,.0f}/s</text>',
        f'<text x="10" y="{_TOP + _PLOT}">0</text>',
    ]
    for number, count in enumerate(acks_a_bin):
        tall = _PLOT * count / most
        parts.append(
            f'<rect x="{_LEFT + number * bin_s * scale:.1f}" y="{_TOP + _PLOT - tall:.1f}" '
            f'width="{max(bin_s * scale - 0.5, 0.5):.1f}" height="{tall:.1f}" fill="#4878a8"/>'
        )
    for second in range(0, int(seconds) + 1, max(1, int(seconds / 10))):
        x = _LEFT + second * scale
        parts.append(f'<text x="{x:.1f}" y="{_TOP + _PLOT + 16}">{second} s</text>')
    for row, lane in enumerate(lanes):
        y = _TOP + _PLOT + 30 + row * _ROW
        parts.append(f'<text x="4" y="{y + 12}" font-size="9">{escape(lane)}</text>')
        for fault in faults:
            if _lane(fault) == lane:
                parts.append(
                    f'<rect x="{_LEFT + fault.at_s * scale:.1f}" y="{y}" '
                    f'width="{max(fault.lasts_s * scale, 2):.1f}" height="{_ROW - 4}" '
                    f'fill="#c05a3c"><title>{escape(fault.text().strip())}</title></rect>'
                )
    for number, curve in enumerate(curves):
        parts += _draw_curve(curve, scale, curves_from + number * (_CURVE + 30))
    return "\n".join([*parts, "</svg>", ""])


def _draw_curve(curve: Curve, scale: float, top: int) -> list[str]:
    most = max([figure for line in curve.lines.values() for _time, figure in line], default=0) or 1
    parts = [
        f'<text x="10" y="{top + 14}">{escape(curve.title)}</text>',
        f'<text x="10" y="{top + 32}">{most:,.0f}</text>',
        f'<text x="10" y="{top + 20 + _CURVE}">0</text>',
    ]
    for number, (name, line) in enumerate(curve.lines.items()):
        points = " ".join(
            f"{_LEFT + time_s * scale:.1f},{top + 20 + _CURVE * (1 - figure / most):.1f}"
            for time_s, figure in line
        )
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}">'
            f"<title>{escape(name)}</title></polyline>"
        )
    return parts


def _lane(fault: Fault) -> str:
    return f"{fault.broker} {fault.kind}"
