// Checks of accesses to global and shared memory.
#pragma once
#include "schedule.h"
#include "global_shadow.h"

namespace emulator {
// Whoever waits for a change of a flag looks again.
inline void wake_watchers(const void* p) {
  Machine& m = machine;
  for (int i = 0; m.watchers && i < m.threads.count; i++) {
    Thread& t = m.threads[i];
    if (t.state != WAITING || t.wait != AT_MEMORY || t.watched != p) continue;
    m.watchers--;
    wake(t);
  }
}
inline Buffer* buffer_at(uint64_t address) {
  static int last = 0;
  Launch& l = *machine.launch;
  if (last < l.buffer_count && address - l.buffers[last].start < l.buffers[last].bytes) return &l.buffers[last];
  for (int i = 0; i < l.buffer_count; i++) {
    if (address - l.buffers[i].start < l.buffers[i].bytes) {
      last = i;
      return &l.buffers[i];
    }
  }
  return nullptr;
}
[[noreturn]] inline void out_of_bounds(uint64_t address, int bytes, Access access, Site site) {
  const Launch& l = *machine.launch;
  const Buffer* nearest = nullptr;
  uint64_t least = ~0ull;
  for (int i = 0; i < l.buffer_count; i++) {
    const Buffer& b = l.buffers[i];
    const uint64_t away = address < b.start ? b.start - address : address - b.start;
    if (away < least) {
      least = away;
      nearest = &b;
    }
  }
  if (!nearest) fail(site, "%s of %d bytes outside of every tensor", name_of(access), bytes);
  fail(site, "%s of %d bytes at byte %lld of %s, which has %llu", name_of(access), bytes, (long long)(address - nearest->start), nearest->name, (unsigned long long)nearest->bytes);
}
inline void global_access(const void* p, int bytes, Access access, Site site) {
  const uint64_t address = (uint64_t)p;
  Buffer* b = buffer_at(address);
  if (!b || address + bytes > b->start + b->bytes) out_of_bounds(address, bytes, access, site);
  const uint64_t at = address - b->start;
  if (address % bytes) fail(site, "%s of %d bytes at byte %llu of %s is not aligned to them", name_of(access), bytes, (unsigned long long)at, b->name);
  if (b->kind == Buffer::INPUT && access != LOAD && access != ACQUIRE) fail(site, "%s to %s, which is an input", name_of(access), b->name);
  if (self().block->cluster->sampled && self().block->rank == 0) note_visit(sources.items[id_of(site)].global, self(), address, bytes);
  if (b->kind != Buffer::INPUT) shadow_global(self(), *b, address, bytes, access, site);
  if (access == ATOMIC || access == RELEASE) wake_watchers(p);
  if (!b->written) return;
  if (access != STORE && access != RELEASE)
    for (int i = 0; i < bytes; i++)
      if (!b->written[at + i]) fail(site, "%s of byte %llu of %s, which nobody wrote", name_of(access), (unsigned long long)(at + i), b->name);
  if (access != LOAD && access != ACQUIRE) memset(b->written + at, 1, bytes);
}
inline unsigned char* shared_at(uint32_t address, int bytes, const char* what, Site site) {
  const uint32_t at = address - SHARED_BASE;
  if (at >= machine.launch->shared_bytes || at + bytes > machine.launch->shared_bytes)
    fail(site, "%s of %d bytes at byte %d of the %u of shared memory", what, bytes, (int)at, machine.launch->shared_bytes);
  if (address % bytes) fail(site, "%s of %d bytes at byte %u of shared memory is not aligned to them", what, bytes, at);
  return block().shared + at;
}
inline void shared_access(uint32_t address, int bytes, Access access, Site site) {
  shared_at(address, bytes, name_of(access), site);
  Thread& t = self();
  const int id = id_of(site);
  if (access == LOAD) shadow_load(t, address - SHARED_BASE, bytes, site, id);
  else shadow_store(t, address - SHARED_BASE, bytes, site, id, access == ATOMIC ? ATOMICALLY : PLAIN);
  if (t.block->cluster->sampled && t.block->rank == 0) note_visit(sources.items[id].shared, t, address, bytes);
}
}  // namespace emulator

extern "C" {
void emulator_access(const void* p, int bytes, emulator::Access access, const char* file, int line) {
  using namespace emulator;
  if (!machine.current) return;  // a function of the vocabulary alone, outside of kernels
  machine.launch->accesses++;
  machine.last = {file, line};
  const uint64_t at = (const unsigned char*)p - block().shared;
  if (at < machine.launch->shared_bytes) return shared_access((uint32_t)at + SHARED_BASE, bytes, access, {file, line});
  global_access(p, bytes, access, {file, line});
}
void emulator_memory_fence() {
  emulator::fence_memory(emulator::self());
  emulator::may_yield();
}
// Until somebody touches the flag.
void emulator_watch(const void* p, emulator::Site site) {
  emulator::self().watched = p;
  emulator::machine.watchers++;
  emulator::wait(emulator::AT_MEMORY, "wait_until", site);
}
void emulator_shared_access(const void* p, int bytes, emulator::Access access, const char* file, int line) {
  using namespace emulator;
  machine.launch->accesses++;
  machine.last = {file, line};
  shared_access((uint32_t)((const unsigned char*)p - block().shared) + SHARED_BASE, bytes, access, {file, line});
}
unsigned char* emulator_shared_memory() { return emulator::block().shared; }
uint32_t emulator_shared_address(const void* p, emulator::Site site) {
  using namespace emulator;
  const uint64_t at = (const unsigned char*)p - block().shared;
  if (at > machine.launch->shared_bytes) fail(site, "shared_address of what is no shared memory");
  return (uint32_t)at + SHARED_BASE;
}
}
