"""Every seeded fault of tiled products shows, and the kernels without it pass."""

import pytest

from tests.emulator.faults import Faults
from tests.emulator.matmul_faults import MATMUL_FAULTS

FAULTS = Faults(MATMUL_FAULTS)


@pytest.mark.sweep(0.1)
@pytest.mark.parametrize("name", FAULTS.names)
def test_fault_shows(name: str, drawn: frozenset[str]) -> None:
    FAULTS.check(name, drawn)
