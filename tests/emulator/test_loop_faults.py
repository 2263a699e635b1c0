"""Every seeded fault of loop programs shows, and the kernels without it pass."""

import pytest

from tests.emulator.faults import Faults
from tests.emulator.loop_faults import LOOP_FAULTS

FAULTS = Faults(LOOP_FAULTS)


@pytest.mark.sweep(0.15)
@pytest.mark.parametrize("name", FAULTS.names)
def test_fault_shows(name: str, drawn: frozenset[str]) -> None:
    FAULTS.check(name, drawn)
