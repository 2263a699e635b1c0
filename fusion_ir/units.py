"""Numbers with units as people read them, in reasons and on every page alike."""

NONE = "–"


def significant(value: float, digits: int = 3) -> str:
    """1234.5 -> "1,234", 12.345 -> "12.3", 0.01234 -> "0.0123"; never in exponent form."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    before = len(str(int(magnitude))) if magnitude >= 1 else 0
    if before >= digits:
        return f"{value:,.0f}"
    if before:
        return f"{value:.{digits - before}f}"
    decimals = digits
    while decimals < 12 and magnitude * 10 ** (decimals - digits + 1) < 1:
        decimals += 1
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def duration(us: float | None) -> str:
    """Microseconds: "870 ns", "12.3 µs", "2.81 ms", "1.20 s"."""
    if us is None:
        return NONE
    for limit, scale, unit in ((0.9995, 1e-3, "ns"), (999.5, 1, "µs"), (999_500, 1e3, "ms")):
        if us < limit:
            return f"{significant(us / scale)} {unit}"
    return f"{significant(us / 1e6)} s"
