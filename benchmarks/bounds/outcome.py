"""A case's lower bound beside the times of its kernel, and medians over many cases."""

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
    bound_by: the resource that the bound takes to its limit (`Plan.bound_by`). bytes_us: the bound's term of the bytes,
    if it is known. share: the bound over the fastest run; share_then: the bound by the ceilings of a round over that
    round's time, median of the steady and quick rounds."""

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
        """Whether memory or cache bounds the case, by the bound's largest term."""
        return self.bound_by in ("memory", "cache")

    @property
    def by_narrow_products(self) -> bool:
        """Whether it is bound by products of 16-bit operands."""
        return self.bound_by in ("bf16 products", "f16 products")


def outcome(entry: BoundCase, schedule: str, moments: Sequence[Moment], best: Rates, device: Device) -> Outcome:
    """The outcome of a case timed here. best: rates that memory reached in the whole run."""
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
    """The device with these rates as the ceilings of its main memory."""
    ceilings = device.ceilings
    assert ceilings is not None
    update = {
        "copy_gbps": (*ceilings.copy_gbps[:-1], (0, rates.copy_gbps)),
        "read_gbps": (*ceilings.read_gbps[:-1], (0, rates.read_gbps)),
        "write_gbps": rates.write_gbps,
    }
    return device.model_copy(update={"ceilings": ceilings.model_copy(update=update)})


def on_gpu() -> list[Outcome]:
    """Outcomes of whole plans on the H200, from the results of `benchmarks.gpu`, with bounds by ceilings measured
    there."""
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
    """Medians of `Outcome.share` over all cases, and of `Outcome.share_then` over the cases that have one."""

    cases: int
    share: float
    cases_then: int
    share_then: float | None


def median(outcomes: Sequence[Outcome]) -> Median:
    """Medians of the outcomes' shares; there is one outcome at least."""
    then = [o.share_then for o in outcomes if o.share_then is not None]
    share, share_then = statistics.median(o.share for o in outcomes), statistics.median(then) if then else None
    return Median(len(outcomes), share, len(then), share_then)


@dataclass(frozen=True)
class Summary:
    """largest: the largest share of all cases. Medians, by_bytes: of the cases that memory bounds; labelled: of those
    that the corpus labels so; by_dtype: of the cases that memory bounds, by dtype; narrow_products: of the cases that
    products of 16-bit operands bound, None where there are none."""

    largest: float
    largest_of: str
    by_bytes: Median
    labelled: Median
    by_dtype: dict[str, Median]
    narrow_products: Median | None


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """The summary of outcomes; memory has to bound one at least, and the corpus has to label one so."""
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
