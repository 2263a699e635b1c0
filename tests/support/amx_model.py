"""AMX's tile registers in software, for machines without them, and calls of products by either, with operands beside
which nobody may read."""

import ctypes

import numpy as np
import pytest

from codegen.gemm.call import AMX_FEATURE
from codegen.launch.cpu import GuardedTensor
from codegen.toolchain.cpu import host_features
from testing.vec_harness import NATIVE, Library, build

Array = np.ndarray
MODEL = """
struct Model {
  float sums[4][16][16];
  uint16_t tiles[8][16][32];
  static float wide(uint16_t x) {  // denormals count as 0
    const uint32_t bits = x & 0x7f80 ? (uint32_t)x << 16 : 0;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
  }
  template <int T> void* row(int i) { return T < 4 ? (void*)sums[T < 4 ? T : 0][i] : (void*)tiles[T][i]; }
  template <int T> void clear() { memset(sums[T], 0, sizeof sums[T]); }
  template <int T> void load(const void* from, idx_t apart) {
    for (int i = 0; i < 16; i++) memcpy(row<T>(i), (const char*)from + i * apart, 64);
  }
  template <int T> void store(void* to, idx_t apart) {
    for (int i = 0; i < 16; i++) memcpy((char*)to + i * apart, row<T>(i), 64);
  }
  template <int S, int A, int B> void add() {
    for (int i = 0; i < 16; i++)
      for (int j = 0; j < 16; j++)
        for (int p = 0; p < 32; p++) sums[S][i][j] += wide(tiles[A][i][p]) * wide(tiles[B][p / 2][2 * j + p % 2]);
  }
};
"""


def guarded(values: Array) -> tuple[GuardedTensor, Array]:
    """A copy before a page that nobody may touch."""
    memory = GuardedTensor(values.nbytes, values.itemsize, at_end=True)
    view = memory.bytes.view(values.dtype).reshape(values.shape)
    view[:] = values
    return memory, view


def library_of(header: str, calls: str) -> Library:
    """A library of `calls`, which has functions `permitted` and, beside others, `model` and `amx_registers`."""
    if not NATIVE.available():
        pytest.skip(f"no {NATIVE.compiler[0]}")
    return build(f'#include "{header}"\n{MODEL}{calls}', NATIVE)


FUNCTIONS = ("model", "amx_registers")


def function_of(name: str, library: Library) -> str:
    """One of FUNCTIONS, where it can run here."""
    if name != "model" and (AMX_FEATURE not in host_features() or not library.symbol("permitted")()):
        pytest.skip("needs AMX_BF16, and a system that lets processes use it")
    return name


def multiplied(
    library: Library, name: str, flags: tuple[bool, ...], x: Array, y: Array, layout: tuple[bool, bool, bool],
    dtype: np.dtype[np.generic],
) -> tuple[Array, int]:  # fmt: skip
    """x[m, k] times y[n, k] turned, into a result of `dtype`; and what the function found, as bits. flags: its first
    arguments. layout: whether rows lie along the sum, whether columns do, and whether the result is turned."""
    x_along, y_along, turned = layout
    (m, k), n = x.shape, y.shape[0]
    left, a = guarded(x if x_along or k == 1 else np.ascontiguousarray(x.T))
    right, b = guarded(y if y_along or k == 1 else np.ascontiguousarray(y.T))
    rows, columns = (n, m) if turned else (m, n)
    result, c = guarded(np.full((rows, columns + 3), 7, dtype))
    sizes = [ctypes.c_long(s) for s in (m, n, k)]
    pointers = [ctypes.c_void_p(t.ctypes.data) for t in (a, b, c)]
    found = library.symbol(name)(
        *map(int, flags), *sizes, *pointers, ctypes.c_long(columns + 3), int(x_along), int(y_along)
    )
    assert (c[:, columns:] == 7).all()
    values = c[:, :columns].astype(np.float64)
    del left, right, result
    return values.T if turned else values, found
