"""Family `matmul` on CUDA: a contraction tile by tile, with the ops in front of its operands and behind its result.

Tiles are multiplied by mma.sync (f16, bf16, f8 as f16, i8; from sm_80 on, f16 from sm_75) or by fma (any dtype,
anywhere). Operands are copied into shared memory as they lie there, or computed on the way; those of few products a sum
(path `shallow`) go into registers, and are multiplied by either. The rest of the segment runs over the product's values
while they are on the chip.
"""

from functools import partial

from codegen.families.kernel_function import kernel_function
from codegen.families.product_rules import beside, dependents, not_pointwise, too_many
from codegen.hardware.architectures import ACCESS_BYTES, capability
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.code_length import too_much
from codegen.printer.expressions import CTYPE
from codegen.schedule import Choices, parse_schedule, schedule_values
from codegen.tiled.code_length import MOST_OF_ELEMENT, tile_length
from codegen.tiled.code_length import fault as length_fault
from codegen.tiled.epilogue import RUN, epilogue
from codegen.tiled.operand import Tiles, operand_functor
from codegen.tiled.orientation import Orientation, arrange, check_arranged
from codegen.tiled.problem import main_contraction
from codegen.tiled.schedule import (
    TileSchedule,
    fault,
    first_schedules,
    shared_bytes,
    tile_choices,
    unique,
)
from codegen.tiled.small_k import FEW, HEADER, SHALLOW, SmallK, is_shallow, shallow
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f8e4m3, f8e5m2, f16, i8
from fusion_ir.ops import OpKind
from fusion_ir.ops.contract import products, sums_in_any_order
from fusion_ir.records import Device

MAX_NODES = 300
KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.GATHER, OpKind.CONTRACT}
TENSOR_DTYPES = {bf16: bf16, f16: f16, f8e4m3: f16, f8e5m2: f16, i8: i8}  # of operands -> what tiles hold


def fits(segment: Graph) -> Reject | None:
    """See Lowering."""
    node = main_contraction(segment)
    if isinstance(node, Reject):
        return node
    if reject := too_many(segment, MAX_NODES) or not_pointwise(segment, KINDS):
        return reject
    return beside(segment, dependents(segment, node)) or too_much(segment, MOST_OF_ELEMENT)


def lowered(segment: Graph) -> Reject | None:
    """The rest of `Family.accepts` for a segment that fits: why it cannot be lowered, None where it can."""
    try:
        check_arranged(segment, _main(segment))
    except EmitError as error:
        return Reject(str(error))
    return None


def space(segment: Graph, device: Device) -> tuple[str, ...]:
    """See Family."""
    node, found = _main(segment), list[TileSchedule]()
    for path in paths_of(node, device):
        tiles = tiles_of(segment, node, path, device)
        way = arrange(segment, node, tiles)
        few = _shallow(segment, node, device) if path == SHALLOW else None
        is_short = partial(_is_short, segment, way, tiles, few)
        if few:
            schedules = few.schedules(way.problem, not way.left.depth_last, device, is_short)
        else:
            schedules = first_schedules(way.problem, tiles, path, device, is_short)
        found += schedules[:1] if found else schedules
    return unique(found)


def choices(segment: Graph, device: Device) -> Choices:
    """See Family."""
    paths = paths_of(_main(segment), device)
    if SHALLOW not in paths:
        return tile_choices(paths)
    found = [schedule_values(schedule) for schedule in space(segment, device)]  # wider tiles, and all products at once
    return {
        name: values if name == "path" else tuple(dict.fromkeys((*values, *(int(own[name]) for own in found))))
        for name, values in tile_choices(paths).items()
    }


def emit(segment: Graph, schedule: str, device: Device) -> Kernel:
    """See Family."""
    s = parse_schedule(schedule, TileSchedule)
    node = _main(segment)
    paths = paths_of(node, device)
    if s.path not in paths:
        raise EmitError(f"path={s.path}, expected {' or '.join(paths)}")
    tiles = tiles_of(segment, node, s.path, device)
    few = _shallow(segment, node, device) if s.path == SHALLOW else None
    way = arrange(segment, node, tiles)
    if problem := few.fault(s, not way.left.depth_last) if few else fault(s, tiles, device):
        raise EmitError(problem)
    if problem := length_fault(tile_length(segment, way, s, tiles, few)):
        raise EmitError(problem)
    functors = [
        operand_functor(way.left, "Left", device),
        operand_functor(way.right, "Right", device),
        epilogue(segment, way.problem, device, run=few.run if few else RUN),
    ]
    made = ", ".join(f.made for f in functors)
    batches, rows, columns = way.problem.extents
    lines = [
        *(f.text for f in functors),
        f"  using Tile = {few.tile(s) if few else _tile(s, tiles)};",
        f"  using Product = Extents<{batches}, {rows}, {columns}, {way.problem.depth}>;",
    ]
    if few:
        lines.append(f"  gemm_shallow<{few.warp}, Tile, Product>({made});")
    else:
        lines.append("  SHARED_MEMORY(shared);")
        lines.append(f"  {'gemm_sm80' if s.path == 'mma' else 'gemm_fma'}<Tile, Product>(shared, {made});")
    reach = max(f.reach for f in functors)
    entry, source = kernel_function(segment, "\n".join(lines), "cuda", threads=s.threads, reach=reach)
    launch = Launch((_blocks(way, s), 1, 1), (s.threads, 1, 1), 0 if few else shared_bytes(s, tiles))
    accesses = tuple(dict.fromkeys(a for f in functors for a in f.accesses))
    headers = (HEADER,) if few else ()
    return Kernel(entry, source, "cuda", "matmul", str(s), launch, accesses, headers=headers)


def paths_of(node: Node, device: Device) -> tuple[str, ...]:
    """Paths by which a contraction can be computed on a device, the faster one first."""
    tensor = _tensor_dtype(node, device)
    others = ("mma", "fma") if tensor else ("fma",)
    if not is_shallow(node, tensor):
        return others
    return (SHALLOW, *others) if products(node) <= FEW else (*others[:1], SHALLOW, *others[1:])


def tiles_of(segment: Graph, node: Node, path: str, device: Device) -> Tiles:
    """The dtype of a path's tiles and how they are filled. Tiles hold operands as tensor cores take them; for fma, in
    the dtype of the sums."""
    if path == SHALLOW:
        return _shallow(segment, node, device).tiles
    dtype = _tensor_dtype(node, device) if path == "mma" else None
    if dtype is None:
        acc = node.attr("acc", DType)
        return Tiles(acc, ACCESS_BYTES // acc.bytes, copied=False, across=True)
    return Tiles(dtype, ACCESS_BYTES // dtype.bytes, copied=True, across=dtype.bytes == 2)


def _tensor_dtype(node: Node, device: Device) -> DType | None:
    """The dtype in which tensor cores take the operands; None where they cannot, or must not: they sum in no order."""
    dtype = TENSOR_DTYPES.get(node.args[0].dtype)
    if dtype is None or capability(device.arch) < (75 if dtype == f16 else 80):
        return None
    return dtype if sums_in_any_order(node) or not node.dtype.is_float else None


def _shallow(segment: Graph, node: Node, device: Device) -> SmallK:
    return shallow(segment, node, _tensor_dtype(node, device))


def _main(segment: Graph) -> Node:
    node = main_contraction(segment)
    if isinstance(node, Reject):
        raise EmitError(node.reason)
    return node


def _is_short(segment: Graph, way: Orientation, tiles: Tiles, few: SmallK | None, s: TileSchedule) -> bool:
    return not length_fault(tile_length(segment, way, s, tiles, few))


def _tile(s: TileSchedule, tiles: Tiles) -> str:
    ctype = CTYPE[tiles.dtype.name]
    if s.path == "fma":
        return f"FmaTile<{ctype}, {s.bm}, {s.bn}, {s.bk}, {s.warps_m}, {s.warps_n}, {s.group}>"
    return f"TensorTile<{ctype}, {s.bm}, {s.bn}, {s.bk}, {s.stages}, {s.warps_m}, {s.warps_n}, {s.group}>"


def _blocks(way: Orientation, s: TileSchedule) -> int:
    batches, rows, columns = way.problem.extents
    return batches * -(-rows // s.bm) * -(-columns // s.bn)
