// cp.async: copies from global to shared memory that are done when their thread waits for them, or at once, as the seed says.
#pragma once
#include "memory.h"

namespace emulator {
inline void perform(const Copy& c) {
  unsigned char* to = block().shared + (c.to - SHARED_BASE);
  if (c.there) memcpy(to, c.from, c.bytes);
  else memset(to, 0, c.bytes);
}
}  // namespace emulator

extern "C" {
void emulator_copy_async(uint32_t to, const void* from, int bytes, bool there, emulator::Site site) {
  using namespace emulator;
  machine.launch->accesses++;
  shared_at(to, bytes, "copy_async", site);
  if (there) global_access(from, bytes, LOAD, site);
  const Copy c{to, from, bytes, self().groups, there, site};
  shadow_store(self(), to - SHARED_BASE, bytes, site, id_of(site), ON_ITS_WAY);
  if (!plan.late) perform(c);
  self().copies.push(c);
}
void emulator_copy_async_commit() { emulator::self().groups++; }
void emulator_copy_async_wait(int groups) {
  using namespace emulator;
  Thread& t = self();
  int kept = 0;
  for (int i = 0; i < t.copies.count; i++) {
    if (t.copies[i].group < t.groups - groups) {
      if (plan.late) perform(t.copies[i]);
      shadow_arrived(*t.block, t.copies[i].to - SHARED_BASE, t.copies[i].bytes, t.number, t.block->clocks->clocks[t.number]);
    } else t.copies[kept++] = t.copies[i];
  }
  t.copies.count = kept;
}
}
