"""Predictions for GPUs: in their order, and never below the bound. Times are compared with others, not with a clock;
those measured on a device are in docstrings, with the device."""

import pytest

from codegen.hardware.gpus import GPUS, specified
from codegen.kernel import Kernel, Launch
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES
from fusion_ir.ops import make, make_input
from fusion_ir.records import CompileReport
from scheduler.cost.lower_bound import copy_us, lower_bound_us
from scheduler.cost.roofline_cpu import predicted_kernel_us, predicted_us
from scheduler.cost.roofline_gpu import FAMILY_SHARES
from scheduler.cost.traffic import traffic_of
from tests.support.kernels import dense, graph_of

H200, A100 = specified("h200", ""), specified("a100", "")


def product(m: int, n: int, k: int, dtype: str = "bf16") -> Graph:
    specs = dense(m, k, dtype=DTYPES[dtype]), dense(k, n, dtype=DTYPES[dtype])
    return graph_of(specs, build.matmul(*(make_input(i, s) for i, s in enumerate(specs))))


def chain(n: int) -> Graph:
    spec = dense(n)
    return graph_of((spec,), make("exp", [make_input(0, spec)]))


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("graph", [product(4096, 4096, 4096), product(64, 64, 64), chain(1 << 26), chain(100)])
def test_no_prediction_is_below_the_bound(gpu: str, graph: Graph) -> None:
    device, traffic = specified(gpu, ""), traffic_of(graph)
    for family in (*FAMILY_SHARES, "another"):
        assert predicted_us(traffic, family, device, {family}) > lower_bound_us(traffic, device) > 0


def test_products_run_on_tensor_cores_by_dtype() -> None:
    bounds = [lower_bound_us(traffic_of(product(8192, 8192, 8192, d)), H200) for d in ("f8e4m3", "bf16", "f32")]
    assert bounds[1] == pytest.approx(2 * 8192**3 / 989.4e6)
    assert bounds[1] == pytest.approx(2 * bounds[0], rel=1e-3)
    assert bounds[2] == pytest.approx(2 * 8192**3 / 66.9e6)
    traffic = traffic_of(product(8192, 8192, 8192))
    assert predicted_us(traffic, "wgmma", H200, ()) < predicted_us(traffic, "matmul", H200, ())
    narrow, wide = (traffic_of(product(4096, 4096, 4096, d)) for d in ("bf16", "f32"))
    assert predicted_us(narrow, "matmul", A100, ()) < predicted_us(wide, "matmul", A100, ()) / 8


@pytest.mark.parametrize("k", [256, 512, 1024, 4096])
def test_on_hopper_products_with_an_epilogue_are_for_its_own_instructions(k: int) -> None:
    """On an H200, GELU and a residual behind 4096 x 4096 x k in bf16: wgmma 43, 51 and 69 us for 256, 512 and 1024,
    mma.sync 67, 93 and 144. Taken for slower, it was not in the first plan, and 8 s were too little for others."""
    bf16 = DTYPES["bf16"]
    specs = (
        dense(4096, k, dtype=bf16),
        dense(4096, k, dtype=bf16),
        dense(4096, dtype=bf16),
        dense(4096, 4096, dtype=bf16),
    )
    x, w, b, y = (make_input(i, s) for i, s in enumerate(specs))
    traffic = traffic_of(graph_of(specs, build.add(build.gelu(build.linear(x, w, b)), y)))
    assert predicted_us(traffic, "wgmma", H200, ()) < predicted_us(traffic, "matmul", H200, ())


def test_a_few_tiles_do_not_fill_the_multiprocessors() -> None:
    """A quarter of the work on a sixteenth of the tiles takes more than a quarter of the time."""
    large, small = (traffic_of(product(n, n, 4096)) for n in (2048, 512))
    assert predicted_us(small, "matmul", H200, ()) > predicted_us(large, "matmul", H200, ()) / 8


def test_bandwidth_decides_where_nothing_is_computed() -> None:
    traffic = traffic_of(chain(1 << 28))
    assert copy_us(traffic, H200) == pytest.approx(traffic.bytes / 4.32e6)
    assert predicted_us(traffic, "pointwise", H200, ()) == pytest.approx(traffic.bytes / 4.32e6 / 0.97 + 3.0)
    assert predicted_us(traffic, "pointwise", A100, ()) > 2 * predicted_us(traffic, "pointwise", H200, ())
    assert predicted_us(traffic, "naive", H200, ()) > 2 * predicted_us(traffic, "pointwise", H200, ())


def test_a_thread_that_sums_alone_takes_long() -> None:
    """Beside an output of many elements, too."""
    x = make_input(0, dense(8192))
    graph = graph_of((dense(8192),), make("neg", [x]), make("sum", [x], {"axes": (0,)}))
    assert traffic_of(graph).longest == 2 * 8192
    assert predicted_us(traffic_of(graph), "naive", H200, ()) > 100
    assert predicted_us(traffic_of(graph), "reduction", H200, ()) < 5


def test_rows_that_wait_in_step_leave_memory_idle() -> None:
    traffic = traffic_of(chain(1 << 26))

    def us(blocks: int, family: str) -> float:
        return predicted_kernel_us(traffic, kernel(blocks, schedule=f"{family}{{vec=8}}"), None, H200, ())

    assert us(132 * 4, "normalization") > 1.3 * us(132 * 4, "reduction"), "all blocks at once"
    assert us(132 * 8, "normalization") == us(132 * 8, "reduction"), "blocks follow upon others"


def kernel(blocks: int, threads: int = 256, schedule: str = "pointwise{vec=8}") -> Kernel:
    family = schedule.partition("{")[0]
    return Kernel("k", "", "cuda", family, schedule, Launch(grid=(blocks, 1, 1), block=(threads, 1, 1)))


def test_grids_and_registers_count() -> None:
    traffic = traffic_of(chain(1 << 26))

    def us(blocks: int, held: int) -> float:
        return predicted_kernel_us(traffic, kernel(blocks), CompileReport(registers=64, blocks=held), H200, ())

    full = us(132 * 64, 8)
    assert us(66, 8) > 2.5 * full, "half of the multiprocessors, with few threads each"
    assert us(132 * 64, 1) > 1.3 * full, "too few threads to keep memory busy"
    assert us(132 * 64, 4) == full
    assert predicted_kernel_us(traffic, kernel(132 * 64), None, H200, ()) == full


def test_large_products_want_large_tiles_and_small_ones_small() -> None:
    """Whatever the grid: persistent kernels have a block for each multiprocessor."""

    def us(graph: Graph, rows: int, columns: int) -> float:
        schedule = f"wgmma{{rows={rows},columns={columns},stages=4}}"
        report = CompileReport(registers=168, blocks=1)
        return predicted_kernel_us(traffic_of(graph), kernel(132, 384, schedule), report, H200, ())

    large, small = product(8192, 8192, 8192), product(1024, 1024, 8192)
    assert us(large, 128, 256) < us(large, 128, 128) < us(large, 64, 64)
    assert us(small, 128, 128) < us(small, 128, 256), "32 tiles leave most multiprocessors idle"


def test_a_call_of_a_library_has_no_grid_of_ours() -> None:
    traffic = traffic_of(product(4096, 4096, 4096))
    call = Kernel("k", "{}", "cuda", "aten", "aten{library=cublaslt}", Launch(), libraries=("cublaslt",))
    assert predicted_kernel_us(traffic, call, None, H200, ()) == predicted_us(traffic, "aten", H200, ())
