"""AMX's tile registers in software, for machines without them, and operands beside which nobody may read."""

import numpy as np

from codegen.launch.cpu import GuardedTensor

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
