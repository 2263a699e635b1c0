"""Every function of device_cuda.cuh on the device: its instruction does what the emulator's table says that it means.

The table is the emulator's own (tests/emulator): a small kernel for each function, with inputs and the expected result.
"""

import importlib.util
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from codegen.launch.emulator import run_arrays
from fusion_ir.records import Device
from testing.emulated_kernels import build
from tests.support.gpu import Loaded, arch_number

TABLE = "tests.emulator.test_vocabulary"


def table() -> dict[str, Any]:
    """The emulator's cases, by name; none where there is no such table."""
    try:
        found = importlib.util.find_spec(TABLE)
    except ModuleNotFoundError:
        found = None
    return dict(importlib.import_module(TABLE).CASES) if found else {}


CASES = table()


@lru_cache(maxsize=1)
def loaded(device: Device) -> Loaded:
    return Loaded([case.kernel() for case in CASES.values()], device)


@lru_cache(maxsize=1)
def emulated(arch: str) -> dict[str, Any]:
    return {e.entry: e for e in build([case.kernel() for case in CASES.values()], arch)}


@pytest.mark.own_context
@pytest.mark.parametrize("name", CASES)
def test_the_instruction_is_what_is_emulated(name: str, device: Device) -> None:
    if arch_number(device.arch) < 80:
        pytest.skip("the table is for sm_80 and later")
    case = CASES[name]
    inputs = [np.ascontiguousarray(x) for _, x in case.inputs]
    expected = np.ascontiguousarray(case.expected(*inputs))
    blank = np.full(expected.shape, 77).astype(expected.dtype)
    (there,) = loaded(device).run(f"k_{name}", inputs, [blank])
    here = blank.copy()
    run_arrays(emulated(device.arch)[f"k_{name}"], inputs, [here], seed=0)
    assert there.tobytes() == expected.tobytes(), (
        f"the device gives {there.ravel()[:8]}, expected {expected.ravel()[:8]}"
    )
    assert here.tobytes() == there.tobytes(), "the emulator gives something else than the device"
