"""Golden loop programs, C++ and CUDA: what changes in generated kernels shows up in review."""

from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import lower
from codegen.families.transpose import Tiling
from codegen.families.transpose import lower as lower_tiles
from fusion_ir.core.graph import Graph
from fusion_ir.formats import read
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE

EXAMPLES = Path(__file__).parents[3] / "examples"


def tensor(name: str, shape: list[int], dtype: str = "Float") -> str:
    order = list(range(len(shape)))[::-1]
    contiguity = [None if n == 1 else True for n in shape]
    layout = f"contiguity={contiguity}, dtype=DataType.{dtype}, stride_order={order}"
    return f"{name} = fd.define_tensor(shape={shape}, {layout})"


GRAPHS = {
    # A product of K = 2, small enough to be inlined, with a row bias and a clipped residual.
    "small_matmul_epilogue": [
        tensor("T0", [256, 2]), tensor("T1", [2, 512]), tensor("T2", [256, 512]), tensor("T3", [512]),
        "T4 = fd.ops.matmul(T0, T1)", "T5 = fd.ops.broadcast_in_dim(T3, shape=[256, 512], broadcast_dims=[1])",
        "T6 = fd.ops.add(T4, T5)", "T7 = fd.ops.add(T6, T2)", "T8 = fd.ops.relu(T7)", "fd.add_output(T8)",
    ],
    # One output in another order than its input: lanes along the output, the load strided.
    "permute": [
        tensor("T0", [8, 16, 64], "BFloat16"), "T1 = fd.ops.permute(T0, dims=[2, 0, 1])", "T2 = fd.ops.neg(T1)",
        "fd.add_output(T2)",
    ],
    # Two outputs that share nothing: one launch with two outermost loops.
    "siblings": [
        tensor("T0", [1000]), tensor("T1", [33, 7], "Half"), "T2 = fd.ops.exp(T0)", "T3 = fd.ops.neg(T1)",
        "fd.add_output(T2)", "fd.add_output(T3)",
    ],
    # Pieces: a cat and a pad along the lanes, with a masked tail.
    "cat_pad": [
        tensor("T0", [64, 32]), tensor("T1", [64, 50]), "T2 = fd.ops.cat([T0, T1], dim=-1)",
        "S0 = fd.define_scalar(0.0, dtype=DataType.Double)", "T3 = fd.ops.pad(T2, [1, 2], S0)", "T4 = fd.ops.abs(T3)",
        "fd.add_output(T4)",
    ],
}  # fmt: skip


def graph_named(name: str) -> Graph:
    if name == "mistral_rope":
        return read((EXAMPLES / "mistral_rope_forward.nvfuser.py").read_text()).graph
    lines = "".join(f"    {line}\n" for line in GRAPHS[name])
    return read(f"def nvfuser_fusion_id0(fd : FusionDefinition) -> None :\n{lines}", format="nvfuser").graph


TILES = "transpose{lanes=32,store=stream,rows=64,columns=128,next=rows,ahead=1}"
NAMES = ["mistral_rope", *GRAPHS]


@pytest.mark.parametrize("name", NAMES)
def test_loop_program(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.loops", str(lower(graph_named(name), 16, 256, 4096, least_tasks=16, keep_bytes=64 << 10)))


@pytest.mark.parametrize("name", NAMES)
def test_cpp(name: str, golden: Callable[[str, str], None]) -> None:
    kernel = FAMILIES["pointwise"].emit(
        graph_named(name),
        "pointwise{lanes=32,fetch=0,store=stream,tile=4096,block=0,interleave=0,tasks=1,rows=1}",
        CPU_DEVICE,
    )
    golden(f"{name}.cpp", kernel.source)


@pytest.mark.parametrize("name", NAMES)
def test_cuda(name: str, golden: Callable[[str, str], None]) -> None:
    kernel = FAMILIES["pointwise"].emit(graph_named(name), "pointwise{vec=4,x=16,y=16,per=1}", CUDA_DEVICE)
    golden(f"{name}.cu", f"{kernel.source}// grid {kernel.launch.grid}, block {kernel.launch.block}\n")


def test_transpose(golden: Callable[[str, str], None]) -> None:
    """A sum with a transposed matrix, stored in both orders: a tile that is filled and one that is emptied."""
    lines = [
        tensor("T0", [512, 700]), tensor("T1", [700, 512], "BFloat16"),
        "T2 = fd.ops.cast(T1, dtype=DataType.Float)", "T3 = fd.ops.permute(T2, dims=[1, 0])",
        "T4 = fd.ops.add(T0, T3)", "T5 = fd.ops.permute(T4, dims=[1, 0])", "fd.add_output(T4)", "fd.add_output(T5)",
    ]  # fmt: skip
    text = "def nvfuser_fusion_id0(fd : FusionDefinition) -> None :\n" + "".join(f"    {line}\n" for line in lines)
    graph, tiling = read(text, format="nvfuser").graph, Tiling(32, 64, 128, "rows", tasks=16, keep_bytes=64 << 10)
    golden("transpose.loops", str(lower_tiles(graph, tiling)))
    golden("transpose.cpp", FAMILIES["transpose"].emit(graph, TILES, CPU_DEVICE).source)
    ragged = FAMILIES["transpose"].emit(graph, "transpose{vec=4,x=8,y=32,rows=64,columns=64}", CUDA_DEVICE)
    golden("transpose.cu", f"{ragged.source}// grid {ragged.launch.grid}, block {ragged.launch.block}\n")
    # Whole tiles, read by whole warps; what is read along its own rows is read ahead.
    even = read(text.replace("700", "640"), format="nvfuser").graph
    whole = FAMILIES["transpose"].emit(even, "transpose{vec=8,x=4,y=32,rows=32,columns=32}", CUDA_DEVICE)
    golden("transpose_whole.cu", f"{whole.source}// grid {whole.launch.grid}, block {whole.launch.block}\n")


def test_naive_reduction(golden: Callable[[str, str], None]) -> None:
    lines = [
        tensor("T0", [64, 100], "BFloat16"), "T1 = fd.ops.cast(T0, dtype=DataType.Float)",
        "T2, T3 = fd.ops.var_mean(T1, dims=[1], correction=1, keepdim=False)", "fd.add_output(T2)",
    ]  # fmt: skip
    text = "def nvfuser_fusion_id0(fd : FusionDefinition) -> None :\n" + "".join(f"    {line}\n" for line in lines)
    kernel = FAMILIES["naive"].emit(read(text, format="nvfuser").graph, "naive{threads=1}", CPU_DEVICE)
    golden("naive_variance.cpp", kernel.source)


def test_lowering_is_deterministic() -> None:
    sources = {
        FAMILIES["pointwise"].emit(graph_named("mistral_rope"), s, CPU_DEVICE).source
        for s in ["pointwise{lanes=32,fetch=0,store=stream,tile=4096,block=0,interleave=0,tasks=1,rows=1}"] * 3
    }
    assert len(sources) == 1
