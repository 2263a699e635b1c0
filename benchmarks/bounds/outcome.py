"""What a case's bound is beside the times that its kernel took, and what many of them come to."""

import json
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bounds.entry import BoundCase
from benchmarks.bounds.timing import Moment, Rates
from benchmarks.gpu.entries import Entry as GpuEntry
from benchmarks.gpu.entries import entries
from benchmarks.machine import RESULTS
from fusion_ir.records import Device
from scheduler.cost.lower_bound import bound_by, bound_terms_us, lower_bound_us
from scheduler.cost.traffic import traffic_of

GPU_RESULTS = RESULTS / "gpu.json"


@dataclass(frozen=True)
class Outcome:
    """A case, its bound by the best ceilings of the whole run, and the times that go with it. kind: the corpus' label.
    bound_by: what is at its limit in the bound (`Plan.bound_by`). bytes_us: the term of the bytes, if it is known.
    share: of the bound in the fastest run; share_then: in the median over steady and quick rounds, of the bound by the
    ceilings of that moment."""

    name: str
    kind: str
    bound_by: str
    kernel: str
    read_bytes: int
    written_bytes: int
    bytes_us: float | None
    bound_us: float
    time_us: float
    share: float
    share_then: float | None
    moments: tuple[Moment, ...] = field(default=())

    @property
    def by_bytes(self) -> bool:
        """Whether memory bounds it, as far as the bound knows."""
        return self.bound_by in ("memory", "cache")

    @property
    def by_narrow_products(self) -> bool:
        """Whether it is bound by products of 16-bit operands."""
        return self.bound_by in ("bf16 products", "f16 products")


def outcome(entry: BoundCase, schedule: str, moments: Sequence[Moment], best: Rates, device: Device) -> Outcome:
    """Of a case timed here. best: what memory reached in the whole run."""
    there = with_memory(device, best)
    terms, limit = bound_terms_us(entry.traffic, there), bound_by(entry.traffic, there)
    assert limit is not None
    bound_us = max(terms.values())
    time_us = min(m.time_us for m in moments)
    then = [
        lower_bound_us(entry.traffic, with_memory(device, m.rates)) / m.time_us
        for m in moments
        if m.steady and m.rates.quick(best)
    ]
    share_then = statistics.median(then) if then else None
    return Outcome(
        entry.name, entry.case.kind, limit, schedule, entry.traffic.read_bytes, entry.traffic.written_bytes,
        terms["bytes"], bound_us, time_us, bound_us / time_us, share_then, tuple(moments),
    )  # fmt: skip


def with_memory(device: Device, rates: Rates) -> Device:
    """The device as if its main memory reached these."""
    ceilings = device.ceilings
    assert ceilings is not None
    update = {
        "copy_gbps": (*ceilings.copy_gbps[:-1], (0, rates.copy_gbps)),
        "read_gbps": (*ceilings.read_gbps[:-1], (0, rates.read_gbps)),
        "write_gbps": rates.write_gbps,
    }
    return device.model_copy(update={"ceilings": ceilings.model_copy(update=update)})


def on_gpu() -> list[Outcome]:
    """Whole plans on the H200, from what `benchmarks.gpu` wrote: their bounds are of ceilings measured there."""
    if not GPU_RESULTS.exists():
        return []
    rows = [r for r in json.loads(GPU_RESULTS.read_text())["rows"] if not r["problem"] and "plan" in r["times"]]
    known = {entry.name: entry for entry in entries()}
    # Of what has no products the bytes are the largest term: these are the bandwidths of its memory and of its L2.
    gbps = {row["bytes"] / row["bound_us"] for row in rows if row["moves"]}
    return [_on_gpu(row, known[row["name"]], gbps) for row in rows]


def _on_gpu(row: Mapping[str, Any], entry: GpuEntry, gbps: Collection[float]) -> Outcome:
    traffic, bound_us = traffic_of(entry.case.instance(entry.dtype).graph), row["bound_us"]
    time_us = statistics.median(row["times"]["plan"]["samples_us"])
    by_bytes = any(math.isclose(row["bytes"] / bound_us, known, rel_tol=1e-3) for known in gbps)
    return Outcome(
        row["name"], entry.case.kind, "memory" if by_bytes else _multiplied(entry.dtype),
        ", ".join(row["kernels"]), traffic.read_bytes, traffic.written_bytes, bound_us if by_bytes else None,
        bound_us, time_us, bound_us / time_us, None,
    )  # fmt: skip


def _multiplied(dtype: str) -> str:
    return "arithmetic" if dtype == "f32" else f"{dtype} products"


@dataclass(frozen=True)
class Median:
    """Of shares: of all cases by the best ceilings of the run, and of those with a steady and quick round by its."""

    cases: int
    share: float
    cases_then: int
    share_then: float | None


def median(outcomes: Sequence[Outcome]) -> Median:
    """Of these, one at least."""
    then = [o.share_then for o in outcomes if o.share_then is not None]
    share, share_then = statistics.median(o.share for o in outcomes), statistics.median(then) if then else None
    return Median(len(outcomes), share, len(then), share_then)


@dataclass(frozen=True)
class Summary:
    """largest: share of all. by_bytes: what memory bounds. labelled: what the corpus says that memory bounds. by_dtype:
    of what memory bounds. narrow_products: what products of 16-bit operands bound; None where nothing is."""

    largest: float
    largest_of: str
    by_bytes: Median
    labelled: Median
    by_dtype: dict[str, Median]
    narrow_products: Median | None


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """Of outcomes of which memory bounds one at least."""
    top = max(outcomes, key=lambda o: o.share)
    moved, narrow = [o for o in outcomes if o.by_bytes], [o for o in outcomes if o.by_narrow_products]
    dtypes = sorted({o.name.split()[-1] for o in moved})
    return Summary(
        top.share,
        top.name,
        median(moved),
        median([o for o in outcomes if o.kind == "memory"]),
        {dtype: median([o for o in moved if o.name.endswith(f" {dtype}")]) for dtype in dtypes},
        median(narrow) if narrow else None,
    )
