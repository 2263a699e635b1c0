"""The parts of CUDA that a machine lacks, told from its child processes' errors."""

import pytest

from codegen.devices.detection import no_cuda
from codegen.hardware import missing_cuda
from codegen.hardware.missing_cuda import cupy_hint, lacks


class RuntimeFault(Exception):
    """An error like CuPy's, with CUDA's number of the error in `status`."""

    def __init__(self, status: int) -> None:
        super().__init__("cuda")
        self.status = status


@pytest.mark.parametrize(
    ("error", "driver", "lacking"),
    [
        (ModuleNotFoundError("cupy"), 0, "cupy"),
        (ImportError("libnvrtc.so.13"), 13000, "cupy"),
        (RuntimeFault(35), 0, "driver"),
        (RuntimeFault(35), 12040, "newer driver"),
        (RuntimeFault(100), 13000, "device"),
        (RuntimeFault(2), 13000, ""),
        (OSError("any"), 0, ""),
    ],
)
def test_what_is_lacking(error: Exception, driver: int, lacking: str) -> None:
    assert lacks(error, driver) == lacking


@pytest.mark.parametrize(
    ("lacking", "words", "installs"),
    [
        ("cupy", "pip install 'fuseplan[cuda13]'", True),
        ("driver", "CuPy is there, an NVIDIA driver is not", False),
        ("newer driver", "the NVIDIA driver is older than CuPy's CUDA", True),
        ("device", "the NVIDIA driver is there and shows no GPU", False),
        ("", "", False),
    ],
)
def test_what_is_there_is_not_to_be_installed(lacking: str, words: str, installs: bool) -> None:
    text = str(no_cuda({"problem": "P", "lacks": lacking}))
    assert text.startswith("no CUDA device: P")
    assert words in text
    assert ("pip install" in text) is installs
    assert str(no_cuda({"problem": "cuda:3 is not there"})) == "no CUDA device: cuda:3 is not there"


def test_cupy_that_only_this_process_finds_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_cuda, "find_spec", lambda name: None)
    problem = "ModuleNotFoundError: No module named 'cupy'"
    assert cupy_hint(problem).startswith("pip install")
    monkeypatch.setattr(missing_cuda, "find_spec", lambda name: object())
    assert "CuPy can be imported here, but not by the processes that compile" in cupy_hint(problem)
    assert cupy_hint("ImportError: libnvrtc.so.13").startswith("pip install"), "it is there, and broken"
