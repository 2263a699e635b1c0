"""One workbench on the emulator per module, which checks kernels."""

from collections.abc import Iterator

import pytest

from codegen.devices.detection import detect
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    cache = ObjectCache(tmp_path_factory.mktemp("objects"))
    with Workbench(detect("emulator:sm_90a", cache), cache, Limits(timing_seconds=0.0)) as made:
        yield made
