"""Time and memory of searches against the nodes of their graphs, as the text of an SVG file: a colour for each kind of
graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.log_axes import GREY, Axis, Frame, Points, colours, decades, document, legend, text

WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 200, 48, 56, 62


@dataclass(frozen=True)
class Panel:
    """One plot. lines: by kind of graph, (nodes, y) in order of nodes, all above 0. limits: points that a line should
    stay below, by name."""

    title: str
    lines: Mapping[str, Points]
    limits: Mapping[str, tuple[float, float]]


def panels_svg(panels: Sequence[Panel], columns: int) -> str:
    """The panels, `columns` of them in a row, each over whole decades of its own."""
    coloured = colours(list(dict.fromkeys(kind for p in panels for kind in p.lines)))
    rows = -(-len(panels) // columns)
    parts = legend(coloured, LEFT, 14, 110)
    for i, panel in enumerate(panels):
        left, top = LEFT + i % columns * (WIDTH + GAP), TOP + i // columns * (HEIGHT + GAP)
        parts += _panel(panel, left, top, coloured)
    return document(LEFT + columns * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP), parts)


def _panel(panel: Panel, left: int, top: int, coloured: Mapping[str, str]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line] + list(panel.limits.values())
    if not points:
        return Frame(left, top, WIDTH, HEIGHT, Axis(1, 10), Axis(1, 10)).box(panel.title)
    (x, xs), (y, ys) = (decades([point[i] for point in points]) for i in range(2))
    frame = Frame(left, top, WIDTH, HEIGHT, x, y)
    parts = [*frame.box(panel.title), *frame.ticks(xs, ys)]
    parts.append(text(left + WIDTH / 2, top + HEIGHT + 26, "nodes", anchor="middle", fill=GREY))
    for kind, line in panel.lines.items():
        parts += frame.curve(line, coloured[kind])
    for name, limit in panel.limits.items():
        px, py = frame.at(*limit)
        parts.append(f'<line x1="{px - 7}" x2="{px + 7}" y1="{py}" y2="{py}" stroke="#222" stroke-width="1.6"/>')
        parts.append(text(px, py - 4, name, anchor="middle"))
    return parts
