"""Every seeded fault of family `attention` shows, and the kernels without it pass."""

import pytest

from tests.emulator.attention_faults import ATTENTION_FAULTS
from tests.emulator.faults import Faults

FAULTS = Faults(ATTENTION_FAULTS)


@pytest.mark.sweep(0.1)
@pytest.mark.parametrize("name", FAULTS.names)
def test_fault_shows(name: str, drawn: frozenset[str]) -> None:
    FAULTS.check(name, drawn)
