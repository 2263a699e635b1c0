"""Family `wgmma` in the emulator: products of odd sizes in every layout, in batches and with epilogues of every kind,
checked like any kernel on several orders of threads."""

from collections.abc import Iterator

import numpy as np
import pytest

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.schedule import schedule_values
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32
from fusion_ir.ops import make
from fusion_ir.records import Device
from fusion_ir.reference.sample_inputs import sample_inputs
from tests.support.candidates import check_all, refusal, run_kernel
from tests.support.devices import CUDA_DEVICE
from tests.support.products import dense_graph, mlp
from tests.support.whole import in_turn

WGMMA = FAMILIES["wgmma"]
M, K, N = 88, 136, 152


def tensor(*sizes: int, dtype: DType = bf16, strides: tuple[int, ...] = (), alignment: int = 16) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, strides or dense_strides(sizes), alignment)


def turned(x: Node) -> Node:
    return build.permute(x, [1, 0])


def tile(
    rows: int, columns: int, stages: int = 2, consumers: int = 1, cluster: int = 1, staged: int = 32, pingpong: int = 0
) -> str:
    group = 2
    return (
        f"wgmma{{rows={rows},columns={columns},stages={stages},consumers={consumers},pingpong={pingpong},"
        f"cluster={cluster},group={group},staged={staged}}}"
    )


SMALL, PAIR, SHARED = tile(64, 64), tile(64, 64, cluster=2, staged=16), tile(128, 128, 3, 2, 2)
TURNS, TURNS_OF_PAIRS = tile(64, 64, 3, 2, pingpong=1), tile(128, 64, 2, 2, 2, pingpong=1)


def layouts() -> Iterator[tuple[str, Graph, tuple[str, ...]]]:
    """Operands that are contiguous along the sum, or across it."""
    for a in ("k", "m"):
        for b in ("k", "n"):
            specs = [tensor(M, K) if a == "k" else tensor(K, M), tensor(N, K) if b == "k" else tensor(K, N)]

            def compute(x: Node, w: Node, a: str = a, b: str = b) -> Node:
                return build.matmul(x if a == "k" else turned(x), turned(w) if b == "k" else w)

            yield f"a along {a}, b along {b}", dense_graph(specs, compute), (SMALL, PAIR, SHARED, TURNS)


def sizes() -> Iterator[tuple[str, Graph, tuple[str, ...]]]:
    def turned_product(x: Node, w: Node) -> Node:
        return build.matmul(x, turned(w))

    rows = [tensor(77, 72), tensor(41, 72)]
    narrow = (tile(64, 40, staged=8), tile(64, 16, cluster=2, staged=16), tile(64, 8, staged=8))
    yield "odd rows and columns", dense_graph(rows, turned_product), (SMALL, *narrow)
    wide = [tensor(200, 72), tensor(200, 72)]
    yield "three warp groups", dense_graph(wide, turned_product), (tile(192, 96, 2, 3), tile(192, 128, 2, 3, 2))
    yield "two rows of products each", dense_graph(wide, turned_product), (tile(128, 96), tile(256, 64, 2, 2))
    yield "f16", dense_graph([tensor(70, 80, dtype=f16), tensor(80, 72, dtype=f16)], build.matmul), (SMALL,)
    padded = [tensor(M, K, strides=(160, 1)), tensor(K, N, strides=(168, 1))]
    yield "rows apart", dense_graph(padded, build.matmul), (SMALL, PAIR)
    yield "one stage of a sum", dense_graph([tensor(M, 24), tensor(24, N)], build.matmul), (SMALL,)


def batches() -> Iterator[tuple[str, Graph, tuple[str, ...]]]:
    turns = (TURNS, TURNS_OF_PAIRS, tile(64, 64, 4, 3, pingpong=1))
    yield "batches", dense_graph([tensor(3, 72, 104), tensor(3, 104, 40)], build.matmul), (SMALL, PAIR, *turns)
    yield "one operand for all", dense_graph([tensor(3, 72, 104), tensor(104, 40)], build.matmul), (SMALL,)

    def scores(q: Node, k: Node) -> Node:
        return build.matmul(build.permute(q, [0, 2, 1, 3]), build.permute(k, [0, 2, 3, 1]))

    yield "heads", dense_graph([tensor(2, 70, 3, 64), tensor(2, 70, 3, 64)], scores), (SMALL, PAIR)

    def joined(x: Node, w: Node) -> Node:  # sums over heads, then over what is inside of each
        return make(
            "contract",
            [x, w],
            {"a_axes": (1, -1, 0, 2), "b_axes": (-1, 2, 0, 1), "reduced": 2, "acc": f32, "out_dtype": bf16},
        )

    yield "a sum of two axes", dense_graph([tensor(3, 72, 40), tensor(3, 40, 80)], joined), (SMALL, PAIR)

    def apart(x: Node, w: Node) -> Node:  # rows of two axes that do not merge in memory
        return build.matmul(build.permute(x, [1, 0, 2]), w)

    yield "rows of two axes", dense_graph([tensor(40, 3, 72), tensor(72, 48)], apart), (SMALL,)


def epilogues() -> Iterator[tuple[str, Graph, tuple[str, ...]]]:
    xw = [tensor(M, K), tensor(K, N)]
    yield "mlp", dense_graph([*xw, tensor(N), tensor(M, N)], mlp), (SMALL, SHARED, TURNS, TURNS_OF_PAIRS)
    bias = [*xw, tensor(M, 1, dtype=f32)]
    yield "rows", dense_graph(bias, lambda x, w, b: build.add(build.cast(build.matmul(x, w), f32), b)), (SMALL,)

    def results(x: Node, w: Node, b: Node) -> tuple[Node, ...]:
        y = build.add(build.matmul(x, w, f32), b)
        return y, build.gt(y, 0.0), build.cast(turned(y), bf16)

    yield "three results", dense_graph([*xw, tensor(N, dtype=f32)], results), (SMALL, PAIR)

    def pieces(x: Node, w: Node) -> Node:
        y = build.matmul(x, w)
        low = make("slice", [y], {"start": (0, 0), "stop": (M, N // 2), "step": (1, 1)})
        high = make("slice", [y], {"start": (0, N // 2), "stop": (M, N), "step": (1, 1)})
        return build.mul(build.silu(low), high)

    yield "halves that meet", dense_graph(xw, pieces), ()
    heads = [tensor(M, K), tensor(K, 4 * 40)]

    def split(x: Node, w: Node) -> Node:
        return build.relu(build.permute(build.reshape(build.matmul(x, w), [M, 4, 40]), [1, 0, 2]))

    yield "split into heads", dense_graph(heads, split), (SMALL,)


CASES = [*layouts(), *sizes(), *batches(), *epilogues()]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    cache = ObjectCache(tmp_path_factory.mktemp("objects"))
    with Workbench(detect("emulator:sm_90a", cache), cache, Limits(timing_seconds=0.0)) as made:
        yield made


def kernels(graph: Graph, schedules: tuple[str, ...], device: Device) -> list[Kernel]:
    return [WGMMA.emit(graph, s, device) for s in schedules]


@pytest.mark.turn("emulated wgmma")
@pytest.mark.soak
def test_products_are_right(bench: Workbench) -> None:
    every = [(name, graph, s) for name, graph, schedules in CASES for s in schedules]
    drawn = in_turn(every, 5, "products")
    schedules = {name: tuple(s for n, _, s in drawn if n == name) for name, _, _ in drawn}
    cases = [(name, g, kernels(g, schedules[name], bench.device)) for name, g, _ in CASES if name in schedules]
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


@pytest.mark.turn("emulated wgmma")
def test_first_schedules_are_right(bench: Workbench) -> None:
    """The first three schedules that a search tries: tiles are larger than the tensors, and there are few blocks."""
    graph = next(graph for name, graph, _ in CASES if name == "mlp")
    wrong = check_all([("mlp", graph, kernels(graph, WGMMA.space(graph, bench.device)[:3], bench.device))], bench)
    assert not wrong, "\n".join(wrong)


def test_plans_carry_tensor_maps(bench: Workbench) -> None:
    graph = dense_graph([tensor(2, 72, 104), tensor(2, 104, 40)], build.matmul)
    (kernel,) = kernels(graph, (PAIR,), bench.device)
    inputs = sample_inputs(graph, 5)
    (result,) = run_kernel(graph, kernel, inputs, bench)
    expected = np.matmul(*(x.astype(np.float32) for x in inputs))
    assert np.allclose(result.astype(np.float32), expected, rtol=2**-7, atol=2**-7)  # one rounding to bf16


def refused() -> Iterator[tuple[str, Graph, str]]:
    yield (
        "f32",
        dense_graph([tensor(M, K, dtype=f32), tensor(K, N, dtype=f32)], build.matmul),
        "multiplies bf16 and f16",
    )
    yield "few products", dense_graph([tensor(M, 16), tensor(16, N)], build.matmul), "sums 16 products"
    yield "odd strides", dense_graph([tensor(M, 135), tensor(135, N)], build.matmul), "strides of 270 bytes"
    yield "unaligned", dense_graph([tensor(M, K, alignment=8), tensor(K, N)], build.matmul), "start at a multiple of 16"

    def shifted(x: Node, w: Node) -> Node:
        return build.matmul(make("slice", [x], {"start": (0, 4), "stop": (M, K + 4), "step": (1, 1)}), w)

    yield "shifted", dense_graph([tensor(M, K + 8), tensor(K, N)], shifted), "start at a multiple of 16"

    def every_other(x: Node, w: Node) -> Node:
        return build.matmul(make("slice", [x], {"start": (0, 0), "stop": (M, 2 * K), "step": (1, 2)}), w)

    yield "every other", dense_graph([tensor(M, 2 * K), tensor(K, N)], every_other), "contiguous along no axis"

    def computed(x: Node, w: Node) -> Node:
        return build.matmul(build.exp(x), w)

    yield "computed", dense_graph([tensor(M, K), tensor(K, N)], computed), "is computed, not stored"
    yield "a vector", dense_graph([tensor(K), tensor(K, N)], build.matmul), "no rows, columns or summed axis"
    yield "halves that meet", next(g for name, g, _ in CASES if name == "halves that meet"), "at 2 points"


@pytest.mark.parametrize(("name", "graph", "reason"), list(refused()), ids=lambda x: x if isinstance(x, str) else "")
def test_what_tensor_maps_cannot_bring_is_refused(name: str, graph: Graph, reason: str) -> None:
    assert reason in refusal(graph, "wgmma", CUDA_DEVICE)


def test_other_devices_are_refused() -> None:
    graph = dense_graph([tensor(M, K), tensor(K, N)], build.matmul)
    for arch in ("sm_80", "sm_100a", "sm_120"):
        assert arch in refusal(graph, "wgmma", CUDA_DEVICE.model_copy(update={"arch": arch}))
    assert not refusal(graph, "wgmma", CUDA_DEVICE)


def test_schedules_that_cannot_be_are_told_apart() -> None:
    graph = dense_graph([tensor(M, K), tensor(K, N)], build.matmul)
    for schedule, reason in (
        (tile(256, 256, 2, 2), "256 accumulators a thread"),
        (tile(192, 256, 2, 3), "128 accumulators a thread"),
        (tile(96, 64), "cannot be shared by 1 warp groups"),
        (tile(64, 96), "in boxes of 64"),
        (tile(128, 256, 5, 2), "bytes of shared memory"),
        (tile(64, 64, 1), "1 stages"),
        (tile(64, 64, staged=48), "48 at a time"),
    ):
        with pytest.raises(EmitError, match=reason):
            WGMMA.emit(graph, schedule, CUDA_DEVICE)


def test_first_schedules_follow_the_size() -> None:
    """Large products get large tiles that blocks share, small ones tiles for all multiprocessors."""

    def first(m: int, n: int, k: int) -> dict[str, int]:
        schedule = WGMMA.space(dense_graph([tensor(m, k), tensor(k, n)], build.matmul), CUDA_DEVICE)[0]
        return {name: int(value) for name, value in schedule_values(schedule).items()}

    large, small = first(8192, 8192, 8192), first(1024, 1024, 4096)
    assert large["rows"] * large["columns"] >= 128 * 192
    assert large["cluster"] == 2
    assert 1024 * 1024 / (small["rows"] * small["columns"]) >= CUDA_DEVICE.units * 0.75


def test_columns_are_what_lies_side_by_side_in_the_result() -> None:
    """A result that is turned behind the product is computed turned: its stores are whole vectors."""

    def turned_result(x: Node, w: Node) -> Node:
        return build.relu(turned(build.matmul(x, w)))

    for compute in (build.matmul, turned_result):
        graph = dense_graph([tensor(M, K), tensor(K, N)], compute)
        accesses = WGMMA.emit(graph, SMALL, CUDA_DEVICE).accesses
        assert {(a.kind, a.width) for a in accesses if a.tensor == "out0"} == {("vector", 8)}


@pytest.mark.turn("emulated wgmma")
def test_output_strides_are_kept(bench: Workbench) -> None:
    graph = dense_graph([tensor(M, K), tensor(K, N)], build.matmul)
    (output,) = graph.outputs
    spread = Graph(graph.inputs, (OutputSpec(output.node, (1, M + 8)),))
    wrong = check_all([("columns first", spread, kernels(spread, (SMALL,), bench.device))], bench)
    assert not wrong, "\n".join(wrong)
