"""Family `matmul` on CUDA, run by the emulator: every layout, dtype, prologue and epilogue, against the interpreter."""

from collections.abc import Iterator
from itertools import permutations, product
from math import ceil

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel, offers
from codegen.sandbox.object_cache import ObjectCache
from codegen.schedule import schedule_text, schedule_values
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64, i8, i32, i64
from fusion_ir.ops import make
from testing.emulated_kernels import emulated_device
from testing.random_graphs import Seeded
from tests.cpu.test_matmul_family import epilogues, heads, piece
from tests.support.candidates import check_all, kernels_of, refusal
from tests.support.products import dense_graph, einsum_graph, mlp
from tests.support.random_products import product_graph
from tests.support.whole import in_turn

DEVICE = emulated_device()
MATMUL = FAMILIES["matmul"]
M, K, N = 83, 41, 53


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with Workbench(DEVICE, ObjectCache(tmp_path_factory.mktemp("objects"))) as made:
        yield made


def tensor(*sizes: int, dtype: DType = bf16, strides: tuple[int, ...] | None = None, alignment: int = 16) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, strides or dense_strides(sizes), alignment)


def assert_right(cases: Iterator[tuple[str, Graph]] | list[tuple[str, Graph]], bench: Workbench) -> None:
    """Kernels by the first schedule of a fifth of the cases, of all in the long run, are right."""
    every = list(cases)
    drawn = in_turn(every, ceil(len(every) / 5), every[0][0])
    found = [(name, graph, kernels_of(graph, "matmul", bench, most=1)) for name, graph in drawn]
    wrong = check_all(found, bench)
    assert not wrong, "\n".join(wrong)


def turned(x: Node) -> Node:
    return build.permute(x, [1, 0])


# ---- epilogues
@pytest.mark.soak
@pytest.mark.turn("emulated products: epilogues")
def test_epilogues_of_fma(bench: Workbench) -> None:
    """In f32 and f64, where operands are aligned to their elements alone."""
    assert_right([case for case in epilogues() if case[0] != "halves multiplied"], bench)


def tensor_core_epilogues() -> Iterator[tuple[str, Graph]]:
    xw = [tensor(48, 96), tensor(96, 64)]
    yield "mlp", dense_graph([*xw, tensor(64), tensor(48, 64)], mlp)
    yield "odd mlp", dense_graph([(M, K), (K, N), (N,), (M, N)], mlp, bf16)
    yield (
        "row and column factors in f32",
        dense_graph(
            [*xw, tensor(64, dtype=f32), tensor(48, 1, dtype=f32)],
            lambda x, w, b, r: build.mul(build.add(build.cast(build.matmul(x, w), f32), b), r),
        ),
    )
    yield "two results", dense_graph(xw, lambda x, w: (y := build.matmul(x, w), build.cast(build.tanh(y), f32)))
    yield "heads", dense_graph([tensor(48, 96), tensor(96, 128)], lambda x, w: heads(build.matmul(x, w), 4))
    yield "heads of 12", dense_graph([tensor(48, 96), tensor(96, 60)], lambda x, w: heads(build.matmul(x, w), 5))
    yield "heads of 7", dense_graph([tensor(48, 96), tensor(96, 63)], lambda x, w: heads(build.matmul(x, w), 9))
    for part in (48, 42, 7):
        yield (
            f"columns apart by {part}",
            dense_graph(
                [tensor(48, 64), tensor(64, 3 * part), tensor(3 * part)],
                lambda x, w, b, n=part: tuple(
                    heads(piece(build.add(build.matmul(x, w), b), n * i, n * (i + 1)), 1) for i in range(3)
                ),
            ),
        )
    yield (
        "rows by sequence and batch",
        dense_graph(
            [tensor(4, 12, 96), tensor(96, 64), tensor(12, 1), tensor(4, 1, 64)],
            lambda x, w, s, t: build.permute(build.add(build.mul(build.matmul(x, w), s), t), [1, 2, 0]),
        ),
    )
    yield "turned result", dense_graph([*xw, tensor(64, 48)], lambda x, w, r: build.add(turned(build.matmul(x, w)), r))
    yield "one row of it", dense_graph(xw, lambda x, w: (y := build.matmul(x, w), row_of(y, 5)))
    yield "every third", dense_graph(xw, lambda x, w: every(build.matmul(x, w), (1, 2), (2, 3)))
    yield (
        "repeated",
        dense_graph(
            xw, lambda x, w: build.expand(build.reshape(build.relu(build.matmul(x, w)), [48, 1, 64]), [48, 3, 64])
        ),
    )
    yield "causal", dense_graph(xw, lambda x, w: build.tril(build.matmul(x, w)))
    yield (
        "dropped",
        dense_graph(
            xw, lambda x, w: build.where(build.gt(build.uniform([48, 64], 7, 9), 0.3), build.matmul(x, w), 0.0)
        ),
    )
    yield (
        "rows picked",
        dense_graph(
            [*xw, tensor(90, 64), tensor(48, dtype=i64)],
            lambda x, w, t, i: build.add(build.matmul(x, w), build.embedding(i, t)),
        ),
    )
    gaps = dense_graph([tensor(48, 96, strides=(104, 1)), tensor(96, 64, strides=(1, 100))], build.matmul)
    yield "gaps", Graph(gaps.inputs, (OutputSpec(gaps.outputs[0].node, (67, 1)),))


def row_of(x: Node, i: int) -> Node:
    return make("slice", [x], {"start": (i, 0), "stop": (i + 1, x.sizes[1]), "step": (1, 1)})


def every(x: Node, start: tuple[int, ...], step: tuple[int, ...]) -> Node:
    return make("slice", [x], {"start": start, "stop": x.sizes, "step": step})


@pytest.mark.soak
@pytest.mark.turn("emulated products: epilogues")
def test_epilogues_of_tensor_cores(bench: Workbench) -> None:
    assert_right(tensor_core_epilogues(), bench)


# ---- operands
def prologues() -> Iterator[tuple[str, Graph]]:
    yield (
        "casts of f32 and i8",
        dense_graph(
            [tensor(50, 72, dtype=f32), tensor(72, 80, dtype=i8)],
            lambda x, w: build.matmul(build.cast(x, bf16), build.cast(w, bf16)),
        ),
    )
    yield (
        "scaled exponentials",
        dense_graph(
            [tensor(50, 70), tensor(70, 80), tensor(70)], lambda x, w, s: build.matmul(build.mul(build.exp(x), s), w)
        ),
    )
    yield (
        "infinite beyond the last product",
        dense_graph(
            [tensor(50, 70), tensor(80, 70)], lambda x, w: build.matmul(build.div(1.0, x), turned(build.div(1.0, w)))
        ),
    )
    yield (
        "columns of a larger tensor",
        dense_graph([tensor(50, 64), tensor(64, 200)], lambda x, w: build.matmul(x, piece(w, 96, 176))),
    )
    yield (
        "columns at an odd place",
        dense_graph([tensor(50, 64), tensor(64, 200)], lambda x, w: build.matmul(x, piece(w, 95, 176))),
    )
    yield (
        "padded",
        dense_graph([tensor(50, 60), tensor(72, 80)], lambda x, w: build.matmul(build.pad(x, [3, 4], [5, 8], 0.5), w)),
    )
    yield (
        "side by side",
        dense_graph(
            [tensor(50, 30), tensor(50, 42), tensor(72, 80)], lambda x, y, w: build.matmul(build.cat([x, y], 1), w)
        ),
    )
    yield (
        "rows picked",
        dense_graph(
            [tensor(90, 64), tensor(50, dtype=i64), tensor(64, 80)],
            lambda t, i, w: build.matmul(build.embedding(i, t), w),
        ),
    )
    yield (
        "a small product inside",
        dense_graph(
            [tensor(50, 3), tensor(3, 64), tensor(64, 80)],
            lambda x, y, w: build.matmul(build.relu(build.matmul(x, y)), w),
        ),
    )
    yield (
        "repeated rows",
        dense_graph([tensor(64), tensor(64, 80)], lambda x, w: build.matmul(build.expand(x, [50, 64]), w)),
    )


@pytest.mark.soak
@pytest.mark.turn("emulated products: operands")
def test_prologues(bench: Workbench) -> None:
    assert_right(prologues(), bench)


@pytest.mark.soak
@pytest.mark.turn("emulated products: operands")
def test_every_layout(bench: Workbench) -> None:
    """Both operands, the result and what is added to it either way round; aligned, so that tiles are copied."""
    cases: list[tuple[str, Graph]] = []
    for a, b, out, added in product(*(map("".join, permutations(p)) for p in ("mk", "kn", "mn", "mn"))):
        extents = {"m": 48, "k": 64, "n": 40}
        letters = [[ord(x) for x in text] for text in (a, b, out)]
        order = [added.index(x) for x in out]
        specs = [tensor(*(extents[x] for x in text)) for text in (a, b, added)]

        def compute(x: Node, w: Node, r: Node, letters: list[list[int]] = letters, order: list[int] = order) -> Node:
            return build.tanh(build.add(build.einsum(x, w, *letters), build.permute(r, order)))

        graph = dense_graph(specs, compute)
        cases.append((f"{a},{b}->{out} + {added}", graph))
    assert len(cases) == 16
    assert_right(cases, bench)


@pytest.mark.soak
@pytest.mark.turn("emulated products: operands")
@pytest.mark.parametrize("dtype", in_turn([bf16, f32], 1, "axes"), ids=str)
def test_axes_in_any_order(bench: Workbench, dtype: DType) -> None:
    extents = {"t": 18, "h": 4, "d": 16, "n": 24, "b": 3}
    texts = (
        "htd,hdn->tn",
        "htd,hdn->htn",
        "htd,hdn->nth",
        "hdt,nhd->tn",
        "thd,nhd->hnt",
        "dht,dhn->thn",
        "hbtd,dnh->bhtn",
        "dbt,hnd->nbht",
    )
    assert_right([(t, einsum_graph(*t.replace("->", ",").split(","), extents, dtype)) for t in texts], bench)


@pytest.mark.parametrize("alignment", [2, 4, 8, 16])
def test_alignment(bench: Workbench, alignment: int) -> None:
    """Pointers, and rows with gaps, that are aligned to no more than this: of operands, and of what is added."""
    gap = alignment // 2
    specs = [
        tensor(40, 64, strides=(64 + gap, 1), alignment=alignment),
        tensor(64, 48, strides=(48 + gap, 1), alignment=alignment),
    ]
    graph = dense_graph([*specs, tensor(40, 48, alignment=alignment)], lambda x, w, r: build.add(build.matmul(x, w), r))
    (kernel,) = kernels_of(graph, "matmul", bench, most=1)
    assert {a.width for a in kernel.accesses if a.tensor != "out0"} == {alignment // 2}
    assert not check_all([("aligned", graph, [kernel])], bench)


# ---- dtypes and sizes
def dtypes() -> Iterator[tuple[str, Graph]]:
    for dtype in (bf16, f16, f32, f64, DTYPES["f8e4m3"], DTYPES["f8e5m2"]):
        yield f"{dtype}", dense_graph([(M, K), (K, N), (N,), (M, N)], mlp, dtype)
    for dtype in (i8, DTYPES["u8"], DTYPES["i16"], i32, i64):
        yield f"{dtype}", dense_graph([(M, K), (K, N)], lambda x, w: build.relu(build.matmul(x, w)), dtype)
    yield (
        "i8 in chunks",
        dense_graph([tensor(40, 96, dtype=i8), tensor(48, 96, dtype=i8)], lambda x, w: build.matmul(x, turned(w))),
    )


@pytest.mark.soak
@pytest.mark.turn("emulated products: sizes")
def test_dtypes(bench: Workbench) -> None:
    assert_right(dtypes(), bench)


@pytest.mark.soak
@pytest.mark.turn("emulated products: sizes")
def test_sizes(bench: Workbench) -> None:
    """No product, one, a few, which stay in registers, and more; one row, one column, and rests of tiles."""
    sizes = [
        (10, 0, 12),
        (10, 1, 12),
        (9, 3, 12),
        (9, 16, 12),
        (9, 17, 12),
        (1, 33, 1),
        (1, 33, 50),
        (50, 33, 1),
        (129, 65, 33),
    ]
    cases = [
        (
            f"{dtype} {m} x {k} x {n}",
            dense_graph([(m, k), (k, n)], lambda x, w: build.add(build.matmul(x, w), 1.0), dtype),
        )
        for dtype in (bf16, f32)
        for m, k, n in sizes
    ]
    assert_right(cases, bench)
    assert_right(
        [
            (
                "batch",
                dense_graph([(3, M, K), (3, K, N), (3, M, N)], lambda x, w, r: build.add(build.matmul(x, w), r), bf16),
            )
        ],
        bench,
    )


# ---- schedules
@pytest.mark.soak
@pytest.mark.turn("emulated products: schedules")
def test_schedules(bench: Workbench) -> None:
    """Tiles, steps, stages and warps of all kinds, on operands that are copied and on one that is computed."""
    copied = dense_graph(
        [tensor(100, 200), tensor(200, 136), tensor(136)], lambda x, w, b: build.add(build.matmul(x, w), b)
    )
    computed = dense_graph([tensor(100, 200), tensor(136, 200)], lambda x, w: build.matmul(build.relu(x), turned(w)))
    tiles = [
        "16,64,32,2,1,2,1",
        "32,32,64,3,1,2,4",
        "64,64,32,5,2,2,8",
        "128,64,64,2,4,1,8",
        "64,128,64,3,1,4,1",
        "128,128,32,4,2,2,16",
        "32,256,32,2,1,4,4",
    ]
    fma = ["32,32,16,2,1,1,1", "64,64,32,2,2,2,8", "128,128,16,2,4,2,4", "16,64,16,2,1,1,4"]
    found = [("mma", t) for t in tiles] + [("fma", t) for t in fma]
    names = ("path", "bm", "bn", "bk", "stages", "warps_m", "warps_n", "group")
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for name, graph in (("copied", copied), ("computed", computed)):
        schedules = [schedule_text("matmul", dict(zip(names, [path, *t.split(",")], strict=True))) for path, t in found]
        cases.append((name, graph, [MATMUL.emit(graph, s, DEVICE) for s in in_turn(schedules, 2, name)]))
    assert not check_all(cases, bench)


def test_schedules_that_cannot_be() -> None:
    graph = dense_graph([tensor(256, 256), tensor(256, 256)], build.matmul)
    right = schedule_values(MATMUL.space(graph, DEVICE)[0])

    def problem(**changes: int | str) -> str:
        with pytest.raises(EmitError) as error:
            MATMUL.emit(graph, schedule_text("matmul", {**right, **changes}), DEVICE)
        return str(error.value)

    assert "sums in a thread" in problem(bm=256, bn=256, warps_m=2, warps_n=2)
    assert "multiples of 16" in problem(bm=32, warps_m=4)
    assert "shared memory, sm_80 has 166912" in problem(bm=256, bn=256, bk=64, stages=3, warps_m=4, warps_n=4)
    assert "multiple of 16" in problem(bk=24)
    assert "stages" in problem(stages=1)
    assert "stages" in problem(path="fma", stages=3)
    assert "expected mma or fma" in problem(path="wmma")
    for schedule in MATMUL.space(graph, DEVICE):
        assert MATMUL.emit(graph, schedule, DEVICE).launch.shared_bytes <= 163 << 10


def test_first_schedules_are_among_the_choices() -> None:
    for dtype in (bf16, f16, f32, f64, i8, i64, DTYPES["f8e4m3"]):
        for size in (40, 300, 4096):
            graph = dense_graph([tensor(size, size, dtype=dtype)] * 2, build.matmul)
            for schedule in MATMUL.space(graph, DEVICE):
                assert offers(MATMUL, graph, schedule, DEVICE), schedule


def test_what_is_refused() -> None:
    two = dense_graph([tensor(64, 64)] * 3, lambda x, y, z: build.matmul(build.matmul(x, y), z))
    assert refusal(two, "matmul", DEVICE) == "holds 2 contractions; takes one of more than 16 products"
    gated = dense_graph(
        [tensor(64, 64), tensor(64, 96)],
        lambda x, w: (y := build.matmul(x, w), build.mul(piece(y, 0, 48), piece(y, 48, 96)))[1],
    )
    assert "depends on the product at 2 points" in refusal(gated, "matmul", DEVICE)
    apart = dense_graph([tensor(64, 64), tensor(64, 96), tensor(7)], lambda x, w, b: (build.matmul(x, w), build.exp(b)))
    assert refusal(apart, "matmul", DEVICE) == "an output does not depend on the product"
    empty = dense_graph([tensor(0, 64), tensor(64, 96)], build.matmul)
    assert refusal(empty, "matmul", DEVICE) == "the product is empty"
    summed = dense_graph([tensor(64, 64), tensor(64, 96)], lambda x, w: build.sum_(build.matmul(x, w), [1]))
    assert refusal(summed, "matmul", DEVICE) == "holds sum: takes one contraction"


# ---- anything
@pytest.mark.soak
@pytest.mark.turn("emulated products: schedules")
def test_random_products(bench: Workbench) -> None:
    graphs = [(f"seed {seed}", product_graph(Seeded(seed))) for seed in range(30)]
    accepted = [(name, g) for name, g in graphs if MATMUL.accepts(g, DEVICE) is None]
    assert len(accepted) >= 25
    accepted = in_turn(accepted, 4, "random products")
    kernels = [
        MATMUL.emit(g, schedules[i % len(schedules)], DEVICE)
        for i, (_, g) in enumerate(accepted)
        for schedules in [MATMUL.space(g, DEVICE)]
    ]
    wrong = check_all([(name, g, [k]) for (name, g), k in zip(accepted, kernels, strict=True)], bench)
    assert not wrong, "\n".join(wrong)
