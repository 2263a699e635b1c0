"""Path `shallow` of family `matmul`, run by the emulator: few products a sum, of every dtype and layout, against the
interpreter."""

from collections.abc import Iterator
from itertools import permutations, product
from math import ceil

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.sandbox.object_cache import ObjectCache
from codegen.schedule import schedule_values
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64, i8, i32, i64
from testing.emulated_kernels import emulated_device
from tests.support.candidates import check_all
from tests.support.products import dense_graph, einsum_graph
from tests.support.whole import some

DEVICE = emulated_device()
MATMUL = FAMILIES["matmul"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with Workbench(DEVICE, ObjectCache(tmp_path_factory.mktemp("objects"))) as made:
        yield made


def tensor(*sizes: int, dtype: DType = bf16, alignment: int = 16) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes), alignment)


def smallest(graph: Graph) -> Kernel:
    """The schedule with the smallest tile: little of it is beyond the end."""
    schedules = [s for s in MATMUL.space(graph, DEVICE) if "path=shallow" in s]
    assert schedules, "the path is offered"
    return MATMUL.emit(graph, min(schedules, key=area), DEVICE)


def area(schedule: str) -> int:
    values = schedule_values(schedule)
    return int(values["bm"]) * int(values["bn"])


def assert_right(cases: Iterator[tuple[str, Graph]] | list[tuple[str, Graph]], bench: Workbench) -> None:
    """The smallest kernels of a quarter of the cases, in the long run of all, are right."""
    every = list(cases)
    drawn = some(every, ceil(0.25 * len(every)), every[0][0])
    wrong = check_all([(name, graph, [smallest(graph)]) for name, graph in drawn], bench)
    assert not wrong, "\n".join(wrong)


def layer(x: Node, w: Node, bias: Node) -> Node:
    """relu(x w + bias)"""
    return build.relu(build.add(build.matmul(x, w), bias))


def depths() -> Iterator[tuple[str, Graph]]:
    """Whole and odd numbers of rows, columns and products, aligned and not."""
    for dtype in (bf16, f32):
        for k in (1, 2, 3, 4, 5, 7, 8, 15, 16):
            m, n, alignment = (33, 67, dtype.bytes) if k % 2 else (64, 256, 16)
            specs = [tensor(*sizes, dtype=dtype, alignment=alignment) for sizes in ((m, k), (k, n), (n,))]
            yield f"{dtype} {m} x {k} x {n}", dense_graph(specs, layer)


@pytest.mark.turn("emulated products: few")
@pytest.mark.soak
def test_depths(bench: Workbench) -> None:
    assert_right(depths(), bench)


def dtypes() -> Iterator[tuple[str, Graph]]:
    for dtype in (f16, f64, DTYPES["f8e4m3"], DTYPES["f8e5m2"], i8, DTYPES["u8"], DTYPES["i16"], i32, i64):
        yield f"{dtype}", dense_graph([(35, 7), (7, 70)], lambda x, w: build.relu(build.matmul(x, w)), dtype)
    yield "bf16 into f32", dense_graph([(35, 7), (7, 70)], lambda x, w: build.cast(build.matmul(x, w), f32), bf16)
    yield (
        "bf16 into both",
        dense_graph([(35, 7), (7, 70)], lambda x, w: (y := build.matmul(x, w), build.cast(y, f32)), bf16),
    )


@pytest.mark.turn("emulated products: few")
@pytest.mark.soak
def test_dtypes(bench: Workbench) -> None:
    assert_right(dtypes(), bench)


def layouts() -> Iterator[tuple[str, Graph]]:
    extents = {"m": 72, "k": 12, "n": 40, "b": 3}
    for dtype in (bf16, f32):
        for a, b in product(permutations("mk"), permutations("kn")):
            left, right = "".join(a), "".join(b)
            yield f"{dtype} {left},{right}", einsum_graph(left, right, "mn", extents, dtype)
    yield "i8", einsum_graph("km", "kn", "mn", extents, i8)
    deep = extents | {"k": 27}
    yield "in two steps", einsum_graph("mk", "kn", "mn", deep, bf16)
    yield "in two steps, turned", einsum_graph("km", "nk", "mn", deep, f16)
    yield "batches, turned result", einsum_graph("bmk", "bkn", "bnm", extents, bf16)


@pytest.mark.turn("emulated products: few")
@pytest.mark.soak
def test_layouts(bench: Workbench) -> None:
    assert_right(layouts(), bench)


@pytest.mark.turn("emulated products: few")
@pytest.mark.soak
def test_what_is_around_them(bench: Workbench) -> None:
    """Operands that are computed, infinite beyond the last product; residuals; parts of rows that go elsewhere."""
    cases = [
        (
            "computed",
            dense_graph([(35, 6), (6, 70)], lambda x, w: build.matmul(build.div(1.0, x), build.div(1.0, w)), bf16),
        ),
        (
            "residual",
            dense_graph([(64, 16), (16, 128), (64, 128)], lambda x, w, r: build.add(build.matmul(x, w), r), bf16),
        ),
        (
            "heads",
            dense_graph(
                [(32, 5), (5, 84)],
                lambda x, w: build.permute(build.reshape(build.matmul(x, w), [32, 7, 12]), [1, 0, 2]),
                bf16,
            ),
        ),
    ]
    assert_right(cases, bench)


@pytest.mark.turn("emulated products: few")
@pytest.mark.soak
def test_schedules(bench: Workbench) -> None:
    """One schedule of path `shallow` for each number of warps along m and n, three of them with group=1 as well; rows
    take several blocks."""
    graph = dense_graph([(150, 9), (9, 600), (600,)], layer, bf16)
    schedules = [s for s in MATMUL.space(graph, DEVICE) if "path=shallow" in s]
    ways = {(schedule_values(s)["warps_m"], schedule_values(s)["warps_n"]): s for s in schedules}
    assert len(ways) > 4
    dealt = [s.replace("group=8", "group=1") for s in list(ways.values())[:3]]
    tried = [MATMUL.emit(graph, s, DEVICE) for s in (*ways.values(), *dealt)]
    assert len({k.entry for k in tried}) == len(tried)
    assert not check_all([("schedules", graph, some(tried, 4, "schedules"))], bench)


def test_which_products_are_few() -> None:
    """Up to 16 products the path comes first, and beyond behind tiles; by fma it ends there. Two products of narrow
    floats are summed in order."""

    def offered(k: int, dtype: DType) -> list[str]:
        graph = dense_graph([(64, k), (k, 64)], build.matmul, dtype)
        return list(dict.fromkeys(str(schedule_values(s)["path"]) for s in MATMUL.space(graph, DEVICE)))

    def held(k: int, dtype: DType) -> str:
        return smallest(dense_graph([(64, k), (k, 64)], build.matmul, dtype)).source

    assert offered(16, bf16) == ["shallow", "mma", "fma"]
    assert offered(17, bf16) == ["mma", "shallow", "fma"]
    assert offered(33, bf16) == ["mma", "fma"]
    assert offered(2, bf16) == offered(16, f32) == ["shallow", "fma"]
    assert offered(17, f32) == ["fma"]
    assert "TensorWarp" in held(3, bf16)
    assert "TensorWarp" in held(1, i8)
    assert "FmaWarp" in held(2, bf16)
    assert "FmaWarp" in held(16, f32)


def test_what_is_no_schedule() -> None:
    graph = dense_graph([(64, 9), (9, 64)], build.matmul, bf16)

    def problem(**changes: int) -> str:
        values = {"bm": 64, "bn": 64, "bk": 16, "stages": 2, "warps_m": 1, "warps_n": 1, "group": 8} | changes
        text = ",".join(f"{name}={value}" for name, value in values.items())
        with pytest.raises(EmitError) as error:
            MATMUL.emit(graph, f"matmul{{path=shallow,{text}}}", DEVICE)
        return str(error.value)

    assert "columns" in problem(bn=32)
    assert "rows" in problem(bm=8)
    assert "expected all 16" in problem(bk=32)
    assert "stages" in problem(stages=3)
    assert "registers" in problem(bn=512)
    assert "do not divide" in problem(warps_m=3)
