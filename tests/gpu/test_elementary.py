"""Elementary functions of f32 on the device stay within the ulps of their rows in OPS: for every float that there is,
specials, denormals and both zeros among them, against the functions of f64 that come with the compiler.

With `-s` the largest errors are printed, and where they are.
"""

import numpy as np
import pytest

from codegen.kernel import Kernel, Launch
from fusion_ir.ops import OPS, Op
from fusion_ir.records import Device
from testing.vec_ops import INEXACT
from tests.support.gpu import Loaded

pytestmark = pytest.mark.own_context
BLOCKS, THREADS = 2048, 256
UNARY = {op.name: op for op in INEXACT if op.arity == 1}
REFERENCE = {"rsqrt": "1 / ::sqrt(x)", "sigmoid": "1 / (1 + ::exp(-x))"}  # of the others: the function of that name
WITHIN_ONE = ("tanh", "erf", "sigmoid", "sin", "cos")  # results beyond 1 are as wrong as a NaN
# As `testing.vec_compare.ulps_off`. The worst of all goes out in one number: the error above its argument's bits.
KERNEL = """
__device__ float ulps_off(float got, double value, bool within_one) {
  const float rounded = (float)value, wrong = core::infinity<float>();
  if (value != value || got != got) return (value != value) && (got != got) ? 0.0f : wrong;
  if (signbit(got) != signbit(rounded) || (within_one && fabsf(got) > 1)) return wrong;
  const int exponent = (int)(core::magnitude_of(rounded) >> 23);
  const double unit = ldexp(1.0, min(max(exponent, 1), 254) - 150);
  const double g = fmin(fabs((double)got), 0x1p128), v = fmin(fabs(value), 0x1p128);
  return (float)(fabs(g - v) / unit);
}
extern "C" __global__ void __launch_bounds__(THREADS) all_of_NAME(unsigned long long* worst) {
  unsigned long long found = 0;
  for (uint64_t i = blockIdx.x * THREADS + threadIdx.x; i < 1ull << 32; i += BLOCKS * THREADS) {
    const float argument = core::as<float>((uint32_t)i);
    const double x = argument;
    const Vec<float, 1> of{{argument}};
    const uint64_t off = core::as<uint32_t>(ulps_off((CALL).v[0], REFERENCE, WITHIN_ONE));
    found = max(found, off << 32 | i);
  }
  atomicMax(worst, found);
}
"""


def kernel(op: Op) -> Kernel:
    text = KERNEL.replace("NAME", op.name).replace("CALL", op.cpp.format("of"))
    text = text.replace("REFERENCE", REFERENCE.get(op.name, f"::{op.name}(x)"))
    text = text.replace("WITHIN_ONE", str(op.name in WITHIN_ONE).lower())
    text = text.replace("BLOCKS", str(BLOCKS)).replace("THREADS", str(THREADS))
    launch = Launch((BLOCKS, 1, 1), (THREADS, 1, 1))
    return Kernel(f"all_of_{op.name}", text, "cuda", "hand", op.name, launch)


def kernels() -> list[Kernel]:
    return [kernel(op) for op in UNARY.values()]


@pytest.fixture(scope="module")
def loaded(device: Device) -> Loaded:
    return Loaded(kernels(), device)


@pytest.mark.parametrize("name", UNARY)
def test_every_float(name: str, loaded: Loaded) -> None:
    (worst,) = loaded.run(f"all_of_{name}", [], [np.zeros(1, np.uint64)])
    off, at = np.array([int(worst[0]) >> 32, int(worst[0]) & 0xFFFFFFFF], np.uint32).view(np.float32)
    print(f"{name}: {off:.3f} ulps at {float(at).hex()}, stated {OPS[name].ulps}")
    assert off <= OPS[name].ulps, float(at).hex()
