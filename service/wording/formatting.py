"""Numbers as people read them: three significant digits and a unit."""

import re
from datetime import UTC, datetime
from unicodedata import category

from fusion_ir.records import Plan, Search
from fusion_ir.units import NONE, duration, significant

ONCE = "once for each version of the constants"  # how often steps of a prologue run
SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?([a-z]*)", re.ASCII | re.IGNORECASE)
UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("ib", 1024), ("b", 1000))
}


def expected(time_us: float | None, predicted_us: float | None) -> str:
    """A measured time as it is, a predicted one as "~12.3 µs"."""
    return f"~{duration(predicted_us)}" if time_us is None and predicted_us is not None else duration(time_us)


def prologue(plan: Plan) -> str:
    """The prologue, which runs before a plan's first run, in words: "prologue 12.3 µs, once for each version of the
    constants, keeps 30 KiB"."""
    timed = plan.time_us is not None
    time = expected(plan.prologue_us if timed else None, plan.prologue_us)
    return f"prologue {time}, {ONCE}, keeps {size(plan.kept_bytes)}"


def kernels_tried(search: Search) -> str:
    """ "20 kernels timed, 8 failed, 12 not worth timing by their compiler's report"."""
    words = [f"{count(search.measured, 'kernel')} timed"]
    words += [f"{search.failed:,} failed"] if search.failed else []
    words += [f"{search.dropped:,} not worth timing by their compiler's report"] if search.dropped else []
    return ", ".join(words)


def error(relative: float) -> str:
    """A relative error: "1.5e-05"."""
    return "0" if relative == 0 else f"{relative:.1e}"


def size(bytes_: float | None) -> str:
    """Bytes in powers of 1024: "512 B", "1.5 KiB", "84.0 MiB"."""
    if bytes_ is None:
        return NONE
    value, units = float(bytes_), ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        if value < 1000:
            return f"{int(value)} B" if unit == "B" else f"{significant(value)} {unit}"
        value /= 1024
    return f"{significant(value)} {units[-1]}"


def parse_size(text: str) -> int:
    """Bytes from "4096", "1.5GiB" (powers of 1024) or "2 GB" (powers of 1000), in any case. Raises ValueError for
    anything else, for what is less than a byte, and from 8 EiB on."""
    match = SIZE.fullmatch(text.strip())
    scale = UNITS.get(match[2].lower()) if match else None
    if match is None or scale is None:
        raise ValueError(f"expected bytes, or a number and a unit (KiB, MiB, GiB, TiB, kB, MB, GB, TB), got {text!r}")
    whole, _, part = match[1].partition(".")
    bytes_ = int(whole) * scale + int(part or "0") * scale // 10 ** len(part)
    if not 1 <= bytes_ < 2**63:
        raise ValueError(f"expected 1 byte to 2^63 - 1 bytes, got {text!r}")
    return bytes_


def rate(bytes_: float, us: float | None) -> str:
    """Bytes in microseconds as "87.1 GB/s" (powers of 1000)."""
    return NONE if not us else f"{significant(bytes_ / us / 1e3)} GB/s"


def times(ratio: float | None) -> str:
    """A ratio of two times, such as a speed-up: "8.05×"."""
    return NONE if ratio is None else f"{significant(ratio)}×"


def percent(share: float | None) -> str:
    """A share of 1: "78 %"; small shares keep a digit."""
    if share is None:
        return NONE
    value = 100 * share
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def spread(share: float | None) -> str:
    """ "± 2.6 %" of a spread; "" where there is none, as of one sample, whose spread is 0."""
    return f"± {percent(share)}" if share else ""


def ratio(over: float | None, under: float | None) -> float | None:
    """`over / under`, None where either is missing or `under` is 0."""
    return over / under if over is not None and under else None


def age(then: float, now: float) -> str:
    """Between two times in seconds: "just now", "5 min ago", "3 h ago", "12 days ago"."""
    seconds = max(0.0, now - then)
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 86400:
        return f"{int(seconds // 3600)} h ago"
    return f"{count(int(seconds // 86400), 'day')} ago"


def moment(seconds: float) -> str:
    """Seconds since 1970 as "2026-11-20T06:00:00+00:00"."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def date(seconds: float) -> str:
    """Seconds since 1970 as "2026-11-20 06:00 UTC"."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def unbroken(text: str) -> str:
    """Numbers and their units held together by spaces at which no line breaks."""
    return _NUMBER.sub("\N{NO-BREAK SPACE}", text)


def count(number: int, noun: str) -> str:
    """ "1 step", "3 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def visible(text: str, kept: str = "") -> str:
    """Characters that a terminal obeys or hides, as escapes: "\\x1b[2J". Those `kept` stay as they are."""
    if text.isprintable():
        return text
    return "".join(c if c in kept or category(c) not in _UNSEEN else c.encode("unicode_escape").decode() for c in text)


_NUMBER = re.compile(r"(?<=±) (?=\d)|(?<=\d) (?=[%×]|(?:[nµm]?s|min|h|B|[KMGT]iB|GB/s)\b)")
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # controls, formats such as the order of writing, surrogates, line ends
