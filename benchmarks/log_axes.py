"""Panels with two logarithmic axes, as the text of an SVG file: frame, ticks, lines, and the legend above them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

COLOURS = ("#1b6ca8", "#c8502d", "#3d8f4f", "#8a4fa3", "#b8860b", "#5b6770", "#c2185b")
GREY = "#555"
Points = Sequence[tuple[float, float]]


def colours(names: Sequence[str]) -> dict[str, str]:
    """One for each name, the first ones different."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def document(width: float, height: float, parts: Sequence[str]) -> str:
    """The file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="10" fill="#222"><rect width="{width}" height="{height}" fill="#fff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def legend(coloured: Mapping[str, str], left: float, top: float, step: float) -> list[str]:
    """A square and a name for each, `step` apart."""
    parts: list[str] = []
    for i, (name, colour) in enumerate(coloured.items()):
        x = left + step * i
        parts.append(f'<rect x="{x}" y="{top}" width="10" height="10" fill="{colour}"/>')
        parts.append(text(x + 14, top + 9, name))
    return parts


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 10, fill: str = "#222") -> str:
    """Words on a base line at y."""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{escape(words)}</text>'


@dataclass(frozen=True)
class Axis:
    """From `low` to `high`, both above 0."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """How far along a value lies; what is beyond an end lies there."""
        along = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low) or 1.0)
        return min(max(along, 0.0), 1.0)


def decades(values: Sequence[float]) -> tuple[Axis, list[float]]:
    """The axis of whole powers of ten around all values, at least one decade, and those powers."""
    low = floor(log10(min(values)))
    high = max(ceil(log10(max(values))), low + 1)
    return Axis(10.0**low, 10.0**high), [10.0**n for n in range(low, high + 1)]


@dataclass(frozen=True)
class Frame:
    """Where a panel is, and its axes."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The place of a point."""
        across, up = self.x.share(x), self.y.share(y)
        return round(self.left + self.width * across, 1), round(self.top + self.height * (1 - up), 1)

    def box(self, title: str) -> list[str]:
        """The edge, and the title above it."""
        size = f'width="{self.width}" height="{self.height}"'
        edge = f'<rect x="{self.left}" y="{self.top}" {size} fill="none" stroke="#bbb"/>'
        return [text(self.left, self.top - 6, title, size=11), edge]

    def ticks(self, xs: Sequence[float], ys: Sequence[float]) -> list[str]:
        """Numbers below and to the left, and lines of a grid."""
        parts: list[str] = []
        bottom, right = self.top + self.height, self.left + self.width
        for x in xs:
            px, _ = self.at(x, self.y.low)
            parts.append(text(px, bottom + 13, f"{x:g}", anchor="middle", fill=GREY))
            parts.append(f'<line x1="{px}" x2="{px}" y1="{self.top}" y2="{bottom}" stroke="#eee"/>')
        for y in ys:
            _, py = self.at(self.x.low, y)
            parts.append(text(self.left - 4, py + 3, f"{y:g}", anchor="end", fill=GREY))
            parts.append(f'<line x1="{self.left}" x2="{right}" y1="{py}" y2="{py}" stroke="#eee"/>')
        return parts

    def curve(self, points: Points, colour: str) -> list[str]:
        """A line through all points, and a dot on each."""
        places = [self.at(x, y) for x, y in points]
        path = " ".join(f"{x},{y}" for x, y in places)
        line = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        return [line, *(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in places)]
