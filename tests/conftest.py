"""Fixtures of all test folders: golden files, and a garbage collector that old objects do not slow down."""

import gc
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path

import pytest

from testing.objects import VARIABLE, Keeping, objects
from tests.support.whole import SEED, WHOLE, some


def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed of this run and names its folder of compiled files, before there are workers, which inherit
    both."""
    os.environ.setdefault(SEED, str(secrets.randbelow(10**6)))
    if VARIABLE not in os.environ and hasattr(config, "cache"):
        os.environ[VARIABLE] = str(config.cache.mkdir("objects"))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Bounds what the next run finds; the process that began the run does so, last."""
    if "PYTEST_XDIST_WORKER" not in os.environ and VARIABLE in os.environ:
        objects().trim()


KEEPING = Keeping()


@pytest.fixture(scope="session", autouse=True)
def compilers_keep() -> Iterator[None]:
    """Compilers in the processes of tests take what an earlier test, or run, compiled, see `testing.objects`."""
    with pytest.MonkeyPatch.context() as patch:
        KEEPING.install(patch.setattr)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `compiles` are about compilers, or about what happens while they work: nothing is taken there."""
    KEEPING.active = item.get_closest_marker("compiles") is None


def pytest_report_header(config: pytest.Config) -> str:
    return "sweeps: whole" if WHOLE else f"sweeps: parts, drawn with {SEED}={os.environ[SEED]}; `make soak` runs all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not drawn of tests marked `sweep(share)`, unless somebody names tests."""
    if WHOLE or any("::" in argument for argument in config.args):
        return
    sweeps: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sweep"):
            sweeps[item.nodeid.partition("[")[0]].append(item)
    kept: set[pytest.Item] = set()
    for name, of in sweeps.items():
        marker = of[0].get_closest_marker("sweep")
        assert marker is not None
        kept.update(some(of, ceil(marker.args[0] * len(of)), name))
    left = [item for item in items if item.get_closest_marker("sweep") and item not in kept]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture(scope="module", autouse=True)
def old_objects_stay() -> Iterator[None]:
    """Freezes the objects that outlive a module, so that later collections skip them: tests/unit took 51 s with this,
    57 s without."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares text with the file golden/<name> beside the test, or writes it."""
    folder = Path(str(request.path)).parent / "golden"

    def check(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-goldens"):
            folder.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: run pytest with --update-goldens"
        assert text == path.read_text(), f"{path.name} differs: look at it, then run pytest with --update-goldens"

    return check
