// Boxes of tensors that copy themselves to shared memory (TMA): at once, or as late as nobody can go on without them.
#pragma once
#include "memory.h"
#include "phases.h"

namespace emulator {
struct Box {
  const TensorMap* map;
  int at[5];
  uint32_t to, bar;
  Block* into;
  Thread* by;
  Site site;
};
inline Array<Box> boxes;  // that have not come yet
inline uint32_t box_clocks[MOST_BLOCKS];  // of what writes boxes into a block: the first agent

// A byte of shared memory as rows of 128, 64 or 32 bytes are swizzled: bits of the row's number change those of the chunk.
inline uint32_t swizzled(uint32_t address, uint32_t swizzle) {
  return swizzle ? address ^ (address >> 7 & (swizzle / 16 - 1)) << 4 : address;
}
// `bytes` of a row of a tensor.
inline void read_row(unsigned char* to, uint64_t from, int bytes, Site site) {
  const Buffer* b = buffer_at(from);
  if (!b || from + bytes > b->start + b->bytes) out_of_bounds(from, bytes, LOAD, site);
  if (b->written)
    for (int i = 0; i < bytes; i++)
      if (!b->written[from - b->start + i])
        fail(site, "tensor_load of byte %llu of %s, which nobody wrote", (unsigned long long)(from - b->start + i), b->name);
  memcpy(to, (const void*)from, bytes);
}
inline uint32_t box_rows(const TensorMap& m) {
  uint32_t rows = 1;
  for (uint32_t d = 1; d < m.rank; d++) rows *= m.box[d];
  return rows;
}
inline void bring(const Box& x) {
  Thread* before = machine.current;
  machine.current = x.by;  // whose fault it is
  Block& b = *x.into;
  const TensorMap& m = *x.map;
  if (!b.live) fail(x.site, "tensor_load into block %d of the cluster, which is through", b.rank);
  const uint32_t row_bytes = m.box[0] * m.element_bytes;
  const uint32_t rows = box_rows(m);
  alignas(16) unsigned char row[4096];
  for (uint32_t r = 0; r < rows; r++) {
    uint64_t from = m.address;
    bool there = true;
    uint32_t rest = r;
    for (uint32_t d = 1; d < m.rank; d++) {
      const int64_t c = (int64_t)x.at[d] + rest % m.box[d];
      rest /= m.box[d];
      there = there && c >= 0 && (uint64_t)c < m.sizes[d];
      from += c * m.strides[d - 1];
    }
    memset(row, 0, row_bytes);
    const int64_t first = x.at[0] < 0 ? -(int64_t)x.at[0] : 0;
    const int64_t end = (int64_t)m.sizes[0] - x.at[0] < m.box[0] ? (int64_t)m.sizes[0] - x.at[0] : m.box[0];
    if (there && first < end)
      read_row(row + first * m.element_bytes, from + (x.at[0] + first) * m.element_bytes, (end - first) * m.element_bytes, x.site);
    for (uint32_t chunk = 0; chunk < row_bytes; chunk += 16)
      memcpy(b.shared + (swizzled(x.to + r * row_bytes + chunk, m.swizzle) - SHARED_BASE), row + chunk, 16);
  }
  shadow_arrived(b, x.to - SHARED_BASE, rows * row_bytes, b.threads, ++box_clocks[b.slot]);
  phase_at(b, x.bar, x.site);
  begun_at(b, x.bar).arrived[b.threads] = box_clocks[b.slot];
  come(b, x.bar, -(int64_t)(rows * row_bytes), x.site);
  machine.current = before;
}
// From now on nobody may touch what the box is copied to. Who has done so before must be known to the thread that asks for
// it; what another block's threads know cannot be told from clocks.
inline void expect(const Box& x) {
  Block& b = *x.into;
  const uint32_t bytes = box_rows(*x.map) * x.map->box[0] * x.map->element_bytes, at = x.to - SHARED_BASE;
  const int id = id_of(x.site);
  if (x.by->block == &b) must_be_fenced(*x.by, at, bytes, "tensor_load to", x.site);
  if (x.by->block == &b) return shadow_store(*x.by, at, bytes, x.site, id, ON_ITS_WAY);
  const Record mine = record(b.clocks->epoch, box_clocks[b.slot], ON_ITS_WAY, b.threads);
  for (uint32_t i = at; i < at + bytes; i++) b.shadow[i] = {mine, 0, 0, (uint16_t)id, 0, 0, 0};
}
// One box comes: the first, the last or any, as the order of threads is. False if there is none.
inline bool bring_one() {
  if (!boxes.count) return false;
  const int i = plan.order == FORWARD ? 0 : plan.order == BACKWARD ? boxes.count - 1 : (int)(draw() % boxes.count);
  const Box x = boxes[i];
  for (int k = i + 1; k < boxes.count; k++) boxes[k - 1] = boxes[k];
  boxes.count--;
  bring(x);
  return true;
}
// Nothing may still be on its way to a block that is through.
inline void check_boxes(Block& b) {
  for (int i = 0; i < boxes.count; i++)
    if (boxes[i].into == &b) fail(boxes[i].site, "tensor_load into block %d of the cluster, which is through", b.rank);
}
inline void check_map(const TensorMap& m, int rank, Site site) {
  if (m.rank != (uint32_t)rank) fail(site, "tensor_load with %d coordinates by a map of %u axes", rank, m.rank);
  if (m.address % 16) fail(site, "tensor map of an address that is not aligned to 16 bytes");
  for (int d = 0; d < rank; d++) {
    if (d && m.strides[d - 1] % 16) fail(site, "tensor map with a stride of %llu bytes", (unsigned long long)m.strides[d - 1]);
    if (m.box[d] < 1 || m.box[d] > 256) fail(site, "tensor map with a box of %u along axis %d", m.box[d], d);
  }
  const uint32_t row = m.box[0] * m.element_bytes;
  if (m.swizzle != 0 && m.swizzle != 32 && m.swizzle != 64 && m.swizzle != 128) fail(site, "tensor map swizzled over %u bytes", m.swizzle);
  if (row % 16 || (m.swizzle && row != m.swizzle)) fail(site, "tensor map with rows of %u bytes, swizzled over %u", row, m.swizzle);
}
}  // namespace emulator

extern "C" void emulator_tensor_load(
    uint32_t to, const TensorMap* map, uint32_t bar, uint32_t mask, int rank, const int* coordinates, emulator::Site site) {
  using namespace emulator;
  check_map(*map, rank, site);
  if ((int64_t)coordinates[0] * map->element_bytes % 16)  // an illegal instruction on the device
    fail(site, "tensor_load from element %d of a row, %d bytes each: not aligned to 16 bytes", coordinates[0], (int)map->element_bytes);
  if (to % 128) fail(site, "tensor_load to byte %u of shared memory, which is not aligned to 128", to - SHARED_BASE);
  shared_of(block(), to, box_rows(*map) * map->box[0] * map->element_bytes, "tensor_load", site);
  if (!mask) mask = 1u << block().rank;
  else mask &= 0xffff;  // multicast
  if (!mask || mask >> block().cluster->size) fail(site, "tensor_load to blocks %x of a cluster of %d", mask, block().cluster->size);
  machine.launch->accesses++;
  Box x{map, {}, to, bar, nullptr, &self(), site};
  memcpy(x.at, coordinates, sizeof x.at);
  for (; mask; mask &= mask - 1) {
    x.into = &peer(block(), __builtin_ctz(mask));
    phase_at(*x.into, bar, site);
    must_be_known(*x.into, bar, "copies", site);
    expect(x);
    if (plan.late) boxes.push(x);
    else bring(x);
  }
  may_yield();
}
