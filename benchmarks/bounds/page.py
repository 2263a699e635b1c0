"""Bounds beside measured times as a page."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from benchmarks.bounds.outcome import Median, Outcome, summary
from benchmarks.bounds.timing import QUICK
from fusion_ir.records import Ceilings, Device

LEAST_SHARE = 0.6  # of the measured time, in the median over what memory bounds: issue 6
LEAST_PRODUCT_SHARE = 0.5  # the same over what products of 16-bit operands bound on the CPU: issue 22
NOISE = 0.03  # of a time


def page(
    on: Mapping[str, Sequence[Outcome]], device: Device, facts: Mapping[str, str], seconds: float, passes: int
) -> str:
    """The results for a person."""
    ceilings = device.ceilings
    assert ceilings is not None
    lines = ["# Lower bounds beside measured times", "", f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {seconds:.0f} s", ""]
    lines += ["| | of | cases | median share | the same by moment | of cases |", "|---|---|---:|---:|---:|---:|"]
    for name, outcomes in on.items():
        s = summary(outcomes)
        lines.append(_medians(name, "bound by their bytes", s.by_bytes))
        lines += [_medians(name, f"of these, {dtype}", found) for dtype, found in s.by_dtype.items()]
        lines.append(_medians(name, 'labelled "memory" in the corpus', s.labelled))
        if s.narrow_products:
            lines.append(_medians(name, "bound by products of 16-bit operands", s.narrow_products))
    largest = [f"{(s := summary(outcomes)).largest:.3f} on {name} ({s.largest_of})" for name, outcomes in on.items()]
    lines += [
        "",
        f"The largest share: {', '.join(largest)}. Asked for: no share above 1 beyond noise ({NOISE:.0%}), and a "
        f"median of {LEAST_SHARE} or more over what memory bounds, on the CPU of {LEAST_PRODUCT_SHARE} over what "
        "products of 16-bit operands bound.",
        "",
        "Bound by their bytes: of the terms of the bound (a launch, bytes, arithmetic, products of narrow operands) "
        "that of the bytes is the largest. Graph and ceilings decide it, no time: kernels that take much longer than "
        "their bytes stay in. The corpus' label is of the graph alone: contraction arithmetic over bytes "
        "(benchmarks/corpus/balance.py).",
        "",
        f"Share: the bound over the fastest run, on the CPU of {passes} visits, by the best ceilings of the whole run "
        f"({ceilings.copy_gbps[-1][1]:.0f} GB/s of copies, {ceilings.read_gbps[-1][1]:.0f} of reads, "
        f"{ceilings.write_gbps or 0:.0f} of writes; GFLOP/s of products: {_rates(ceilings)}). "
        f"By moment: the median of rounds in each of which the ceilings "
        f"were timed before and after the kernel, were the same, and all at least {QUICK:.0%} of the best.",
    ]
    for name, outcomes in on.items():
        moved = sorted((o for o in outcomes if o.by_bytes), key=lambda o: o.share)
        others = sorted((o for o in outcomes if not o.by_bytes), key=lambda o: o.share)
        lines += ["", f"## {name}: bound by their bytes", "", *_table(moved)]
        if others:
            lines += ["", f"## {name}: bound by something else", "", *_table(others)]
    return "\n".join([*lines, "", *(f"- {k}: {v}" for k, v in facts.items())]) + "\n"


def _rates(ceilings: Ceilings) -> str:
    return ", ".join(f"{gflops:.0f} of {dtype}" for dtype, gflops in ceilings.product_gflops)


def _medians(name: str, of: str, found: Median) -> str:
    then = "| |" if found.share_then is None else f"**{found.share_then:.2f}** | {found.cases_then} |"
    return f"| {name} | {of} | {found.cases} | **{found.share:.2f}** | {then}"


def _table(outcomes: Sequence[Outcome]) -> list[str]:
    lines = ["| case | label | read | written | bytes us | bound us | of | fastest us | share | by moment | kernel |"]
    lines.append("|---|---|---:|---:|---:|---:|---|---:|---:|---:|---|")
    for o in outcomes:
        then = "" if o.share_then is None else f"{o.share_then:.2f}"
        moved = (f"{o.read_bytes:,}", f"{o.written_bytes:,}", "" if o.bytes_us is None else f"{o.bytes_us:.1f}")
        cells = (f"{o.bound_us:.1f}", o.bound_by, f"{o.time_us:.1f}", f"{o.share:.2f}", then, o.kernel)
        lines.append(f"| {' | '.join((o.name, o.kind, *moved, *cells))} |")
    return lines
