"""Pictures of graphs: every arrow leads from the box that it leaves to the box that it enters, boxes say who computes
them."""

import random
import re
from collections.abc import Sequence

import pytest

from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import f32
from fusion_ir.ops import make, make_input
from service.dashboard.graph_svg import draw, picture
from service.dashboard.layout import Layout, layout
from service.wording.naming import Naming
from tests.support.stored_plans import plan_of

SECONDS = 60.0
NEAR = 2.0  # points, between the end of an arrow and the edge of a box


def acyclic(seed: int, boxes: int) -> list[tuple[int, int]]:
    """Edges in the order in which graphs have them: by the box that they enter."""
    random_ = random.Random(seed)
    return [(tail, head) for head in range(1, boxes) for tail in random_.sample(range(head), min(head, 3))]


def ends(path: str) -> tuple[tuple[float, float], tuple[float, float]]:
    numbers = [float(n) for n in re.findall(r"-?[0-9.]+", path)]
    return (numbers[0], numbers[1]), (numbers[-2], numbers[-1])


def touches(placed: Layout, sizes: Sequence[tuple[float, float]], box: int, point: tuple[float, float]) -> bool:
    (x, y), (width, height) = placed.centers[box], sizes[box]
    return abs(point[0] - x) <= width / 2 + NEAR and abs(point[1] - y) <= height / 2 + NEAR


def strays(placed: Layout, sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Edges whose paths do not begin and end at their boxes."""
    found: list[int] = []
    for i, ((tail, head), path) in enumerate(zip(edges, placed.paths, strict=True)):
        start, end = ends(path)
        if not (touches(placed, sizes, tail, start) and touches(placed, sizes, head, end)):
            found.append(i)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_arrow_leads_from_its_tail_to_its_head(seed: int) -> None:
    edges = acyclic(seed, 40)
    sizes = [(60.0 + 7 * (i % 5), 34.0) for i in range(40)]
    assert strays(layout(sizes, edges, SECONDS), sizes, edges) == []


def test_arrows_between_the_same_two_boxes_have_paths_of_their_own() -> None:
    edges = [(0, 2), (1, 2), (0, 2), (0, 1), (0, 2)]
    sizes = [(60.0, 34.0)] * 3
    placed = layout(sizes, edges, SECONDS)
    assert strays(placed, sizes, edges) == []
    assert len({placed.paths[i] for i in (0, 2, 4)}) == 3


def forked() -> Graph:
    """in0 -> exp -> neg -> out0, exp -> tanh -> out1, exp -> sqrt -> out2."""
    spec = InputSpec(shape_of((8,)), f32, (1,))
    a = make("exp", [make_input(0, spec)])
    outputs = (make("neg", [a]), make("tanh", [a]), make("sqrt", [a]))
    return Graph((spec,), tuple(OutputSpec(node, (1,)) for node in outputs))


def drawn(steps: Sequence[Sequence[str]]) -> str:
    """The picture of `forked` where each step computes these ops."""
    graph = forked()
    one = plan_of(graph).steps[0]
    numbers = {node.op: i for i, node in enumerate(graph.nodes)}
    made = [one.model_copy(update={"nodes": tuple(numbers[op] for op in ops)}) for ops in steps]
    found = picture(graph, plan_of(graph).model_copy(update={"steps": tuple(made)}), Naming(("x",), ("a", "b", "c")))
    return draw(found, layout(found.sizes, found.edges, SECONDS))


def node(svg: str, op: str) -> str:
    """The group of the box of an op."""
    groups = svg.split('<g id="node-')
    return next(group for group in groups[1:] if f">{op}</text>" in group)


def test_a_box_that_several_steps_compute_has_their_numbers() -> None:
    svg = drawn([("exp", "neg"), ("exp", "tanh"), ("exp", "sqrt")])
    shared = node(svg, "exp")
    assert "shared" in shared.partition(">")[0]
    assert "computed by 3 kernels, each for itself: 0, 1, 2" in shared
    assert re.findall(r'class="tab seg-(\d)".*?>(\d)</text>', shared) == [("2", "2"), ("1", "1"), ("0", "0")]
    assert 'class="tab' not in node(svg, "neg")
    assert "shared" not in node(svg, "neg").partition(">")[0]


def test_of_many_steps_that_share_a_box_the_first_are_named_and_the_rest_counted() -> None:
    shared = node(drawn([("exp",)] * 12), "exp")
    assert re.findall(r'class="tab[^"]*".*?>([^<]*)</text>', shared) == ["+9", "2", "1", "0"]
    lefts = [float(x) for x in re.findall(r'class="tab[^"]*" transform="translate\((-?[0-9.]+) ', shared)]
    assert len(set(lefts)) == 4, "side by side"


def test_a_box_that_no_step_computes_says_so() -> None:
    svg = drawn([("exp", "neg")])
    replaced = node(svg, "tanh")
    assert "replaced" in replaced.partition(">")[0]
    assert "computed by no kernel: rewrites put something else in its place" in replaced
    assert "seg-" not in replaced.partition(">")[0]
    assert "replaced" not in node(svg, "exp").partition(">")[0]
