"""The picture of a graph: a box per node, coloured by the step that computes it. Drawn by us; Graphviz only places."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.records import Plan
from service.dashboard.layout import Layout, layout

COLOURS = 8  # classes seg-0 ... seg-7 in style.css; later steps start over
HEIGHT = 34.0
CHARACTER_WIDTH = 6.1  # of the small line, in points
MARGIN = 12.0
# Ops that move no data by themselves: drawn lighter, so that the arithmetic stands out.
VIEWS = frozenset("reshape permute broadcast_in_dim expand slice pad cat squeeze iota full".split())


@dataclass(frozen=True)
class _Box:
    kind: str  # CSS class: input, output, view, compute
    title: str  # shown large
    subtitle: str
    hint: str  # shown on hover
    steps: tuple[int, ...]
    anchor: str

    @property
    def width(self) -> float:
        return max(54.0, 1.12 * CHARACTER_WIDTH * len(self.title), CHARACTER_WIDTH * len(self.subtitle)) + 16.0


def graph_svg(graph: Graph, plan: Plan, input_names: Sequence[str], output_names: Sequence[str], seconds: float) -> str:
    """An <svg> element as HTML, every word in it escaped. Steps name nodes by position. Raises LayoutError."""
    steps_of: dict[int, list[int]] = defaultdict(list)
    for i, step in enumerate(plan.steps):
        for position in step.nodes:
            steps_of[position].append(i)
    numbers: dict[Node, int] = {n: i for i, n in enumerate(graph.nodes)}
    boxes = [_box(n, i, tuple(steps_of[i]), numbers, input_names) for n, i in numbers.items()]
    edges = [(numbers[a], i) for n, i in numbers.items() for a in dict.fromkeys(n.args)]
    for i, output in enumerate(graph.outputs):
        name = output_names[i] if i < len(output_names) else ""
        edges.append((numbers[output.node], len(boxes)))
        boxes.append(_Box("output", f"out{i}", _short(name), name, (), f"out{i}"))
    placed = layout([(b.width, HEIGHT) for b in boxes], edges, seconds)
    return _draw(boxes, edges, placed)


def _box(
    node: Node, position: int, steps: tuple[int, ...], numbers: dict[Node, int], input_names: Sequence[str]
) -> _Box:
    type_ = f"{node.dtype}[{', '.join(map(str, node.sizes))}]"
    if node.op == "input":
        index = node.attr("position", int)
        name = input_names[index] if index < len(input_names) else ""
        return _Box(
            "input", f"in{index} {_short(name)}".strip(), type_, f"in{index} {name}: {type_}", (), f"node-{position}"
        )
    operands = ", ".join(f"%{numbers[a]}" for a in node.args)
    attrs = ", ".join(f"{k}={v!r}" for k, v in node.attrs)
    hint = f"%{position} = {node.op}({operands}){' {' + attrs + '}' if attrs else ''}: {type_}"
    kind = "view" if node.op in VIEWS else "compute"
    return _Box(kind, node.op, type_, hint, steps, f"node-{position}")


def _short(name: str, limit: int = 24) -> str:
    """A name on one line: control characters shown as spaces, the middle left out."""
    line = "".join(c if c.isprintable() else " " for c in name)
    return line if len(line) <= limit else f"{line[: limit - 8]}…{line[-7:]}"


def _draw(boxes: Sequence[_Box], edges: Sequence[tuple[int, int]], placed: Layout) -> str:
    width, height = placed.width + 2 * MARGIN, placed.height + 2 * MARGIN
    parts = [
        f'<svg class="graph" viewBox="{-MARGIN:g} {-MARGIN:g} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="The graph: {len(boxes)} boxes; each node has the colour of the step that computes it.">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="tip" d="M0 .8 7.5 4 0 7.2z"/></marker></defs><g class="edges">'
    ]
    for path, (_, head) in zip(placed.paths, edges, strict=True):
        steps = boxes[head].steps
        parts.append(f'<path class="edge{_colour(steps)}" d="{path}" marker-end="url(#tip)"/>')
    parts.append('</g><g class="boxes">')
    for box, (x, y) in zip(boxes, placed.centers, strict=True):
        parts.append(_draw_box(box, x - box.width / 2, y - HEIGHT / 2))
    parts.append("</g></svg>")
    return "".join(parts)


def _draw_box(box: _Box, left: float, top: float) -> str:
    """One group; every word in it is escaped."""
    radius = HEIGHT / 2 if box.kind in ("input", "output") else 6
    middle = box.width / 2
    steps = " ".join(map(str, box.steps))
    where = f"\nstep {', '.join(map(str, box.steps))}" if box.steps else ""
    lines = (
        f'<text x="{middle:.1f}" y="14.5" class="op">{escape(box.title)}</text>'
        f'<text x="{middle:.1f}" y="27" class="type">{escape(box.subtitle)}</text>'
        if box.subtitle
        else f'<text x="{middle:.1f}" y="21" class="op">{escape(box.title)}</text>'
    )
    badge = ""
    if len(box.steps) > 1:  # computed in several segments: recomputation shows as a row of dots
        badge = "".join(
            f'<circle class="dot{_colour((s,))}" cx="{middle + 10 * i:.1f}" cy="{HEIGHT:.0f}" r="3.5"/>'
            for i, s in enumerate(box.steps, start=-(len(box.steps) // 2))
        )
    return (
        f'<g id="{box.anchor}" class="node {box.kind}{_colour(box.steps)}" data-steps="{steps}" '
        f'transform="translate({left:.1f} {top:.1f})"><title>{escape(box.hint + where)}</title>'
        f'<rect width="{box.width:.1f}" height="{HEIGHT:.0f}" rx="{radius:.0f}"/>{lines}{badge}</g>'
    )


def _colour(steps: Sequence[int]) -> str:
    return f" seg-{steps[0] % COLOURS}" if steps else ""
