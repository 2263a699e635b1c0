"""Products in registers that are tiles (codegen/include/gemm_amx_cpu.h): which operand is read where it lies."""

from codegen.gemm.call import GemmCall

MOST_DEPTH = 6144  # amx::MOST_DEPTH: longer sums are cut
# Time to move operands and results within registers, over that of transposing as many bytes: measured.
PUT_ROWS, TRANSPOSED, INTERLEAVED, TURNED = 1.5, 1.0, 0.5, 0.4


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
