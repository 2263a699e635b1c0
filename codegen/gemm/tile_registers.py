"""Products in registers that are tiles (codegen/include/gemm_amx_cpu.h, gemm_split_cpu.h): which operand gives rows."""

from codegen.gemm.call import GemmCall

MOST_DEPTH = 6144  # amx::MOST_DEPTH: longer sums are cut
# Time to move operands and results within registers, over that of transposing as many bytes: measured.
PUT_ROWS, TRANSPOSED, INTERLEAVED, TURNED = 1.5, 1.0, 0.5, 0.4
# Nanoseconds to make pieces of 32 f32 elements as rows and as columns, from where they lie along the sum and across it,
# and to turn as many sums: measured.
PIECES = {("rows", "along"): 4.5, ("rows", "across"): 6.8, ("columns", "along"): 6.3, ("columns", "across"): 4.4}
PIECES_TURNED = 3.2
MOST_COLUMNS, PANEL_DEPTH = 256, 512  # split::MOST_COLUMNS; elements along the sum in a panel


def is_long(call: GemmCall) -> bool:
    """Whether sums of the call are cut."""
    return call.k.extent > MOST_DEPTH


def reads_rows_of_a(call: GemmCall, m: int, n: int) -> bool:
    """Whether A is read where it lies, by rows, and B put together as columns; else the other way round, and the result
    is turned. m, n: rows and columns of a task."""
    bytes_a, bytes_b, bytes_c = 2 * m * call.k.extent, 2 * n * call.k.extent, 4 * m * n
    a_rows = PUT_ROWS * call.a_turned
    b_rows = PUT_ROWS * (not call.b_turned)
    a_columns = INTERLEAVED if call.a_turned else TRANSPOSED
    b_columns = TRANSPOSED if call.b_turned else INTERLEAVED
    return a_rows * bytes_a + b_columns * bytes_b <= b_rows * bytes_b + a_columns * bytes_a + TURNED * bytes_c


def makes_rows_of_a(call: GemmCall, m: int, n: int) -> bool:
    """Whether pieces of A are rows, which are made anew for each panel of columns, and those of B columns; else the
    other way round, and the result is turned. For products of f32. m, n: as of `reads_rows_of_a`."""
    a, b = ("across" if call.a_turned else "along"), ("along" if call.b_turned else "across")
    k = call.k.extent
    of_a = m * k * -(-n // MOST_COLUMNS) * PIECES["rows", a] + n * k * PIECES["columns", b]
    of_b = n * k * -(-m // MOST_COLUMNS) * PIECES["rows", b] + m * k * PIECES["columns", a]
    return of_a <= of_b + m * n * -(-k // PANEL_DEPTH) * PIECES_TURNED
