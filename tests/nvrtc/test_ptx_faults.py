"""Every seeded fault of the PTX in the headers shows: in a result of the interpreter, or in the words to NVVM."""

import pytest

from tests.support.ptx_faults import FAULTS

pytest.importorskip("cupy.cuda", reason="needs cupy and NVRTC")


@pytest.mark.sweep(0.12)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_shows(name: str) -> None:
    assert FAULTS[name].shows(), f"{name}: nobody noticed"
