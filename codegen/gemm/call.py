"""One library call of a contraction: the three axes that it covers, and the loops that are left around it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from codegen.gemm.dims import Contraction, Dim
from codegen.kernel import Reject
from fusion_ir.dtype import bf16, f32
from fusion_ir.graph import Graph
from fusion_ir.records import Device

LEAST_PRODUCTS = 4096  # of one call: below, calling costs more than computing
LEAST_DEPTH = 8  # products that a call sums: results of shallower ones would be read and written over and over
MOST_EXTENT = (1 << 31) - 1  # the library counts in 32 bits
HEAVY = 10**5  # multiply-adds: of contractions with more, none is left to loops that share nothing
WORTH_STORING = 10**6  # multiply-adds of a contraction that is worth storing operands in another order for
WORTH_A_CALL = 1 << 18  # multiply-adds that take so long that what calling costs does not count
FEW_CALLS = 8  # in place of one
THICK = 32  # rows and columns with which a call reads each operand seldom enough
WORTH_A_SUM = 64  # products that a call adds to a result, or it takes as long to read and write that
OPENBLAS = "openblas"
PAIRS = "pairs"  # our own products of bf16 (gemm_pairs_cpu.h), with OpenBLAS behind them where denormals count
PACKED = "packed"  # our own products of all types, which are converted on the way into the caches (gemm_packed_cpu.h)
FMA = {"fma", "asimd"}  # without it, our products of floats are far slower than a library's


@dataclass(frozen=True)
class Call:
    """C[m, n] (rows of stride `ldc`) = A[m, k] B[k, n], for every point of `loops`, summed over those that are summed.

    of: the contraction, its operands in the order in which the call takes them. m, n: None for an extent of 1.
    a_turned, b_turned: the operand lies in memory with its axes the other way round. lda, ldb, ldc: in elements.
    """

    of: Contraction
    m: Dim | None
    n: Dim | None
    k: Dim
    a_turned: bool
    b_turned: bool
    lda: int
    ldb: int
    ldc: int

    @property
    def loops(self) -> tuple[Dim, ...]:
        """Every axis that the call does not cover, those of the result first."""
        left = [d for d in self.of.dims if d not in (self.m, self.n, self.k)]
        return tuple(sorted(left, key=lambda d: (d.summed, -d.c, -d.a, -d.b)))

    @property
    def products(self) -> int:
        """Multiplications of one call."""
        return extent(self.m) * extent(self.n) * self.k.extent


def extent(dim: Dim | None) -> int:
    """1 for None."""
    return dim.extent if dim else 1


def libraries_for(call: Call, graph: Graph, device: Device) -> tuple[str, ...]:
    """What can compute the call's products on the device, the fastest as a rule first."""
    if not call.of.dtype.is_float:
        return (PACKED,)
    operands = {graph.inputs[matrix.tensor].dtype for matrix in (call.of.a, call.of.b)}
    paired = (
        operands == {bf16}
        and call.of.dtype == f32
        and not any(d.summed for d in call.loops)
        and "avx512_bf16" in device.features
    )
    converted = operands != {call.of.dtype}
    packed = (PACKED,) if FMA.intersection(device.features) else ()
    return (*((PAIRS,) if paired else ()), *((*packed, OPENBLAS) if converted else (OPENBLAS, *packed)))


def linked_with(library: str) -> tuple[str, ...]:
    """Shared libraries that a kernel with such products is linked with."""
    return () if library == PACKED else (OPENBLAS,)


def call_on_cpu(contraction: Contraction) -> Call | Reject:
    """`choose_call`, unless the axes lie so that it takes many small calls where a few large ones would do: stored with
    its axes in another order, a large contraction is faster in spite of that."""
    call = choose_call(contraction)
    if isinstance(call, Reject) or prod(d.extent for d in contraction.dims) <= WORTH_STORING:
        return call
    deep = prod(d.extent for d in call.of.dims if d.summed)
    rows = prod(d.extent for d in call.of.outer if not d.b)
    columns = prod(d.extent for d in call.of.outer if not d.a)
    is_thin = extent(call.m) < min(rows, THICK) or extent(call.n) < min(columns, THICK)
    if (is_thin or call.products < WORTH_A_CALL) and FEW_CALLS * call.products < rows * columns * deep:
        at_once = f"{extent(call.m)} x {extent(call.n)} sums of {call.k.extent} products"
        return Reject(f"library calls of {at_once} each, where {rows} x {columns} of {deep} could be one")
    if any(d.summed for d in call.loops) and call.k.extent < min(WORTH_A_SUM, deep):
        return Reject(f"library calls add sums of {call.k.extent} products to each other, {deep} could be one")
    return call


def choose_call(contraction: Contraction) -> Call | Reject:
    """The call that covers most; of equals the one that leaves the operands in their order."""
    calls = [call for given in (contraction, contraction.swapped()) for call in _calls(given)]
    best = max(calls, key=lambda call: call.products, default=None)
    if best is None or best.products < LEAST_PRODUCTS:
        strides = ", ".join(f"{d.extent}{' summed' if d.summed else ''}: {d.a} {d.b} {d.c}" for d in contraction.dims)
        return Reject(
            f"no library call covers {LEAST_PRODUCTS} products, {LEAST_DEPTH} deep, or more "
            f"(axes with their strides in a, b, product: {strides})"
        )
    return best


def _calls(c: Contraction) -> Iterator[Call]:
    rows = [None, *(d for d in c.dims if not d.summed and not d.b)]
    columns = [None, *(d for d in c.dims if not d.summed and not d.a)]
    depths = [d for d in c.dims if d.summed and d.extent >= LEAST_DEPTH]
    for m, n, k in product(rows, columns, depths):
        if (m is not None and m is n) or (n is not None and n.c != 1):
            continue
        ldc = _leading(m.c if m else 0, extent(n), m)
        a = _operand(m.a if m else None, k.a, extent(m), k.extent)
        b = _operand(k.b, n.b if n else None, k.extent, extent(n))
        if ldc and a and b:
            yield Call(c, m, n, k, a[0], b[0], a[1], b[1], ldc)


def _operand(down: int | None, along: int | None, rows: int, columns: int) -> tuple[bool, int] | None:
    """(turned, leading dimension) of rows x columns elements with these strides; None if the library cannot read it so.

    A stride of None: that axis has one element.
    """
    if along in (1, None) and (down is None or columns <= down <= MOST_EXTENT):
        return False, columns if down is None else down
    if down in (1, None) and (along is None or rows <= along <= MOST_EXTENT):
        return True, rows if along is None else along
    return None


def _leading(stride: int, columns: int, m: Dim | None) -> int | None:
    """The leading dimension of the result; None if rows would overlap or are too far apart."""
    if m is None:
        return columns
    return stride if columns <= stride <= MOST_EXTENT else None
