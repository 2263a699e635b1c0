"""One workbench on this machine's CPU per module, which checks kernels and times none; and a machine whose ceilings are
known."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.hardware.libraries import LIBRARIES, MKL
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from tests.support.known_machine import know_machine
from tests.support.whole import WHOLE
from tuning_db.store import Store


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """The CPU, in a long run with all libraries that kernels can call here (else test_libraries.py tries these)."""
    cache = ObjectCache(tmp_path_factory.mktemp("objects"))
    target = "cpu:mkl" if WHOLE and LIBRARIES[MKL].find() else "cpu"
    with Workbench(detect(target, cache, ceilings=False), cache, Limits(timing_seconds=0.0)) as made:
        yield made


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    with Store(f"sqlite:///{folder / 'plans.db'}") as store:
        know_machine(ObjectCache(folder / "cache", store.seal()))
    know_machine(ObjectCache(folder / "cache"))  # for who opens the cache without the database's seal
    return folder


@pytest.fixture
def known_machine(measured: Path, tmp_path: Path) -> Path:
    """The test's folder, with an empty database plans.db and an object cache cache that knows the machine's ceilings:
    measuring them takes some seconds."""
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    return tmp_path
