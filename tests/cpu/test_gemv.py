"""Family `gemv` on the CPU: a matrix and few vectors in every layout, with what is around, checked like any kernel."""

import re
from collections.abc import Iterator
from itertools import permutations, product

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, bf16, f16, f32, f64
from fusion_ir.records import Status
from tests.support.candidates import assert_right, kernels_of, refusal, row_with_fault, run_kernel
from tests.support.devices import CUDA_DEVICE
from tests.support.products import dense_graph, einsum_graph, mlp, spec
from tests.support.whole import one_part

GEMV = FAMILIES["gemv"]
N, K, FEW = 83, 101, 3


@pytest.mark.turn("matrices and few vectors")
@pytest.mark.soak
def test_every_layout(bench: Workbench) -> None:
    cases: list[tuple[str, Graph]] = []
    for batch, dtype in (("", f32), ("z", f32), ("", bf16)):
        orders = [list(map("".join, permutations(batch + pair))) for pair in ("nk", "fk", "nf")]
        for a, b, out in product(*orders):
            graph = einsum_graph(a, b, out, {"z": 2, "n": N, "k": 104, "f": FEW}, dtype)
            cases.append((f"{a},{b}->{out} {dtype}", graph))
    assert len(cases) == 8 + 6 * 6 * 6 + 8
    assert_right(one_part(cases, 4, "layouts"), "gemv", bench, most=1)


def on_top(x: Node, y: Node, w: Node) -> Node:
    return build.matmul(build.cat([x, y], 0), w)


def beside(x: Node, y: Node, w: Node) -> Node:
    return build.matmul(build.cat([x, y], 1), w)


def shapes() -> Iterator[tuple[str, Graph]]:
    for dtype in (f32, f16, DTYPES["f8e4m3"], f64, DTYPES["i8"]):
        for few in (2, 16):
            yield f"rows {dtype} {few}", einsum_graph("nk", "fk", "nf", {"n": N, "k": K, "f": few}, dtype)
            yield f"columns {dtype} {few}", einsum_graph("kn", "fk", "fn", {"n": N, "k": K, "f": few}, dtype)
    for few in (5, 12, 13):
        yield f"{few} vectors", einsum_graph("nk", "kf", "fn", {"n": N, "k": K, "f": few})
    yield "fewer elements than lanes", einsum_graph("nk", "fk", "nf", {"n": N, "k": 18, "f": 4})
    yield "many tiles", einsum_graph("kn", "fk", "fn", {"n": 5000, "k": 36, "f": 2})
    for k in range(33, 40):
        yield f"columns of {k}", einsum_graph("kn", "fk", "fn", {"n": 70, "k": k, "f": 2})
    yield "two axes of vectors", einsum_graph("nk", "akb", "bna", {"n": N, "k": K, "a": 2, "b": 3})
    yield "sum over two axes", einsum_graph("pnq", "fpq", "nf", {"n": N, "p": 5, "q": 24, "f": 4})
    yield "sum over two axes of columns", einsum_graph("pqn", "fqp", "fn", {"n": N, "p": 5, "q": 24, "f": 4})
    yield "heads that share keys", einsum_graph("hsd", "hgd", "hgs", {"h": 3, "g": 4, "s": 90, "d": 64})
    yield "heads that share values", einsum_graph("hsd", "hgs", "hgd", {"h": 3, "g": 4, "s": 90, "d": 64})
    yield "rows of the matrix in pieces", dense_graph([(40, K), (43, K), (K, 4)], on_top)
    yield "sum in pieces", dense_graph([(N, 40), (N, 61), (K, 4)], beside)
    yield (
        "columns in pieces",
        dense_graph([(4, K), (40, N), (61, N)], lambda w, x, y: build.matmul(w, build.cat([x, y], 0))),
    )
    yield "a vector", dense_graph([(N, K), (K,)], build.matmul)
    graph = dense_graph([spec((N, K), (K + 3, 1)), spec((K, 4), (1, K + 5))], build.matmul)
    yield "gaps", Graph(graph.inputs, (OutputSpec(graph.outputs[0].node, (7, 1)),))


@pytest.mark.turn("matrices and few vectors")
@pytest.mark.soak
def test_shapes_and_every_schedule(bench: Workbench) -> None:
    assert_right(one_part(shapes(), 1, "shapes"), "gemv", bench)


def around() -> Iterator[tuple[str, Graph]]:
    """Products with something before or behind."""
    for name, (x, w) in {"rows": ((N, K), (K, FEW)), "columns": ((FEW, K), (K, N))}.items():
        bias, out = w[1], (x[0], w[1])
        yield f"{name}: mlp", dense_graph([x, w, (bias,), out], mlp)
        yield f"{name}: mlp in 16 bits", dense_graph([x, w, (bias,), out], mlp, bf16)
        yield f"{name}: rounded", dense_graph([x, w], lambda a, b: build.matmul(a, b, bf16))
        yield (
            f"{name}: two results",
            dense_graph(
                [x, w], lambda a, b: (y := build.matmul(a, b), build.cast(build.permute(build.exp(y), [1, 0]), bf16))
            ),
        )
        yield (
            f"{name}: the matrix too",
            dense_graph([x, w], lambda a, b: (build.matmul(a, b), build.exp(a), build.cast(b, bf16))),
        )
        yield f"{name}: activations", dense_graph([x, w], lambda a, b: build.matmul(build.silu(a), build.tanh(b)))
        yield f"{name}: scaled", dense_graph([x, w, (x[1],)], lambda a, b, s: build.matmul(build.mul(a, s), b))
    # Rows of the matrix are kept for vectors that take their turns, five of them one by one.
    yield "functions, five vectors", dense_graph([(5, 100), (100, N)], lambda a, b: build.matmul(a, build.tanh(b)))
    weights = [spec((N, K), dtype=DTYPES["i8"]), spec((N, 1)), spec((FEW, K), dtype=bf16)]
    yield (
        "a quantised matrix",
        dense_graph(
            weights,
            lambda q, s, x: build.matmul(x, build.permute(build.cast(build.mul(build.cast(q, f32), s), bf16), [1, 0])),
        ),
    )


@pytest.mark.turn("matrices and few vectors")
@pytest.mark.soak
def test_what_leads_to_a_product_and_follows_from_it(bench: Workbench) -> None:
    assert_right(one_part(around(), 2, "around"), "gemv", bench, most=3)


def loads_of(kernel: Kernel, tensor: str) -> int:
    """Loads of a tensor in a kernel's loops over whole vectors."""
    whole = re.sub(r"TAIL\(.*?\n    }\n", "", kernel.source, flags=re.DOTALL)
    return len(re.findall(rf"load\w*<.*\({tensor} ", whole))


def test_the_matrix_is_loaded_once_for_all_vectors(bench: Workbench) -> None:
    schedule = "gemv{rows=4,few=16,lanes=16,tile=1024}"
    for few in (2, 16):
        rows = einsum_graph("nk", "fk", "nf", {"n": 80, "k": 96, "f": few})
        assert loads_of(GEMV.emit(rows, schedule, bench.device), "in0") == 4
        columns = einsum_graph("kn", "fk", "fn", {"n": 96, "k": 80, "f": few})
        assert loads_of(GEMV.emit(columns, schedule, bench.device), "in0") == 4


@pytest.mark.parametrize("layout", [("nk", "fk", "nf"), ("kn", "fk", "fn")])
def test_infinities_and_nans_spread_like_in_the_sum(layout: tuple[str, str, str], bench: Workbench) -> None:
    graph = einsum_graph(*layout, {"n": N, "k": K, "f": FEW})
    x, w = np.ones((N, K), np.float32), np.ones((FEW, K), np.float32)
    x[3, 5], x[4, 6], x[5, 7], w[2, 100] = np.nan, np.inf, 0, -np.inf
    x[6, 100] = 0  # times -inf
    matrix = x if layout[0] == "nk" else np.ascontiguousarray(x.T)
    (got,) = run_kernel(graph, kernels_of(graph, "gemv", bench)[0], [matrix, w], bench)
    with np.errstate(invalid="ignore"):
        expected = np.einsum("nk,fk->" + layout[2], x, w)
    np.testing.assert_array_equal(got, expected)
    assert np.isnan(got).sum() == FEW + 2


@pytest.mark.sweep(0.4)
@pytest.mark.parametrize(
    ("layout", "pattern", "instead"),
    [
        (("nk", "fk", "nf"), r"(av\w+_1_2) = fma_\((\w+), (\w+), av\w+\);", r"\1 = fma_(\2, \3, av0_0_0);"),
        (("nk", "fk", "nf"), r"first_lanes\(5, (fma_\(.*?\)), av0_0_0\)", r"\1 * 0"),  # 101 is 6 x 16 + 5
        (("nk", "fk", "nf"), r"101 \* 1 \+ i1\);\n", "101 * 2 + i1);\n"),  # a vector twice
        (("kn", "fk", "fn"), r"i1_v\] = splat", "0] = splat"),  # one accumulator begun
        (("kn", "fk", "fn"), r"ROWS\((i\d), 24\)", r"LOOP(\1, 23)"),  # four rows left out
        (("kn", "fk", "fn"), r"ROWS\((i\d), 5\)", r"LOOP(\1, 4)"),  # one of those behind the last four
    ],
)
def test_a_wrong_sum_is_found_out(layout: tuple[str, str, str], pattern: str, instead: str, bench: Workbench) -> None:
    graph = einsum_graph(*layout, {"n": N, "k": K, "f": FEW})
    kernel = GEMV.emit(graph, "gemv{rows=4,few=4,lanes=16,tile=1024}", bench.device)
    row = row_with_fault(graph, kernel, pattern, instead, bench, first=True)
    assert row.status in (Status.wrong_result, Status.crashed, Status.compile_failed), row


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (dense_graph([(N, K), (K, 17)], build.matmul), "multiplies 17 and 83 rows and columns; takes up to 16"),
        (dense_graph([(63, K), (K, 3)], build.matmul), "and 64 or more"),
        (dense_graph([(N, K), (N, K)], build.add), "holds no long contraction"),
        (dense_graph([(N, 16), (16, 3)], build.matmul), "holds no long contraction"),
        (
            dense_graph([(N, K), (K, 3)], lambda x, w: build.softmax(build.matmul(x, w), 1)),
            "holds contract, max, sum; takes one contraction and no other reduction",
        ),
        (
            dense_graph([(N, K), (K, 1)], lambda x, w: build.mul(x, build.matmul(x, w))),
            "spread over a larger tensor: family normalization",
        ),
    ],
)
def test_refusals(graph: Graph, reason: str, bench: Workbench) -> None:
    assert reason in refusal(graph, "gemv", bench.device)
    assert reason in refusal(graph, "gemv", CUDA_DEVICE)
