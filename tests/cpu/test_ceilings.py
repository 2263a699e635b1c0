"""The ceilings: measured once, then remembered."""

from pathlib import Path

from codegen.ceilings import best, raised
from codegen.devices import detect, with_raised_ceilings
from codegen.object_cache import ObjectCache
from fusion_ir.records import Ceilings


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
    assert raised(slow, [(1001, 2.0), (1 << 30, 3.0), (1000, 0.5)]) == slow.model_copy(update=memory)
    cache = {"copy_gbps": ((1000, 18.0), (0, 2.0)), "read_gbps": ((1000, 16.0), (0, 5.0))}
    assert raised(slow, [(1000, 2.0)]) == slow.model_copy(update=cache)


def test_raised_ceilings_are_remembered(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    first = detect("cpu", cache)
    again = with_raised_ceilings(first, cache, [(1 << 40, 100.0)])
    assert first.ceilings is not None
    assert again.ceilings is not None
    assert again.ceilings == best(again.ceilings, first.ceilings)
    assert again.ceilings.copy_gbps[-1] == (0, 100 * first.ceilings.copy_gbps[-1][1]), "reached once, it can be reached"
    assert first.ceilings.write_gbps is not None
    assert again.ceilings.write_gbps == 100 * first.ceilings.write_gbps
    assert detect("cpu", cache).ceilings == again.ceilings
    only = with_raised_ceilings(again, cache, [(1 << 40, 2.0)], measured=False)
    assert only.ceilings is not None
    assert only.ceilings == raised(again.ceilings, [(1 << 40, 2.0)])
    assert detect("cpu", cache).ceilings == only.ceilings
