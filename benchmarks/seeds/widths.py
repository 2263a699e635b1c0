"""Vector widths of whatever a product's epilogue reads: what kernels do, and what the addresses would allow.

One operand after another is added to x[M, K] w[K, N]: as it is, broadcast, transposed, sliced, padded, strided,
misaligned. The width that a kernel has comes from one analysis of strides, offsets and alignment
(`codegen.lowering.access`). Beside it stands what enumeration allows: every address of the operand, in the order in
which the result is computed, in runs of consecutive ones; the largest power of two that all runs begin at a multiple of
and are a multiple of long. A kernel's width is never larger; where it is smaller, it could be wider.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from benchmarks.seeds.place import Place
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel, Reject
from codegen.toolchain.compiler import Binary
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, f32, i64
from fusion_ir.ops import make_input
from fusion_ir.records import Device
from fusion_ir.reference.interpreter import interpret

M, N, K = 96, 192, 64
DTYPE_NAMES = ("f32", "f16", "bf16")
FAMILY_NAMES = {"cpu": ("matmul",), "cuda": ("matmul", "wgmma")}
NOWHERE = -1  # the address of what is no element: padding
OPERAND = 2  # its number among the inputs

Row = dict[str, Any]
View = Callable[[Node, float], Node]


@dataclass(frozen=True)
class Operand:
    """sizes, strides (None: dense), alignment in bytes of the tensor; view: from it to [M, N], given what fills up."""

    name: str
    sizes: tuple[int, ...]
    view: View = lambda x, _: x
    strides: tuple[int, ...] | None = None
    alignment: int = 16
    turned: bool = False  # the result is stored with its axes the other way round

    def spec(self, dtype: DType) -> InputSpec:
        """It as an input."""
        return InputSpec(shape_of(self.sizes), dtype, self.strides or dense_strides(self.sizes), self.alignment)


def _columns(start: int) -> View:
    return lambda x, _: build.slice_(x, (0, start), (M, start + N))


def _padded(low: tuple[int, int], high: tuple[int, int]) -> View:
    return lambda x, fill: build.pad(x, low, high, fill)


def _side_by_side(x: Node, _: float) -> Node:
    return build.reshape(build.permute(x, (1, 0, 2)), (M, N))


def _transposed(x: Node, _: float) -> Node:
    return build.permute(x, (1, 0))


def _expanded(x: Node, _: float) -> Node:
    return build.expand(x, (M, N))


OPERANDS: tuple[Operand, ...] = (
    Operand("residual [M, N]", (M, N)),
    Operand("residual, rows 8 elements apart", (M, N), strides=(N + 8, 1)),
    Operand("residual, rows 2 elements apart", (M, N), strides=(N + 2, 1)),
    Operand("residual, rows 1 element apart", (M, N), strides=(N + 1, 1)),
    Operand("residual, every second element", (M, N), strides=(2 * N, 2)),
    Operand("residual aligned to 8 bytes", (M, N), alignment=8),
    Operand("residual aligned to 4 bytes", (M, N), alignment=4),
    Operand("row [N], broadcast", (N,), _expanded),
    Operand("row [N] aligned to 4 bytes", (N,), _expanded, alignment=4),
    Operand("column [M, 1], broadcast", (M, 1), _expanded),
    Operand("bias [N, M], transposed", (N, M), _transposed),
    Operand("bias [N, M], transposed, and so is the result", (N, M), _transposed, turned=True),
    Operand("columns 8... of [M, N + 16]", (M, N + 16), _columns(8)),
    Operand("columns 4... of [M, N + 16]", (M, N + 16), _columns(4)),
    Operand("columns 2... of [M, N + 16]", (M, N + 16), _columns(2)),
    Operand("columns 1... of [M, N + 16]", (M, N + 16), _columns(1)),
    Operand("columns 8... of [M, N + 9]", (M, N + 9), _columns(8)),
    Operand("rows 3... of [M + 5, N]", (M + 5, N), lambda x, _: build.slice_(x, (3, 0), (M + 3, N))),
    Operand("[M, N - 16] padded by 8 and 8", (M, N - 16), _padded((0, 8), (0, 8))),
    Operand("[M, N - 8] padded by 4 and 4", (M, N - 8), _padded((0, 4), (0, 4))),
    Operand("[M, N - 4] padded by 2 and 2", (M, N - 4), _padded((0, 2), (0, 2))),
    Operand("[M - 2, N] padded by a row above and below", (M - 2, N), _padded((1, 0), (1, 0))),
    Operand("heads [12, M, 16], side by side", (12, M, 16), _side_by_side),
    Operand("heads [32, M, 6], side by side", (32, M, 6), _side_by_side),
    Operand("[8], again and again", (8,), lambda x, _: build.reshape(build.expand(x, (M, N // 8, 8)), (M, N))),
    Operand("[M, N / 64, 1], each element 64 times", (M, N // 64, 1),
            lambda x, _: build.reshape(build.expand(x, (M, N // 64, 64)), (M, N))),
)  # fmt: skip


def product_graph(operand: Operand, dtype: DType) -> Graph:
    """x w + operand, in f32, stored in `dtype`."""
    dense = [InputSpec(shape_of(s), dtype, dense_strides(s)) for s in ((M, K), (K, N))]
    specs = (*dense, operand.spec(dtype))
    x, w, r = (make_input(i, s) for i, s in enumerate(specs))
    total = build.add(build.matmul(x, w, f32), build.cast(operand.view(r, 0.0), f32))
    out = build.cast(total, dtype)
    return Graph(specs, (OutputSpec(out, (1, M) if operand.turned else (N, 1)),))


def addresses(operand: Operand) -> np.ndarray:
    """Where each element of [M, N] is found, in elements from the operand's first one; NOWHERE for padding. By the
    interpreter, of the same view over the operand's own addresses."""
    spec = operand.spec(i64)
    positions = sum(
        np.arange(n, dtype=np.int64).reshape([-1 if d == axis else 1 for d in range(len(spec.sizes))]) * stride
        for axis, (n, stride) in enumerate(zip(spec.sizes, spec.strides, strict=True))
    )
    dense = InputSpec(spec.shape, i64, dense_strides(spec.sizes))
    node = operand.view(make_input(0, dense), NOWHERE)
    graph = Graph((dense,), (OutputSpec(node, dense_strides(node.sizes)),))
    return interpret(graph, [np.ascontiguousarray(np.broadcast_to(positions, spec.sizes))])[0]


def allowed(operand: Operand, itemsize: int, access_bytes: int, columns: bool) -> int:
    """The widest access in elements that the addresses allow, by looking at all of them, along the columns of [M, N] or
    along its rows."""
    found = addresses(operand)
    if not columns:
        found = found.T
    width = min(access_bytes, operand.alignment) // itemsize
    for row in found:
        for start, length in runs(row):
            width = gcd(width, start, length)
    return max(width, 1)


def runs(row: np.ndarray) -> Iterator[tuple[int, int]]:
    """(first address, length) of runs of consecutive addresses, an address that repeats counted once, padding left
    out."""
    kept = row[row != NOWHERE]
    kept = kept[np.append(True, np.diff(kept) != 0)] if len(kept) else kept
    breaks = np.flatnonzero(np.diff(kept) != 1) + 1
    for piece in np.split(kept, breaks):
        if len(piece):
            yield int(piece[0]), len(piece)


def kernels(operand: Operand, dtype: DType, device: Device) -> Iterator[tuple[str, Kernel | Reject]]:
    """(family, kernel) for each family of products: the kernel of the first schedule that can be lowered, or the reason
    why there is none."""
    graph = product_graph(operand, dtype)
    for name in FAMILY_NAMES[device.target]:
        family = FAMILIES[name]
        answer: Kernel | Reject | None = family.accepts(graph, device)
        for schedule in () if answer else family.space(graph, device):
            try:
                answer = family.emit(graph, schedule, device)
                break
            except EmitError as e:
                answer = Reject(str(e))
        if answer is not None:
            yield name, answer


def found_widths(kernel: Kernel) -> list[tuple[str, int]]:
    """How a kernel accesses the operand: kind and elements, the widest first."""
    return sorted(((a.kind, a.width) for a in kernel.accesses if a.tensor == f"in{OPERAND}"), key=lambda a: -a[1])


def access_bytes(device: Device) -> int:
    """The most bytes that one access of a kernel moves on the device, whatever the tensor."""
    return 16 if device.target == "cuda" else device.vector_bytes


def rows(place: Place, before: Sequence[Row]) -> Iterator[Row]:
    """A row for each operand and dtype that is not among `before`. Kernels are compiled, by NVRTC where they are for a
    GPU, there or not."""
    known = {row["key"] for row in before}
    with place.bench() as bench:
        for dtype in DTYPE_NAMES:
            left = [o for o in OPERANDS if f"{dtype} {o.name}" not in known]
            asked = {o.name: dict(kernels(o, DTYPES[dtype], place.device)) for o in left}
            built = iter(bench.compile([k for own in asked.values() for k in own.values() if isinstance(k, Kernel)]))
            for operand in left:
                found = {f: k for f, k in asked[operand.name].items() if isinstance(k, Kernel)}
                results = {f: next(built) for f in found}
                refused = {f: k.reason for f, k in asked[operand.name].items() if isinstance(k, Reject)}
                yield {
                    "key": f"{dtype} {operand.name}",
                    "dtype": dtype,
                    "operand": operand.name,
                    "found": {f: found_widths(k) for f, k in found.items()},
                    "failed": refused | {f: r.detail for f, r in results.items() if not isinstance(r, Binary)},
                    "allowed": allowed(operand, DTYPES[dtype].bytes, access_bytes(place.device), not operand.turned),
                    "across": allowed(operand, DTYPES[dtype].bytes, access_bytes(place.device), operand.turned),
                }


def page(found: Sequence[Row], _: bool) -> list[str]:
    """A row for each operand and dtype; then where kernels could be wider, and what there is no kernel for."""
    families = list(dict.fromkeys(f for row in found for f in row["found"]))
    lines = [
        f"Added to x[{M}, {K}] w[{K}, {N}]; the first schedule of each family, compiled. Elements per access, and the "
        "most that enumerating all addresses allows: along the rows of the result as they lie in memory, and across.",
        "",
        f"| operand | dtype | {' | '.join(families)} | allowed | across |",
        "|---|---|" + "---|" * len(families) + "---:|---:|",
    ]
    for row in found:
        cells = [_cell(row["found"].get(f)) for f in families] + [str(row["allowed"]), str(row["across"])]
        lines.append(f"| {row['operand']} | {row['dtype']} | {' | '.join(cells)} |")
    narrower = [f"{r['operand']} ({r['dtype']})" for r in found if is_narrower(r)]
    lines += ["", f"Narrower than the addresses allow: {'; '.join(narrower) or 'none'}.", ""]
    reasons: dict[str, dict[str, None]] = {}
    for row in found:
        for family, reason in row["failed"].items():
            reasons.setdefault(f"{family}: {reason}", {})[row["operand"]] = None
    every = len({row["operand"] for row in found})
    return lines + [
        f"- {'all of them' if len(own) == every else '; '.join(own)}: {reason}" for reason, own in reasons.items()
    ]


def is_narrower(row: Row) -> bool:
    """Whether some family's widest access is narrower than enumeration allows. Splats are as wide as they can be."""
    widths = [max(width for _, width in own) for own in row["found"].values() if own and own[0][0] != "splat"]
    return any(width < row["allowed"] for width in widths)


def _cell(widths: Sequence[tuple[str, int]] | None) -> str:
    if widths is None:
        return "–"
    return ", ".join(kind if kind == "splat" else f"{kind} {width}" for kind, width in widths)
