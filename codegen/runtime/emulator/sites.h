// Places in kernels' sources by small numbers, and how often accesses there met bank conflicts.
#pragma once
#include "report.h"

namespace emulator {
// Shared memory has 32 banks of 4 bytes. Lanes of 16-byte accesses are served 8 at a time, of 8-byte ones 16, others all at once;
// within such a group words of one bank are passed one after the other, equal words at once.
constexpr int BANKS = 32, MOST_PLACES = 1 << 12, SAMPLED = 32;

// The n-th time that a warp was somewhere: the addresses of its lanes. Lanes that take a loop more often than others are taken
// together all the same, so this is exact where control flow is uniform.
struct Visit {
  uint32_t lanes;
  uint32_t address[WARP];
};
struct Source {
  Site site;
  int64_t passes, least;
  int bytes;               // of an access; 0 where no lane was
  Array<Visit> visits;     // SAMPLED for every warp
  Array<uint8_t> visited;  // how often, by thread
};
struct Sources {
  Source items[MOST_PLACES];
  int count;
  struct { const char* file; int line, id; } recent[256];
};
inline Sources sources __attribute__((visibility("hidden")));
inline bool sampling = false;  // conflicts are counted in the first blocks, which stand for the others

inline void forget_sources() {
  sources.count = 1;
  memset((void*)sources.recent, 0, sizeof sources.recent);
}
inline int id_of(Site s) {
  auto& slot = sources.recent[((uintptr_t)s.file / 8 + s.line) & 255];
  if (slot.id && slot.line == s.line && slot.file == s.file) return slot.id;
  int id = 1;
  while (id < sources.count && !same(sources.items[id].site, s)) id++;
  if (id == MOST_PLACES) return MOST_PLACES - 1;
  if (id == sources.count) {
    Source& p = sources.items[sources.count++];
    p.site = s;
    p.passes = p.least = p.bytes = 0;
  }
  slot = {s.file, s.line, id};
  return id;
}

inline int together_of(int bytes) { return bytes == 16 ? 8 : bytes == 8 ? 16 : 32; }
inline int passes_of(const uint32_t* addresses, uint32_t lanes, int bytes) {
  const int together = together_of(bytes);
  int passes = 0;
  for (int first = 0; first < WARP; first += together) {
    uint32_t words[BANKS][WARP];
    int counts[BANKS] = {}, most = 0;
    for (int l = first; l < first + together; l++) {
      if (!(lanes >> l & 1)) continue;
      for (uint32_t word = addresses[l] / 4; word <= (addresses[l] + bytes - 1) / 4; word++) {
        int& n = counts[word % BANKS];
        bool known = false;
        for (int k = 0; k < n; k++) known |= words[word % BANKS][k] == word;
        if (!known && n < WARP) words[word % BANKS][n++] = word;
        if (n > most) most = n;
      }
    }
    passes += most;
  }
  return passes;
}
inline void count_conflicts(Source& p, const uint32_t* addresses, uint32_t lanes, int bytes) {
  const int together = together_of(bytes);
  p.passes += passes_of(addresses, lanes, bytes);
  for (int first = 0; first < WARP; first += together) p.least += (lanes >> first & (together == 32 ? ~0u : (1u << together) - 1)) != 0;
}
// One lane's access; counted with those of the other lanes when the block is through.
inline void note_visit(int id, const Thread& t, uint32_t address, int bytes) {
  Source& p = sources.items[id];
  if (!p.bytes) {
    const int warps = (t.block->threads + WARP - 1) / WARP;
    p.bytes = bytes;
    p.visits.resize(warps * SAMPLED);
    p.visited.resize(warps * WARP);
    memset((void*)p.visits.items, 0, p.visits.count * sizeof(Visit));
    memset(p.visited.items, 0, p.visited.count);
  }
  uint8_t& n = p.visited[t.number];
  if (n == SAMPLED) return;
  Visit& v = p.visits[t.number / WARP * SAMPLED + n++];
  v.lanes |= 1u << t.lane;
  v.address[t.lane] = address;
}
inline void count_visits() {
  for (int i = 1; i < sources.count; i++) {
    Source& p = sources.items[i];
    if (!p.bytes) continue;
    for (int k = 0; k < p.visits.count; k++)
      if (p.visits[k].lanes) count_conflicts(p, p.visits[k].address, p.visits[k].lanes, p.bytes);
    p.bytes = 0;
  }
}
inline void list_conflicts() {
  Launch& l = *machine.launch;
  for (int i = 1; i < sources.count && l.site_count < l.site_capacity; i++) {
    const Source& p = sources.items[i];
    if (!p.least) continue;
    SiteCount& found = l.sites[l.site_count++];
    snprintf(found.file, sizeof found.file, "%s", p.site.file);
    found.line = p.site.line;
    found.passes = p.passes;
    found.least = p.least;
  }
}
}  // namespace emulator
