"""Fixtures of all test folders: golden files, and a garbage collector that old objects do not slow down."""

import compileall
import gc
import os
import secrets
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from math import ceil
from pathlib import Path

import pytest

from codegen.sandbox.temporary_folders import sweep
from testing.objects import VARIABLE, Keeping, objects
from tests.support.whole import SEED, WHOLE, in_turn, some

ROOT = Path(__file__).resolve().parent.parent
OURS = ("fusion_ir", "codegen", "scheduler", "tuning_db", "service", "client", "testing", "tests", "benchmarks", "docs")
KEEPING = Keeping()
TORCH_CACHE = pytest.StashKey[str]()

# A run starts a thousand interpreters, many of which must not write bytecode: where nobody does, each compiles all that
# it imports. Programs that tests start inherit this.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure(config: pytest.Config) -> None:
    """Draws the seed of this run and names its folder of compiled files, before there are workers, which inherit both.
    Each process has a folder of PyTorch's own."""
    os.environ.setdefault(SEED, str(secrets.randbelow(10**6)))
    if VARIABLE not in os.environ and hasattr(config, "cache"):
        os.environ[VARIABLE] = str(config.cache.mkdir("objects"))
    # What PyTorch compiled for another test, process or run is no part of a test.
    config.stash[TORCH_CACHE] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="fuseplan-inductor-")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        for folder in OURS:
            compileall.compile_dir(ROOT / folder, quiet=2, workers=0)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Bounds what the next run finds, and removes what processes left that tests killed; the process that began the run
    does so, last."""
    shutil.rmtree(config.stash[TORCH_CACHE], ignore_errors=True)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        sweep()
        if VARIABLE in os.environ:
            objects().trim()


@pytest.fixture(scope="session", autouse=True)
def compilers_keep() -> Iterator[None]:
    """Compilers in the processes of tests take what an earlier test, or run, compiled, see `testing.objects`."""
    with pytest.MonkeyPatch.context() as patch:
        KEEPING.install(patch.setattr)
        yield


@pytest.fixture(scope="session", autouse=True)
def migrated_once() -> Iterator[None]:
    """New databases of the processes of tests are copies of the first, see `tests.support.migrated_once`."""
    if find_spec("sqlalchemy") is None:  # as where the tests of GPUs run
        yield
        return
    from tests.support.migrated_once import MigratedOnce

    with pytest.MonkeyPatch.context() as patch:
        MigratedOnce().install(patch)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `compiles` are about compilers, or about what happens while they work: nothing is taken there."""
    KEEPING.active = item.get_closest_marker("compiles") is None


def pytest_report_header(config: pytest.Config) -> str:
    return "sweeps: whole" if WHOLE else f"sweeps: parts, drawn with {SEED}={os.environ[SEED]}; `make soak` runs all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not drawn of tests marked `sweep(share)` or `turn(name)`, unless somebody names tests."""
    if WHOLE or any("::" in argument for argument in config.args):
        return
    sweeps: dict[str, list[pytest.Item]] = defaultdict(list)
    turns: dict[str, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        test = item.nodeid.partition("[")[0]
        if item.get_closest_marker("sweep"):
            sweeps[test].append(item)
        if turn := item.get_closest_marker("turn"):
            turns[turn.args[0]][test].append(item)
    left: set[pytest.Item] = set()
    for name, of in sweeps.items():
        marker = of[0].get_closest_marker("sweep")
        assert marker is not None
        count = ceil(marker.args[0] * len(of))
        draw = some if count > 2 else in_turn  # `some` takes the first and the last: of two, the others had no turn
        left |= {*of} - {*draw(of, count, name)}
    for name, tests in turns.items():
        drawn = in_turn(sorted(tests), 1, name)
        left.update(item for test, of in tests.items() if test not in drawn for item in of)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


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
