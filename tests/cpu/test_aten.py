"""Family `aten` on the CPU: every layout of a product by the library, cut in every way, checked like any kernel."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.gemm.call import LEAST_PRODUCTS, OPENBLAS, PACKED
from codegen.hardware import libraries
from codegen.hardware.libraries import LibraryMissing, load_library
from codegen.kernel import EmitError, Kernel
from codegen.toolchain.compiler import Failure
from codegen.toolchain.cpu import find_compiler
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64, i8, i32, i64
from fusion_ir.records import Status
from tests.support.candidates import assert_right, check_all, kernels_of, row_with_fault, run_kernel
from tests.support.devices import CUDA_DEVICE
from tests.support.products import dense_graph, einsum_graph, spec, spread_product
from tests.support.whole import in_turn, one_part

ATEN = FAMILIES["aten"]
BLOCK_M, BLOCK_N, BLOCK_K = 384, 384, 256  # gemm_cpu.h
MOST_ROWS, MOST_COLUMNS, DEPTH = 288, 1024, 512  # gemm_packed_cpu.h: the most of any machine's
FAULTS = [
    (r"in0, 41,", "in0, 42,"),  # a wrong leading dimension of an operand
    (r"in1, 53,", "in1, 52,"),
    (r"out0, 53,", "out0, 54,"),  # of the result
    (r"(<(?:\w+, )+|gemm\w*(?:<\w+>)?\()false", r"\1true"),  # an operand turned
    (r", 41, in0", ", 40, in0"),  # one product short
]
SIZES = {"z": 3, "m": 37, "k": 41, "n": 53}


@pytest.mark.turn("products by libraries")
@pytest.mark.soak
def test_every_layout(bench: Workbench) -> None:
    cases: list[tuple[str, Graph]] = []
    for batch in ("", "z"):
        orders = [list(map("".join, permutations(batch + pair))) for pair in ("mk", "kn", "mn")]
        for a, b, out in product(*orders):
            graph = einsum_graph(a, b, out, SIZES)
            if ATEN.accepts(graph, bench.device) is None:
                cases.append((f"{a},{b}->{out}", graph))
    assert len(cases) == 8 + 4**3
    assert_right(one_part(cases, 2, "every layout"), "aten", bench, most=2)


def shapes() -> Iterator[tuple[str, Graph]]:
    yield "a column", dense_graph([(700, 1000), (1000, 1)], build.matmul)
    yield "a row", dense_graph([(1, 1000), (1000, 700)], build.matmul)
    yield "two columns", dense_graph([(700, 1001), (1001, 2)], build.matmul)
    yield "deep", dense_graph([(17, 20001), (20001, 19)], build.matmul)
    yield "f64", dense_graph([(37, 141), (141, 53)], build.matmul, f64)
    yield "one operand twice", dense_graph([(77, 65)], lambda x: build.matmul(x, build.permute(x, [1, 0])))
    yield "attention scores", einsum_graph("thd", "shd", "hts", {"t": 45, "s": 51, "h": 4, "d": 64})
    yield "attention values", einsum_graph("hts", "shd", "thd", {"t": 45, "s": 51, "h": 4, "d": 64})
    yield "sum over two axes", einsum_graph("htd", "hdn", "tn", {"t": 45, "h": 4, "d": 64, "n": 96})
    yield (
        "three batch axes",
        einsum_graph("xyzmk", "zyxkn", "yxmzn", {"x": 2, "y": 3, "z": 2, "m": 17, "k": 33, "n": 18}),
    )
    graph = dense_graph([spec((61, 70), (1, 67)), spec((70, 33), (40, 1))], build.matmul)
    yield "gaps", Graph(graph.inputs, (OutputSpec(graph.outputs[0].node, (1, 64)),))


@pytest.mark.turn("products by libraries")
@pytest.mark.soak
def test_shapes_and_every_cutting(bench: Workbench) -> None:
    cases = [(name, graph, kernels_of(graph, "aten", bench)) for name, graph in shapes()]
    assert max(len(kernels) for _, _, kernels in cases) >= 4
    wrong = check_all(one_part(cases, 1, "cuttings"), bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.turn("products by libraries")
@pytest.mark.soak
def test_every_layout_of_narrow_operands(bench: Workbench) -> None:
    cases: list[tuple[str, Graph]] = []
    for dtype in (bf16, f16):
        for a, b, out in product(*(map("".join, permutations(pair)) for pair in ("mk", "kn", "mn"))):
            graph = einsum_graph(a, b, out, SIZES, dtype)
            cases.append((f"{a},{b}->{out} {dtype}", graph))
    assert len(cases) == 2 * 8
    assert_right(one_part(cases, 2, "layouts"), "aten", bench, most=2)


def narrow() -> Iterator[tuple[str, Graph]]:
    """Products of more than one block whose operands or results are converted, by name."""
    large = [(BLOCK_M + 3, 2 * BLOCK_K + 5), (2 * BLOCK_K + 5, BLOCK_N + 7)]
    yield "bf16", dense_graph(large, build.matmul, bf16)
    yield "f16 to f32", dense_graph(large, lambda x, w: build.matmul(x, w, f32), f16)
    yield "f8", dense_graph(large, build.matmul, DTYPES["f8e4m3"])
    yield "f32 to bf16", dense_graph(large, lambda x, w: build.matmul(x, w, bf16))
    yield "f64 to f16", dense_graph(large, lambda x, w: build.matmul(x, w, f16), f64)
    turned = [spec(sizes, (1, sizes[0] + 3), bf16) for sizes in large]
    graph = dense_graph(turned, build.matmul)
    yield "turned", Graph(graph.inputs, (OutputSpec(graph.outputs[0].node, (1, BLOCK_M + 8)),))
    wide = [(MOST_ROWS + 7, DEPTH + 9), (DEPTH + 9, MOST_COLUMNS + 17)]
    yield "wide", dense_graph(wide, lambda x, w: build.matmul(x, w, f32), bf16)
    turned = [spec(sizes, (1, sizes[0] + 3), f16) for sizes in wide]
    yield "wide, turned", dense_graph(turned, lambda x, w: build.matmul(x, w, f32))
    deep = {"h": 2, "d": 2 * BLOCK_K + 1, "t": 20, "n": 24}
    yield (
        "sum over two axes to f32",
        dense_graph(
            [(deep["h"], deep["t"], deep["d"]), (deep["h"], deep["d"], deep["n"])],
            lambda x, w: build.einsum(x, w, [0, 1, 2], [0, 2, 3], [1, 3], f32),
            bf16,
        ),
    )


@pytest.mark.turn("products by libraries")
@pytest.mark.soak
def test_narrow_operands_block_by_block(bench: Workbench) -> None:
    assert_right(one_part(narrow(), 1, "narrow"), "aten", bench, most=2)


def cast_first(stored: tuple[DType, DType], dtype: DType, sizes: Sequence[Sequence[int]], out: DType) -> Graph:
    """Operands in memory as `stored`, multiplied as `dtype`."""
    operands = [spec(own, None, of) for own, of in zip(sizes, stored, strict=True)]
    return dense_graph(operands, lambda x, w: build.matmul(build.cast(x, dtype), build.cast(w, dtype), out))


@pytest.mark.turn("our own products")
@pytest.mark.soak
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_our_own_products_of_every_size(bench: Workbench, dtype: DType) -> None:
    """Products in every layout with rows, columns and steps one less and one more than tiles and blocks have."""
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    rng = np.random.default_rng(5)
    rows, columns = (1, 5, 6, 7, 13, 73, 145, 289, 300), (1, 3, 8, 15, 33, 64, 512, 513, 1025)
    steps = (17, 25, 127, 129, 257, 513)
    for a, b in product(("mk", "km"), ("kn", "nk")):
        for m, n in zip(rows, rng.permutation(columns), strict=True):
            sizes = {"m": m, "n": int(n), "k": int(rng.choice(steps))}
            if sizes["m"] * sizes["n"] * sizes["k"] < LEAST_PRODUCTS:
                sizes["k"] = LEAST_PRODUCTS
            graph = einsum_graph(a, b, "mn", sizes, dtype)
            kernel = ATEN.emit(graph, f"aten{{library={PACKED},rows=1,columns=1}}", bench.device)
            cases.append((f"{a},{b} {sizes}", graph, [kernel]))
    assert len(cases) == 4 * len(rows)
    wrong = check_all(one_part(cases, 4, f"sizes {dtype}"), bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.turn("our own products")
@pytest.mark.soak
def test_operands_that_are_cast_first(bench: Workbench) -> None:
    """Every cast that loses nothing, of one operand or of both; results of the products' type and of others."""
    large = [(BLOCK_M + 3, 2 * BLOCK_K + 5), (2 * BLOCK_K + 5, BLOCK_N + 7)]
    cases: list[tuple[str, Graph, int]] = []
    for stored, dtype in product(DTYPES.values(), (f32, f64)):
        if not dtype.holds(stored) or stored == dtype:
            continue
        sizes = large if stored.name in ("bf16", "i8", "f32") else [(37, 41), (41, 53)]
        for operands in ((stored, stored), (stored, dtype), (dtype, stored)):
            for out in (dtype, f16) if stored.name == "i8" else (dtype,):
                graph = cast_first(operands, dtype, sizes, out)
                cases.append((f"{operands} as {dtype} to {out}", graph, 2))
    turned = [spec(sizes, (1, sizes[0] + 3), bf16) for sizes in large]
    graph = dense_graph(turned, lambda x, w: build.matmul(build.cast(x, f64), build.cast(w, f64)))
    cases.append(("turned", graph, 100))
    assert len(cases) > 40
    drawn = one_part(cases, 2, "casts")
    wrong = check_all(
        [(name, graph, kernels_of(graph, "aten", bench, most=most)) for name, graph, most in drawn], bench
    )
    assert not wrong, "\n".join(wrong)


def test_casts_that_lose_something_are_no_view(bench: Workbench) -> None:
    for stored, dtype in ((i32, f32), (f64, f32), (f16, bf16), (i64, f64)):
        reject = ATEN.accepts(cast_first((stored, stored), dtype, [(37, 41), (41, 53)], dtype), bench.device)
        assert reject is not None
        assert reject.reason == "operand a is computed, not stored"


WHOLE = [dtype for dtype in DTYPES.values() if dtype.is_integer]


SPREAD = [  # stored, multiplied, result
    *((d, d, d) for d in (f32, f64, bf16, f16, i8, i32)),
    *((bf16, f32, f32), (i8, f32, f32), (f32, f64, f64), (bf16, bf16, f32), (i8, i8, i32)),
]


@pytest.mark.turn("our own products")
@pytest.mark.soak
@pytest.mark.parametrize(("stored", "dtype", "out"), in_turn(SPREAD, 1, "spread"), ids=str)
def test_operands_in_any_order(bench: Workbench, stored: DType, dtype: DType, out: DType) -> None:
    random = Random(f"{stored} {dtype} {out}")
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for i in range(400):
        graph = spread_product(random, stored, dtype, out)
        if ATEN.accepts(graph, bench.device) is None:
            kernels = [k for k in kernels_of(graph, "aten", bench) if "packed::spread" in k.source]
            cases += [(f"{i}", graph, [kernels[0], kernels[-1]])] if kernels else []
        if len(cases) == 8:
            break
    assert len(cases) == 8
    wrong = check_all(one_part(cases, 2, f"{stored} {dtype} {out}"), bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.turn("our own products")
@pytest.mark.soak
@pytest.mark.parametrize(("dtype", "step"), in_turn(product((f32, f64, bf16, i8), (2, 3)), 1, "steps"), ids=str)
def test_elements_a_step_apart_up_to_the_last_of_a_tensor(bench: Workbench, dtype: DType, step: int) -> None:
    """Products of strided operands, each plain or transposed, with few rows and with many, read nothing beyond the
    tensors, which lie between guard pages."""

    def apart(x: Node, turned: bool) -> Node:
        rows, columns = x.sizes
        taken = build.slice_(x, (0, 0), (rows, columns), (1, step))
        return build.permute(taken, [1, 0]) if turned else taken

    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for m, k, n in ((97, 131, 99), (5, 517, 501)):
        for a_turned, b_turned in product((False, True), repeat=2):
            a, b = ((k, m) if a_turned else (m, k)), ((n, k) if b_turned else (k, n))
            graph = dense_graph(
                [(rows, (columns - 1) * step + 1) for rows, columns in (a, b)],
                lambda x, w, a=a_turned, b=b_turned: build.matmul(apart(x, a), apart(w, b)),
                dtype,
            )
            cases.append((f"{m} {k} {n} {a_turned} {b_turned}", graph, kernels_of(graph, "aten", bench, most=1)))
    assert all("packed::spread" in kernel.source for _, _, kernels in cases for kernel in kernels)
    wrong = check_all(one_part(cases, 2, f"{dtype} {step}"), bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.sweep(0.5)
@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"i / 12 \* 960", "i / 12 * 961"),  # where a step of the sum lies
        (r"i % 12\b", "i % 11"),
        (r"spread<false>", "spread<true>"),
        (r"96, 144,", "96, 143,"),  # one product short
    ],
)
def test_a_wrong_step_is_found_out(bench: Workbench, pattern: str, instead: str) -> None:
    graph = einsum_graph("kml", "kln", "mn", {"k": 12, "m": 80, "l": 12, "n": 96})
    kernel = ATEN.emit(graph, "aten{library=packed,rows=1,columns=1}", bench.device)
    row = row_with_fault(graph, kernel, pattern, instead, bench)
    assert row.status in (Status.wrong_result, Status.crashed), row


@pytest.mark.turn("products of whole numbers")
@pytest.mark.soak
def test_whole_numbers_in_every_layout(bench: Workbench) -> None:
    cases: list[tuple[str, Graph]] = []
    for dtype in (i8, i32):
        for a, b, out in product(*(map("".join, permutations(pair)) for pair in ("mk", "kn", "mn"))):
            graph = einsum_graph(a, b, out, SIZES, dtype)
            cases.append((f"{a},{b}->{out} {dtype}", graph))
    for a, out in product(WHOLE, WHOLE):
        graph = dense_graph([(250, 300), (300, 401)], lambda x, w, out=out: build.matmul(x, w, out), a)
        cases.append((f"{a} to {out}", graph))
    several = einsum_graph("htd", "hdn", "tn", {"t": 45, "h": 4, "d": 64, "n": 96}, i32)
    made = [
        (name, graph, kernels_of(graph, "aten", bench, most=1)) for name, graph in one_part(cases, 2, "whole numbers")
    ]
    wrong = check_all([*made, ("sum over two axes", several, kernels_of(several, "aten", bench))], bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.turn("products of whole numbers")
@pytest.mark.soak
@pytest.mark.parametrize("dtype", in_turn(WHOLE, 1, "wraps"), ids=str)
def test_whole_numbers_wrap_as_their_accumulator_does(bench: Workbench, dtype: DType) -> None:
    """Operands of all sizes; results narrower than the sums, as wide, and wider."""
    rng = np.random.default_rng(7)
    limits = np.iinfo(dtype.numpy)
    x, w = (rng.integers(limits.min, limits.max, shape, dtype.numpy, True) for shape in ((45, 300), (300, 67)))
    x[:, :2], w[:2] = limits.min, limits.min
    for out in (i8, i32, i64):
        graph = dense_graph([(45, 300), (300, 67)], lambda x, w, out=out: build.matmul(x, w, out), dtype)
        (got,) = run_kernel(graph, kernels_of(graph, "aten", bench)[0], [x, w], bench)
        acc = np.int32 if dtype.name == "i8" else np.int64
        np.testing.assert_array_equal(got, np.matmul(x.astype(acc), w.astype(acc)).astype(out.numpy))


@pytest.mark.turn("products of whole numbers")
@pytest.mark.soak
def test_a_wrong_product_of_whole_numbers_is_found_out(bench: Workbench) -> None:
    graph = dense_graph([(37, 41), (41, 53)], build.matmul, i32)
    for pattern, instead in in_turn(FAULTS, 1, "whole numbers"):
        kernel = ATEN.emit(graph, "aten{library=packed,rows=1,columns=1}", bench.device)
        row = row_with_fault(graph, kernel, pattern, instead, bench)
        assert row.status in (Status.wrong_result, Status.crashed), row


def test_small_calls_where_a_large_one_could_be_are_refused(bench: Workbench) -> None:
    """`aten` refuses a contraction whose tensors, as they lie in memory, need many small library calls where one large
    call could do, unless a call of our own products computes all of it."""
    sizes = {"m": 160, "k": 128, "n": 144, "z": 24, "l": 16}
    row = dense_graph(
        [(160, 640), (128, 144)], lambda x, w: build.matmul(build.slice_(x, (0, 0), (160, 640), (1, 5)), w)
    )
    for graph, said in (
        (row, "calls of 1 x 144 sums of 128 products each, where 160 x 144 of 128 could be one"),
        (einsum_graph("mlk", "kln", "mn", {**sizes, "k": 16, "l": 128}), ""),
        (einsum_graph("mzk", "kn", "mzn", {**sizes, "m": 40}), ""),
        (einsum_graph("mkz", "kn", "mzn", {**sizes, "z": 8}), ""),
        (einsum_graph("zmk", "zkn", "zmn", {**sizes, "z": 500, "m": 16, "k": 17, "n": 16}), ""),
    ):
        reject = ATEN.accepts(graph, bench.device)
        assert (reject is None) == (said == ""), reject
        assert reject is None or said in reject.reason
    small = einsum_graph("mkz", "kn", "mzn", {"m": 16, "k": 32, "n": 40, "z": 8})
    assert ATEN.accepts(small, bench.device) is None


def test_a_rounded_sum_of_several_calls_is_refused(bench: Workbench) -> None:
    """A sum of several library calls that is rounded to bf16 is refused, unless one call of our own products computes
    all of it."""
    few, many = ({"t": 45, "h": 4, "d": 64, "n": n} for n in (48, 96))
    assert ATEN.accepts(einsum_graph("htd", "hdn", "tn", many, bf16), bench.device) is None
    reject = ATEN.accepts(einsum_graph("htd", "hdn", "tn", few, bf16), bench.device)
    assert reject is not None
    assert "rounded to bf16 after the last" in reject.reason


def test_pieces_that_do_not_divide(bench: Workbench) -> None:
    graph = dense_graph([(37, 41), (41, 53)], build.matmul)
    schedules = [f"aten{{library=openblas,rows={r},columns={c}}}" for r, c in ((37, 1), (1, 53), (5, 7), (36, 52))]
    kernels = [ATEN.emit(graph, s, bench.device) for s in schedules]
    assert [k.launch.tasks for k in kernels] == [37, 53, 35, 36 * 52]
    assert not check_all([("pieces", graph, kernels)], bench)
    for rows, columns in ((38, 1), (1, 54), (0, 1)):
        with pytest.raises(EmitError, match="cannot be cut into"):
            ATEN.emit(graph, f"aten{{library=openblas,rows={rows},columns={columns}}}", bench.device)
    with pytest.raises(EmitError, match="no library 'whole'; there are amx, pairs, packed, packed32, openblas, mkl"):
        ATEN.emit(graph, "aten{library=whole,rows=1,columns=1}", bench.device)


def test_infinities_and_nans_spread_like_in_the_sum(bench: Workbench) -> None:
    graph = dense_graph([(40, 64), (64, 48)], build.matmul)
    x, w = np.ones((40, 64), np.float32), np.ones((64, 48), np.float32)
    x[3, 5], x[4, 6], w[7, 9] = np.nan, np.inf, -np.inf
    x[5, 7] = 0  # times -inf
    for kernel in kernels_of(graph, "aten", bench, most=2):
        (got,) = run_kernel(graph, kernel, [x, w], bench)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got, x @ w)
        assert np.isnan(got[5, 9])
        assert np.isnan(got[3]).all()


def test_narrow_operands_keep_denormals_infinities_and_nans(bench: Workbench) -> None:
    graph = dense_graph([(40, 64), (64, 48)], lambda x, w: build.matmul(x, w, f32), f16)
    x, w = np.ones((40, 64), np.float16), np.ones((64, 48), np.float16)
    x[3, 5], x[4, 6], w[7, 9], x[5, 7], x[6] = np.nan, np.inf, -np.inf, 0, np.finfo(np.float16).smallest_subnormal
    for kernel in kernels_of(graph, "aten", bench, most=2):
        (got,) = run_kernel(graph, kernel, [x, w], bench)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got, x.astype(np.float32) @ w.astype(np.float32))
        assert got[6, 0] == 64 * 2.0**-24


@pytest.mark.parametrize(
    ("pattern", "instead", "dtype"),
    [
        *((*fault, dtype) for fault in FAULTS for dtype in (f32, bf16)),
        (r"false\);", "true);", f32),  # adds to what is there
    ],
)
@pytest.mark.parametrize("library", [OPENBLAS, PACKED])
@pytest.mark.sweep(0.1)
def test_a_wrong_call_is_found_out(bench: Workbench, library: str, pattern: str, instead: str, dtype: DType) -> None:
    graph = dense_graph([(37, 41), (41, 53)], build.matmul, dtype)
    kernel = ATEN.emit(graph, f"aten{{library={library},rows=1,columns=1}}", bench.device)
    row = row_with_fault(graph, kernel, pattern, instead, bench)
    assert row.status in (Status.wrong_result, Status.crashed), row


def test_a_gpu_without_its_library_says_what_to_install() -> None:
    reject = ATEN.accepts(dense_graph([(37, 41), (41, 53)], build.matmul), CUDA_DEVICE)
    assert reject is not None
    assert "cuBLASLt is not installed" in reject.reason


def test_a_missing_library_fails_the_kernel_in_words(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(LibraryMissing, match="no library 'nothing'; there are openblas, mkl"):
        load_library("nothing")
    absent = replace(libraries.LIBRARIES["openblas"], find=lambda: None)
    monkeypatch.setattr(libraries, "LIBRARIES", {"absent": absent})
    compiler = find_compiler(bench.device)
    with compiler.slot() as slot:
        failure = compiler.compile(slot, "", [], 10.0, ["absent"])
    assert isinstance(failure, Failure)
    assert failure.detail == "the library absent is not installed: pip install scipy-openblas32"
