// Places in kernels' sources by small numbers, and what accesses there cost: bank conflicts, sectors of global memory.
#pragma once
#include "report.h"

namespace emulator {
// Shared memory has 32 banks of 4 bytes. Lanes of 16-byte accesses are served 8 at a time, of 8-byte ones 16, others all at once;
// within such a group words of one bank are passed one after the other, equal words at once. Global memory comes in sectors of 32
// bytes, each once for an access of a warp.
constexpr int BANKS = 32, SECTOR = 32, MOST_PLACES = 1 << 12, SAMPLED = 32;

// The n-th time that a warp was somewhere: the addresses of its lanes. Lanes that take a loop more often than others are taken
// together all the same, so this is exact where control flow is uniform.
struct Visit {
  uint32_t lanes;
  uint64_t address[WARP];
};
// Accesses of one kind of memory: what they took, and the least that they could.
struct Visits {
  int64_t taken, least;
  int bytes;               // of an access; 0 where no lane was
  Array<Visit> visits;     // SAMPLED for every warp
  Array<uint8_t> visited;  // how often, by thread
};
struct Source {
  Site site;
  Visits shared, global;
};
struct Sources {
  Source items[MOST_PLACES];
  int count;
  struct { const char* file; int line, id; } recent[256];
};
inline Sources sources __attribute__((visibility("hidden")));

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
    p.shared.taken = p.shared.least = p.global.taken = p.global.least = 0;
    p.shared.bytes = p.global.bytes = 0;
  }
  slot = {s.file, s.line, id};
  return id;
}

inline int together_of(int bytes) { return bytes == 16 ? 8 : bytes == 8 ? 16 : 32; }
inline int passes_of(const uint64_t* addresses, uint32_t lanes, int bytes) {
  const int together = together_of(bytes);
  int passes = 0;
  for (int first = 0; first < WARP; first += together) {
    uint32_t words[BANKS][WARP];
    int counts[BANKS] = {}, most = 0;
    for (int l = first; l < first + together; l++) {
      if (!(lanes >> l & 1)) continue;
      for (uint32_t word = (uint32_t)addresses[l] / 4; word <= ((uint32_t)addresses[l] + bytes - 1) / 4; word++) {
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
inline void count_conflicts(Visits& p, const uint64_t* addresses, uint32_t lanes, int bytes) {
  const int together = together_of(bytes);
  p.taken += passes_of(addresses, lanes, bytes);
  for (int first = 0; first < WARP; first += together) p.least += (lanes >> first & (together == 32 ? ~0u : (1u << together) - 1)) != 0;
}
// Sectors that hold what lanes access, and as few as could hold as much.
inline void count_sectors(Visits& p, const uint64_t* addresses, uint32_t lanes, int bytes) {
  uint64_t sectors[WARP], places[WARP], most[2] = {};
  int sector_count = 0, place_count = 0;
  const auto add = [](uint64_t* all, int& n, uint64_t& most, uint64_t x) {
    for (int i = n && x <= most ? n : 0; i > 0; i--)  // most lie in order
      if (all[i - 1] == x) return;
    if (x > most) most = x;
    all[n++] = x;
  };
  for (int l = 0; l < WARP; l++) {
    if (!(lanes >> l & 1)) continue;
    add(sectors, sector_count, most[0], addresses[l] / SECTOR);
    add(places, place_count, most[1], addresses[l]);
  }
  p.taken += sector_count;
  p.least += (place_count * bytes + SECTOR - 1) / SECTOR;
}
// One lane's access; counted with those of the other lanes when the block is through.
inline void note_visit(Visits& p, const Thread& t, uint64_t address, int bytes) {
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
  for (int i = 1; i < sources.count; i++)
    for (int kind = 0; kind < 2; kind++) {
      Visits* const p = kind ? &sources.items[i].global : &sources.items[i].shared;
      if (!p->bytes) continue;
      for (int k = 0; k < p->visits.count; k++)
        if (const Visit& v = p->visits[k]; v.lanes) {
          if (!kind) count_conflicts(*p, v.address, v.lanes, p->bytes);
          else count_sectors(*p, v.address, v.lanes, p->bytes);
        }
      p->bytes = 0;
    }
}
inline void list_sites() {
  Launch& l = *machine.launch;
  for (int i = 1; i < sources.count && l.site_count < l.site_capacity; i++) {
    const Source& p = sources.items[i];
    if (!p.shared.least && !p.global.least) continue;
    SiteCount& found = l.sites[l.site_count++];
    snprintf(found.file, sizeof found.file, "%s", p.site.file);
    found.line = p.site.line;
    found.passes = p.shared.taken;
    found.least_passes = p.shared.least;
    found.sectors = p.global.taken;
    found.least_sectors = p.global.least;
  }
}
}  // namespace emulator
