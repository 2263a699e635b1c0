// What is known of every byte of shared memory: who wrote it, who read it since, and whether a copy is still on its way there.
#pragma once
#include "clocks.h"
#include "sites.h"

namespace emulator {
// An access in one word: epoch (32 bits), clock (18), kind (2), thread or agent (12).
using Record = uint64_t;
enum Kind : uint32_t { PLAIN, ATOMICALLY, ON_ITS_WAY };
constexpr uint32_t MOST_CLOCK = (1u << 18) - 1;
inline Record record(uint64_t epoch, uint32_t clock, Kind kind, int thread) {
  return epoch << 32 | (uint64_t)(clock < MOST_CLOCK ? clock : MOST_CLOCK) << 14 | (uint64_t)kind << 12 | (uint64_t)thread;
}
inline uint32_t epoch_of(Record r) { return (uint32_t)(r >> 32); }
inline uint32_t clock_of(Record r) { return (uint32_t)(r >> 14) & MOST_CLOCK; }
inline Kind kind_of(Record r) { return (Kind)(r >> 12 & 3); }
inline int thread_of(Record r) { return (int)(r & 0xfff); }

struct Byte {
  Record write, first, last;  // the last write, and two of the reads since: the first and the latest by another thread
  uint16_t write_at, first_at, last_at, unused;
};

inline const char* agent_name(const Block& b, int thread) { return thread < b.threads ? "thread" : "hardware"; }
[[noreturn]] inline void race(Thread& t, uint32_t at, const char* mine, const char* theirs, Record r, int where, Site site) {
  machine.current = &t;
  const Site other = sources.items[where].site;
  fail(site, "race: %s of byte %u of shared memory with the %s by %s %d at %s:%d, and no barrier between", mine, at, theirs,
       agent_name(*t.block, thread_of(r)), thread_of(r), other.file, other.line);
}
// Whether t's access now comes after what `r` stands for.
inline bool ordered(Block& b, const Thread& t, Record r) {
  return epoch_of(r) != (uint32_t)b.clocks->epoch || sees(*b.clocks, t.number, thread_of(r), clock_of(r));
}
inline void check_write(Thread& t, const Byte& b, uint32_t at, const char* mine, Site site) {
  Block& block = *t.block;
  if (kind_of(b.write) == ON_ITS_WAY && epoch_of(b.write) >= (uint32_t)block.clocks->born) {
    const Site other = sources.items[b.write_at].site;
    machine.current = &t;
    fail(site, "%s of byte %u of shared memory, where the copy of %s:%d is still on its way", mine, at, other.file, other.line);
  }
  if (!ordered(block, t, b.write)) race(t, at, mine, "write", b.write, b.write_at, site);
}
inline void shadow_load(Thread& t, uint32_t at, int bytes, Site site, int id) {
  Block& block = *t.block;
  Clocks& o = *block.clocks;
  const Record mine = record(o.epoch, o.clocks[t.number], PLAIN, t.number);
  Record seen = 0;
  for (uint32_t i = at; i < at + bytes; i++) {
    Byte& b = block.shadow[i];
    if (b.write != seen) {
      if (epoch_of(b.write) < (uint32_t)o.born) {
        machine.current = &t;
        fail(site, "load of byte %u of shared memory, which nobody wrote", i);
      }
      check_write(t, b, i, "load", site);
      seen = b.write;
    }
    if (epoch_of(b.first) != (uint32_t)o.epoch || thread_of(b.first) == t.number) {
      b.first = mine;
      b.first_at = id;
    } else {
      b.last = mine;
      b.last_at = id;
    }
  }
}
inline void shadow_store(Thread& t, uint32_t at, int bytes, Site site, int id, Kind kind = PLAIN) {
  Block& block = *t.block;
  Clocks& o = *block.clocks;
  const Record mine = record(o.epoch, o.clocks[t.number], kind, t.number);
  const char* const name = kind == ATOMICALLY ? "atomic" : kind == ON_ITS_WAY ? "copy" : "store";
  Record written = 0, first = 0, last = 0;
  for (uint32_t i = at; i < at + bytes; i++) {
    Byte& b = block.shadow[i];
    if (b.write != written) {
      const bool both = kind == ATOMICALLY && kind_of(b.write) == ATOMICALLY;
      if (!both) check_write(t, b, i, name, site);
      if (kind == ATOMICALLY && epoch_of(b.write) < (uint32_t)o.born) fail(site, "atomic on byte %u of shared memory, which nobody wrote", i);
      written = b.write;
    }
    if (b.first != first) {
      if (!ordered(block, t, b.first)) race(t, i, name, "load", b.first, b.first_at, site);
      first = b.first;
    }
    if (b.last != last) {
      if (!ordered(block, t, b.last)) race(t, i, name, "load", b.last, b.last_at, site);
      last = b.last;
    }
    b.write = mine;
    b.write_at = id;
    b.first = b.last = 0;
  }
}
// Hardware that reads and writes shared memory by itself sees what threads wrote once the writer, or after a barrier of the
// whole block whoever asks for it, has said fence_async_shared.
inline void must_be_fenced(const Thread& t, uint32_t at, int bytes, const char* what, Site site) {
  const Block& block = *t.block;
  const Clocks& o = *block.clocks;
  for (uint32_t i = at; i < at + bytes; i++) {
    const Record r = block.shadow[i].write;
    const int writer = thread_of(r);
    if (epoch_of(r) < (uint32_t)o.born || writer >= block.threads) continue;
    const auto& theirs = o.fences[writer];
    const uint32_t since = (uint32_t)theirs.epoch;
    if (since > epoch_of(r) || (since == epoch_of(r) && theirs.clock >= clock_of(r)) || (uint32_t)o.fences[t.number].epoch > epoch_of(r)) continue;
    const Site other = sources.items[block.shadow[i].write_at].site;
    fail(site, "%s byte %u of shared memory, which thread %d wrote at %s:%d, and no fence_async_shared since", what, i, writer, other.file, other.line);
  }
}
// A copy has arrived: it was written by `thread` (or an agent), now.
inline void shadow_arrived(Block& block, uint32_t at, int bytes, int thread, uint32_t clock) {
  const Record r = record(block.clocks->epoch, clock, PLAIN, thread);
  for (uint32_t i = at; i < at + bytes; i++) block.shadow[i].write = r;
}
}  // namespace emulator
