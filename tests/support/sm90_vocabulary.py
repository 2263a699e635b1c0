"""Small kernels over the vocabulary of sm_90a, whose results are known: for the emulator and for a device."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from codegen.kernel import Kernel, Launch
from fusion_ir.records import TensorMapSpec

Array = np.ndarray[Any, Any]
SHARED = 72 << 10


@dataclass(frozen=True)
class Case:
    """A kernel, the inputs to run it on, and the output that must come out bit for bit."""

    kernel: Kernel
    inputs: tuple[Array, ...]
    expected: Array


def kernel(
    entry: str, parameters: str, body: str, *, threads: int = 32, cluster: int = 1, maps: tuple[TensorMapSpec, ...] = ()
) -> Kernel:
    """One cluster of blocks."""
    listed = ", ".join([parameters, *(f"const __grid_constant__ TensorMap map{i}" for i in range(len(maps)))])
    together = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    head = f'extern "C" __global__ void __launch_bounds__({threads}) {together}{entry}({listed})'
    source = f"{head} {{\n  SHARED_MEMORY(shared);\n{body}\n}}\n"
    launch = Launch((cluster, 1, 1), (threads, 1, 1), SHARED, cluster, maps)
    return Kernel(entry, source, "cuda", "hand", entry, launch, headers=("device_sm90.cuh",))


# ---- boxes
@dataclass(frozen=True)
class BoxCase:
    """A box of a dense tensor of `dtype`, innermost sizes first, from `at` on: a multiple of 16 bytes into its row."""

    dtype: type[np.generic]
    sizes: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    swizzle: int

    @property
    def spec(self) -> TensorMapSpec:
        size = np.dtype(self.dtype).itemsize
        strides = tuple(int(np.prod(self.sizes[:d])) * size for d in range(1, len(self.sizes)))
        return TensorMapSpec.model_validate(
            {
                "argument": 0, "dtype": "i32" if size == 4 else "bf16", "element_bytes": size, "sizes": self.sizes,
                "strides_bytes": strides, "box": self.box, "swizzle": self.swizzle,
            }
        )  # fmt: skip

    def expected(self, tensor: Array) -> Array:
        """The bytes of the box in shared memory that begins at a multiple of 1024."""
        around = tuple(reversed(self.box))  # zeros on all sides
        padded = np.pad(tensor, [(n, 2 * n) for n in around])
        picked = [slice(n + a, 2 * n + a) for a, n in zip(reversed(self.at), around, strict=True)]
        flat = np.ascontiguousarray(padded[tuple(picked)]).view(np.uint8).reshape(-1, 16)
        swizzled = np.empty_like(flat)
        chunk = np.arange(len(flat))
        swizzled[chunk ^ (chunk >> 3 & self.swizzle // 16 - 1) if self.swizzle else chunk] = flat
        return swizzled.reshape(-1)


BOXES = (
    BoxCase(np.uint16, (200,), (64,), (152,), 0),
    BoxCase(np.int32, (20, 9), (8, 5), (16, 6), 0),
    BoxCase(np.uint16, (72, 40), (64, 32), (8, 16), 128),
    BoxCase(np.uint16, (72, 40), (64, 32), (-8, -3), 128),
    BoxCase(np.uint16, (64, 40), (32, 40), (40, 8), 64),
    BoxCase(np.uint16, (24, 12, 5), (16, 8, 2), (16, 7, 4), 32),
    BoxCase(np.int32, (12, 6, 4, 3), (32, 2, 2, 2), (4, 3, 1, 2), 128),
    BoxCase(np.uint16, (16, 3, 4, 2, 3), (16, 3, 1, 2, 2), (0, 1, 3, 0, 2), 32),
    BoxCase(np.uint16, (16, 8), (64, 8), (64, 2), 128),
)


def box_kernel(i: int, case: BoxCase, *, multicast: bool) -> Kernel:
    size = case.spec.box_bytes
    function = f"tensor_load{'_multicast' if multicast else ''}<{len(case.at)}>"
    mask = "3, " if multicast else ""
    body = f"""
  const uint32_t bar = shared_address(shared + 32768);
  if (threadIdx.x == 0) {{
    barrier_init(bar, 1);
    fence_barrier_init();
    barrier_expect(bar, {size});
  }}
  {"cluster_barrier();" if multicast else "block_barrier();"}
  if (threadIdx.x == 0 && blockIdx.x == 0)
    {function}(shared_address(shared), map0, bar, {mask}{", ".join(map(str, case.at))});
  barrier_wait(bar, 0);
  for (int i = threadIdx.x; i < {size}; i += 32) store<1, 1>(out + blockIdx.x * {size} + i, load<1, 1>(shared + i));
  {"cluster_barrier();" if multicast else ""}"""
    parameters = "const uint16_t* in, uint8_t* out"
    return kernel(f"box{i}", parameters, body, cluster=2 if multicast else 1, maps=(case.spec,))


def aligned(x: Array) -> Array:
    """A copy at a multiple of 64 bytes."""
    whole = np.zeros(x.nbytes + 64, np.uint8)
    start = -int(whole.ctypes.data) % 64
    found = whole[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


# ---- products
@dataclass(frozen=True)
class ProductCase:
    """64 x 16 times 16 x columns, twice: the second time added to the first."""

    dtype: str
    columns: int
    a_across: bool
    b_across: bool
    swizzle: int
    registers: bool = False


PRODUCTS = (
    *(ProductCase("bf16", 64, a, b, n) for a, b, n in product((False, True), (False, True), (128, 64, 32))),
    *(ProductCase("f16", columns, False, False, 128) for columns in (8, 24, 256)),
    ProductCase("f16", 128, False, True, 128, registers=True),
    ProductCase("bf16", 40, False, False, 64, registers=True),
)
A_BYTES = 32 << 10  # where the operands lie: they start at multiples of this


def operand_bytes(x: Array, across: bool, swizzle: int) -> tuple[Array, int, int]:
    """x[rows, 16] as wgmma reads it, with leading and stride bytes of its descriptor."""
    run = swizzle // 2
    rows = x.shape[0]
    whole = np.zeros(A_BYTES // 2, x.dtype)
    leading, stride = (2 * 8 * swizzle, 8 * swizzle) if across else (16, 8 * swizzle)
    for i, k in product(range(rows), range(16)):
        if across:
            at = i // run * leading + k // 8 * stride + k % 8 * swizzle + i % run * 2
        else:
            at = i // 8 * stride + i % 8 * swizzle + k * 2
        whole[(at ^ (at >> 7 & swizzle // 16 - 1) << 4) // 2] = x[i, k]
    return whole.view(np.uint8), leading, stride


def product_kernel(i: int, case: ProductCase, a: tuple[int, int], b: tuple[int, int]) -> Kernel:
    flags = [case.dtype, str(case.columns)] + ([] if case.registers else [str(case.a_across).lower()])
    arguments = ", ".join([*flags, str(case.b_across).lower()])
    left = "left" if case.registers else "da"
    body = f"""
  for (int i = threadIdx.x * 16; i < {2 * A_BYTES}; i += 2048) store<16, 16>(shared + i, load<16, 16>(in0 + i));
  fence_async_shared();
  block_barrier();
  const uint32_t at = shared_address(shared);
  const uint64_t da = matrix_descriptor(at, {a[0]}, {a[1]}, {case.swizzle});
  const uint64_t db = matrix_descriptor(at + {A_BYTES}, {b[0]}, {b[1]}, {case.swizzle});
  uint32_t left[4];
  for (int r = 0; r < 4; r++) left[r] = load<1, 1>(in1 + threadIdx.x * 4 + r).v[0];
  float sums[{case.columns // 2}];
  wgmma_fence();
  wgmma<{arguments}>(sums, {left}, db, false);
  wgmma<{arguments}>(sums, {left}, db, true);
  wgmma_commit();
  wgmma_wait<0>();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int j = 0; j < {case.columns // 2}; j++)
    store<1, 1>(out0 + (row + j % 4 / 2 * 8) * {case.columns} + j / 4 * 8 + column + j % 2,
                Vec<float, 1>{{sums[j]}});"""
    return kernel(f"product{i}", "const uint8_t* in0, const uint32_t* in1, float* out0", body, threads=128)


# ---- barriers
PING_PONG = """
  const uint32_t full = shared_address(shared + 32768), empty = full + 8;
  if (threadIdx.x == 0) {
    barrier_init(full, 2);
    barrier_init(empty, 1);
    fence_barrier_init();
  }
  cluster_barrier();
  const uint32_t other = cluster_rank() ^ 1;
  for (int turn = 0; turn < 6; turn++) {
    if (threadIdx.x == 0) {
      barrier_wait(empty, turn & 1 ^ 1);
      store<1, 1>((int32_t*)shared, Vec<int32_t, 1>{turn});
      barrier_arrive(full);
      barrier_arrive_at(full, other);
    }
    if (threadIdx.x == 32) {
      barrier_wait(full, turn & 1);
      store<1, 1>(out0 + blockIdx.x * 6 + turn, load<1, 1>((const int32_t*)shared));
      barrier_arrive(empty);
    }
  }
  cluster_barrier();"""


def ping_pong() -> Iterator[Case]:
    """Threads and blocks in step by phases."""
    expected = np.tile(np.arange(6, dtype=np.int32), (2, 1))
    yield Case(kernel("ping_pong", "int32_t* out0", PING_PONG, threads=64, cluster=2), (), expected)


def box_cases() -> Iterator[Case]:
    """Boxes, copied, swizzled and filled with zeros; some of them to two blocks at once."""
    rng = np.random.default_rng(1)
    cases = [(case, many) for case in BOXES for many in ((False, True) if case.swizzle == 128 else (False,))]
    for i, (case, many) in enumerate(cases):
        tensor = rng.integers(1, 60_000, tuple(reversed(case.sizes))).astype(case.dtype)
        expected = np.tile(case.expected(tensor), (2 if many else 1, 1))
        yield Case(box_kernel(i, case, multicast=many), (aligned(tensor),), expected)


def product_case(i: int, case: ProductCase, rng: np.random.Generator) -> Case:
    """A product of small integers, and its kernel `product<i>`."""
    dtype = np.float16 if case.dtype == "f16" else ml_dtypes.bfloat16
    a, b = (rng.integers(-8, 9, (rows, 16)).astype(dtype) for rows in (64, case.columns))
    a_bytes, *a_steps = operand_bytes(a, case.a_across, case.swizzle)
    b_bytes, *b_steps = operand_bytes(b, case.b_across, case.swizzle)
    fragments = np.zeros((128, 4, 2), dtype)
    for t, r, j in product(range(128), range(4), range(2)):
        fragments[t, r, j] = a[t // 32 * 16 + t % 32 // 4 + r % 2 * 8, (r // 2 * 4 + t % 4) * 2 + j]
    made = product_kernel(i, case, (a_steps[0], a_steps[1]), (b_steps[0], b_steps[1]))
    inputs = (aligned(np.concatenate([a_bytes, b_bytes])), fragments.view(np.uint32).reshape(128, 4))
    return Case(made, inputs, 2 * (a.astype(np.float32) @ b.astype(np.float32).T))


def product_cases() -> Iterator[Case]:
    """Products of every layout, with a from shared memory or from registers."""
    rng = np.random.default_rng(2)
    for i, case in enumerate(PRODUCTS):
        yield product_case(i, case, rng)


CASES: dict[str, Case] = {c.kernel.entry: c for cases in (box_cases, product_cases, ping_pong) for c in cases()}
