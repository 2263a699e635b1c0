"""Reports of `make test-gpu` about its tests, on a stand-in for a device: lost contexts, and the results file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.whole import in_turn

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """
import sys
from types import ModuleType, SimpleNamespace

from tests.support import gpu
from tests.support.devices import CUDA_DEVICE


class CUDARuntimeError(RuntimeError):
    pass


def synchronize():
    if cupy.broken:
        raise CUDARuntimeError("cudaErrorIllegalInstruction")


cupy = ModuleType("cupy")
cupy.broken = False
cupy.cuda = SimpleNamespace(
    Device=lambda: SimpleNamespace(synchronize=synchronize), runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError)
)
sys.modules["cupy"] = cupy
gpu._answers[:] = [CUDA_DEVICE]
"""
TESTS = """
import cupy
import pytest

own = pytest.mark.own_context


@pytest.fixture(scope="module")
def loaded():
    cupy.cuda.Device().synchronize()


@own
def test_fails_alone(loaded):
    assert not "a wrong result"


@own
def test_is_right(loaded):
    pass


@own
def test_breaks():
    cupy.broken = True
    BREAKS


@own
def test_comes_later(loaded):
    cupy.cuda.Device().synchronize()


def test_in_a_child(device):
    assert device.target == "cuda"
"""


def outcomes(folder: Path, breaks: str, *options: str) -> tuple[dict[str, str], dict[str, int]]:
    """How each of the tests ended, by the results file, and the counts there."""
    (folder / "tests" / "gpu").mkdir(parents=True)
    (folder / "tests" / "gpu" / "test_small.py").write_text(TESTS.replace("BREAKS", breaks))
    (folder / "stand_in.py").write_text(STAND_IN)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = own_context\n")
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "FUSEPLAN_"))},
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), str(ROOT / "client")]),
        "FUSEPLAN_GPU_RESULTS": str(folder / "results.json"),
        "FUSEPLAN_COMMIT": "abc",
    }
    plugins = ["-p", "stand_in", "-p", "tests.gpu.conftest", "--import-mode=importlib"]
    plugins += [
        f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "anyio", "logging")
    ]  # take seconds to import
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options, "tests/gpu"]
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    written = json.loads((folder / "results.json").read_text())
    assert (written["facts"]["commit"], written["facts"]["device"]["name"]) == ("abc", "test gpu")
    return {name.partition("::")[2]: outcome for name, outcome in written["tests"].items()}, written["counts"]


LOST = "skipped: Skipped: context lost by tests/gpu/test_small.py::test_breaks: cudaErrorIllegalInstruction"


@pytest.mark.turn("processes that are killed")
@pytest.mark.soak
@pytest.mark.parametrize(
    ("breaks", "options"),
    in_turn(
        [
            pytest.param("pass", (), id="alone"),
            pytest.param("cupy.cuda.Device().synchronize()", ("-n", "1"), id="xdist"),
        ],
        1,
    ),
)
def test_a_lost_context(breaks: str, options: tuple[str, ...], tmp_path: Path) -> None:
    found, counts = outcomes(tmp_path, breaks, *options)
    assert found == {
        "test_fails_alone": "failed",
        "test_is_right": "passed",
        "test_breaks": "failed",
        "test_comes_later": LOST,
        "test_in_a_child": "passed",
    }
    assert counts == {"failed": 2, "passed": 2, "skipped": 1}
