"""Divisions by one number give what IEEE division gives, on a thousand million operands."""

import numpy as np
import pytest

from codegen.kernel import Kernel, Launch
from fusion_ir.records import Device
from tests.support.gpu import Loaded

pytestmark = pytest.mark.own_context
THREADS, EACH = 1 << 20, 1 << 10
SOURCE = """extern "C" __global__ void __launch_bounds__(256) quotients(const uint32_t* seeds, uint32_t* wrong) {
  uint32_t state = seeds[0] + (blockIdx.x * 256 + threadIdx.x) * 2654435761u, found = 0;
  for (int i = 0; i < EACH; i++) {
    state = state * 1664525u + 1013904223u;
    const uint32_t b_bits = (state >> 9) | (126 + (state & 7)) << 23;  // 0.5 to 64
    state = state * 1664525u + 1013904223u;
    const float b = __uint_as_float(b_bits), a = b * (float)(state >> 8) * 0x1p-24f;
    const Vec<float, 1> by{{b}};
    found += divided_(Vec<float, 1>{{a}}, by).v[0] != a / b;
  }
  if (found) atomicAdd(wrong, found);
}
"""


def test_they_are_those_of_ieee(device: Device) -> None:
    source = SOURCE.replace("EACH", str(EACH))
    kernel = Kernel("quotients", source, "cuda", "hand", "quotients", Launch((THREADS // 256, 1, 1), (256, 1, 1)))
    (wrong,) = Loaded([kernel], device).run("quotients", [np.array([7], np.uint32)], [np.zeros(1, np.uint32)])
    assert int(wrong[0]) == 0
