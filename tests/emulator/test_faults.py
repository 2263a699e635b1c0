"""Every seeded fault shows, and the kernels without it pass."""

import pytest

from tests.emulator.faults import Faults
from tests.emulator.primitives import BLOCK_FAULTS, PRIMITIVE_FAULTS

FAULTS = Faults((*PRIMITIVE_FAULTS, *BLOCK_FAULTS))


@pytest.mark.parametrize("name", FAULTS.names)
def test_fault_shows(name: str, drawn: frozenset[str]) -> None:
    FAULTS.check(name, drawn)
