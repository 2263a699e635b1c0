"""Bounds beside times: which term a case is bound by, shares by the best moment and by the same, and their medians."""

from dataclasses import replace

import pytest

from benchmarks.bounds.entry import BoundCase
from benchmarks.bounds.outcome import Outcome, outcome, summary, with_memory
from benchmarks.bounds.page import page
from benchmarks.bounds.timing import Moment, Rates
from benchmarks.corpus import CASES
from scheduler.cost.traffic import Traffic, traffic_of
from tests.unit.scheduler.fakes import CEILINGS, DEVICE

SLOW, FAST = Rates(25.0, 30.0, 20.0), Rates(50.0, 60.0, 40.0)


def entry_of(name: str, traffic: Traffic | None = None) -> BoundCase:
    instance = CASES[name].instance("f32")
    return BoundCase(CASES[name], "f32", instance, (), traffic or traffic_of(instance.graph))


def test_a_share_is_of_the_fastest_run_by_the_best_ceilings_and_of_steady_rounds_by_their_own() -> None:
    copy = Traffic(30_000_000, 30_000_000, 0, 0)  # 1.2 ms at 50 GB/s, 2.4 ms at 25
    near = Rates(45.0, 60.0, 40.0)
    moments = (Moment(FAST, 2400.0, True), Moment(near, 3200.0, True), Moment(FAST, 2000.0, False))
    found = outcome(entry_of("residual_add", copy), "k", (*moments, Moment(SLOW, 2500.0, True)), FAST, DEVICE)
    assert (found.bound_by, found.bytes_us, found.bound_us) == ("memory", 1200.0, 1200.0)
    assert (found.time_us, found.share) == (2000.0, 0.6)
    assert found.share_then == pytest.approx((1200 / 2400 + 1250 / 3200) / 2), (
        "of the first two: near copies at 48 GB/s"
    )
    assert outcome(entry_of("residual_add", copy), "k", moments[2:], FAST, DEVICE).share_then is None


def test_more_arithmetic_than_bytes_is_bound_by_arithmetic() -> None:
    much = Traffic(1000, 1000, 1e9, 1e9)
    found = outcome(entry_of("residual_add", much), "k", [Moment(FAST, 2e4, True)], FAST, DEVICE)
    assert (found.kind, found.bound_by, found.by_bytes, found.bound_us) == ("memory", "arithmetic", False, 1e4)
    assert found.bytes_us == pytest.approx(2000 / 60e3, rel=0.5)


def test_rates() -> None:
    assert SLOW.best(FAST) == FAST.best(SLOW) == FAST
    assert Rates(50.0, 61.0, 39.0).near(FAST)
    assert not replace(FAST, write_gbps=35.0).near(FAST)


def an_outcome(name: str, share: float, then: float | None, *, kind: str = "memory", by: str = "memory") -> Outcome:
    return Outcome(name, kind, by, "k", 10, 20, 1.0, share, 1.0, share, then)


def test_medians_are_of_what_memory_bounds_and_of_what_the_corpus_calls_so() -> None:
    found = summary(
        [
            an_outcome("a f32", 0.9, 0.8),
            an_outcome("b bf16", 0.4, None),
            an_outcome("c f32", 0.5, 0.6, kind="matmul"),
            an_outcome("d f32", 0.1, 0.2, by="arithmetic"),
            an_outcome("e bf16", 0.95, 0.95, kind="matmul", by="bf16 products"),
            an_outcome("g f16", 0.75, None, kind="matmul", by="f16 products"),
            an_outcome("h i8", 0.2, None, kind="matmul", by="i8 products"),
        ]
    )
    assert (found.largest, found.largest_of) == (0.95, "e bf16")
    assert found.narrow_products is not None
    assert (found.narrow_products.cases, found.narrow_products.share) == (2, pytest.approx(0.85))
    assert (found.by_bytes.cases, found.by_bytes.share) == (3, 0.5)
    assert (found.by_bytes.cases_then, found.by_bytes.share_then) == (2, pytest.approx(0.7))
    assert (found.labelled.cases, found.labelled.share) == (3, 0.4)
    assert [(dtype, m.cases, m.share_then) for dtype, m in found.by_dtype.items()] == [
        ("bf16", 1, None),
        ("f32", 2, pytest.approx(0.7)),
    ]


def test_the_page_lists_apart_what_memory_does_not_bound() -> None:
    outcomes = [an_outcome("a f32", 0.9, 0.8), an_outcome("d bf16", 0.1, None, by="bf16 products")]
    ceilings = CEILINGS.model_copy(update={"product_gflops": (("bf16", 200.0),)})
    device = DEVICE.model_copy(update={"ceilings": ceilings})
    text = page({"CPU": outcomes}, with_memory(device, FAST), {"commit": "x"}, 1.0, 2)
    moved, others = text.split("## CPU: bound by something else")
    assert "| a f32 |" in moved
    assert "| d bf16 |" in others
    assert "| CPU | bound by products of 16-bit operands | 1 | **0.10** |" in text
    assert "(50 GB/s of copies, 60 of reads, 40 of writes; GFLOP/s of products: 200 of bf16)" in moved
