"""Machine code of tiled products with an epilogue: tensor cores, whole accesses, no local memory, no barrier of the
block behind the main loop. Takes NVRTC and NVIDIA's disassembler, and no GPU."""

from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.hardware.gpus import specified
from codegen.kernel import Kernel
from codegen.schedule import schedule_text, schedule_values
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.dtype import DType, bf16, f16, f32, i8
from fusion_ir.records import Device
from tests.nvrtc.test_sass import machine_code
from tests.support.products import dense_graph, mlp
from tests.support.sass import Sass, nvdisasm
from tests.support.whole import in_turn

pytestmark = pytest.mark.skipif(nvdisasm() is None, reason="needs nvidia-cuda-nvdisasm: the extra `dev`")

MATMUL = FAMILIES["matmul"]
SIZE = 4096


def tensor(*sizes: int, dtype: DType = bf16) -> InputSpec:
    return InputSpec(shape_of(sizes), dtype, dense_strides(sizes), 16)


def layer(dtype: DType = bf16) -> Graph:
    """gelu(x w + bias) + residual"""
    matrix = tensor(SIZE, SIZE, dtype=dtype)
    return dense_graph([matrix, matrix, tensor(SIZE, dtype=dtype), matrix], mlp)


def default_kernel(graph: Graph, device: Device) -> Kernel:
    return MATMUL.emit(graph, MATMUL.space(graph, device)[0], device)


def mma_per_step(kernel: Kernel, itemsize: int) -> int:
    """Instructions that multiply, of a warp in one step."""
    s = {name: int(value) for name, value in schedule_values(kernel.schedule).items() if value.isdigit()}
    fragments = s["bm"] // s["warps_m"] // 16 * (s["bn"] // s["warps_n"] // 8)
    return fragments * s["bk"] * itemsize // 32


def without_idle_loads(sass: Sass) -> Sass:
    """Less the loads into no register that ptxas puts before LDGSTS."""
    return Sass(tuple(i for i in sass.instructions if i != ("LDS", "RZ, [RZ]")))


def check(sass: Sass, kernel: Kernel, itemsize: int = 2, multiply: str = "HMMA") -> None:
    sass = without_idle_loads(sass)
    assert not sass.local, kernel.schedule
    assert set(sass.global_loads) == {16}, (kernel.schedule, sass.global_loads)
    assert set(sass.global_stores) == {16}, (kernel.schedule, sass.global_stores)
    assert set(sass.shared_loads) == {16}, (kernel.schedule, sass.shared_loads)  # staged runs
    assert set(sass.shared_stores) == {8}, (kernel.schedule, sass.shared_stores)  # fragments
    assert sass.count(multiply) == mma_per_step(kernel, itemsize), kernel.schedule
    assert sass.count("LDSM") and sass.count("LDGSTS")
    assert sass.count("BAR") == 2, kernel.schedule  # one in a step, one behind the last


@pytest.mark.turn("machine code of products: copied operands")
@pytest.mark.soak
@pytest.mark.parametrize("target", in_turn(["a100", "l4", "h100"], 1))
def test_a_layer(target: str, tmp_path: Path) -> None:
    device = specified(target, "")
    kernel = default_kernel(layer(), device)
    check(machine_code(device, {"layer": kernel}, tmp_path)["layer"], kernel)


@pytest.mark.turn("machine code of products: copied operands")
@pytest.mark.soak
def test_other_operands(tmp_path: Path) -> None:
    """f16; i8; operands turned; rests of tiles along every axis; results for heads."""
    device = specified("a100", "")
    graphs = {
        "f16": dense_graph([tensor(SIZE, SIZE, dtype=f16)] * 2, build.matmul),
        "rests": dense_graph([tensor(1000, 1016), tensor(1016, 1048)], lambda x, w: build.relu(build.matmul(x, w))),
        "turned": dense_graph(
            [tensor(SIZE, SIZE)] * 2, lambda x, w: build.matmul(build.permute(x, [1, 0]), build.permute(w, [1, 0]))
        ),
        "heads": dense_graph(
            [tensor(SIZE, SIZE), tensor(SIZE, SIZE), tensor(SIZE)],
            lambda x, w, b: build.permute(build.reshape(build.add(build.matmul(x, w), b), [SIZE, 32, 128]), [1, 0, 2]),
        ),
        "i8": dense_graph(
            [tensor(SIZE, SIZE, dtype=i8), tensor(SIZE, SIZE, dtype=i8), tensor(SIZE, dtype=f32)],
            lambda x, w, s: build.cast(build.mul(build.cast(build.matmul(x, build.permute(w, [1, 0])), f32), s), bf16),
        ),
    }
    kernels = {name: default_kernel(graph, device) for name, graph in in_turn(graphs.items(), 1)}
    for name, sass in machine_code(device, kernels, tmp_path).items():
        check(sass, kernels[name], 1 if name == "i8" else 2, "IMMA" if name == "i8" else "HMMA")


@pytest.mark.turn("machine code of products: others")
def test_computed_operands_are_loaded_in_whole_accesses(tmp_path: Path) -> None:
    """f32 rounded to bf16 on the way into the tile."""
    device = specified("a100", "")
    graph = dense_graph(
        [tensor(SIZE, SIZE, dtype=f32), tensor(SIZE, SIZE)], lambda x, w: build.matmul(build.cast(x, bf16), w)
    )
    kernel = default_kernel(graph, device)
    sass = machine_code(device, {"cast": kernel}, tmp_path)["cast"]
    assert not sass.local
    assert set(sass.global_loads) == {16} == set(sass.global_stores)
    assert sass.shared_stores[16], "computed chunks are put down whole"


@pytest.mark.turn("machine code of products: others")
def test_fma_has_no_narrow_access(tmp_path: Path) -> None:
    device = specified("a100", "")
    kernel = default_kernel(layer(f32), device)
    sass = machine_code(device, {"f32": kernel}, tmp_path)["f32"]
    assert not sass.local
    assert set(sass.global_loads) == {16} == set(sass.global_stores)
    assert set(sass.shared_loads) == {16}
    s = {name: int(value) for name, value in schedule_values(kernel.schedule).items() if value.isdigit()}
    sums = s["bm"] * s["bn"] // (32 * s["warps_m"] * s["warps_n"])
    assert sass.count("FFMA") >= sums * s["bk"]


@pytest.mark.turn("machine code of products: others")
@pytest.mark.soak
@pytest.mark.parametrize("dtype", in_turn([bf16, f32], 1, "few"), ids=str)
def test_few_products_stay_in_registers(dtype: DType, tmp_path: Path) -> None:
    """Whole stores of every element and nothing through shared memory; every row's loads before the loop or in one of
    its two halves, and the bias before it."""
    device = specified("h100", "")
    few = {
        f"{depth}": dense_graph(
            [tensor(SIZE, depth, dtype=dtype), tensor(depth, SIZE, dtype=dtype), tensor(SIZE, dtype=dtype)],
            lambda x, w, b: build.relu(build.add(build.matmul(x, w), b)),
        )
        for depth in in_turn((4, 8, 16), 1, str(dtype))
    }
    kernels = {name: default_kernel(graph, device) for name, graph in few.items()}
    for name, sass in machine_code(device, kernels, tmp_path).items():
        assert "path=shallow" in kernels[name].schedule
        assert not sass.local
        assert not sass.count("LDS", "STS", "LDSM", "LDGSTS", "BAR", "SHFL")
        assert set(sass.global_stores) == {16}, sass.global_stores
        if dtype == bf16:
            assert sass.global_loads == {8: 8 + 3, 16: 1}, sass.global_loads
            assert sass.count("HMMA") == 2 * 64 // 16
        else:
            stores = sass.global_stores[16]
            assert set(sass.global_loads) == {16}
            assert sass.count("FFMA") == stores * 4 * int(name)


def test_a_narrow_tensor_is_noticed(tmp_path: Path) -> None:
    """A residual aligned to 4 bytes is read by loads of 4 bytes, and `check` fails on them."""
    device = specified("a100", "")
    graph = layer()
    inputs = (*graph.inputs[:3], InputSpec(graph.inputs[3].shape, bf16, graph.inputs[3].strides, 4))
    kernel = default_kernel(Graph(inputs, graph.outputs), device)
    sass = machine_code(device, {"narrow": kernel}, tmp_path)["narrow"]
    assert set(sass.global_loads) == {4, 16}
    with pytest.raises(AssertionError):
        check(sass, kernel)


def test_the_schedule_text_reads_back() -> None:
    device = specified("a100", "")
    for schedule in MATMUL.space(layer(), device):
        assert schedule_text("matmul", schedule_values(schedule)) == schedule
