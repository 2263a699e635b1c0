"""The ceilings: measured once, then remembered."""

from pathlib import Path

import pytest

from codegen.devices.ceilings import Reached, best, raised
from codegen.devices.detection import detect, with_raised_ceilings
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.records import Ceilings


@pytest.mark.turn("ceilings")
def test_ceilings_are_measured_and_remembered(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    device = detect("cpu", cache)
    found = device.ceilings
    assert found is not None
    for table in (found.copy_gbps, found.read_gbps):
        limits = [limit for limit, _ in table]
        rates = [rate for _, rate in table]
        assert limits[-1] == 0
        assert limits[:-1] == sorted(set(limits[:-1]))
        assert rates == sorted(rates, reverse=True)
        assert all(0.1 < rate < 1e6 for rate in rates)
    assert found.fma_gflops > 0.1
    assert 0 < found.launch_us < 1e4
    assert found.write_gbps is not None
    assert 0.1 < found.write_gbps < 1e6
    rates = dict(found.product_gflops)
    assert rates["f32"] == rates["f16"] == found.fma_gflops, "no kernel here has anything else for them"
    # CPUs with two units for f32 and one for pairs of bf16 are as fast with either.
    assert rates["f8e4m3"] == rates["bf16"] >= found.fma_gflops, "an f8 is a bf16"
    assert rates.get("i8") == rates.get("u8")
    assert "i8" in rates or "avx2" not in device.features
    assert found.gbps(1 << 40) == found.copy_gbps[-1][1]
    assert detect("cpu", ObjectCache(tmp_path)).ceilings == found
    assert detect("cpu", cache, ceilings=False).ceilings is None


SLOW = Ceilings(copy_gbps=((1000, 9.0), (0, 2.0)), read_gbps=((1000, 8.0), (0, 5.0)), launch_us=2.0, fma_gflops=10.0)
FAST = Ceilings(copy_gbps=((1000, 8.0), (0, 4.0)), read_gbps=((1000, 9.0), (0, 6.0)), launch_us=1.0, fma_gflops=11.0)


def test_the_best_of_two_measurements_is_kept() -> None:
    expected = FAST.model_copy(update={"copy_gbps": ((1000, 9.0), (0, 4.0))})
    assert best(SLOW, FAST) == best(FAST, SLOW) == expected
    assert best(SLOW, None) == SLOW
    other_levels = FAST.model_copy(update={"copy_gbps": ((0, 4.0),), "read_gbps": ((0, 6.0),)})
    assert best(SLOW, other_levels) == SLOW


def test_the_best_of_two_measurements_of_writes_is_kept() -> None:
    one, other = (SLOW.model_copy(update={"write_gbps": gbps}) for gbps in (2.0, 1.0))
    assert best(one, other) == best(other, one) == best(one, SLOW) == best(SLOW, one) == one


def test_a_level_is_raised_by_what_was_reached_there() -> None:
    slow = SLOW.model_copy(update={"write_gbps": 1.5})
    memory = {"copy_gbps": ((1000, 9.0), (0, 6.0)), "read_gbps": ((1000, 8.0), (0, 15.0)), "write_gbps": 4.5}
    reached = [Reached(1001, "memory", 2.0), Reached(1 << 30, "memory", 3.0), Reached(1000, "cache", 0.5)]
    assert raised(slow, reached) == slow.model_copy(update=memory)
    cache = {"copy_gbps": ((1000, 18.0), (0, 2.0)), "read_gbps": ((1000, 16.0), (0, 5.0))}
    assert raised(slow, [Reached(1000, "cache", 2.0)]) == slow.model_copy(update=cache)
    assert raised(slow, [Reached(1000, None, 2.0)]) == slow.model_copy(update=cache), "plans of before do not say"


@pytest.mark.parametrize(
    ("bound_by", "update"),
    [
        ("launch", {"launch_us": 1.0}),
        ("arithmetic", {"fma_gflops": 20.0}),
        ("bf16 products", {"product_gflops": (("bf16", 60.0), ("f16", 10.0))}),
    ],
)
def test_what_bounded_a_kernel_is_raised_and_nothing_else(bound_by: str, update: dict[str, object]) -> None:
    """A product faster than its arithmetic once made memory seem faster."""
    slow = SLOW.model_copy(update={"product_gflops": (("bf16", 30.0), ("f16", 10.0))})
    assert raised(slow, [Reached(1000, bound_by, 2.0), Reached(1000, bound_by, 0.9)]) == slow.model_copy(update=update)


def test_the_best_of_two_measurements_of_products_is_kept() -> None:
    one, other = (
        SLOW.model_copy(update={"product_gflops": rates})
        for rates in ((("bf16", 3.0), ("f16", 5.0)), (("bf16", 4.0), ("f16", 2.0), ("i8", 1.0)))
    )
    both = {"bf16": 4.0, "f16": 5.0, "i8": 1.0}
    assert dict(best(one, other).product_gflops) == dict(best(other, one).product_gflops) == both
    assert best(one, SLOW).product_gflops == best(SLOW, one).product_gflops == one.product_gflops


@pytest.mark.turn("ceilings")
def test_raised_ceilings_are_remembered(known_machine: Path) -> None:
    cache = ObjectCache(known_machine / "cache")
    first = detect("cpu", cache)
    again = with_raised_ceilings(first, cache, [Reached(1 << 40, "memory", 100.0)])
    assert first.ceilings is not None
    assert again.ceilings is not None
    assert again.ceilings == best(again.ceilings, first.ceilings)
    assert again.ceilings.copy_gbps[-1] == (0, 100 * first.ceilings.copy_gbps[-1][1]), "reached once, it can be reached"
    assert first.ceilings.write_gbps is not None
    assert again.ceilings.write_gbps == 100 * first.ceilings.write_gbps
    assert detect("cpu", cache).ceilings == again.ceilings
    only = with_raised_ceilings(again, cache, [Reached(1 << 40, "memory", 2.0)], measured=False)
    assert only.ceilings is not None
    assert only.ceilings == raised(again.ceilings, [Reached(1 << 40, "memory", 2.0)])
    assert detect("cpu", cache).ceilings == only.ceilings
