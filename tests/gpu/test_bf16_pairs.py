"""Sums, differences and products of bf16 by pairs have the bits of f32 rounded to bf16: for all pairs of bf16."""

import numpy as np
import pytest

from codegen.kernel import Kernel, Launch
from fusion_ir.records import Device
from tests.support.gpu import Loaded

pytestmark = pytest.mark.own_context
# A block for each number, against all: in one lane of a pair it is the first operand, in the other the second.
SOURCE = """extern "C" __global__ void __launch_bounds__(256) all_pairs(uint32_t* wrong) {
  uint32_t found = 0;
  const uint16_t a = (uint16_t)blockIdx.x;
  for (uint32_t i = threadIdx.x; i < 65536; i += 256) {
    const uint16_t b = (uint16_t)i;
    const Vec<bf16, 2> x{{a, b}}, y{{b, a}};
    const auto wide_x = cast<float>(x), wide_y = cast<float>(y);
    const Vec<bf16, 2> got[] = {narrow_add_(x, y), narrow_sub_(x, y), narrow_mul_(x, y)};
    const Vec<bf16, 2> expected[] = {
      cast<bf16>(add_(wide_x, wide_y)), cast<bf16>(sub_(wide_x, wide_y)), cast<bf16>(mul_(wide_x, wide_y))};
    for (int op = 0; op < 3; op++) for (int lane = 0; lane < 2; lane++) {
      const uint16_t g = got[op].v[lane], e = expected[op].v[lane];
      const bool nans = (g & 0x7fff) > 0x7f80 && (e & 0x7fff) > 0x7f80;
      found += g != e && !nans;
    }
  }
  if (found) atomicAdd(wrong, found);
}
"""


def kernels() -> list[Kernel]:
    return [Kernel("all_pairs", SOURCE, "cuda", "hand", "pairs", Launch((65536, 1, 1), (256, 1, 1)))]


def test_they_are_those_of_f32_rounded(device: Device) -> None:
    (wrong,) = Loaded(kernels(), device).run("all_pairs", [], [np.zeros(1, np.uint32)])
    assert int(wrong[0]) == 0
