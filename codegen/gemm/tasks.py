"""Library calls cut into tasks, as text: each task has a range of some axes, and loops over the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from codegen.gemm.call import AMX, BYTES, OPENBLAS, PAIRS, GemmCall, Spread
from codegen.gemm.dims import Digit, Dim
from codegen.gemm.tile_registers import is_long, makes_rows_of_a, reads_rows_of_a
from codegen.hardware.libraries import MKL
from codegen.kernel import EmitError
from codegen.printer.expressions import CTYPE


@dataclass(frozen=True)
class AxisSplit:
    """An axis in `pieces` about equal ranges, [extent * i / pieces, extent * (i + 1) / pieces), one for a task."""

    dim: Dim
    pieces: int

    @property
    def longest(self) -> int:
        """Extent of the largest piece."""
        return -(-self.dim.extent // self.pieces)


def count_tasks(cuts: Sequence[AxisSplit]) -> int:
    """Tasks of a kernel with these cuts."""
    return prod(cut.pieces for cut in cuts)


def task_lines(
    call: GemmCall,
    library: str,
    cuts: Sequence[AxisSplit],
    result: str,
    *,
    from_start: bool,
    extents: Mapping[Dim, str] | None = None,
) -> list[str]:
    """Statements of a kernel's body that compute one task's part of the product.

    library: see `libraries_for`. cuts: the first one's pieces vary slowest with `task`. result: the pointer to write
    to. from_start: what a task writes starts there; otherwise at the place that it has in the whole. extents: how much
    of some axes is computed, which are not cut, of others all; as C++ text, in which {a} and {b} stand for where the
    operands are, {m} for the number of rows. Raises EmitError.
    """
    lines = ["long task_rest = task;"] if cuts else []
    names: dict[Dim, str] = {}
    for i, cut in reversed(list(enumerate(cuts))):
        n, p = cut.dim.extent, cut.pieces
        names[cut.dim] = f"c{i}"
        lines += [
            f"const long piece{i} = task_rest % {p};",
            f"task_rest /= {p};",
            f"const idx_t c{i} = (idx_t)({n}l * piece{i} / {p}), c{i}_n = (idx_t)({n}l * (piece{i} + 1) / {p}) - c{i};",
        ]
    left, right = call.of.a, call.of.b
    starts = [
        _at(f"in{left.tensor}", left.offset, [(names[cut.dim], cut.dim.a) for cut in cuts]),
        _at(f"in{right.tensor}", right.offset, [(names[cut.dim], cut.dim.b) for cut in cuts]),
        _at(result, 0, [] if from_start else [(names[cut.dim], cut.dim.c) for cut in cuts]),
    ]
    loops = [(f"x{j}", d) for j, d in enumerate(call.loops)]
    for depth, (name, d) in enumerate(loops):
        lines.append(f"{'  ' * depth}LOOP({name}, {_extent(d, names)})")
    strides = [[(name, s) for name, d in loops for s in [_of(d)[t]] if s] for t in range(3)]
    a, b, c = (_at(start, 0, terms) for start, terms in zip(starts, strides, strict=True))
    given = extents or {}
    m = _extent(call.m, names) if call.m else "1"
    texts = [(given.get(d) or _extent(d, names)) if d else "1" for d in (call.m, call.n, call.k)]
    sizes = ", ".join(text.format(a=a, b=b, m=m) for text in texts)
    adds = " || ".join(name for name, d in loops if d.summed) or "false"
    arguments = f"{sizes}, {a}, {call.lda}, {b}, {call.ldb}, {c}, {call.ldc}"
    turned = f"{_bool(call.a_turned)}, {_bool(call.b_turned)}"
    ctype = CTYPE[call.of.dtype.name]
    pieces = {cut.dim: cut.longest for cut in cuts}
    longest = [pieces.get(d, d.extent) if d else 1 for d in (call.m, call.n)]
    if call.is_spread:
        if library not in BYTES:
            raise EmitError(f"operands lie so that {' or '.join(BYTES)} alone can read them")
        x = _read(call.a_spread, call.a_turned, a, call.lda, names.get(call.m) if call.m else None, rows=True)
        y = _read(call.b_spread, call.b_turned, b, call.ldb, names.get(call.n) if call.n else None, rows=False)
        product = f"gemm_packed<{ctype}, {BYTES[library]}>"
        lines.append("  " * len(loops) + f"{product}({sizes}, {x}, {y}, {c}, {call.ldc}, {adds});")
        return lines
    by_tiles = (reads_rows_of_a(call, *longest), is_long(call), makes_rows_of_a(call, *longest))
    functions = {
        AMX: f"gemm_by_amx<{', '.join(map(_bool, by_tiles))}>({turned}, {arguments});",
        PAIRS: f"gemm_by_pairs({turned}, {arguments});",
        **{own: f"gemm_packed<{ctype}, {bytes_}, {turned}>({arguments}, {adds});" for own, bytes_ in BYTES.items()},
        OPENBLAS: f"gemm<{ctype}>({turned}, {arguments}, {adds});",
        MKL: f"gemm_by_mkl<{ctype}>({turned}, {arguments}, {adds});",
    }
    if library not in functions:
        raise EmitError(f"no library {library!r}; there are {', '.join(functions)}")
    lines.append("  " * len(loops) + functions[library])
    return lines


def _read(spread: Spread | None, turned: bool, pointer: str, ld: int, start: str | None, *, rows: bool) -> str:
    """An operand of packed::product. start: the name of its first row or column in the whole. rows: whether it gives
    the result's rows, not its columns."""
    if spread is None:
        return f"packed::dense<{_bool(turned)}>({pointer}, {ld})"
    outer, summed = _number(spread.outer, start), _number(spread.summed, None)
    across, along = (outer, summed) if turned != rows else (summed, outer)
    return f"packed::spread<{_bool(turned)}>({pointer}, {across}, {along})"


def _number(digits: Sequence[Digit], start: str | None) -> str:
    """The C++ function from i to the offset of the i-th row, column or step of the sum, in elements."""
    index = f"(i + {start})" if start else "i"
    most = max(d.weight * d.extent for d in digits)
    parts: list[str] = []
    for d in digits:
        part = f"{index} / {d.weight}" if d.weight > 1 else index
        part += f" % {d.extent}" if d.weight * d.extent < most else ""
        parts.append(f"{part} * {d.stride}" if d.stride != 1 else part)
    return f"[=](idx_t i) -> idx_t {{ return {' + '.join(parts)}; }}"


def offset_text(cuts: Sequence[AxisSplit]) -> str:
    """Where in the whole result a task's part starts, by the names of `task_lines`."""
    return " + ".join(f"{cut.dim.c} * c{i}" for i, cut in enumerate(cuts)) or "0"


def _of(d: Dim) -> tuple[int, int, int]:
    return d.a, d.b, d.c


def _extent(d: Dim, names: Mapping[Dim, str]) -> str:
    return f"{names[d]}_n" if d in names else str(d.extent)


def _at(pointer: str, offset: int, terms: Sequence[tuple[str, int]]) -> str:
    parts = [pointer, *([str(offset)] if offset else []), *(f"{s} * {name}" for name, s in terms if s)]
    return " + ".join(parts)


def _bool(value: bool) -> str:
    return "true" if value else "false"
