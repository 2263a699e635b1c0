// What is known of global memory that a launch writes: by which thread each place was written last, and read since.
#pragma once
#include "knowledge.h"
#include "shadow.h"

namespace emulator {
// Global memory by chunks, of those that are touched: cells of `granule` bytes each, as many as the narrowest access so far.
// Records are of this launch alone.
constexpr int CHUNK = 4096;
struct Chunk {
  int granule;
  Byte cells[1];
};
struct Chunks {
  struct Item { uint64_t number; Chunk* chunk; } *items;  // by number, in the first free place behind its own
  int count, capacity;
  Item recent;
};
inline Chunks chunks;
inline uint64_t first_epoch;

inline void begin_global_shadow() {
  for (int i = 0; i < chunks.capacity; i++) free(chunks.items[i].chunk);
  free(chunks.items);
  chunks = {};
  epoch_blocks.count = 0;
  first_epoch = epochs + 1;
}
inline int block_of(Record r) { return epoch_blocks[(int)(epoch_of(r) - (uint32_t)first_epoch)]; }

inline Chunks::Item& item_at(uint64_t number) {
  uint64_t i = number * 0x9e3779b97f4a7c15ull >> 32;
  while (chunks.items[i % chunks.capacity].chunk && chunks.items[i % chunks.capacity].number != number) i++;
  return chunks.items[i % chunks.capacity];
}
inline Chunk* make_chunk(int granule) {
  Chunk* const c = (Chunk*)calloc(1, sizeof(Chunk) + CHUNK / granule * sizeof(Byte));
  c->granule = granule;
  return c;
}
// The chunk of an access, with cells that are no wider than it.
inline Chunk& chunk_at(uint64_t address, int bytes) {
  const uint64_t number = address / CHUNK;
  if (chunks.recent.chunk && chunks.recent.number == number && chunks.recent.chunk->granule <= bytes) return *chunks.recent.chunk;
  if (2 * chunks.count >= chunks.capacity) {
    const Chunks before = chunks;
    chunks.capacity = before.capacity ? 2 * before.capacity : 64;
    chunks.items = (Chunks::Item*)calloc(chunks.capacity, sizeof(Chunks::Item));
    for (int i = 0; i < before.capacity; i++)
      if (before.items[i].chunk) item_at(before.items[i].number) = before.items[i];
    free(before.items);
  }
  Chunks::Item& item = item_at(number);
  if (!item.chunk) {
    item = {number, make_chunk(bytes)};
    chunks.count++;
  } else if (bytes < item.chunk->granule) {
    Chunk* const finer = make_chunk(bytes);
    const int parts = item.chunk->granule / bytes;
    for (int i = 0; i < CHUNK / bytes; i++) finer->cells[i] = item.chunk->cells[i / parts];
    free(item.chunk);
    item.chunk = finer;
  }
  chunks.recent = item;
  return *item.chunk;
}

// Whether t's access now comes after what `r` stands for, whoever did it.
inline bool comes_after(const Thread& t, Record r) {
  Block& b = *t.block;
  const int other = block_of(r);
  if (other == b.number) return ordered(b, t, r);
  const auto known = [&](const Knowledge* k) {
    const Snapshot* const s = k ? k->of[other] : nullptr;
    return s && (s->epoch > epoch_of(r) || (s->epoch == epoch_of(r) && s->row[thread_of(r)] >= clock_of(r)));
  };
  return known(b.known) || known(t.known);
}
[[noreturn]] inline void global_race(const Buffer& b, uint64_t at, const char* mine, const char* theirs, Record r, int where, Site site) {
  const Site other = sources.items[where].site;
  fail(site, "race: %s of byte %llu of %s with the %s by thread %d of block %d at %s:%d, and nothing that orders them", mine,
       (unsigned long long)at, b.name, theirs, thread_of(r), block_of(r), other.file, other.line);
}
inline const char* name_of(Access access) {
  constexpr const char* NAMES[] = {"load", "store", "atomic", "load_acquire", "store_release"};
  return NAMES[access];
}
inline void shadow_global(Thread& t, const Buffer& b, uint64_t address, int bytes, Access access, Site site) {
  const Clocks& o = *t.block->clocks;
  const bool strong = access == ATOMIC || access == ACQUIRE || access == RELEASE, writes = access == STORE || access == ATOMIC || access == RELEASE;
  const Record mine = record(o.epoch, o.clocks[t.number], strong ? ATOMICALLY : PLAIN, t.number);
  const uint16_t id = (uint16_t)id_of(site);
  Chunk& chunk = chunk_at(address, bytes);
  Byte* cell = chunk.cells + address % CHUNK / chunk.granule;
  for (uint64_t at = address - b.start; at < address - b.start + bytes; at += chunk.granule, cell++) {
    Byte& c = *cell;
    const auto apart = [&](Record r) { return r && !(strong && kind_of(r) == ATOMICALLY) && !comes_after(t, r); };
    if (apart(c.write)) global_race(b, at, name_of(access), "store", c.write, c.write_at, site);
    if (!writes) {
      if (!c.first || comes_after(t, c.first)) {
        c.first = mine;
        c.first_at = id;
      } else {
        c.last = mine;
        c.last_at = id;
      }
      continue;
    }
    if (apart(c.first)) global_race(b, at, name_of(access), "load", c.first, c.first_at, site);
    if (apart(c.last)) global_race(b, at, name_of(access), "load", c.last, c.last_at, site);
    if (c.write && !c.first && !strong && kind_of(c.write) == PLAIN && (thread_of(c.write) != t.number || block_of(c.write) != t.block->number))
      fail(site, "store of byte %llu of %s, which thread %d of block %d stored at %s:%d and nobody read since", (unsigned long long)at, b.name,
           thread_of(c.write), block_of(c.write), sources.items[c.write_at].site.file, sources.items[c.write_at].site.line);
    c.write = mine;
    c.write_at = id;
    c.first = c.last = 0;
  }
  if (strong) touch_flag(t, (const void*)address, access);
}
}  // namespace emulator
