// Launches of the kernels of plans for CUDA devices, by the driver that the program has loaded: its functions come by
// address, so that nothing is linked with it. A call from Python takes 2 us a kernel; these take what the driver takes.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace cuda {

typedef int (*Launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared_bytes,
                      void* stream, void** parameters, void** extra);
typedef int (*Encode)(void* map, int data_type, uint32_t rank, void* address, const uint64_t* sizes,
                      const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave, int swizzle,
                      int promotion, int fill);
typedef int (*WithContext)(void* context);
typedef int (*GetContext)(void** context);

struct Driver {
  Launch launch;      // cuLaunchKernel
  Encode encode;      // cuTensorMapEncodeTiled; nullptr where the driver is too old for it
  GetContext current;  // cuCtxGetCurrent
  WithContext push;    // cuCtxPushCurrent
  GetContext pop;      // cuCtxPopCurrent
};
Driver driver;

const int NO_FUNCTION = 500;  // CUDA_ERROR_NOT_FOUND
const int MOST_AXES = 5, MAP_BYTES = 128, MAP_ALIGNMENT = 64;
const int NOT_INTERLEAVED = 0, PROMOTE_TO_256_BYTES = 3, ZERO_FILL = 0;

// A tensor map that a kernel takes by value behind its tensors. The structures have the fields of those in
// client/fuseplan_client/cuda/program.py.
struct Map {
  uint64_t sizes[MOST_AXES], strides[MOST_AXES - 1];
  int64_t offset;    // bytes from the argument's address
  int32_t argument;  // of the step
  int32_t data_type, rank, swizzle;
  uint32_t box[MOST_AXES];
  int32_t unused;
};
// An argument of a kernel: an address of the call's, and so many bytes behind it.
struct Argument {
  int64_t place, offset;
};
struct Step {
  void* function;
  uint32_t grid[3], block[3], shared_bytes;
  int32_t arguments, maps;  // that it takes; those of all steps are in order
  int32_t unused;
};

struct Plan {
  void* context;
  int steps, most_arguments, most_maps;
  Step* of;
  Argument* arguments;
  Map* maps;
};

template <class T>
T* copied(const T* from, int count) {
  T* to = (T*)malloc(sizeof(T) * (size_t)(count + 1));
  if (to) memcpy(to, from, sizeof(T) * (size_t)count);
  return to;
}

// The map of a tensor at `address`, in 128 bytes from a multiple of 64 on.
int encode(const Map& map, char* address, void* memory) {
  const uint32_t ones[MOST_AXES] = {1, 1, 1, 1, 1};
  if (!driver.encode) return NO_FUNCTION;
  return driver.encode(memory, map.data_type, (uint32_t)map.rank, address + map.offset, map.sizes, map.strides, map.box,
                       ones, NOT_INTERLEAVED, map.swizzle, PROMOTE_TO_256_BYTES, ZERO_FILL);
}

// Queues steps `from` to before `to` on a stream of the context that is current.
int launch(const Plan* plan, int from, int to, char* const* addresses, void* stream) {
  char** values = (char**)__builtin_alloca(sizeof(char*) * (size_t)(plan->most_arguments + 1));
  void** parameters = (void**)__builtin_alloca(sizeof(void*) * (size_t)(plan->most_arguments + plan->most_maps + 1));
  char* maps = (char*)__builtin_alloca((size_t)(MAP_BYTES * plan->most_maps + MAP_ALIGNMENT));
  maps += -(uintptr_t)maps % MAP_ALIGNMENT;
  const Argument* argument = plan->arguments;
  const Map* map = plan->maps;
  for (int i = 0; i < from; ++i) argument += plan->of[i].arguments, map += plan->of[i].maps;
  for (int i = from; i < to; ++i) {
    const Step& step = plan->of[i];
    for (int a = 0; a < step.arguments; ++a, ++argument) {
      values[a] = addresses[argument->place] + argument->offset;
      parameters[a] = &values[a];
    }
    for (int m = 0; m < step.maps; ++m, ++map) {
      parameters[step.arguments + m] = maps + MAP_BYTES * m;
      if (const int status = encode(*map, values[map->argument], maps + MAP_BYTES * m)) return status;
    }
    const uint32_t *grid = step.grid, *block = step.block;
    const int status = driver.launch(step.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                     step.shared_bytes, stream, parameters, nullptr);
    if (status) return status;
  }
  return 0;
}

}  // namespace cuda
