// What went wrong, for a person: kernel, line, block and thread. The first problem ends the launch.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include "state.h"

namespace emulator {
struct Text {
  int used = 0;
  void add(const char* format, ...) {
    Launch& l = *machine.launch;
    if (used >= l.report_bytes - 1) return;
    va_list list;
    va_start(list, format);
    used += vsnprintf(l.report + used, l.report_bytes - used, format, list);
    va_end(list);
  }
  void thread(const Thread& t) {
    add("block (%u, %u, %u) thread (%u, %u, %u)", t.block->index.x, t.block->index.y, t.block->index.z, t.index.x, t.index.y, t.index.z);
  }
  void where(Site s) { add("%s:%d", s.file, s.line); }
};

// Ends the launch: no thread runs any more.
[[noreturn]] inline void stop() {
  machine.failed = true;
  Place nowhere;
  go(&nowhere, &machine.main);
  abort();
}
// Reports "PLACE: PROBLEM: block thread" and ends the launch.
[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(Site site, const char* format, ...) {
  Text text;
  text.where(site);
  text.add(": ");
  char problem[400];
  va_list list;
  va_start(list, format);
  vsnprintf(problem, sizeof problem, format, list);
  va_end(list);
  text.add("%s; ", problem);
  text.thread(self());
  stop();
}
}  // namespace emulator
