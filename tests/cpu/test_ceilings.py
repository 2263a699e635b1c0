"""The ceilings: measured once, then remembered."""

from pathlib import Path

from codegen.devices import detect
from codegen.object_cache import ObjectCache


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
