"""Time and memory of searches against the nodes of their graphs, as the text of an SVG file: both axes logarithmic, a
colour for each kind of graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from benchmarks.seeds_plot import COLOURS

WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 200, 48, 56, 62
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """One plot. lines: by kind of graph, (nodes, y) in order of nodes, all above 0. limits: points that a line should
    stay below, by name."""

    title: str
    lines: Mapping[str, Points]
    limits: Mapping[str, tuple[float, float]]


def panels_svg(panels: Sequence[Panel], columns: int) -> str:
    """The panels, `columns` of them in a row, each over whole decades of its own."""
    kinds = list(dict.fromkeys(kind for p in panels for kind in p.lines))
    colours = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    rows = -(-len(panels) // columns)
    width, height = LEFT + columns * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="10" fill="#222"><rect width="{width}" height="{height}" fill="#fff"/>'
    ]
    for i, kind in enumerate(kinds):
        parts.append(f'<rect x="{LEFT + 110 * i}" y="14" width="10" height="10" fill="{colours[kind]}"/>')
        parts.append(f'<text x="{LEFT + 110 * i + 14}" y="23">{escape(kind)}</text>')
    for i, panel in enumerate(panels):
        left, top = LEFT + i % columns * (WIDTH + GAP), TOP + i // columns * (HEIGHT + GAP)
        parts += _panel(panel, left, top, colours)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(panel: Panel, left: int, top: int, colours: Mapping[str, str]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line] + list(panel.limits.values())
    parts = [
        f'<text x="{left}" y="{top - 6}" font-size="11">{escape(panel.title)}</text>',
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#bbb"/>',
    ]
    if not points:
        return parts
    (first_x, last_x), (first_y, last_y) = (_decades([point[i] for point in points]) for i in range(2))

    def at(x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - first_x) / (last_x - first_x)
        up = (log10(y) - first_y) / (last_y - first_y)
        return round(left + WIDTH * across, 1), round(top + HEIGHT * (1 - up), 1)

    for decade in range(first_x, last_x + 1):
        px, _ = at(10.0**decade, 10.0**first_y)
        parts.append(f'<text x="{px}" y="{top + HEIGHT + 13}" text-anchor="middle" fill="#555">{10.0**decade:g}</text>')
        parts.append(f'<line x1="{px}" x2="{px}" y1="{top}" y2="{top + HEIGHT}" stroke="#eee"/>')
    for decade in range(first_y, last_y + 1):
        _, py = at(10.0**first_x, 10.0**decade)
        parts.append(f'<text x="{left - 4}" y="{py + 3}" text-anchor="end" fill="#555">{10.0**decade:g}</text>')
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{py}" y2="{py}" stroke="#eee"/>')
    middle = left + WIDTH / 2
    parts.append(f'<text x="{middle}" y="{top + HEIGHT + 26}" text-anchor="middle" fill="#555">nodes</text>')
    for kind, line in panel.lines.items():
        places = [at(x, y) for x, y in line]
        path = " ".join(f"{x},{y}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colours[kind]}" stroke-width="1.6"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="2.6" fill="{colours[kind]}"/>' for x, y in places]
    for name, (x, y) in panel.limits.items():
        px, py = at(x, y)
        parts.append(f'<line x1="{px - 7}" x2="{px + 7}" y1="{py}" y2="{py}" stroke="#222" stroke-width="1.6"/>')
        parts.append(f'<text x="{px}" y="{py - 4}" text-anchor="middle" fill="#222">{escape(name)}</text>')
    return parts


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Exponents of the powers of ten around all values, at least one decade."""
    low = floor(log10(min(values)))
    return low, max(ceil(log10(max(values))), low + 1)
