"""Family `attention`, run by the emulator: cones, reductions, views and sizes of all kinds, against the interpreter."""

import math
from collections.abc import Callable, Iterator

import pytest

from codegen.attention.masked_blocks import blanks_text
from codegen.attention.row_blocks import RowBlocks, strips_of
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel, offers
from codegen.sandbox.object_cache import ObjectCache
from codegen.schedule import schedule_text, schedule_values
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16, f32
from testing.emulated_kernels import emulated_device
from tests.support.attention import below, causal, masked, scores, tensor, whole
from tests.support.candidates import check_all, check_statistics, refusal
from tests.support.products import dense_graph
from tests.support.ranges import check_ranges
from tests.support.whole import WHOLE, in_turn, some

DEVICE = emulated_device()
ATTENTION = FAMILIES["attention"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with Workbench(DEVICE, ObjectCache(tmp_path_factory.mktemp("objects"))) as made:
        yield made


def schedule(rows: int, warps: int, stages: int, groups: int = 1, turns: int = 1, blocks: int = 1) -> str:
    values = {"rows": rows, "warps": warps, "groups": groups, "stages": stages, "turns": turns, "blocks": blocks}
    return schedule_text("attention", values)


def softmaxed(change: Callable[..., Node]) -> Callable[..., Node]:
    """Probabilities of scores that are changed first, by what the other operands say."""
    return lambda q, k, *more: build.cast(build.softmax(change(scores(q, k), *more)), bf16)


def cones() -> Iterator[tuple[str, Graph]]:
    q, k = tensor(2, 50, 40), tensor(2, 70, 40)
    yield (
        "distances, a bias in f32 and a mask",
        dense_graph(
            [q, k, tensor(2, 1, 70, dtype=f32), tensor(50, 70)],
            softmaxed(
                lambda s, b, m: build.where(
                    build.gt(m, 0.0),
                    build.add(s, b),
                    build.cast(build.sub(build.iota([50, 70], 0), build.iota([50, 70], 1)), f32),
                )
            ),
        ),
    )
    yield "a mask that is turned", dense_graph([q, k, tensor(70, 50)], softmaxed(lambda s, m: build.add(s, turned(m))))
    yield (
        "least, and sums of what is held no more",
        dense_graph([q, k], lambda q, k: spread(scores(q, k))),
    )
    yield (
        "two results",
        dense_graph([q, k], lambda q, k: (p := build.softmax(scores(q, k)), build.cast(build.neg(p), bf16))),
    )
    yield "down columns", dense_graph([q, k], lambda q, k: build.cast(build.softmax(scores(q, k), 1), bf16))
    yield (
        "log of softmax",
        dense_graph([q, k], lambda q, k: build.cast(build.log_softmax(scores(q, k)), bf16)),
    )


def spread(s: Node) -> Node:
    """(s - min) / (sum of s^2 - min): the scores are needed to the end."""
    least = build.min_(s, -1, keepdims=True)
    squares = build.sum_(build.mul(s, s), -1, keepdims=True)
    return build.div(build.sub(s, least), build.sub(squares, least))


def turned(x: Node) -> Node:
    return build.cast(build.permute(x, [1, 0]), f32)


def layouts() -> Iterator[tuple[str, Graph]]:
    packed = tensor(2, 33, 3 * 4 * 24)
    yield "heads side by side", dense_graph([packed], heads)
    yield (
        "one head of keys and values for all",
        dense_graph(
            [tensor(3, 40, 32), tensor(50, 32), tensor(50, 32)],
            lambda q, k, v: whole(build.reshape(q, [120, 32]), k, v),
        ),
    )
    yield (
        "groups of heads",
        dense_graph(
            [tensor(2, 3, 20, 32), tensor(2, 50, 32), tensor(2, 50, 32)],
            lambda q, k, v: whole(build.reshape(q, [2, 60, 32]), k, v),
        ),
    )
    yield "keys and values that lie across", dense_graph(
        [tensor(2, 40, 32), tensor(2, 32, 50), tensor(2, 24, 50)],
        lambda q, k, v: whole(q, build.transpose(k), build.transpose(v)),
    )  # fmt: skip
    yield (
        "computed operands, and a residual",
        dense_graph(
            [tensor(2, 40, 32), tensor(2, 50, 32), tensor(2, 50, 24), tensor(2, 40, 24)],
            lambda q, k, v, r: build.add(whole(build.relu(q), build.neg(k), build.exp(v)), r),
        ),
    )


def heads(x: Node) -> Node:
    """Attention of [batch, tokens, 3 heads size], as language models project it; the result in the same order."""
    batch, tokens, width = x.sizes
    parts = build.permute(build.reshape(x, [batch, tokens, 3, 4, width // 12]), [2, 0, 3, 1, 4])
    q, k, v = (build.squeeze(build.slice_(parts, [i, 0, 0, 0, 0], [i + 1, *parts.sizes[1:]]), 0) for i in range(3))
    return build.reshape(build.permute(whole(q, k, v), [0, 2, 1, 3]), [batch, tokens, width // 3])


def sizes() -> Iterator[tuple[str, Graph]]:
    for rows, columns, size, width in ((1, 17, 17, 1), (33, 65, 33, 7), (65, 33, 64, 72), (20, 200, 72, 100)):
        yield f"{rows} x {columns}, {size} and {width}", causal(2, rows, columns, size, width)
    yield "f16", causal(1, 33, 65, 33, 7, dtype=f16)
    yield "f16, masked", masked(1, 33, 65, 33, dtype=f16)


def test_statistics_behind_a_product(bench: Workbench) -> None:
    check_statistics(bench)


@pytest.mark.turn("emulated attention")
@pytest.mark.soak
def test_rows_of_other_ranges(bench: Workbench) -> None:
    check_ranges(bench, most=3 if WHOLE else 1)


@pytest.mark.turn("emulated attention")
@pytest.mark.soak
def test_cones_layouts_and_sizes(bench: Workbench) -> None:
    graphs = [g for i, cases in enumerate((cones(), layouts(), sizes())) for g in in_turn(cases, 1, str(i))]
    cases = [(name, graph, [ATTENTION.emit(graph, schedule(16, 4, 2), DEVICE)]) for name, graph in graphs]
    assert not check_all(cases, bench)


@pytest.mark.turn("emulated attention")
@pytest.mark.soak
def test_schedules(bench: Workbench) -> None:
    """Rows, warps and stages of all kinds; more tiles than stages, and fewer."""
    points = [(16, 4, 2, 1, 1, 3), (32, 4, 3, 2), (64, 4, 4), (16, 8, 2, 2), (32, 8, 3), (32, 16, 2)]
    turns = [(16, 4, 3, 2, 2), (32, 8, 2, 1, 3), (16, 4, 4, 1, 16)]
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for name, graph in (("causal", causal(1, 72, 328, 40, 24)), ("masked", masked(2, 72, 264, 40))):
        own = points if name == "causal" else points + turns
        cases.append((name, graph, [ATTENTION.emit(graph, schedule(*p), DEVICE) for p in some(own, 2, name)]))
    assert not check_all(cases, bench)


# ---- blanks
def found(graph: Graph) -> RowBlocks:
    strips = strips_of(graph)
    assert isinstance(strips, RowBlocks)
    return strips


def test_blanks_are_told_from_rows_and_columns() -> None:
    def blank(change: Callable[[Node], Node]) -> str | None:
        return blanks_text(found(dense_graph([tensor(64, 32), tensor(96, 32)], softmaxed(change))))

    s, inf = [64, 96], -math.inf
    row, column = build.iota(s, 0), build.iota(s, 1)
    assert "column + 0) > (1 * last_row" in str(blank(lambda x: build.where(build.le(column, row), x, inf)))
    assert "last_column + 0) <= (1 * row" in str(blank(lambda x: build.where(build.le(column, row), inf, x)))
    shifted = build.lt(build.add(row, 7), column)
    assert "last_row + 7) < (1 * column" in str(blank(lambda x: build.where(shifted, inf, x)))
    assert blank(lambda x: build.where(build.eq(row, column), x, inf)) is None
    assert blank(lambda x: build.where(build.le(column, row), x, build.neg(x))) is None
    assert blank(lambda x: build.mul(build.where(build.le(column, row), x, inf), 2.0)) is None


@pytest.mark.turn("emulated attention")
def test_values_that_are_no_numbers_show_through_blanks(bench: Workbench) -> None:
    """0 times infinity, in columns that no row takes in: as the interpreter has it."""
    graph = dense_graph(
        [tensor(40, 32), tensor(300, 32), tensor(300, 24)],
        lambda q, k, v: build.matmul(
            build.cast(build.softmax(build.where(below(40, 300), scores(q, k), -math.inf)), bf16),
            build.div(v, build.cast(build.lt(build.iota([300, 24], 0), 290), bf16)),
        ),
    )
    kernel = ATTENTION.emit(graph, schedule(16, 4, 2), DEVICE)
    assert "struct Blanks" in kernel.source
    assert not check_all([("infinite", graph, [kernel])], bench)


# ---- what it takes
def test_first_schedules_are_among_the_choices() -> None:
    for graph in (causal(12, 1024, 1024, 64, 64), masked(12, 1024, 1024, 64), causal(1, 20, 20, 20, 20)):
        first = ATTENTION.space(graph, DEVICE)
        assert first
        for s in first:
            assert offers(ATTENTION, graph, s, DEVICE), s
            assert ATTENTION.emit(graph, s, DEVICE).launch.shared_bytes <= 163 << 10


def test_schedules_that_cannot_be() -> None:
    graph = masked(1, 64, 1024, 64)
    right = schedule_values(ATTENTION.space(graph, DEVICE)[0])

    def problem(**changes: int) -> str:
        with pytest.raises(EmitError) as error:
            ATTENTION.emit(graph, schedule_text("attention", {**right, **changes}), DEVICE)
        return str(error.value)

    assert "registers to hold 1024 columns of 64 rows" in problem(rows=64, warps=8, blocks=1)
    assert "multiple of 16" in problem(rows=24)
    assert "expected a multiple of 16, and 4, 8, 16" in problem(warps=6)
    assert "1 stages" in problem(stages=1)
    assert "shared memory, sm_80 has 166912" in problem(rows=16, warps=16, stages=4, blocks=1)


def test_what_is_refused() -> None:
    q, k, v = tensor(2, 50, 40), tensor(2, 70, 40), tensor(2, 70, 24)

    def reason(compute: Callable[..., Node | tuple[Node, ...]], *specs: object) -> str:
        return refusal(dense_graph(list(specs) or [q, k, v], compute), "attention", DEVICE)  # type: ignore[arg-type]

    assert "0 reductions" in reason(lambda q, k, v: scores(q, k))
    assert reason(lambda q, k, v: build.sum_(scores(q, k), [2])).startswith("depends on the product at 0 points")
    heads = reason(lambda q, k, v: build.sub(scores(q, k), build.max_(scores(q, k), 0, keepdims=True)))
    assert heads == "max reduces other axes than the product's columns"
    assert "takes bf16 or f16" in reason(whole, *(tensor(2, 50, 40, dtype=f32),) * 3)
    mean = reason(lambda q, k, v: build.sub(scores(q, k), build.mean(scores(q, k), -1, keepdims=True)))
    assert mean == "reduces by mean in f32; takes max, min, sum of f32"
    shifted = reason(
        lambda q, k, v: build.sub(
            build.slice_(scores(q, k), [0, 0, 0], [2, 49, 70]),
            build.slice_(build.max_(scores(q, k), -1, keepdims=True), [0, 1, 0], [2, 50, 1]),
        )
    )
    assert shifted == "what a row is reduced to is used in another row"
    long = causal(1, 64, 8192, 64, 64)
    assert "registers to hold 8192 columns" in refusal(long, "attention", DEVICE)
    both = reason(lambda q, k, v: (p := build.cast(build.softmax(scores(q, k)), bf16), build.matmul(p, v)))
    assert both == "an output does not depend on the last product"
