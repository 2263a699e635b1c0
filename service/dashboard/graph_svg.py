"""The picture of a graph: a box per node, coloured by the step that computes it. Drawn by us; Graphviz only places."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.records import Plan
from service.dashboard.layout import Layout
from service.wording.naming import Naming

COLOURS = 8  # classes seg-0 ... seg-7 in style.css; later steps start over
HEIGHT = 34.0
CHARACTER_WIDTH = 6.1  # of the small line, in points
MARGIN = 12.0
# Ops that move no data by themselves: drawn lighter, so that the arithmetic stands out.
VIEWS = frozenset("reshape permute broadcast_in_dim expand slice pad cat squeeze iota full".split())
# Numbers of the steps that share a box, on its upper edge.
TABS = 3  # of the first steps; how many more there are stands in one of their own
TAB_HEIGHT = 12.0
TAB_CHARACTER = 5.6


@dataclass(frozen=True)
class Box:
    """One node, or an output, before it has a place."""

    kind: str  # CSS class: input, output, view, compute
    title: str  # shown large
    subtitle: str
    hint: str  # shown on hover
    steps: tuple[int, ...]
    anchor: str
    replaced: bool = False  # a node of the graph that no step computes

    @property
    def width(self) -> float:
        """Width of the box, in points."""
        return max(54.0, 1.12 * CHARACTER_WIDTH * len(self.title), CHARACTER_WIDTH * len(self.subtitle)) + 16.0


@dataclass(frozen=True)
class Picture:
    """A graph's boxes, and arrows between them as pairs of positions, tail and head."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]

    @property
    def sizes(self) -> list[tuple[float, float]]:
        """Width and height of each box, in points."""
        return [(box.width, HEIGHT) for box in self.boxes]

    @property
    def replaced(self) -> int:
        """Boxes that no step computes."""
        return sum(box.replaced for box in self.boxes)

    @property
    def shared(self) -> int:
        """Boxes that several steps compute."""
        return sum(len(box.steps) > 1 for box in self.boxes)

    @property
    def views(self) -> int:
        """Boxes of ops that move no data by themselves."""
        return sum(box.kind == "view" and not box.replaced for box in self.boxes)


def picture(graph: Graph, plan: Plan, naming: Naming) -> Picture:
    """The boxes and arrows of a graph and the plan for it, with the sender's names. Steps name nodes by position."""
    steps_of: dict[int, list[int]] = defaultdict(list)
    for i, step in enumerate(plan.steps):
        for position in step.nodes:
            steps_of[position].append(i)
    numbers: dict[Node, int] = {n: i for i, n in enumerate(graph.nodes)}
    boxes = [_box(n, i, tuple(steps_of[i]), numbers, naming) for n, i in numbers.items()]
    edges = [(numbers[a], i) for n, i in numbers.items() for a in dict.fromkeys(n.args)]
    for i, output in enumerate(graph.outputs):
        name = naming.outputs[i] if i < len(naming.outputs) else ""
        edges.append((numbers[output.node], len(boxes)))
        boxes.append(Box("output", f"out{i}", _short(name), name, (), f"out{i}"))
    return Picture(tuple(boxes), tuple(edges))


def _box(node: Node, position: int, steps: tuple[int, ...], numbers: dict[Node, int], naming: Naming) -> Box:
    """The box of a node: its title is the sender's name, with the op below, or the op where the node has no name; an
    input's title is "in0" with its name."""
    type_ = f"{node.dtype}[{', '.join(map(str, node.sizes))}]"
    if node.op == "input":
        index = node.attr("position", int)
        name = naming.inputs[index] if index < len(naming.inputs) else ""
        return Box(
            "input", f"in{index} {_short(name)}".strip(), type_, f"in{index} {name}: {type_}", (), f"node-{position}"
        )
    name = naming.nodes[position] if naming.has_name(position) else ""
    operands = ", ".join(_operand(numbers[a], a, naming) for a in node.args)
    attrs = ", ".join(f"{k}={v!r}" for k, v in node.attrs)
    hint = (
        f"%{position}{f' {name}' if name else ''} = {node.op}({operands}){' {' + attrs + '}' if attrs else ''}: {type_}"
    )
    kind = "view" if node.op in VIEWS else "compute"
    title, subtitle = (_short(name), f"{node.op} {type_}") if name else (node.op, type_)
    return Box(kind, title, subtitle, f"{hint}\n{_computed_by(steps)}", steps, f"node-{position}", not steps)


def _operand(position: int, node: Node, naming: Naming) -> str:
    """An operand by the name that its sender gave it, else by its number: "in0", "%12"."""
    if node.op == "input":
        index = node.attr("position", int)
        return (naming.inputs[index] if index < len(naming.inputs) else "") or f"in{index}"
    return naming.nodes[position] if naming.has_name(position) else f"%{position}"


def _computed_by(steps: Sequence[int]) -> str:
    if not steps:
        return "computed by no kernel: rewrites put something else in its place, or its value is there already"
    if len(steps) == 1:
        return f"kernel {steps[0]}"
    return f"computed by {len(steps)} kernels, each for itself: {', '.join(map(str, steps))}"


def _short(name: str, limit: int = 24) -> str:
    """A name on one line: control characters shown as spaces, the middle left out."""
    line = "".join(c if c.isprintable() else " " for c in name)
    return line if len(line) <= limit else f"{line[: limit - 8]}…{line[-7:]}"


def draw(picture: Picture, placed: Layout) -> str:
    """An <svg> element as HTML, every word in it escaped."""
    width, height = placed.width + 2 * MARGIN, placed.height + 2 * MARGIN
    boxes = picture.boxes
    parts = [
        f'<svg class="graph" viewBox="{-MARGIN:g} {-MARGIN:g} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="The graph: {len(boxes)} boxes; each node has the colour of the kernel that computes it.">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path class="tip" d="M0 .8 7.5 4 0 7.2z"/></marker></defs><g class="edges">'
    ]
    for path, (_, head) in zip(placed.paths, picture.edges, strict=True):
        steps = boxes[head].steps
        parts.append(f'<path class="edge{_colour(steps)}" d="{path}" marker-end="url(#tip)"/>')
    parts.append('</g><g class="boxes">')
    for box, (x, y) in zip(boxes, placed.centers, strict=True):
        parts.append(_draw_box(box, x - box.width / 2, y - HEIGHT / 2))
    parts.append("</g></svg>")
    return "".join(parts)


def _draw_box(box: Box, left: float, top: float) -> str:
    """One group; every word in it is escaped."""
    radius = HEIGHT / 2 if box.kind in ("input", "output") else 6
    middle = box.width / 2
    steps = " ".join(map(str, box.steps))
    lines = (
        f'<text x="{middle:.1f}" y="14.5" class="op">{escape(box.title)}</text>'
        f'<text x="{middle:.1f}" y="27" class="type">{escape(box.subtitle)}</text>'
        if box.subtitle
        else f'<text x="{middle:.1f}" y="21" class="op">{escape(box.title)}</text>'
    )
    state = " replaced" if box.replaced else " shared" if len(box.steps) > 1 else _colour(box.steps)
    return (
        f'<g id="{box.anchor}" class="node {box.kind}{state}" data-steps="{steps}" '
        f'transform="translate({left:.1f} {top:.1f})"><title>{escape(box.hint)}</title>'
        f'<rect width="{box.width:.1f}" height="{HEIGHT:.0f}" rx="{radius:.0f}"/>{lines}{_tabs(box)}</g>'
    )


def _tabs(box: Box) -> str:
    """Tabs on the upper edge of a box, at the right: numbers of the steps that compute it, in the steps' colours; ""
    for fewer than two steps."""
    if len(box.steps) < 2:
        return ""
    texts = [(str(step), _colour((step,))) for step in box.steps[:TABS]]
    if len(box.steps) > TABS:
        texts.append((f"+{len(box.steps) - TABS}", ""))
    right, parts = box.width - 3.0, list[str]()
    for text, colour in reversed(texts):
        width = TAB_CHARACTER * len(text) + 7.0
        right -= width
        parts.append(
            f'<g class="tab{colour}" transform="translate({right:.1f} {-TAB_HEIGHT / 2:g})">'
            f'<rect width="{width:.1f}" height="{TAB_HEIGHT:g}" rx="3"/>'
            f'<text x="{width / 2:.1f}" y="9">{text}</text></g>'
        )
        right -= 2.0
    return "".join(parts)


def _colour(steps: Sequence[int]) -> str:
    return f" seg-{steps[0] % COLOURS}" if steps else ""
