"""Bars with whiskers on a logarithmic scale, as SVG."""

from __future__ import annotations

import math
from typing import NamedTuple
from xml.sax.saxutils import escape

_ROW, _LEFT, _WIDTH, _TOP = 22, 210, 420, 34


class Bar(NamedTuple):
    name: str
    median: float
    least: float
    most: float
    is_ours: bool


def bars(title: str, unit: str, given: list[Bar]) -> str:
    """A chart of bars, the longest last; values are above 0."""
    given = sorted(given, key=lambda bar: bar.median)
    low = math.floor(math.log10(min(bar.least for bar in given)))
    high = math.ceil(math.log10(max(bar.most for bar in given)) + 1e-9)

    def at(value: float) -> float:
        return _LEFT + _WIDTH * (math.log10(value) - low) / max(1, high - low)

    bottom = _TOP + _ROW * len(given)
    lines = [f'<text x="10" y="18" font-weight="bold">{escape(title)}</text>']
    for power in range(low, high + 1):
        x = at(10.0**power)
        lines.append(f'<path d="M{x:.1f} {_TOP - 6}V{bottom}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" fill="#666">{10.0**power:g}</text>')
    for number, bar in enumerate(given):
        y, end = _TOP + _ROW * number, at(bar.median)
        colour = "#2a6fb0" if bar.is_ours else "#b0b0b0"
        lines += [
            f'<text x="{_LEFT - 6}" y="{y + 13}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect x="{_LEFT}" y="{y + 2}" width="{max(1.0, end - _LEFT):.1f}" height="{_ROW - 7}" fill="{colour}"/>',
            f'<path d="M{at(bar.least):.1f} {y + 9}H{at(bar.most):.1f}" stroke="#222"/>',
            f'<text x="{at(bar.most) + 5:.1f}" y="{y + 13}">{bar.median:.3g}</text>',
        ]
    lines.append(f'<text x="{_LEFT + _WIDTH / 2}" y="{bottom + 30}" text-anchor="middle" fill="#666">{escape(unit)}</text>')
    width, height = _LEFT + _WIDTH + 70, bottom + 38
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>", ""])
