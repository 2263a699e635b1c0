"""The ceilings: measured once, then remembered."""

from pathlib import Path

from codegen.ceilings import best
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


def test_raised_ceilings_are_remembered(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    first = detect("cpu", cache)
    raised = with_raised_ceilings(first, cache, [(1 << 30, 5e5)])
    assert first.ceilings is not None
    assert raised.ceilings is not None
    assert raised.ceilings == best(raised.ceilings, first.ceilings)
    assert raised.ceilings.copy_gbps[-1] == (0, 5e5), "what a kernel reached once can be reached"
    assert detect("cpu", cache).ceilings == raised.ceilings
