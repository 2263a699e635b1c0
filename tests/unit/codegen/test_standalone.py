"""Kernels as one file: of every family of both targets, with no header of ours left to be found, none of them twice."""

import pytest

from codegen.families import FAMILIES
from codegen.standalone import HeaderMissing, standalone
from codegen.toolchain.compiler import INCLUDE
from fusion_ir.records import Device
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.standalone import CPU, CUDA, GRAPHS, sources


def test_every_family_is_here() -> None:
    assert GRAPHS.keys() == FAMILIES.keys()


@pytest.mark.parametrize("device", [CPU_DEVICE, CUDA_DEVICE], ids=["cpu", "cuda"])
def test_nothing_of_ours_is_left_to_be_found(device: Device) -> None:
    families = CPU if device.target == "cpu" else CUDA
    made = {family: sources(family, device) for family in families}
    assert all(made.values()), made.keys()
    text = standalone(source for some in made.values() for source in some)
    lines = text.splitlines()
    assert not [line for line in lines if '#include "' in line or ("FP_EMULATE" in line and "#ifdef" in line)]
    assert not [line for line in lines if line.startswith(("#pragma once", "#line"))]
    headers = [line for line in lines if line.startswith("// ---- ") and line.endswith((".h", ".cuh"))]
    assert len(headers) == len(set(headers)) > 10
    assert sum(line.startswith("#if") for line in lines) == sum(line.startswith("#endif") for line in lines)
    namespaces = [line for line in lines if line.startswith("namespace k")]
    assert namespaces == [f"namespace k{i} {{" for i in range(len(dict.fromkeys(s for f in made.values() for s in f)))]


@pytest.mark.parametrize("name", sorted(f.name for f in INCLUDE.iterdir() if f.suffix in (".h", ".cuh")))
def test_no_header_is_included_under_a_condition(name: str) -> None:
    """It would be missing where it is included next: `standalone` asserts that."""
    if not name.startswith("emulator"):
        assert f"// ---- {name}\n" in standalone([f'#include "{name}"\n'])


def test_equal_kernels_stand_there_once() -> None:
    one, other = sources("pointwise", CPU_DEVICE)[0], sources("scan", CPU_DEVICE)[0]
    assert standalone([one, other, one]) == standalone([one, other])
    assert standalone([one, other]).count("extern") > standalone([one]).count("extern")


def test_a_header_of_another_version() -> None:
    with pytest.raises(HeaderMissing, match=r"includes gone_cuda\.cuh, which this version has not"):
        standalone(['#include "gone_cuda.cuh"\nnamespace k0 {\n}\n'])
