// A stand-in for CUDA's driver: modules are the emulator's objects, launches run there at once, on the machine's memory.
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulator.h"

namespace {
const int OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_FOUND = 500, LAUNCH_FAILED = 719;
int contexts[4];  // of which the addresses count
thread_local void* current[16];
thread_local int depth = 0;
pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
struct Function {
  int (*run)(emulator::Launch*);
  unsigned allowed_shared;
};
int launches = 0, is_dry = 0, failing = 0, failing_after = -1, maps = 0;
void* last_stream = nullptr;
uint64_t seed = 0;
char last_report[4096];
}  // namespace

extern "C" {
// What tests ask and set.
int stub_launches() { return launches; }
int stub_maps() { return maps; }
void* stub_last_stream() { return last_stream; }
const char* stub_report() { return last_report; }
void stub_seed(uint64_t of) { seed = of; }     // of the order of threads
void stub_dry(int on) { is_dry = on; }         // launches do nothing
void stub_fail_after(int count) { failing_after = count; }  // launches there is no memory; -1: for none
void stub_fail(int status) { failing = status; }  // and those that follow answer this
int stub_depth() { return depth; }

int cuInit(unsigned) { return 0; }
int cuGetErrorName(int status, const char** name) {
  *name = status == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return 0;
}
int cuDeviceGet(int* device, int number) {
  *device = number;
  return 0;
}
int cuDeviceGetAttribute(int* value, int which, int) {
  *value = which == 75 ? 8 : 0;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device];
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int own = 0;
  const int before = own;
  own = *mode, *mode = before;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  current[depth++] = context;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  if (!depth) return INVALID_CONTEXT;
  *context = current[--depth];
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = depth ? current[depth - 1] : nullptr;
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
  if (!depth) return INVALID_CONTEXT;
  const size_t bytes = head->e_shoff + (size_t)head->e_shentsize * head->e_shnum;
  const int file = memfd_create("stub", 0);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  const bool written = write(file, image, bytes) == (ssize_t)bytes;
  *module = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;  // the file stays: a path is loaded once
  return *module ? 0 : NOT_FOUND;
}
int cuModuleGetFunction(void** function, void* module, const char* entry) {
  char name[512];
  snprintf(name, sizeof name, "emulate_%s", entry);
  void* run = dlsym(module, name);
  if (!run) return NOT_FOUND;
  *function = new Function{(int (*)(emulator::Launch*))run, 48u << 10};
  return 0;
}
int cuFuncSetAttribute(void* function, int, int value) {
  ((Function*)function)->allowed_shared = (unsigned)value;
  return 0;
}
int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address, const uint64_t* sizes, const uint64_t* strides,
                           const uint32_t* box, const uint32_t*, int, int swizzle, int, int) {
  ++maps;
  if ((uintptr_t)map % 64) return 1;
  const uint64_t seen[] = {(uint64_t)address, (uint64_t)type, rank, sizes[rank - 1], rank > 1 ? strides[rank - 2] : 0,
                           box[rank - 1], (uint64_t)swizzle};
  memset(map, 0, 128);
  memcpy(map, seen, sizeof seen);
  return 0;
}
int cuLaunchKernel(void* of, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void* stream, void** parameters, void**) {
  Function* function = (Function*)of;
  ++launches;
  last_stream = stream;
  if (!depth || current[depth - 1] != &contexts[0]) return INVALID_CONTEXT;
  if (failing) return failing;
  if (failing_after >= 0 && failing_after-- == 0) return OUT_OF_MEMORY;
  if (shared > function->allowed_shared) return 1;
  if (is_dry) return 0;
  emulator::Buffer memory = {1 << 16, (1ull << 47) - (1 << 16), "memory", nullptr, emulator::Buffer::TEMPORARY};
  emulator::SiteCount sites[256];
  emulator::Launch launch = {};
  launch.args = parameters;
  const uint32_t shape[] = {gx, gy, gz, bx, by, bz, 1, 1, 1};
  memcpy(launch.grid, shape, sizeof shape);
  launch.shared_bytes = shared;
  launch.seed = seed;
  launch.buffers = &memory, launch.buffer_count = 1;
  launch.report = last_report, launch.report_bytes = sizeof last_report;
  launch.sites = sites, launch.site_capacity = 256;
  pthread_mutex_lock(&turn);
  const int status = function->run(&launch);
  pthread_mutex_unlock(&turn);
  return status ? LAUNCH_FAILED : 0;
}
}
