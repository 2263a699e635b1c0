"""Small line plots side by side, as the text of an SVG file: all on the same axes, a colour for each series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.log_axes import GREY, Axis, Frame, Points, colours, document, legend, text

WIDTH, HEIGHT, LEFT, TOP, GAP = 190, 130, 44, 64, 58
YS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class Panel:
    """One plot. series: by name, (x, y) in order of x, all above 0."""

    title: str
    series: Mapping[str, Points]


def panels_svg(title: str, panels: Sequence[Panel], columns: int, x_label: str, y_label: str, most_y: float) -> str:
    """All panels on the same axes, `columns` of them in a row. y runs from 1 to `most_y`; what is beyond is drawn at
    the edge."""
    coloured = colours(list(dict.fromkeys(name for p in panels for name in p.series)))
    xs = sorted({x for p in panels for line in p.series.values() for x, _ in line})
    rows = -(-len(panels) // columns)
    parts = [text(LEFT, 18, title, size=13), text(LEFT, 33, f"{y_label} against {x_label}", fill=GREY)]
    parts += legend(coloured, LEFT, 40, 90)
    for i, panel in enumerate(panels):
        left, top = LEFT + i % columns * (WIDTH + GAP), TOP + i // columns * (HEIGHT + GAP) + 18
        frame = Frame(left, top, WIDTH, HEIGHT, Axis(xs[0], xs[-1]), Axis(1.0, most_y))
        parts += frame.box(panel.title) + frame.ticks(xs, [y for y in YS if y <= most_y])
        for name, line in panel.series.items():
            parts += frame.curve(line, coloured[name])
    return document(LEFT + columns * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP), parts)
