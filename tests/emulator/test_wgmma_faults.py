"""Faults seeded into the main loop of family `wgmma`, its kernels and their tensor maps: the emulator catches each.

All are compiled in one file, each with a main loop of its own, and run on several orders of threads until one shows it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from codegen.child.case import Case, judge, make_case
from codegen.families import FAMILIES
from codegen.kernel import Kernel
from codegen.launch.emulator import Emulation, EmulatorFault, load_kernels, run_arrays
from codegen.toolchain.compiler import INCLUDE, Failure
from codegen.toolchain.emulator import launcher
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16
from fusion_ir.records import TensorMapSpec
from testing.emulated_kernels import SECONDS, compiler, emulated_device, emulation, object_cache
from tests.support.products import dense_graph
from tests.support.whole import in_turn

SEEDS = range(8)
HEADERS = ("gemm_epilogue.cuh", "gemm_sm90.cuh")  # the main loop and what it hands its sums to
SHARED = "wgmma{rows=128,columns=128,stages=2,consumers=2,pingpong=0,cluster=2,group=2,staged=32}"
TURNS = "wgmma{rows=64,columns=128,stages=2,consumers=2,pingpong=1,cluster=2,group=2,staged=32}"


@dataclass(frozen=True)
class Fault:
    """A kernel for `graph` that is right but for one change: of text in the main loop or in the kernel, which must be
    there, or of its tensor maps."""

    graph: str
    old: str = ""
    new: str = ""
    maps: Callable[[tuple[TensorMapSpec, ...]], tuple[TensorMapSpec, ...]] | None = None


def tensor(*sizes: int) -> InputSpec:
    return InputSpec(shape_of(sizes), bf16, dense_strides(sizes), 16)


def biased(x: Node, w: Node, b: Node) -> Node:
    return build.add(build.matmul(x, w), b)


def of_last(x: Node, w: Node, b: Node) -> Node:
    return biased(build.slice_(x, [0, 0, 64], [2, 300, 392]), w, b)


def from_columns(x: Node, w: Node, b: Node) -> Node:
    return build.add(build.matmul(build.permute(x, [0, 2, 1]), build.permute(w, [0, 2, 1])), b)


GRAPHS = {
    # a along the sum, b across it; then the other way round
    "rows": dense_graph([tensor(2, 300, 328), tensor(2, 328, 264), tensor(264)], biased),
    "columns": dense_graph([tensor(2, 328, 304), tensor(2, 260, 328), tensor(260)], from_columns),
    "turns": dense_graph([tensor(3, 300, 328), tensor(3, 328, 264), tensor(264)], biased),
    # the ring is gone round twice for each tile
    "rounds": dense_graph([tensor(3, 140, 256), tensor(3, 256, 264), tensor(264)], biased),
    "slice": dense_graph([tensor(2, 300, 392), tensor(2, 328, 264), tensor(264)], of_last),
}
SCHEDULES = {"rows": SHARED, "columns": SHARED, "turns": TURNS, "rounds": TURNS, "slice": SHARED}


def changed(number: int, **fields: object) -> Callable[[tuple[TensorMapSpec, ...]], tuple[TensorMapSpec, ...]]:
    def change(maps: tuple[TensorMapSpec, ...]) -> tuple[TensorMapSpec, ...]:
        other = TensorMapSpec.model_validate(maps[number].model_dump() | fields)
        return (*maps[:number], other, *maps[number + 1 :])

    return change


FAULTS = {
    "no wait for a full stage": Fault("rows", "barrier_wait(base + Tile::FULL + 8 * at.stage, at.parity);"),
    "no wait for an empty stage": Fault("rows", "barrier_wait(base + Tile::EMPTY + 8 * at.stage, at.parity ^ 1);"),
    "waits for the phase before": Fault(
        "rows", "Tile::FULL + 8 * at.stage, at.parity)", "Tile::FULL + 8 * at.stage, at.parity ^ 1)"
    ),
    "producer waits a round too long": Fault("rows", "8 * at.stage, at.parity ^ 1)", "8 * at.stage, at.parity)"),
    "parity never turns": Fault("rows", "stage = 0;\n      parity ^= 1;", "stage = 0;"),
    "released while it is multiplied": Fault(
        "rows", "if (depth) release(before);", "release(at.stage);\n      if (false) release(before);"
    ),
    "last stage never released": Fault("rows", "wgmma_wait<0>();\n    release(before);", "wgmma_wait<0>();"),
    "no wait for the turn": Fault("turns", "barrier_wait(base + Tile::TURN + 8 * group, parity);"),
    "waits for the turn before": Fault("turns", "uint32_t parity = group == 0;", "uint32_t parity = group != 0;"),
    "turns never change": Fault("turns", "parity ^= 1;\n    int before", "int before"),
    "nobody else gets a turn": Fault("turns", "group + 1 == Tile::CONSUMERS ? 0 : group + 1", "group"),
    "turn passed on before the stages came": Fault(
        "turns",
        "int before = 0;",
        "int before = 0;\n    if (lane == 0) barrier_arrive(base + Tile::TURN + 8 * (group ^ 1));",
    ),
    "stages of the others not left out": Fault("turns", "at.advance(OTHERS * DEPTHS);"),
    "first stages of the others not left out": Fault("turns", "at.advance(turn * DEPTHS);"),
    "tiles of the others not left out": Fault("turns", "t += STEP * clusters", "t += clusters"),
    "stages released as if shared": Fault(
        "turns", "Tile::SHARERS * 4 * Tile::CLUSTER", "Tile::CONSUMERS * 4 * Tile::CLUSTER"
    ),
    "fetched for the part after": Fault(
        "rows", "part_at(0).fetch(ahead, epilogue);", "part_at(1).fetch(ahead, epilogue);"
    ),
    "fetched once for all parts": Fault(
        "rows", "if (part + 1 < M64 * PARTS) part_at(part + 1).fetch(ahead, epilogue);"
    ),
    "no wait for the last products": Fault("rows", "wgmma_wait<0>();"),
    "no wait for the products before": Fault("rows", "wgmma_wait<1>();"),
    "no commit": Fault("rows", "wgmma_commit();"),
    "too few bytes announced": Fault("rows", "Tile::A_BYTES + Tile::B_BYTES);", "Tile::A_BYTES);"),
    "too many bytes announced": Fault("rows", "Tile::A_BYTES + Tile::B_BYTES);", "Tile::A_BYTES + 2 * Tile::B_BYTES);"),
    "runs of an operand across too close": Fault("rows", "64 * 128, 1024);", "32 * 128, 1024);"),
    "groups of 8 along the sum too far": Fault("rows", "64 * 128, 1024);", "64 * 128, 2048);"),
    "groups of 8 rows too far": Fault("columns", "16, 1024);", "16, 2048);"),
    "steps along the sum too short": Fault("columns", "rows + step * 32, 16", "rows + step * 16, 16"),
    "steps across too short": Fault("rows", "rows + step * 16 * 128", "rows + step * 8 * 128"),
    "released to the own block alone": Fault(
        "rows",
        "barrier_arrive_at(base + Tile::EMPTY + 8 * stage, lane)",
        "barrier_arrive_at(base + Tile::EMPTY + 8 * stage, rank)",
    ),
    "arrivals of one block counted": Fault("rows", "Tile::SHARERS * 4 * Tile::CLUSTER);", "Tile::SHARERS * 4);"),
    "leaves while others signal it": Fault(
        "rows", "if constexpr (Tile::CLUSTER > 1) cluster_meet();  // a block stays", "// a block stays"
    ),
    "no barrier of the cluster at the start": Fault(
        "rows", "if constexpr (Tile::CLUSTER > 1) cluster_meet();\n  else block_barrier();", "block_barrier();"
    ),
    "barriers begun without a fence": Fault("rows", "    fence_barrier_init();\n", ""),
    "fenced by a thread that began none": Fault(
        "rows", "    fence_barrier_init();\n  }\n", "  }\n  if (threadIdx.x == 32) fence_barrier_init();\n"
    ),
    "one fence for all products": Fault("rows", "      wgmma_fence();\n", "      if (depth == 0) wgmma_fence();\n"),
    "no fence before products": Fault("turns", "      wgmma_fence();\n", ""),
    "cluster attribute of one block": Fault("rows", "__cluster_dims__(2, 1, 1)", "__cluster_dims__(1, 1, 1)"),
    "cluster attribute dropped": Fault("columns", "__cluster_dims__(2, 1, 1) ", ""),
    "both blocks bring the same columns": Fault("columns", "tile.column + rank * PART, depth", "tile.column, depth"),
    "both blocks bring into one place": Fault("columns", "load_b(b + rank * PART * Tile::SWIZZLE,", "load_b(b,"),
    "sums begin with those before": Fault("rows", "depth + step != 0", "true"),
    "sums begin anew in each stage": Fault("rows", "depth + step != 0", "step != 0"),
    "consumers share their rows": Fault(
        "rows", "at.stage * Tile::A_BYTES + first_row * Tile::SWIZZLE", "at.stage * Tile::A_BYTES"
    ),
    "no barrier before the next part": Fault("rows", "warp_barrier();  // the part before this one has been read"),
    "no barrier before a part is read": Fault("rows", "warp_barrier();\n      part_at(part).use", "part_at(part).use"),
    "rows beyond the product": Fault("rows", "row + r < Extents::ROWS &&", ""),
    "columns beyond the product": Fault("rows", " && column + c < Extents::COLUMNS", ""),
    "the first batch for all": Fault(
        "rows", "map0, bar, depth * 64, place, batch)", "map0, bar, depth * 64, place, 0)"
    ),
    "depth in elements": Fault("rows", "depth * 64, place, batch)", "depth, place, batch)"),
    "no swizzle in the map of a": Fault("rows", maps=changed(0, swizzle=0)),
    "no swizzle in the map of b": Fault("columns", maps=changed(1, swizzle=0)),
    "rounds of the ring turn the parity once": Fault(
        "rounds", "parity ^= stage / STAGES & 1;", "parity ^= stage >= STAGES;"
    ),
    "the map of a slice begins at the tensor": Fault("slice", maps=changed(0, offset_bytes=0)),
    "rows of a closer than they are": Fault("rows", maps=changed(0, strides_bytes=(640, 300 * 656))),
    "summed axis longer than it is": Fault("columns", maps=changed(1, sizes=(336, 260, 2))),
}


def right(graph: Graph, schedule: str) -> Kernel:
    device = emulated_device("sm_90a")
    reject = FAMILIES["wgmma"].accepts(graph, device)
    assert reject is None, reject
    return FAMILIES["wgmma"].emit(graph, schedule, device)


def in_space(space: str, kernel: Kernel, entry: str, old: str, new: str) -> str:
    """The kernel and its main loop, changed, in a namespace of their own."""
    loops = "".join(
        f'#line 1 "{name}"\n' + re.sub(r"^#.*\n", "", (INCLUDE / name).read_text(), flags=re.MULTILINE)
        for name in HEADERS
    )
    text = f'{loops}\n#line 1 "{entry}"\n{kernel.source.replace(kernel.entry, entry)}'
    assert not old or text.count(old) == 1, (old, text.count(old))
    changed_text = text.replace(old, new) if old else text
    return f"namespace {space} {{\n{changed_text}\n}}\n{launcher(space, entry, changed_text)}"


@pytest.fixture(scope="module")
def emulations(drawn: frozenset[str]) -> dict[str, Emulation]:
    """Emulations of the kernels with a fault that is drawn, by the fault's name, and of those without one, by the
    graph's name."""
    faults = {name: fault for name, fault in FAULTS.items() if name in drawn}
    kernels = {name: right(graph, SCHEDULES[name]) for name, graph in GRAPHS.items()}
    texts = [in_space(f"right_{name}", k, f"k_{name}", "", "") for name, k in kernels.items()]
    texts += [in_space(f"fault{i}", kernels[f.graph], f"k_f{i}", f.old, f.new) for i, f in enumerate(faults.values())]
    made = compiler("sm_90a")
    headers = ("loops_cuda.cuh", "device_sm90.cuh", "gemm_tiles.cuh")
    head = "".join(f'#include "{name}"\n' for name in headers)
    source = f"#define FP_EMULATE\n#define __CUDA_ARCH__ 900\n{head}{''.join(texts)}"
    with made.slot() as slot:
        built = made.compile(slot, source, [], SECONDS)
    assert not isinstance(built, Failure), built.detail
    file = object_cache().path(object_cache().put(built[0]))
    library = load_kernels(Path(str(file)))
    found = {name: emulation(replace(k, entry=f"k_{name}"), library) for name, k in kernels.items()}
    for i, (name, fault) in enumerate(faults.items()):
        plain = emulation(replace(kernels[fault.graph], entry=f"k_f{i}"), library)
        found[name] = replace(plain, tensor_maps=fault.maps(plain.tensor_maps)) if fault.maps else plain
    return found


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {name: make_case(graph, seed=0) for name, graph in GRAPHS.items()}


def problem(case: Case, kernel: Emulation, seed: int) -> str:
    """The fault of one run in words, the emulator's or that of a wrong result; "" where there is none."""
    (output,) = case.graph.outputs
    out = np.full(output.node.sizes, np.nan, output.node.dtype.numpy)
    try:
        run_arrays(kernel, case.input_sets[0].inputs, [out], seed=seed)
    except EmulatorFault as fault:
        return str(fault)
    return judge(case, 0, [out]).problem


@pytest.mark.soak
@pytest.mark.parametrize("name", GRAPHS)
def test_without_a_fault_it_is_right(name: str, emulations: dict[str, Emulation], cases: dict[str, Case]) -> None:
    seeds = in_turn(SEEDS, 2, name)
    assert [problem(cases[name], emulations[name], seed) for seed in seeds] == [""] * len(seeds)


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_caught(name: str, emulations: dict[str, Emulation], cases: dict[str, Case]) -> None:
    assert any(problem(cases[FAULTS[name].graph], emulations[name], seed) for seed in SEEDS)
