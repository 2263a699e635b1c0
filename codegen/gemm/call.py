"""One library call of a contraction: the three axes that it covers, and the loops that are left around it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import inf, prod

from codegen.gemm.dims import Contraction, Digit, Dim
from codegen.hardware.libraries import MKL
from codegen.kernel import Reject
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import bf16, f32
from fusion_ir.records import Device

LEAST_PRODUCTS = 4096  # of one call: below, calling costs more than computing
LEAST_DEPTH = 8  # products that a call sums: results of shallower ones would be read and written over and over
MOST_EXTENT = (1 << 31) - 1  # the library counts in 32 bits
HEAVY = 10**5  # multiply-adds: of contractions with more, none is left to loops that share nothing
WORTH_STORING = 10**6  # multiply-adds of a contraction that is worth storing operands in another order for
WORTH_A_CALL = 1 << 18  # multiply-adds that take so long that what calling costs does not count
FEW_CALLS = 8  # in place of one
THICK = 32  # rows and columns with which a call reads each operand seldom enough
FAR = 4  # elements: of operands that lie further apart along every axis, most of what is read would be others
WORTH_A_SUM = 64  # products that a call adds to a result, or it takes as long to read and write that
OPENBLAS = "openblas"
PAIRS = "pairs"  # our own products of bf16 (gemm_pairs_cpu.h), with OpenBLAS behind them where denormals count
AMX = "amx"  # our own products of bf16, and of f32 by pieces, in tiles of registers (gemm_amx_cpu.h), OpenBLAS as above
PACKED = "packed"  # our own products of all types, which are converted on the way into the caches (gemm_packed_cpu.h)
PACKED_32 = "packed32"  # `packed` in registers of 32 bytes, on CPUs that have wider ones
PAIRS_GAIN, MOST_PAIRS_GAIN = 1.2, 2.5  # times f32's peak where pairs are worth it; more is a library's
AMX_FEATURE = "amx_bf16"  # of a CPU
SPLIT_PRODUCTS = 6  # of pieces, for one of f32
SPLIT_SIDE, SPLIT_DEPTH = 16, 64  # rows and columns, and terms of a sum, from which such pieces are worth making
BYTES = {PACKED: "REGISTER_BYTES", PACKED_32: "32"}  # of a register of our own products
FMA = {"fma", "asimd"}  # without it, our products of floats are far slower than a library's


@dataclass(frozen=True)
class Spread:
    """Where an operand's elements lie that no leading dimension describes: digits of the number of its row or column in
    the result, and of the number of a step of the sum."""

    outer: tuple[Digit, ...]
    summed: tuple[Digit, ...]


@dataclass(frozen=True)
class GemmCall:
    """C[m, n] (rows of stride `ldc`) = A[m, k] B[k, n], for every point of `loops`, summed over those that are summed.

    of: the contraction, its operands in the order in which the call takes them. m, n: None for an extent of 1.
    a_turned, b_turned: the operand lies in memory with its axes the other way round. lda, ldb, ldc: in elements.
    a_spread, b_spread: for our own products only, in place of strides in `m`, `n` and `k`, and of a leading dimension;
    a turned one's neighbours are nearer to each other along its rows or columns than along the sum.
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
    a_spread: Spread | None = None
    b_spread: Spread | None = None

    @property
    def is_spread(self) -> bool:
        """Whether an operand is spread, so that no library but our own can do the call."""
        return self.a_spread is not None or self.b_spread is not None

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
    """Extent of an axis; 1 for None."""
    return dim.extent if dim else 1


def has_fma(device: Device) -> bool:
    """Whether a CPU multiplies and adds at once."""
    return bool(FMA.intersection(device.features))


def libraries_for(call: GemmCall, graph: Graph, device: Device) -> tuple[str, ...]:
    """Libraries that can compute the call's products on the device, the one first that is fastest as a rule."""
    own = _own(device)
    if not call.of.dtype.is_float or call.is_spread:
        return own
    operands = {graph.inputs[matrix.tensor].dtype for matrix in (call.of.a, call.of.b)}
    at_once = call.of.dtype == f32 and not any(d.summed for d in call.loops)
    paired = at_once and operands == {bf16} and "avx512_bf16" in device.features
    by_tiles = (AMX,) if AMX_FEATURE in device.features else ()
    converted = operands != {call.of.dtype}
    own = own if has_fma(device) else ()
    mkl = _mkl(device, first=not converted or (paired and _gain(device) >= PAIRS_GAIN))
    others = (*mkl[0], *((*own, OPENBLAS) if converted else (OPENBLAS, *own)), *mkl[1])
    if not paired:
        is_large = min(extent(call.m), extent(call.n)) >= SPLIT_SIDE and call.k.extent >= SPLIT_DEPTH
        return (*by_tiles, *others) if at_once and operands == {f32} and is_large else others
    place = len(mkl[0]) if _has_fast_pairs(device) else len(others)
    return (*by_tiles, *others[:place], PAIRS, *others[place:])


def _gain(device: Device) -> float:
    """Products of bf16 in a second over those of f32, by the fastest library; infinite where no ceilings tell. Where it
    is 1, oneDNN took 1.3 to 1.9 times as long for bf16 (Xeon, family 6, model 207, without AMX)."""
    known = dict(device.ceilings.product_gflops).get(bf16.name) if device.ceilings else None
    return inf if device.ceilings is None or known is None else known / device.ceilings.fma_gflops


def _has_fast_pairs(device: Device) -> bool:
    """Whether sums of pairs of bf16 are faster than f32's multiply-adds and slower than tiles of registers, as far as
    ceilings tell: some of Intel's CPUs have the instruction at half the rate of multiply-adds."""
    gain = _gain(device)
    return gain == inf or PAIRS_GAIN <= gain <= MOST_PAIRS_GAIN


def _mkl(device: Device, *, first: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """MKL where the device has it, as what to try before the others and what behind them: it is fast on Intel's CPUs
    alone, of operands that it takes as they are (`first`)."""
    mkl = (MKL,) if MKL in device.features else ()
    return (mkl, ()) if first and "Intel" in device.name else ((), mkl)


def first_libraries(call: GemmCall, graph: Graph, device: Device) -> tuple[str, ...]:
    """Libraries of `libraries_for` that are worth a kernel before any was timed: our own in one register width, and
    pairs where they are fast."""
    found = libraries_for(call, graph, device)
    if not _has_fast_pairs(device):
        found = tuple(library for library in found if library != PAIRS)
    own = [library for library in found if library in BYTES]
    return tuple(library for library in found if library not in own[1:])


def _own(device: Device) -> tuple[str, ...]:
    """Our own libraries, faster first. AMD's CPUs of family 25 that have registers of 64 bytes (Zen 4) have units of
    32; there, on one core, tiles of 32 bytes took 0.55 to 1.03 of the time of wide ones (f32, 16 to 1,024 columns;
    median 0.92)."""
    if device.vector_bytes <= 32:
        return (PACKED,)
    are_halves = device.name.startswith("AMD") and "(family 25," in device.name
    return (PACKED_32, PACKED) if are_halves else (PACKED, PACKED_32)


def linked_with(library: str) -> tuple[str, ...]:
    """Shared libraries that a kernel with such products is linked with."""
    return () if library in BYTES else (MKL,) if library == MKL else (OPENBLAS,)


def call_on_cpu(contraction: Contraction, fma: bool, apart: int = 0) -> GemmCall | Reject:
    """A library's call; where the axes lie so that there is none, or many small ones where a few large ones would do,
    one of our own. fma: `has_fma` of the device. apart: see `contraction`."""
    call = library_call(contraction)
    if isinstance(call, GemmCall):
        return call
    own = spread_call(contraction, fma, apart)
    return own if isinstance(own, GemmCall) else call


def library_call(contraction: Contraction) -> GemmCall | Reject:
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


def spread_call(contraction: Contraction, fma: bool, apart: int = 0) -> GemmCall | Reject:
    """A call of our own products that covers all axes but those that both operands and the result have, wherever the
    operands' elements lie: they are read once, and are as good as in order from then on. fma, apart: see
    `call_on_cpu`."""
    if contraction.dtype.is_float and not fma:
        return Reject("our own products are slow without instructions that multiply and add")
    if prod(d.extent for d in contraction.dims) <= WORTH_STORING:
        return Reject("few products: they are worth no blocks")
    for given in (contraction, contraction.swapped()):
        for by in (_in_a, _in_b):
            if call := _spread(given, by, apart):
                return call
    return Reject("rows or columns of the product, or elements of an operand, are no short distance apart")


def choose_call(contraction: Contraction) -> GemmCall | Reject:
    """The call that covers the most products; among equals, the one that leaves the operands in their order."""
    calls = [call for given in (contraction, contraction.swapped()) for call in _calls(given)]
    best = max(calls, key=lambda call: call.products, default=None)
    if best is None or best.products < LEAST_PRODUCTS:
        strides = ", ".join(f"{d.extent}{' summed' if d.summed else ''}: {d.a} {d.b} {d.c}" for d in contraction.dims)
        return Reject(
            f"no library call covers {LEAST_PRODUCTS} products, {LEAST_DEPTH} deep, or more "
            f"(axes with their strides in a, b, product: {strides})"
        )
    return best


def _calls(c: Contraction) -> Iterator[GemmCall]:
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
            yield GemmCall(c, m, n, k, a[0], b[0], a[1], b[1], ldc)


_Stride = Callable[[Dim], int]


def _in_a(d: Dim) -> int:
    return d.a


def _in_b(d: Dim) -> int:
    return d.b


def _in_c(d: Dim) -> int:
    return d.c


def _spread(c: Contraction, by: _Stride, apart: int) -> GemmCall | None:
    """See `spread_call`. by: the strides that order the steps of the sum, larger ones outside."""
    rows = sorted((d for d in c.outer if d.a and not d.b), key=_in_c, reverse=True)
    columns = sorted((d for d in c.outer if d.b and not d.a), key=_in_c, reverse=True)
    steps = sorted((d for d in c.dims if d.summed), key=by, reverse=True)
    batches = tuple(d for d in c.outer if d.a and d.b)
    if len(batches) + len(rows) + len(columns) < len(c.outer) or any(not (d.a and d.b) for d in steps):
        return None
    if not (rows and columns and steps and _is_one(rows, _in_c) and _is_one(columns, _in_c) and columns[-1].c == 1):
        return None
    if any(axes[-1].c < apart <= axes[0].c for axes in (rows, columns)):
        return None
    a, b = _placed(rows, steps, _in_a), _placed(columns, steps, _in_b)
    m = Dim(_extents(rows), a.outer, 0, rows[-1].c, summed=False)
    n = Dim(_extents(columns), 0, b.outer, 1, summed=False)
    k = Dim(_extents(steps), a.summed, b.summed, 0, summed=True)
    ldc = _leading(m.c, n.extent, m)
    if not ldc or a.is_far or b.is_far or max(m.extent, n.extent, k.extent) > MOST_EXTENT:
        return None
    of = Contraction(c.dtype, c.a, c.b, (*batches, m, n, k))
    return GemmCall(of, m, n, k, a.turned, not b.turned, a.ld, b.ld, ldc, a.spread, b.spread)


@dataclass(frozen=True)
class _Placed:
    """Where an operand's elements lie: with a leading dimension `ld` and strides, or spread. turned: its rows in memory
    are steps of the sum."""

    turned: bool
    ld: int
    outer: int
    summed: int
    spread: Spread | None
    is_far: bool = False


def _placed(outer: Sequence[Dim], steps: Sequence[Dim], of: _Stride) -> _Placed:
    """Where the operand lies whose strides `of` gives: as rows of steps, or turned."""
    down, along = of(outer[-1]), of(steps[-1])
    if _is_one(outer, of) and _is_one(steps, of):
        found = _operand(down, along, _extents(outer), _extents(steps))
        if found:
            return _Placed(found[0], found[1], down, along, None)
    is_far = min(abs(down), abs(along)) > FAR
    return _Placed(abs(down) < abs(along), 0, 0, 0, Spread(_digits(outer, of), _digits(steps, of)), is_far)


def _is_one(dims: Sequence[Dim], of: _Stride) -> bool:
    """Whether the axes `dims`, the outermost first, step as one axis."""
    return all(of(high) == low.extent * of(low) for high, low in pairwise(dims))


def _extents(dims: Sequence[Dim]) -> int:
    return prod(d.extent for d in dims)


def _digits(dims: Sequence[Dim], of: _Stride) -> tuple[Digit, ...]:
    """Digits of the number that the axes `dims`, the outermost first, form together."""
    return tuple(Digit(_extents(dims[i + 1 :]), d.extent, of(d)) for i, d in enumerate(dims))


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
