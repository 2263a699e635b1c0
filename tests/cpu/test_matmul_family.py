"""Family `matmul` on the CPU: products with epilogues of every kind, panel by panel, checked like any kernel."""

from collections.abc import Iterator
from itertools import permutations, product
from random import Random

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64, i8, i32
from fusion_ir.ops import make
from fusion_ir.records import Status
from tests.support.candidates import assert_right, check_all, kernels_of, refusal, row_with_fault, run_kernel
from tests.support.products import dense_graph, einsum_graph, mlp, spec, spread_product
from tests.support.whole import in_turn, one_part

MATMUL = FAMILIES["matmul"]
M, K, N = 83, 41, 53


def heads(x: Node, count: int) -> Node:
    rows, columns = x.sizes
    return build.permute(build.reshape(x, [rows, count, columns // count]), [1, 0, 2])


def piece(x: Node, start: int, stop: int) -> Node:
    return make("slice", [x], {"start": (0, start), "stop": (x.sizes[0], stop), "step": (1, 1)})


def turned_residual(x: Node, w: Node, r: Node) -> Node:
    return build.add(build.matmul(x, w), build.permute(r, [1, 0]))


def turned_result(x: Node, w: Node, r: Node) -> Node:
    return build.add(build.permute(build.matmul(x, w), [1, 0]), r)


def three_results(x: Node, w: Node, b: Node) -> tuple[Node, Node, Node]:
    """A product and what is computed of it, in other dtypes and the other way round."""
    y = build.add(build.matmul(x, w), b)
    return y, build.gt(y, 0.0), build.cast(build.permute(y, [1, 0]), bf16)


def epilogues() -> Iterator[tuple[str, Graph]]:
    xw = [(M, K), (K, N)]
    yield "relu", dense_graph(xw, lambda x, w: build.relu(build.matmul(x, w)))
    yield "bias along columns", dense_graph([*xw, (N,)], lambda x, w, b: build.add(build.matmul(x, w), b))
    yield "bias along rows", dense_graph([*xw, (M, 1)], lambda x, w, b: build.add(build.matmul(x, w), b))
    yield "mlp", dense_graph([*xw, (N,), (M, N)], mlp)
    yield (
        "turned residual",
        dense_graph([*xw, (N, M)], turned_residual),
    )
    yield (
        "turned result",
        dense_graph([*xw, (N, M)], turned_result),
    )
    yield "whole numbers", dense_graph([*xw, (N,)], lambda x, w, b: build.relu(build.add(build.matmul(x, w), b)), i32)
    yield "whole numbers to floats", dense_graph(xw, lambda x, w: build.cast(build.matmul(x, w, i32), bf16), i8)
    yield "to 16 bits", dense_graph(xw, lambda x, w: build.cast(build.exp(build.matmul(x, w)), bf16))
    yield "rounded by the product itself", dense_graph(xw, lambda x, w: build.matmul(x, w, bf16))
    yield "the product too", dense_graph(xw, lambda x, w: (y := build.matmul(x, w), build.tanh(y)))
    yield (
        "three results",
        dense_graph([*xw, (N,)], three_results),
    )
    yield (
        "columns apart",
        dense_graph(
            [(M, K), (K, 3 * 48), (3 * 48,)],
            lambda x, w, b: tuple(
                heads(piece(build.add(build.matmul(x, w), b), 48 * i, 48 * (i + 1)), 3) for i in range(3)
            ),
        ),
    )
    yield (
        "halves multiplied",
        dense_graph(
            [(M, K), (K, 2 * N)],
            lambda x, w: (y := build.matmul(x, w), build.mul(build.silu(piece(y, 0, N)), piece(y, N, 2 * N)))[1],
        ),
    )
    yield "batch", dense_graph([(4, M, K), (4, K, N), (4, M, N)], lambda x, w, r: build.add(build.matmul(x, w), r))
    yield (
        "scaled and masked scores",
        dense_graph(
            [(4, M, K), (4, N, K), (M, N)],
            lambda q, k, mask: build.add(build.mul(build.matmul(q, build.permute(k, [0, 2, 1])), 0.125), mask),
        ),
    )
    yield (
        "heads merged",
        dense_graph(
            [(4, M, K), (4, K, 16), (M, 64)],
            lambda p, v, r: build.add(build.reshape(build.permute(build.matmul(p, v), [1, 0, 2]), [M, 64]), r),
        ),
    )
    yield (
        "rows of a larger tensor",
        dense_graph([(7, 13, K), (K, N), (N,)], lambda x, w, b: build.relu(build.add(build.matmul(x, w), b))),
    )
    yield "f64", dense_graph([*xw, (N,), (M, N)], mlp, f64)
    yield "wide rows", dense_graph([(20, 33), (33, 9001)], lambda x, w: build.relu(build.matmul(x, w)))
    yield (
        "dropout",
        dense_graph(
            xw,
            lambda x, w: (
                y := build.matmul(x, w),
                build.where(build.gt(y, 0.1), build.div(y, 0.9), 0.0),
            )[1],
        ),
    )
    strided = dense_graph(
        [spec((M, K), (K + 3, 1)), spec((K, N), (1, K + 5)), (N,)],
        lambda x, w, b: build.relu(build.add(build.matmul(x, w), b)),
    )
    yield "gaps", Graph(strided.inputs, (OutputSpec(strided.outputs[0].node, (N + 3, 1)),))


@pytest.mark.turn("products with epilogues")
@pytest.mark.soak
def test_epilogues(bench: Workbench) -> None:
    assert_right(one_part(epilogues(), 2, "epilogues"), "matmul", bench, most=3)


def added_to(a: str, b: str, out: str, added: str) -> Graph:
    """tanh(einsum("a,b->out") + a tensor with the axes `added`)"""
    extents = {"m": M, "k": K, "n": N}
    left, right, result = ([ord(x) for x in text] for text in (a, b, out))
    order = [added.index(x) for x in out]
    return dense_graph(
        [[extents[x] for x in text] for text in (a, b, added)],
        lambda x, w, r: build.tanh(build.add(build.einsum(x, w, left, right, result), build.permute(r, order))),
    )


@pytest.mark.turn("products with epilogues")
@pytest.mark.soak
def test_every_layout_with_an_epilogue(bench: Workbench) -> None:
    layouts = list(product(*(map("".join, permutations(p)) for p in ("mk", "kn", "mn", "mn"))))
    assert len(layouts) == 16
    cases = [(f"{a},{b}->{out} + {added}", added_to(a, b, out, added)) for a, b, out, added in layouts]
    assert_right(one_part(cases, 2, "layouts"), "matmul", bench, most=1)


@pytest.mark.turn("other operands of products")
@pytest.mark.soak
def test_narrow_operands(bench: Workbench) -> None:
    cases: list[tuple[str, Graph]] = []
    for dtype in (bf16, f16, DTYPES["f8e5m2"]):
        narrow = [
            dense_graph([(M, K), (K, N), (N,), (M, N)], mlp, dtype),
            dense_graph([(M, K), (K, N)], build.matmul, dtype),
            dense_graph(
                [(4, M, K), (4, N, K)], lambda q, k: build.relu(build.matmul(q, build.permute(k, [0, 2, 1]))), dtype
            ),
            dense_graph([(300, 270), (270, 400)], lambda x, w: build.relu(build.matmul(x, w)), dtype),
            einsum_graph("htd", "hdn", "tn", {"t": 45, "h": 4, "d": 64, "n": 96}, dtype),
        ]
        cases += [(f"{dtype} {i}", graph) for i, graph in enumerate(narrow)]
    assert_right(one_part(cases, 1, "narrow"), "matmul", bench, most=2)


@pytest.mark.turn("other operands of products")
@pytest.mark.soak
@pytest.mark.parametrize("dtype", in_turn([f32, bf16, i8], 1, "spread"), ids=str)
def test_operands_in_any_order(bench: Workbench, dtype: DType) -> None:
    """By our own products alone: see test_aten."""
    random, acc = Random(str(dtype)), i32 if dtype == i8 else f32
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for i in range(400):
        graph = spread_product(random, dtype, dtype, acc, build.relu)
        if MATMUL.accepts(graph, bench.device) is None:
            kernels = [k for k in kernels_of(graph, "matmul", bench) if "packed::spread" in k.source]
            cases += [(f"{i}", graph, [kernels[0], kernels[-1]])] if kernels else []
        if len(cases) == 6:
            break
    assert len(cases) == 6
    wrong = check_all(one_part(cases, 2, "spread"), bench)
    assert not wrong, "\n".join(wrong)


def in_blocks() -> Iterator[tuple[str, Graph]]:
    m, k, n = 37, 41, 512
    xw = [(m, k), (k, n)]
    for dtype in (f32, bf16):
        yield f"mlp {dtype}", dense_graph([*xw, (n,), (m, n)], mlp, dtype)
        layer = [(m, k), (n, k), (n,)]
        yield (
            f"linear {dtype}",
            dense_graph(
                layer, lambda x, w, b: build.tanh(build.add(build.matmul(x, build.permute(w, [1, 0])), b)), dtype
            ),
        )
    yield (
        "turned residual",
        dense_graph([*xw, (n, m)], turned_residual),
    )
    yield (
        "turned result",
        dense_graph([*xw, (n, m)], turned_result),
    )
    yield "batch", dense_graph([(3, m, k), (3, k, n), (3, m, n)], lambda x, w, r: build.add(build.matmul(x, w), r))
    yield (
        "heads apart",
        dense_graph([*xw, (n,)], lambda x, w, b: heads(build.add(build.matmul(x, w), b), 8)),
    )
    yield (
        "halves multiplied",
        dense_graph(
            xw,
            lambda x, w: (y := build.matmul(x, w), build.mul(build.silu(piece(y, 0, n // 2)), piece(y, n // 2, n)))[1],
        ),
    )
    yield (
        "three results",
        dense_graph([*xw, (n,)], three_results),
    )


@pytest.mark.turn("products with epilogues")
@pytest.mark.soak
def test_columns_in_blocks(bench: Workbench) -> None:
    """Gated halves are read two blocks at a time, a turned result by columns: there is no such schedule of these."""
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for name, graph in one_part(in_blocks(), 3, "blocks"):
        choices = MATMUL.choices(graph, bench.device)
        orders = [axes for axes in choices["axes"] if str(axes).startswith("columns")]
        assert orders == ([] if name in ("halves multiplied", "turned result") else ["columns2", "columns4"])
        schedule = "matmul{{library={},rows={},axes={},lanes=16,store=plain}}"
        kernels = [
            MATMUL.emit(graph, schedule.format(library, rows, axes), bench.device)
            for axes in orders
            for library in choices["library"]
            for rows in (16, 512)
        ]
        assert not orders or min(k.launch.tasks for k in kernels) > 1
        cases.append((name, graph, kernels))
    assert not check_all(cases, bench)


def test_panels_of_all_heights(bench: Workbench) -> None:
    graph = dense_graph([(M, K), (K, N), (N,), (M, N)], mlp)
    kernels = [
        MATMUL.emit(graph, f"matmul{{library=openblas,rows={rows},axes=own,lanes={lanes},store={store}}}", bench.device)
        for rows, lanes, store in ((1, 16, "plain"), (7, 32, "stream"), (40, 8, "plain"), (1000, 64, "stream"))
    ]
    assert kernels[0].launch.tasks == M
    assert kernels[1].launch.tasks >= M // 7
    assert not check_all([("heights", graph, kernels)], bench)


def test_each_thread_gets_as_many_panels(bench: Workbench) -> None:
    device = bench.device.model_copy(update={"units": 3})
    graph = dense_graph([(4, M, K), (4, K, N)], lambda x, w: build.relu(build.matmul(x, w)))
    kernel = MATMUL.emit(graph, "matmul{library=openblas,rows=1000,axes=own,lanes=16,store=plain}", device)
    assert kernel.launch.tasks == 12


def test_infinities_and_nans_spread_like_in_the_sum(bench: Workbench) -> None:
    graph = dense_graph([(M, K), (K, N)], lambda x, w: build.neg(build.matmul(x, w)))
    x, w = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
    x[3, 5], x[4, 6], w[7, 9], x[5, 7] = np.nan, np.inf, -np.inf, 0
    (got,) = run_kernel(graph, kernels_of(graph, "matmul", bench)[0], [x, w], bench)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, -(x @ w))


@pytest.mark.sweep(0.5)
@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"scratch, \d+, false", "scratch, 70, false"),  # a wrong leading dimension
        (r"before\(scratch, \d+ \* c0\)", "before(scratch, 0)"),  # rows of another panel
        (r"c0_n, 53,", "c0_n - 1, 53,"),  # a row short
        (r"in0 \+ 41 \* c0", "in0"),  # the first panel's rows in each
    ],
)
def test_a_wrong_panel_is_found_out(bench: Workbench, pattern: str, instead: str) -> None:
    graph = dense_graph([(M, K), (K, N), (N,)], lambda x, w, b: build.add(build.matmul(x, w), b))
    kernel = MATMUL.emit(graph, "matmul{library=openblas,rows=20,axes=own,lanes=16,store=plain}", bench.device)
    row = row_with_fault(graph, kernel, pattern, instead, bench)
    assert row.status in (Status.wrong_result, Status.crashed), row


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (dense_graph([(M, K), (K, N)], build.matmul), "computes nothing of the product"),
        (
            dense_graph([(M, K), (K, N)], lambda x, w: build.relu(build.matmul(build.exp(x), w))),
            "operand a is computed, not stored",
        ),
        (
            dense_graph([(M, K), (K, N)], lambda x, w: (build.relu(build.matmul(x, w)), build.exp(x))),
            "an output does not depend on the product",
        ),
        (
            dense_graph([(M, K), (K, N)], lambda x, w: build.sum_(build.matmul(x, w), [1])),
            "takes one contraction alone",
        ),
        (dense_graph([(700, 100), (100, 1)], lambda x, w: build.exp(build.matmul(x, w))), "its rows have one element"),
    ],
)
def test_refusals(graph: Graph, reason: str, bench: Workbench) -> None:
    assert reason in refusal(graph, "matmul", bench.device)


def test_what_cannot_run_over_rows_says_so(bench: Workbench) -> None:
    flat = dense_graph([(M, K), (K, N)], lambda x, w: build.relu(build.reshape(build.matmul(x, w), [M * N // 83, 83])))
    assert "rows" in refusal(flat, "matmul", bench.device)
    rows = dense_graph(
        [(M, K), (K, N)], lambda x, w: build.relu(build.permute(build.reshape(build.matmul(x, w), [M * N]), [0]))
    )
    kernels_of(rows, "matmul", bench)
