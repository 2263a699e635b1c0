"""Code for sm_90a alone, run on a device: each function of its vocabulary, and family `wgmma` in every layout."""

from functools import lru_cache

import numpy as np
import pytest

from codegen.families.wgmma import ARCH
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Device
from tests.emulator.test_wgmma import CASES as PRODUCTS
from tests.emulator.test_wgmma import kernels
from tests.support.candidates import check_all
from tests.support.gpu import Loaded
from tests.support.sm90_vocabulary import CASES


@pytest.fixture(autouse=True)
def hopper(device: Device) -> None:
    if device.arch != ARCH:
        pytest.skip(f"needs a device of {ARCH}, this one is {device.arch}")


@lru_cache(maxsize=1)
def loaded(device: Device) -> Loaded:
    return Loaded([case.kernel for case in CASES.values()], device)


@pytest.mark.own_context
@pytest.mark.parametrize("name", CASES)
def test_the_instruction_is_what_is_emulated(name: str, device: Device) -> None:
    case = CASES[name]
    blank = np.full(case.expected.shape, 77).astype(case.expected.dtype)
    (there,) = loaded(device).run(name, case.inputs, [blank])
    assert there.tobytes() == case.expected.tobytes()


@pytest.mark.parametrize("name", [name for name, _, schedules in PRODUCTS if schedules])
def test_products_are_right(name: str, bench: Workbench) -> None:
    found = [(graph, schedules) for case, graph, schedules in PRODUCTS if case == name]
    wrong = check_all([(name, graph, kernels(graph, schedules, bench.device)) for graph, schedules in found], bench)
    assert not wrong, "\n".join(wrong)
