"""Family `transpose`: tiles give the bits of the interpreter, between guard pages, whatever the sizes and layouts."""

import random
from math import prod

import pytest

from codegen.families import FAMILIES
from codegen.families.transpose import TransposeSchedule
from codegen.kernel import Kernel
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import make_input
from tests.support.candidates import check_all
from tests.support.whole import WHOLE, in_turn, one_part

TRANSPOSE = FAMILIES["transpose"]
# Small tiles, large ones, both orders, both ways to store; vectors from half a block to four.
SCHEDULES = [
    TransposeSchedule(16, "stream", 16, 16, "columns", 1),
    TransposeSchedule(32, "plain", 16, 64, "rows", 0),
    TransposeSchedule(64, "stream", 64, 128, "columns", 0),
    TransposeSchedule(8, "plain", 48, 32, "rows", 1),
    TransposeSchedule(32, "stream", 128, 128, "rows", 1),
]


class Inputs:
    """Makes the inputs of one graph."""

    def __init__(self) -> None:
        self.specs: list[InputSpec] = []

    def __call__(self, *sizes: int, dtype: str = "f32", strides: tuple[int, ...] | None = None) -> Node:
        t = DTYPES[dtype]
        self.specs.append(InputSpec(shape_of(sizes), t, strides or dense_strides(sizes), t.bytes))
        return make_input(len(self.specs) - 1, self.specs[-1])

    def graph(self, *outputs: Node) -> Graph:
        return Graph(tuple(self.specs), tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))


def turned(x: Node) -> Node:
    return build.permute(x, (1, 0))


def kernels(graph: Graph, bench: Workbench, schedules: list[TransposeSchedule]) -> list[Kernel]:
    assert TRANSPOSE.accepts(graph, bench.device) is None
    return [TRANSPOSE.emit(graph, str(s), bench.device) for s in schedules]


def check(cases: list[tuple[str, Graph]], bench: Workbench, schedules: list[TransposeSchedule] = SCHEDULES) -> None:
    assert check_all([(name, graph, kernels(graph, bench, schedules)) for name, graph in cases], bench) == []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.sweep(0.2)
def test_every_type_at_odd_sizes(dtype: str, bench: Workbench) -> None:
    """Plain transposes: sizes around blocks and tiles, and sampled ones; addresses are multiples of one element."""
    rng = random.Random(dtype)
    sizes = [
        (2, 2),
        (16, 16),
        (17, 31),
        (1 + 64, 128 + 1),
        *((rng.randint(2, 70), rng.randint(2, 70)) for _ in range(3)),
    ]
    cases: list[tuple[str, Graph]] = []
    for m, n in one_part(sizes, 3, f"sizes {dtype}"):
        new = Inputs()
        cases.append((f"{m}x{n}", new.graph(turned(new(m, n, dtype=dtype)))))
    check(cases, bench, SCHEDULES[:2] if dtype in ("i16", "u8", "f8e5m2") else one_part(SCHEDULES, 2, f"tiles {dtype}"))


def both_orders(new: Inputs) -> Graph:
    """An output in each order, of operands in each order, through casts both ways."""
    a, b, c = new(150, 67), new(67, 150, dtype="bf16"), new(67, dtype="f16")
    x = build.add(build.mul(a, turned(build.cast(b, DTYPES["f32"]))), c)
    return new.graph(x, turned(build.neg(x)), turned(build.cast(x, DTYPES["bf16"])), build.gt(x, turned(b)))


def windows(new: Inputs) -> Graph:
    """Slices, a pad and a concatenation around a transpose."""
    a, b = new(70, 90), new(50, 40)
    x = build.slice_(a, (3, 1), (63, 61), (1, 1))
    y = build.cat([turned(x), build.pad(turned(b), (5, 7), (15, 3), 1.5)], 1)
    return new.graph(y)


def channels_last(new: Inputs) -> Graph:
    """[N, C, H, W] -> [N, H, W, C] with a bias per channel."""
    x, bias = new(3, 33, 7, 9), new(33)
    return new.graph(build.add(build.permute(x, (0, 2, 3, 1)), bias))


def channels_first(new: Inputs) -> Graph:
    x = new(2, 6, 7, 40, dtype="f16")
    return new.graph(build.neg(build.permute(x, (0, 3, 1, 2))))


def three_channels(new: Inputs) -> Graph:
    """Pixels of three channels to planes and back."""
    x, y = new(50, 60, 3, dtype="u8"), new(3, 50, 60)
    return new.graph(build.permute(x, (2, 0, 1)), build.permute(y, (1, 2, 0)))


def three_orders(new: Inputs) -> Graph:
    """Operands that lie along three different axes."""
    a, b, c = new(20, 33, 18), new(18, 20, 33), new(33, 18, 20)
    return new.graph(build.add(build.add(a, build.permute(b, (1, 2, 0))), build.permute(c, (2, 0, 1))))


def repeated(new: Inputs) -> Graph:
    """A transposed matrix beside a batch, and a transposed output that repeats along another."""
    a, b = new(5, 40, 50), new(50, 40)
    x = build.add(a, turned(build.exp(b)))
    whole = build.expand(build.reshape(turned(turned(b)), (1, 50, 40)), (4, 50, 40))
    return new.graph(x, whole, build.permute(x, (0, 2, 1)))


def even_parts(new: Inputs) -> Graph:
    """416 lanes in four parts would be 104 or 112 each: no multiple of a vector of 32, and 416 is one."""
    return new.graph(build.permute(new(24, 416, 20), (0, 2, 1)))


def gathered(new: Inputs) -> Graph:
    """Rows of a table, by an index that lies across too, beside a transposed matrix."""
    table, index, x = new(40, 70), new(70, 50, dtype="i64"), new(70, 50)
    return new.graph(build.add(build.take_along_axis(table, turned(index), 0), turned(x)))


def strided(new: Inputs) -> Graph:
    """Columns first in memory, with a gap between them, and every second row."""
    a, b = new(45, 80, strides=(1, 48)), new(90, 80)
    return new.graph(build.mul(a, build.slice_(b, (0, 0), (90, 80), (2, 1))))


GRAPHS = [
    both_orders, windows, channels_last, channels_first, three_channels, three_orders, repeated, even_parts, gathered,
    strided,
]  # fmt: skip


@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
@pytest.mark.sweep(0.3)
def test_graphs(make, bench: Workbench) -> None:
    check([(make.__name__, make(Inputs()))], bench, one_part(SCHEDULES, 2, make.__name__))


def test_what_is_not_transposed_is_left_to_pointwise(bench: Workbench) -> None:
    new = Inputs()
    a, b = new(8, 16, 4, 64), new(8, 4, 16, 64)
    reject = TRANSPOSE.accepts(new.graph(build.add(build.permute(a, (0, 2, 1, 3)), b)), bench.device)
    assert reject and "nothing is transposed" in reject.reason


def test_the_space_is_checked_whole(bench: Workbench) -> None:
    new = Inputs()
    graph = new.graph(build.gelu(build.add(new(300, 200), turned(new(200, 300)))))
    schedules = TRANSPOSE.space(graph, bench.device)
    assert len(set(schedules)) == len(schedules) <= 8
    made = [TRANSPOSE.emit(graph, s, bench.device) for s in schedules]
    assert check_all([("gelu", graph, made)], bench) == []


def test_two_lanes_share_the_axis_that_lies_across(bench: Workbench) -> None:
    """Siblings with lanes of their own that are cut into tiles of different size, beside one axis for both."""
    new = Inputs()
    a, b, c = new(90, 300), new(90, 20), new(90)
    check([("siblings", new.graph(build.add(turned(a), c), build.mul(turned(b), c)))], bench)


@pytest.mark.soak
@pytest.mark.parametrize("seed", in_turn(range(400), 1, "permutes") if not WHOLE else range(4))
def test_random_permutes(seed: int, bench: Workbench) -> None:
    """Sums of operands of several types, each in an order of its own, stored in a few of them."""
    cases: list[tuple[str, Graph]] = []
    rng = random.Random(seed)
    while len(cases) < 3:
        new = Inputs()
        rank = rng.randint(2, 5)
        sizes = tuple(
            rng.choice([1, 2, 3, 5, 16, 17, 33, 64]) if rank > 2 else rng.randint(1, 150) for _ in range(rank)
        )
        if prod(sizes) > 60_000:
            continue
        total: Node | None = None
        for _ in range(rng.randint(1, 3)):
            order = rng.sample(range(rank), rank)
            dtype = rng.choice(["f32", "bf16", "f16", "i8", "f32"])
            x = build.permute(new(*(sizes[d] for d in order), dtype=dtype), [order.index(d) for d in range(rank)])
            x = build.cast(x, DTYPES["f32"])
            total = x if total is None else build.add(total, x)
        assert total is not None
        outputs = [build.permute(total, rng.sample(range(rank), rank)) for _ in range(rng.randint(1, 2))]
        graph = new.graph(*outputs)
        if TRANSPOSE.accepts(graph, bench.device) is None:
            cases.append((f"{seed} {len(cases)} {sizes}", graph))
    check(one_part(cases, 1, "permutes"), bench, one_part(SCHEDULES, 2, "permutes"))
