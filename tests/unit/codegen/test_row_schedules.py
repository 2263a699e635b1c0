"""First schedules of sums on a GPU, and what no block of threads could share."""

import pytest

from codegen.families import FAMILIES
from codegen.hardware.gpus import specified
from codegen.kernel import EmitError, Kernel, Reject
from codegen.schedule import schedule_text, schedule_values
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import bf16
from fusion_ir.ops import make, make_input
from tests.support.kernels import dense, graph_of

H200 = specified("h200", "")


def first(graph: Graph, name: str) -> tuple[Kernel, dict[str, str]]:
    family = FAMILIES[name]
    assert family.accepts(graph, H200) is None
    schedule = family.space(graph, H200)[0]
    return family.emit(graph, schedule, H200), schedule_values(schedule)


def column_sum(rows: int, columns: int) -> Graph:
    spec = dense(rows, columns)
    total = make("sum", [make_input(0, spec)], {"axes": (0,)})
    return graph_of((spec,), build.cast(total, bf16))


@pytest.mark.parametrize(("rows", "columns"), [(256, 2048), (256, 1024), (4096, 1 << 16)])
def test_columns_are_shared_by_all_multiprocessors(rows: int, columns: int) -> None:
    kernel, _ = first(column_sum(rows, columns), "reduction")
    assert kernel.launch.grid[0] >= min(H200.units, columns // 16) // 2
    assert kernel.launch.block[0] * kernel.launch.block[1] >= 128


def test_heads_of_a_group_keep_all_threads_busy() -> None:
    """Sums over four heads are written out: no thread is idle, and vectors are narrow."""
    spec = dense(4096, 8, 4, 64, dtype=bf16)
    x = make_input(0, spec)
    graph = graph_of((spec,), make("sum", [x], {"axes": (2,)}), build.neg(x))
    _, values = first(graph, "normalization" if FAMILIES["normalization"].accepts(graph, H200) is None else "reduction")
    assert int(values["vec"]) * int(values["x"]) == 64


def test_wide_results_come_in_vectors_of_one_access() -> None:
    spec = dense(16, 128, 4096, dtype=bf16)
    x = build.cast(make_input(0, spec), dense(1).dtype)
    _, values = first(graph_of((spec,), make("sum", [x], {"axes": (0, 2)}), build.add(x, x)), "reduction")
    assert values["vec"] == "4"


def test_few_blocks_have_many_threads() -> None:
    """The gradient of a norm: 256 blocks that sum down 16 rows each while they normalise them."""
    spec = dense(256, 16, 2048, dtype=bf16)
    x = build.cast(make_input(0, spec), dense(1).dtype)
    mean = build.broadcast_in_dim(make("mean", [x], {"axes": (2,)}), (256, 16, 2048), (0, 1))
    graph = graph_of((spec,), build.cast(build.sub(x, mean), bf16), make("sum", [x], {"axes": (1,)}))
    kernel, _ = first(graph, "normalization")
    assert kernel.launch.grid[0] == 256
    assert kernel.launch.block[0] * kernel.launch.block[1] == 512
    assert "__launch_bounds__(512, 2)" in kernel.source


def test_sums_down_columns_whole_are_not_joined_with_rows() -> None:
    parts, rows = dense(256, 2048), dense(4096, 2048)
    total = make("sum", [make_input(0, parts)], {"axes": (0,)})
    softmax = build.softmax(make_input(1, rows))
    answer = FAMILIES["normalization"].accepts(graph_of((parts, rows), total, softmax), H200)
    assert isinstance(answer, Reject)
    assert "2048 columns whole" in answer.reason
    assert FAMILIES["normalization"].accepts(graph_of((rows,), build.softmax(make_input(0, rows))), H200) is None


@pytest.mark.parametrize("family", ["reduction", "normalization", "gemv"])
def test_rows_of_several_warps_are_no_more_than_there_are_barriers(family: str) -> None:
    """Threads of a row join by a barrier of their own, of which a block has 15 beside the one for all its threads."""
    x, w = dense(128, 1000), dense(1000, 2)
    graph = {
        "reduction": graph_of((x,), build.sum_(make_input(0, x), 1)),
        "normalization": graph_of((x,), build.softmax(make_input(0, x), 1)),
        "gemv": graph_of((x, w), build.matmul(make_input(0, x), make_input(1, w))),
    }[family]
    first = schedule_values(FAMILIES[family].space(graph, H200)[0])
    for x_threads, y_threads in ((32, 32), (128, 8), (64, 8)):
        FAMILIES[family].emit(graph, schedule_text(family, {**first, "x": x_threads, "y": y_threads}), H200)
    with pytest.raises(EmitError, match="16 rows of several warps"):
        FAMILIES[family].emit(graph, schedule_text(family, {**first, "x": 64, "y": 16}), H200)
