"""Largest error in ulps, and time per element, of the transcendental functions of codegen/include on this CPU.

    python -m benchmarks.vec_accuracy [--count 100000] [--ops exp sin ...]

Errors: over special values, random bits, all magnitudes and each op's domain, against f64 for f32 and the C library's
extended precision for f64 (erf and erfc: against its f64, itself within 1 ulp). Times: one thread, operands of the op's
domain that stay in the first-level cache, the best of several runs.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion_ir.dtype import DType
from fusion_ir.ops import Op
from testing.vec_compare import exact, ulps_off
from testing.vec_harness import FLOATS, Function, Library, build_functions, domain
from testing.vec_ops import EXACT, INEXACT, functions, math_operands

ELEMENTS = 4096  # per operand: 16 or 32 KiB
TIMED_EXACT = {"add", "div", "sqrt", "maximum", "fmod", "where", "round"}  # to compare with


@dataclass(frozen=True)
class Row:
    """One function for one type. where: the operands of the largest error."""

    name: str
    dtype: DType
    ulps: float
    where: tuple[float, ...]
    stated: float
    ns: float


def nanoseconds(library: Library, op: Op, function: Function) -> float:
    """Per element, the call's own cost taken out by comparing many elements with few."""
    rng = np.random.default_rng(0)
    arrays = [domain(t, *op.domain, ELEMENTS, rng) for t in function.operands]
    short = [a[:64] for a in arrays]

    def best(operands: Sequence[np.ndarray]) -> float:
        times: list[float] = []
        for _ in range(60):
            start = time.perf_counter_ns()
            library.run(function, *operands)
            times.append(time.perf_counter_ns() - start)
        return min(times)

    return max(0.0, best(arrays) - best(short)) / (ELEMENTS - 64)


def measure(op: Op, function: Function, library: Library, count: int) -> Row:
    """Accuracy (0 for exact ops, which the tests compare bit for bit) and speed of one function."""
    dtype = function.operands[-1]
    ns = nanoseconds(library, op, function)
    if op.ulps == 0:
        return Row(op.name, dtype, 0.0, (), 0.0, ns)
    arrays = math_operands(op, dtype, 1, count)
    off = ulps_off(library.run(function, *arrays), exact(op, *arrays))
    worst = int(np.argmax(off))
    return Row(op.name, dtype, float(off[worst]), tuple(float(a[worst]) for a in arrays), op.ulps, ns)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="random operands of each kind")
    parser.add_argument("--ops", nargs="*", help="only these")
    options = parser.parse_args()
    chosen = [
        op
        for op in (*INEXACT, *EXACT)
        if (op.name in options.ops if options.ops else op.ulps or op.name in TIMED_EXACT)
    ]
    pairs = [(op, f) for op, f in functions(tuple(chosen), 32) if f.operands[-1] in FLOATS]
    library = build_functions(f for _, f in pairs)
    print(f"{'op':<12}{'type':<6}{'ulps':>8}{'stated':>8}{'ns':>8}  at")
    for op, function in pairs:
        row = measure(op, function, library, options.count)
        where = ", ".join(f"{v:.9g}" for v in row.where)
        print(f"{row.name:<12}{row.dtype!r:<6}{row.ulps:>8.3f}{row.stated:>8g}{row.ns:>8.2f}  {where}")


if __name__ == "__main__":
    main()
