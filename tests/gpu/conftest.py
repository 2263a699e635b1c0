"""A device and workbenches on it, or no test at all. Tests that would begin after the time is up are left out, and so
are those that need a context that an earlier test of the process has lost; all are listed at the end as skipped."""

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from benchmarks.machine import machine
from codegen.devices.detection import detect
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Device
from tests.support.gpu import BUDGET_SECONDS, STARTED, context_error, found, skip_or_fail, time_is_up


def pytest_sessionstart(session: pytest.Session) -> None:
    """`make test-gpu` ends here where there is no device: one of several processes that left later would be a crash."""
    if os.environ.get("FUSEPLAN_NEED_GPU") and not hasattr(session.config, "workerinput"):
        with tempfile.TemporaryDirectory() as folder:
            answer = found(folder)
        if isinstance(answer, str):
            skip_or_fail(answer)


LOST: list[str] = []  # which test lost the context of this process, and what the device says since


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture, those of modules too."""
    if time_is_up():
        pytest.skip(f"left out: {BUDGET_SECONDS:.0f} s are over")
    if LOST and item.get_closest_marker("own_context"):
        pytest.skip(f"context lost by {LOST[0]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test fails that loses the context, even where its own results were right."""
    report = yield
    if item.get_closest_marker("own_context") and not report.skipped and not LOST:
        error = context_error()
        if error:
            LOST.append(f"{item.nodeid}: {error}")
            if report.passed:
                report.outcome, report.longrepr = "failed", f"the context is lost: {error}"
    return report


@pytest.fixture(scope="session")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    answer = found(str(tmp_path_factory.mktemp("detected")))
    if isinstance(answer, str):
        skip_or_fail(answer)
    assert isinstance(answer, Device)
    return answer


@pytest.fixture(scope="session")
def bench(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """The device, checking and not timing."""
    with Workbench(device, ObjectCache(tmp_path_factory.mktemp("objects")), Limits(timing_seconds=0.0)) as made:
        yield made


@pytest.fixture(scope="session")
def emulated(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """The emulator, for the device's architecture."""
    cache = ObjectCache(tmp_path_factory.mktemp("emulated"))
    with Workbench(detect(f"emulator:{device.arch}", cache), cache, Limits(timing_seconds=0.0)) as made:
        yield made


OUTCOMES: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keeps how each test of this folder ended, with the reason where it was left out."""
    if not report.nodeid.startswith("tests/gpu/") or (report.when != "call" and report.passed):
        return
    reason = f": {report.longrepr[2]}" if report.skipped and isinstance(report.longrepr, tuple) else ""
    if OUTCOMES.get(report.nodeid) != "failed":
        OUTCOMES[report.nodeid] = f"{report.outcome}{reason}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """`make test-gpu` leaves its results beside the benchmark's, also where several processes run the tests."""
    path = os.environ.get("FUSEPLAN_GPU_RESULTS")
    if not path or not OUTCOMES or hasattr(session.config, "workerinput"):
        return
    with tempfile.TemporaryDirectory() as folder:
        answer = found(folder)
    if isinstance(answer, Device):
        counts = Counter(outcome.partition(":")[0] for outcome in OUTCOMES.values())
        facts = {**machine(), "device": answer.model_dump(mode="json"), "seconds": round(time.monotonic() - STARTED)}
        content = {"title": "Tests on a GPU", "facts": facts, "counts": counts, "tests": OUTCOMES}
        Path(path).write_text(json.dumps(content, indent=1) + "\n")
