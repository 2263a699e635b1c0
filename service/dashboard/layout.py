"""Where the boxes and arrows of a graph go: asks Graphviz, in a child process with a time limit."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from codegen import isolation
from service.dashboard.layout_child import MISSING

POINTS_PER_INCH = 72.0
MAX_NODES = 2500


class LayoutError(Exception):
    """No picture of the graph; the message says why and, where something is missing, what to install."""


@dataclass(frozen=True)
class Layout:
    """In points, y downward. `centers` in the order of the boxes, `paths` (SVG path data, tip last) of the edges."""

    width: float
    height: float
    centers: tuple[tuple[float, float], ...]
    paths: tuple[str, ...]


def layout(boxes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]], seconds: float) -> Layout:
    """Layered layout, top to bottom. `boxes`: width and height in points; `edges`: pairs of positions in `boxes`.

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
    lines += [f"n{a} -> n{b}" for a, b in edges]
    lines.append("}")
    try:
        with TemporaryDirectory(prefix="fuseplan-home-") as home:
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
        raise LayoutError("Graphviz is not there: install the extra `dashboard` (pip install 'fuseplan[dashboard]').")
    if child.returncode:
        raise LayoutError(f"Graphviz failed (exit code {child.returncode}).")
    return _read(json.loads(child.stdout), len(boxes), len(edges))


def _read(drawn: dict[str, Any], boxes: int, edges: int) -> Layout:
    _, _, width, height = (float(v) for v in drawn["bb"].split(","))
    centers: list[tuple[float, float]] = [(0.0, 0.0)] * boxes
    for item in drawn.get("objects", ()):
        x, y = item["pos"].split(",")
        centers[int(item["name"][1:])] = (float(x), height - float(y))
    paths = [""] * edges
    for item in drawn.get("edges", ()):
        points = [tuple(float(v) for v in p.split(",")) for p in item["pos"].split()]
        (x, y), *rest = [(px, height - py) for px, py in points]
        paths[item["_gvid"]] = f"M{x:.1f} {y:.1f}C" + " ".join(f"{px:.1f} {py:.1f}" for px, py in rest)
    return Layout(width, height, tuple(centers), tuple(paths))
