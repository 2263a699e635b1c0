"""Where the boxes and arrows of a graph go: asks Graphviz, in a child process with a time limit."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from codegen.sandbox import isolation
from codegen.sandbox.temporary_folders import temporary_folder
from service.dashboard.layout_child import MISSING

POINTS_PER_INCH = 72.0
MAX_NODES = 2500


class LayoutError(Exception):
    """No picture of the graph; the message says why and, where something is missing, what to install.

    lasts: the graph is drawn no better the next time.
    """

    def __init__(self, message: str, *, lasts: bool = True) -> None:
        super().__init__(message)
        self.lasts = lasts


@dataclass(frozen=True)
class Layout:
    """In points, y downward. `centers` in the order of the boxes, `paths` (SVG path data, tip last) of the edges."""

    width: float
    height: float
    centers: tuple[tuple[float, float], ...]
    paths: tuple[str, ...]


def layout(boxes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], seconds: float) -> Layout:
    """Layered layout, top to bottom. `boxes`: width and height in points; `edges`: pairs of positions in `boxes`, tail
    and head, of which several may be equal.

    Raises LayoutError. Only numbers are sent to Graphviz: no text of a client's reaches it.
    """
    if len(boxes) > MAX_NODES:
        raise LayoutError(f"The graph has {len(boxes):,} nodes; pictures are drawn up to {MAX_NODES:,}.")
    lines = [
        "digraph {",
        "graph [ranksep=0.32, nodesep=0.18]",
        'node [shape=box, fixedsize=true, label=""]',
        "edge [arrowhead=none]",
    ]
    for i, (width, height) in enumerate(boxes):
        lines.append(f"n{i} [width={width / POINTS_PER_INCH:.3f}, height={height / POINTS_PER_INCH:.3f}]")
    # Graphviz numbers edges by the boxes that they leave, not as they come: each carries its own number.
    lines += [f"n{a} -> n{b} [id=e{i}]" for i, (a, b) in enumerate(edges)]
    lines.append("}")
    try:
        with temporary_folder() as home:
            child = subprocess.run(
                isolation.command("service.dashboard.layout_child"),
                input="\n".join(lines).encode(),
                capture_output=True,
                timeout=seconds,
                check=False,
                cwd="/",
                env=isolation.environment(home),
            )
    except subprocess.TimeoutExpired:
        raise LayoutError(f"Laying out the graph took more than {seconds:g} s (setting layout_seconds).") from None
    if child.returncode == MISSING:
        text = "Graphviz is not there: install the extra `dashboard` (pip install 'fuseplan[dashboard]')."
        raise LayoutError(text, lasts=False)
    if child.returncode:
        raise LayoutError(f"Graphviz failed (exit code {child.returncode}).")
    return _read(json.loads(child.stdout), len(boxes), len(edges))


def _read(drawn: dict[str, Any], boxes: int, edges: int) -> Layout:
    """From Graphviz's JSON, where y grows upward. Raises LayoutError where a box or an edge is missing."""
    _, _, width, height = (float(v) for v in drawn["bb"].split(","))
    centers: dict[int, tuple[float, float]] = {}
    for item in drawn.get("objects", ()):
        x, y = item["pos"].split(",")
        centers[int(item["name"][1:])] = (float(x), height - float(y))
    paths: dict[int, str] = {}
    for item in drawn.get("edges", ()):
        points = [tuple(float(v) for v in p.split(",")) for p in item["pos"].split()]
        (x, y), *rest = [(px, height - py) for px, py in points]
        paths[int(item["id"][1:])] = f"M{x:.1f} {y:.1f}C" + " ".join(f"{px:.1f} {py:.1f}" for px, py in rest)
    if (len(centers), len(paths)) != (boxes, edges):
        found = f"{len(centers)} boxes and {len(paths)} arrows"
        raise LayoutError(f"Graphviz placed {found} instead of {boxes} and {edges}.")
    return Layout(width, height, tuple(centers[i] for i in range(boxes)), tuple(paths[i] for i in range(edges)))
