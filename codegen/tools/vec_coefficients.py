"""Prints codegen/include/vec_coefficients.h: polynomials of the transcendental functions, and 2/pi in 32-bit words.

    python codegen/tools/vec_coefficients.py > codegen/include/vec_coefficients.h

Each polynomial is the best one in the largest weighted error (Remez' exchange on a grid), with its coefficients rounded
to the type from the lowest power up, the rest fitted again after each rounding. Needs mpmath.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 60

Function = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """p(x) ~ f(x) for low <= x <= high with `degree` per type; error(x) is what an error of 1 in p costs in the result,
    relative to it."""

    name: str
    doc: str
    f: Function
    error: Function
    low: float
    high: float
    degree: tuple[int, int]  # f32, f64


def two_over_pi_words(words: int) -> list[int]:
    """The first `words` 32-bit words of 2/pi = 0.A2F9836E..., by Machin's series in integers."""
    guard = 64
    one = 1 << (32 * words + guard)

    def arctan_of_inverse(n: int) -> int:
        term = one // n
        total, k, sign = term, 3, -1
        while term:
            term //= n * n
            total += sign * (term // k)
            k, sign = k + 2, -sign
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    value = (2 * one * one // pi) >> guard
    return [value >> (32 * (words - 1 - i)) & 0xFFFFFFFF for i in range(words)]


def minimax(f: Sequence[mpf], weight: Sequence[mpf], x: Sequence[mpf], powers: Sequence[int]) -> list[mpf]:
    """Coefficients c of sum c[i] x^powers[i] with the least largest |weight (sum - f)| over the grid x."""
    n = len(powers)
    basis = [[w * point**p for p in powers] for point, w in zip(x, weight, strict=True)]
    target = [w * y for w, y in zip(weight, f, strict=True)]
    reference = [round((len(x) - 1) * (1 - mp.cos(mp.pi * i / n)) / 2) for i in range(n + 1)]
    for _ in range(40):
        rows = [[*basis[i], (-1) ** k] for k, i in enumerate(reference)]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([target[i] for i in reference]))
        c, level = list(solution[:n]), abs(solution[n])
        error = [mp.fdot(row, c) - y for row, y in zip(basis, target, strict=True)]
        extremes: list[int] = []
        for i, e in enumerate(error):
            if extremes and (e > 0) == (error[extremes[-1]] > 0):
                if abs(e) > abs(error[extremes[-1]]):
                    extremes[-1] = i
            else:
                extremes.append(i)
        while len(extremes) > n + 1:
            extremes.pop(0 if abs(error[extremes[0]]) < abs(error[extremes[-1]]) else -1)
        if len(extremes) < n + 1 or max(map(abs, error)) <= level * mpf("1.0001"):
            break
        reference = extremes
    return c


def rounded(value: mpf, double: bool) -> float:
    """To nearest even in f64 or f32."""
    return float(value) if double else struct.unpack("<f", struct.pack("<f", float(value)))[0]


def fit(row: Fit, double: bool) -> tuple[list[float], mpf]:
    """Coefficients, lowest power first, and the largest weighted error."""
    degree = row.degree[double]
    count = 24 * (degree + 2)
    low, high = mpf(row.low), mpf(row.high)
    x = [low + (high - low) * (1 - mp.cos(mp.pi * (i + mpf("0.5")) / count)) / 2 for i in range(count)]
    f = [row.f(point) for point in x]
    weight = [abs(row.error(point)) for point in x]
    best = minimax(f, weight, x, range(degree + 1))
    coefficients: list[float] = []
    left = list(f)
    for power in range(degree + 1):
        if power and low >= 0:  # with 0 inside the interval higher powers alone are no system for the exchange
            best[power:] = minimax(left, weight, x, range(power, degree + 1))
        c = rounded(best[power], double)
        coefficients.append(c)
        left = [y - c * point**power for y, point in zip(left, x, strict=True)]
    return coefficients, max(abs(w * y) for w, y in zip(weight, left, strict=True))


def _log_tail(f: mpf) -> mpf:
    return (mp.log1p(f) - f + f * f / 2) / f**3 if abs(f) > 1e-12 else mpf(1) / 3 - f / 4


def _atanh_tail(z: mpf) -> mpf:
    """(atanh(s) / s - 1) / s^2 of z = s^2."""
    s = mp.sqrt(z)
    return (mp.atanh(s) / s - 1) / z


def _odd_tail(function: Function) -> Function:
    """(f(r) - r) / r^3 of s = r^2."""
    return lambda s: (function(mp.sqrt(s)) - mp.sqrt(s)) / (mp.sqrt(s) * s)


def _odd_error(function: Function) -> Function:
    return lambda s: mp.sqrt(s) * s / function(mp.sqrt(s))


def _pow_tail(z: mpf) -> mpf:
    return (_atanh_tail(z) - mpf(1) / 3) / z


def _erf_log(x: mpf) -> mpf:
    return (-mp.log(mp.erfc(x)) / x if x else 2 / mp.sqrt(mp.pi)) - 1


def _erfc_of(t: mpf) -> mpf:
    x = 4 * (1 + t) / (1 - t)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


HALF_LN2 = 0.3466
QUARTER_PI_2 = 0.6170

FITS: tuple[Fit, ...] = (
    Fit("EXP", "(e^r - 1 - r) / r^2, |r| <= ln2 / 2", lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.exp(r),
        -HALF_LN2, HALF_LN2, (4, 10)),
    Fit("LOG", "(ln(1 + f) - f + f^2 / 2) / f^3, |f| <= 1/3", _log_tail, lambda f: f**3 / mp.log1p(f),
        -0.33334, 0.33334, (8, 0)),
    Fit("ATANH", "(atanh(s) / s - 1) / s^2 of s^2, for logarithms of [2/3, 4/3]", _atanh_tail, lambda z: z,
        0.0, 0.0401, (3, 7)),
    Fit("SIN", "(sin r - r) / r^3 of r^2", _odd_tail(mp.sin), _odd_error(mp.sin), 0.0, QUARTER_PI_2, (2, 5)),
    Fit("COS", "(cos r - 1 + r^2 / 2) / r^4 of r^2", lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2,
        lambda s: s**2 / mp.cos(mp.sqrt(s)), 0.0, QUARTER_PI_2, (2, 5)),
    Fit("ASIN", "(asin r - r) / r^3 of r^2, r <= 1/2", _odd_tail(mp.asin), _odd_error(mp.asin), 0.0, 0.25, (4, 12)),
    Fit("ATAN", "(atan r - r) / r^3 of r^2, r <= tan(pi / 8)", _odd_tail(mp.atan), _odd_error(mp.atan),
        0.0, 0.17158, (4, 10)),
    Fit("ERF", "erf(x) / x - 1 of x^2, x <= 1", lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1,
        lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)), 0.0, 1.0, (0, 14)),
    Fit("POW", "((atanh(s) / s - 1) / s^2 - 1/3) / s^2 of s^2, for pow", _pow_tail, lambda z: z**2,
        0.0, 0.0401, (2, 7)),
    Fit("ERFC", "e^(x^2) erfc(x) (1 + 2 x) of (x - 4) / (x + 4), x <= 28", _erfc_of, lambda t: 1 / _erfc_of(t),
        -1.0, 0.75, (11, 23)),
    Fit("ERF_LOG", "-ln(1 - erf x) / x - 1, x <= 4", _erf_log, lambda x: x * mp.erfc(x) / mp.erf(x) if x else mpf(1),
        0.0, 4.0, (8, 0)),
    Fit("ERF_NEAR", "erf(x) / x - 1 of x^2, x <= 0.9", lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1,
        lambda s: mp.sqrt(s) / mp.erf(mp.sqrt(s)), 0.0, 0.8101, (5, 0)),
    Fit("ERF_FAR", "-log2(1 - erf x), 0.9 <= x <= 4", lambda x: -mp.log(mp.erfc(x), 2),
        lambda x: mp.ln2 * mp.erfc(x) / mp.erf(x), 0.8999, 4.0, (5, 0)),
    Fit("TANH", "(tanh(r) - r) / r^3 of r^2, r <= 0.75", _odd_tail(mp.tanh), _odd_error(mp.tanh), 0.0, 0.5626, (4, 0)),
)  # fmt: skip


def words(value: mpf, count: int, bits: int, double: bool) -> list[float]:
    """`value` as a sum of `count` numbers, all but the last of `bits` bits (0: of the type's), largest first."""
    parts: list[float] = []
    for i in range(count):
        part = rounded(value, double)
        if bits and i < count - 1:
            ulp = mpf(2) ** (mp.floor(mp.log(abs(value), 2)) + 1 - bits)
            part = float(mp.floor(value / ulp) * ulp)
        parts.append(part)
        value -= part
    return parts


# name, value, parts, bits of each but the last (0: all)
SPLITS: tuple[tuple[str, Callable[[], mpf], int, tuple[int, int]], ...] = (
    ("LN2", lambda: mp.ln2, 2, (0, 0)),
    ("LOG10_2", lambda: mp.log10(2), 2, (0, 0)),
    ("LOG2_E", lambda: 1 / mp.ln2, 2, (0, 0)),
    ("LOG10_E", lambda: 1 / mp.ln(10), 2, (0, 0)),
    ("TWO_OVER_PI", lambda: 2 / mp.pi, 2, (0, 0)),
    ("HALF_PI", lambda: mp.pi / 2, 3, (24, 53)),  # truncated: the remainder is positive
    ("THIRD", lambda: mpf(1) / 3, 2, (0, 0)),
)


def main() -> None:
    """Write the header to standard output, the errors into its comments."""
    print(
        "// Printed by codegen/tools/vec_coefficients.py. Highest power first; after each, the largest relative error."
    )
    print("#pragma once")
    for row in FITS:
        print(f"// {row.name}: {row.doc}")
        for double in (False, True):
            if row.degree[double] == 0:
                continue
            coefficients, error = fit(row, double)
            text = ", ".join(repr(c) if double else f"{c:.9g}" for c in reversed(coefficients))
            print(f"#define {row.name}_{'F64' if double else 'F32'} {text}  // 2^{mp.nstr(mp.log(error, 2), 4)}")
    print("// Constants as sums of two or three numbers, largest first.")
    for name, value, count, widths in SPLITS:
        for double in (False, True):
            parts = words(value(), count, widths[double], double)
            for part, suffix in zip(parts, ("HI", "MID", "LO") if count == 3 else ("HI", "LO"), strict=True):
                print(f"#define {name}_{suffix}_{'F64' if double else 'F32'} {part!r}")
    print("// 2/pi = 0.A2F9836E... in 32-bit words.")
    table = two_over_pi_words(40)
    lines = [", ".join(f"0x{word:08x}u" for word in table[i : i + 8]) for i in range(0, len(table), 8)]
    print("#define TWO_OVER_PI \\\n  " + ", \\\n  ".join(lines))


if __name__ == "__main__":
    main()
