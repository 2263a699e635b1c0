"""One workbench on the emulator per module, which checks kernels; and the names that its tests are drawn for."""

from collections.abc import Iterator

import pytest

from codegen.devices.detection import detect
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from tests.support.whole import drawn_parameters


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    cache = ObjectCache(tmp_path_factory.mktemp("objects"))
    with Workbench(detect("emulator:sm_90a", cache), cache, Limits(timing_seconds=0.0)) as made:
        yield made


@pytest.fixture(scope="module")
def drawn(request: pytest.FixtureRequest) -> frozenset[str]:
    """Values of the parameter `name` of the module's tests that this run has."""
    return frozenset(p["name"] for p in drawn_parameters(request) if "name" in p)
