"""Kernel bodies -> kernel functions, for each target, with content-derived names."""

import hashlib
from collections.abc import Sequence

from codegen.printer.expressions import parameters
from fusion_ir.core.graph import Graph
from fusion_ir.records import TargetKind

INDEX_LIMIT = 1 << 31  # cuda kernels index with 32 bits below
BEYOND = 1 << 20  # what an index may go past the end of what it runs along, where a vector or a tile is cut off


def kernel_function(
    graph: Graph,
    body: str,
    target: TargetKind,
    *,
    prologue: Sequence[str] = (),
    threads: int = 1,
    blocks: int = 1,
    streams: bool = False,
    interleave: bool = False,
    cluster: int = 1,
    tensor_maps: int = 0,
    reach: int = 0,
    in_place: Sequence[int] = (),
) -> tuple[str, str]:
    """(entry, source) of a kernel. The entry's name is derived from the source, so equal kernels have equal names.
    threads: threads of a block. blocks: number of blocks that a multiprocessor is to have registers for at a time.
    cluster: blocks of a cluster. tensor_maps: number of tensor maps, the parameters map0, map1, ... reach: the largest
    number among the body's indices and loop counters (cuda). in_place: see `Kernel`."""
    params = parameters(graph)
    shared = {f"out{i}" for i in in_place} | {f"in{graph.outputs[i].donates}" for i in in_place}
    alone = {name: "" if name in shared else "RESTRICT " for _, name in params}
    if target == "cpu":
        order = "INTERLEAVED " if interleave else ""
        head = f'extern "C" {order}void {{entry}}(void* const* args, long task, long tasks) {{{{'
        lines = [f"  {t} {alone[name]}{name} = ({t})args[{i}];" for i, (t, name) in enumerate(params)]
        lines += [f"  {line}" for line in prologue]
    else:
        maps = [f"const __grid_constant__ TensorMap map{i}" for i in range(tensor_maps)]
        listed = ", ".join([*(f"{t} {alone[name]}{name}" for t, name in params), *maps])
        bounds = f"{threads}, {blocks}" if blocks > 1 else threads
        together = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
        head = f'extern "C" __global__ void __launch_bounds__({bounds}) {together}{{entry}}({listed}) {{{{'
        lines = [f"  {line}" for line in (*_wide_index(graph, reach), *prologue)]
    tail = ["  stream_fence();"] if streams else []
    text = "\n".join([*lines, body, *tail, "}"])
    entry = "k_" + hashlib.sha256(f"{target}{head}{text}".encode()).hexdigest()[:16]
    return entry, f"{head.format(entry=entry)}\n{text}\n"


def _wide_index(graph: Graph, reach: int) -> list[str]:
    """The line that makes indices 64 bits wide; none unless tensors, index values or loops come near 2^31."""
    spans = [spec.span for spec in graph.inputs] + [o.span for o in graph.outputs]
    return ["using idx_t = long long;"] if max(reach, *spans, 0) > INDEX_LIMIT - BEYOND else []
