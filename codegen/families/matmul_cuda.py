"""Family `matmul` on CUDA: a contraction tile by tile, with what is computed of its operands and of its result.

Tiles are multiplied by mma.sync (f16, bf16, f8 as f16, i8; from sm_80 on, f16 from sm_75) or by fma (any dtype,
anywhere). Operands are copied into shared memory as they lie there, or computed on the way; the rest of the segment
runs over the product's values while they are on the chip.
"""

from codegen.architectures import capability
from codegen.families.wrap import kernel_function
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.schedule import Choices, parse_schedule
from codegen.text import CTYPE
from codegen.tiled.arrange import Arrangement, arrange
from codegen.tiled.epilogue import epilogue
from codegen.tiled.operand import Tiles, operand_functor
from codegen.tiled.problem import main_contraction
from codegen.tiled.schedule import (
    TileSchedule,
    fault,
    first_schedules,
    shared_bytes,
    tile_choices,
    unique,
)
from fusion_ir.dtype import DType, bf16, f8e4m3, f8e5m2, f16, i8
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OPS, OpKind
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device

MAX_NODES = 300
KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.GATHER, OpKind.CONTRACT}
TENSOR_DTYPES = {bf16: bf16, f16: f16, f8e4m3: f16, f8e5m2: f16, i8: i8}  # of operands -> what tiles hold
ACCESS_BYTES = 16


def accepts(segment: Graph, device: Device) -> Reject | None:
    """See Family."""
    node = main_contraction(segment)
    if isinstance(node, Reject):
        return node
    if len(segment.nodes) > MAX_NODES:
        return Reject(f"{len(segment.nodes)} nodes are too many for one kernel (at most {MAX_NODES})")
    reached = {node}
    for n in segment.nodes:
        if (OPS[n.op].kind if n.op in OPS else OpKind.INPUT) not in KINDS:
            return Reject(f"{n.op} is no pointwise op")
        if any(a in reached for a in n.args):
            reached.add(n)
    if any(o.node not in reached for o in segment.outputs):
        return Reject("an output does not depend on the product")
    try:
        for path in paths_of(node, device):
            arrange(segment, node, tiles_of(node, path))
    except EmitError as error:
        return Reject(str(error))
    return None


def space(segment: Graph, device: Device) -> tuple[str, ...]:
    """See Family."""
    node, found = _main(segment), list[TileSchedule]()
    for path in paths_of(node, device):
        tiles = tiles_of(node, path)
        schedules = first_schedules(arrange(segment, node, tiles).problem, tiles, path, device)
        found += schedules[:1] if found else schedules
    return unique(found)


def choices(segment: Graph, device: Device) -> Choices:
    """See Family."""
    return tile_choices(paths_of(_main(segment), device))


def emit(segment: Graph, schedule: str, device: Device) -> Kernel:
    """See Family."""
    s = parse_schedule(schedule, TileSchedule)
    node = _main(segment)
    paths = paths_of(node, device)
    if s.path not in paths:
        raise EmitError(f"path={s.path}, expected {' or '.join(paths)}")
    tiles = tiles_of(node, s.path)
    if problem := fault(s, tiles, device):
        raise EmitError(problem)
    way = arrange(segment, node, tiles)
    functors = [
        operand_functor(way.left, "Left", device),
        operand_functor(way.right, "Right", device),
        epilogue(segment, way.problem, device),
    ]
    batches, rows, columns = way.problem.extents
    lines = [
        *(f.text for f in functors),
        f"  using Tile = {_tile(s, tiles)};",
        f"  using Product = Extents<{batches}, {rows}, {columns}, {way.problem.depth}>;",
        "  SHARED_MEMORY(shared);",
        f"  {'gemm_sm80' if s.path == 'mma' else 'gemm_fma'}<Tile, Product>("
        f"shared, {', '.join(f.made for f in functors)});",
    ]
    entry, source = kernel_function(segment, "\n".join(lines), "cuda", threads=s.threads)
    launch = Launch((_blocks(way, s), 1, 1), (s.threads, 1, 1), shared_bytes(s, tiles))
    accesses = tuple(dict.fromkeys(a for f in functors for a in f.accesses))
    return Kernel(entry, source, "cuda", "matmul", str(s), launch, accesses)


def paths_of(node: Node, device: Device) -> tuple[str, ...]:
    """How a contraction can be computed there, the faster way first. Tensor cores sum in no order."""
    dtype = TENSOR_DTYPES.get(node.args[0].dtype)
    if dtype is None or products(node) <= ORDERED_PRODUCTS:
        return ("fma",)
    return ("mma", "fma") if capability(device.arch) >= (75 if dtype == f16 else 80) else ("fma",)


def tiles_of(node: Node, path: str) -> Tiles:
    """What tiles hold: the operands, or, for fma, the dtype of the sums."""
    if path == "fma":
        acc = node.attr("acc", DType)
        return Tiles(acc, ACCESS_BYTES // acc.bytes, copied=False, across=True)
    dtype = TENSOR_DTYPES[node.args[0].dtype]
    return Tiles(dtype, ACCESS_BYTES // dtype.bytes, copied=True, across=dtype.bytes == 2)


def _main(segment: Graph) -> Node:
    node = main_contraction(segment)
    if isinstance(node, Reject):
        raise EmitError(node.reason)
    return node


def _tile(s: TileSchedule, tiles: Tiles) -> str:
    ctype = CTYPE[tiles.dtype.name]
    if s.path == "fma":
        return f"FmaTile<{ctype}, {s.bm}, {s.bn}, {s.bk}, {s.warps_m}, {s.warps_n}, {s.group}>"
    return f"TensorTile<{ctype}, {s.bm}, {s.bn}, {s.bk}, {s.stages}, {s.warps_m}, {s.warps_n}, {s.group}>"


def _blocks(way: Arrangement, s: TileSchedule) -> int:
    batches, rows, columns = way.problem.extents
    return batches * -(-rows // s.bm) * -(-columns // s.bn)
