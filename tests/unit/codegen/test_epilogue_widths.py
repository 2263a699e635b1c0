"""Vector widths of what epilogues of products read, against all addresses: on CUDA never wider than they are aligned,
and as wide but for what is listed; on a CPU by whole registers. The operands are those of `python -m benchmarks.seeds
widths`."""

import numpy as np
import pytest

from benchmarks.seeds.widths import (
    OPERANDS,
    Operand,
    access_bytes,
    addresses,
    allowed,
    found_widths,
    kernels,
    runs,
)
from codegen.kernel import Kernel, Reject
from fusion_ir.dtype import DTYPES
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE

BY_NAME = {o.name: o for o in OPERANDS}

# A run of columns of a CUDA kernel begins at a multiple of its width, wherever the padding ends; nvFuser has 2, too.
NARROWER = {
    ("f16", "[M, N - 8] padded by 4 and 4"): 4,
    ("f32", "[M, N - 4] padded by 2 and 2"): 2,
    ("f16", "[M, N - 4] padded by 2 and 2"): 2,
}
# The CPU's kernel of a product runs over rows of the product, one after another.
NOT_ON_CPU = {"bias [N, M], transposed, and so is the result", "[M - 2, N] padded by a row above and below"}


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.sweep(0.3)
def test_width_is_what_addresses_allow(dtype: str, name: str) -> None:
    operand, itemsize = BY_NAME[name], DTYPES[dtype].bytes
    along = allowed(operand, itemsize, access_bytes(CUDA_DEVICE), not operand.turned)
    found = dict(kernels(operand, DTYPES[dtype], CUDA_DEVICE))
    made = {family: found_widths(k) for family, k in found.items() if isinstance(k, Kernel)}
    assert "matmul" in made
    for widths in made.values():
        (kind, width) = widths[0]
        assert len(widths) == 1, "one way to read it"
        if kind == "splat":
            assert width == 1
            assert _is_one_for_all_lanes(operand)
            continue
        assert width <= along, "wider than the addresses allow"
        assert width == NARROWER.get((dtype, name), along), (dtype, kind, width, along)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.sweep(0.3)
def test_on_a_cpu_runs_are_read_by_registers(vector_bytes: int, dtype: str, name: str) -> None:
    """Vectors have as many lanes as a register has units of 4 bytes. A shorter run fills a vector of a power of two of
    lanes; where moves cannot be masked, the rest of a run is read in smaller vectors."""
    operand, device = BY_NAME[name], CPU_DEVICE.model_copy(update={"vector_bytes": vector_bytes})
    found = dict(kernels(operand, DTYPES[dtype], device))["matmul"]
    assert isinstance(found, Reject if name in NOT_ON_CPU else Kernel)
    if isinstance(found, Kernel):
        lengths = {length for row in addresses(operand) for _, length in runs(row)}
        most = 1 if _is_one_for_all_lanes(operand) else min(vector_bytes // 4, 1 << (min(lengths) - 1).bit_length())
        left = 0 if vector_bytes == 64 else min(lengths) % most
        parts = {1 << bit for bit in range(left.bit_length()) if left >> bit & 1}
        whole = {most} if left == 0 or min(lengths) >= most else set[int]()
        assert {width for _, width in found_widths(found)} == parts | whole, found.schedule


def _is_one_for_all_lanes(operand: Operand) -> bool:
    found = addresses(operand)
    return bool((found.reshape(found.shape[0], -1, 64) == found.reshape(found.shape[0], -1, 64)[:, :, :1]).all())


def test_the_rows_that_nvfuser_is_measured_by() -> None:
    """Widths of the table in nvFuser's terms: 16 bytes over the element, the pointer, the gap between rows."""
    expected = {
        "residual [M, N]": (4, 8),
        "residual, rows 1 element apart": (1, 1),
        "residual, rows 2 elements apart": (2, 2),
        "residual aligned to 4 bytes": (1, 2),
        "columns 4... of [M, N + 16]": (4, 4),
        "columns 8... of [M, N + 9]": (1, 1),
    }
    for name, widths in expected.items():
        for dtype, width in zip(("f32", "f16"), widths, strict=True):
            kernel = dict(kernels(BY_NAME[name], DTYPES[dtype], CUDA_DEVICE))["matmul"]
            assert isinstance(kernel, Kernel)
            assert found_widths(kernel) == [("vector", width)]


def test_runs_of_addresses() -> None:
    assert list(runs(np.array([3, 4, 5, 9, 10, -1, -1]))) == [(3, 3), (9, 2)]
    assert list(runs(np.array([0, 0, 1, 1, 7, 7]))) == [(0, 2), (7, 1)], "an address that repeats is loaded once"
    assert list(runs(np.array([-1, -1]))) == []
    assert list(runs(np.array([8, 6, 4]))) == [(8, 1), (6, 1), (4, 1)]


def test_enumeration_sees_what_strides_hide() -> None:
    """The brute force itself: offsets, gaps and pointers, by hand."""
    assert allowed(BY_NAME["residual [M, N]"], 2, 16, True) == 8
    assert allowed(BY_NAME["residual [M, N]"], 2, 16, False) == 1
    assert allowed(BY_NAME["bias [N, M], transposed"], 4, 16, False) == 4
    assert allowed(BY_NAME["columns 2... of [M, N + 16]"], 4, 16, True) == 2
    assert allowed(BY_NAME["heads [32, M, 6], side by side"], 2, 16, True) == 2
    assert allowed(BY_NAME["residual aligned to 4 bytes"], 2, 16, True) == 2
