"""Small line plots side by side, as the text of an SVG file: both axes logarithmic, a colour for each series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10

COLOURS = ("#1b6ca8", "#c8502d", "#3d8f4f", "#8a4fa3", "#b8860b", "#5b6770", "#c2185b")
WIDTH, HEIGHT, LEFT, TOP, GAP = 190, 130, 44, 64, 58


@dataclass(frozen=True)
class Panel:
    """One plot. series: by name, (x, y) in order of x, all above 0."""

    title: str
    series: Mapping[str, Sequence[tuple[float, float]]]


def panels_svg(title: str, panels: Sequence[Panel], columns: int, x_label: str, y_label: str, most_y: float) -> str:
    """All panels on the same axes, `columns` of them in a row. y runs from 1 to `most_y`; what is beyond is drawn at
    the edge."""
    names = list(dict.fromkeys(name for p in panels for name in p.series))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    xs = sorted({x for p in panels for line in p.series.values() for x, _ in line})
    rows = -(-len(panels) // columns)
    width, height = LEFT + columns * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="10" fill="#222"><rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-size="13">{escape(title)}</text>',
        f'<text x="{LEFT}" y="33" fill="#555">{escape(y_label)} against {escape(x_label)}</text>',
    ]
    for i, name in enumerate(names):
        x = LEFT + 90 * i
        parts.append(f'<rect x="{x}" y="40" width="10" height="10" fill="{colours[name]}"/>')
        parts.append(f'<text x="{x + 14}" y="49">{escape(name)}</text>')
    for i, panel in enumerate(panels):
        left, top = LEFT + i % columns * (WIDTH + GAP), TOP + i // columns * (HEIGHT + GAP) + 18
        parts += _panel(panel, left, top, xs, most_y, colours)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(
    panel: Panel, left: int, top: int, xs: Sequence[float], most_y: float, colours: Mapping[str, str]
) -> list[str]:
    low, high = log10(xs[0]), log10(xs[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - low) / (high - low or 1.0)
        up = min(max(log10(y) / log10(most_y), 0.0), 1.0)
        return round(left + WIDTH * across, 1), round(top + HEIGHT * (1 - up), 1)

    parts = [
        f'<text x="{left}" y="{top - 5}" font-size="11">{escape(panel.title)}</text>',
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
    ]
    for x in xs:
        px, _ = at(x, 1)
        parts.append(f'<text x="{px}" y="{top + HEIGHT + 12}" text-anchor="middle" fill="#555">{x:g}</text>')
    for y in (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0):
        if y <= most_y:
            _, py = at(xs[0], y)
            parts.append(f'<text x="{left - 4}" y="{py + 3}" text-anchor="end" fill="#555">{y:g}</text>')
            parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{py}" y2="{py}" stroke="#eee"/>')
    for name, line in panel.series.items():
        points = [at(x, y) for x, y in line]
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[name]}" stroke-width="1.6"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="2.4" fill="{colours[name]}"/>' for x, y in points]
    return parts
