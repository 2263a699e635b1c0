// Runs the steps of plans inside of a program that is not ours, on its tensors: on the OpenMP threads that the program has
// already (PyTorch's), on a pool of our own, or on the caller alone.
//
// A plan is made once from tables; a call gets one array of addresses: of inputs, outputs and temporaries. Steps run one
// after the other with a barrier between them, as in pool.cpp. Any number of threads may call. One of them has our pool at
// a time, and another one that comes meanwhile runs its steps alone. OpenMP has a team for each caller.
//
// Plans for CUDA devices are launched from here as well: see cuda_launches.h.
//
// A child of fork() has none of its parent's threads. There our pool begins anew, and OpenMP is left alone: libgomp waits
// for ever for the team that it remembers.

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_launches.h"
#include "mersenne_twister.h"
#include "wait_signal.h"

typedef void (*Entry)(void* const* args, long task, long tasks);
typedef void (*Parallel)(void (*part)(void*), void* data, unsigned threads, unsigned flags);  // GOMP_parallel
typedef int (*TeamSize)();                                                                   // omp_get_num_threads

namespace {

// Turns of waiting before a thread sleeps. Within a call, where to wake a thread takes a virtual machine as long as a small
// kernel: products of two threads end half a millisecond apart, and plans of these took 3 % less than with 400. OpenMP's own
// threads wait a hundred times as long. Between calls some microseconds: the cores are the program's own.
const int CALL_SPINS = 10000, IDLE_SPINS = 400;
const int MOST_THREADS = 256;
const size_t STACK_BYTES = 8 << 20;

struct Plan {
  int steps, all_args;
  Entry* entries;
  int* first_args;  // of each step: where its arguments begin in `places`
  int* places;      // of each argument: its position in a call's array of addresses
  int64_t* tasks;
};

// Bytes of stack that the calling thread has left; 0 where that is unknown.
size_t stack_left() {
  static thread_local char* lowest = nullptr;
  char here;
  if (!lowest) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes)) return 0;
    void* address = nullptr;
    size_t bytes = 0, guard = 0;
    pthread_attr_getstack(&attributes, &address, &bytes);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
    lowest = (char*)address + guard;
  }
  return &here > lowest ? (size_t)(&here - lowest) : 0;
}

// One call of a plan, on as many threads as come.
struct Call {
  const Plan* plan;
  int from, to;
  void** args;
  size_t stack_bytes;  // that each thread has to have
  int threads;
  int joined, refused;
  alignas(64) Signal<CALL_SPINS> through;  // every thread is
  alignas(64) int arrived;
  alignas(64) int64_t next;  // first task of the step that nobody has taken

  void barrier() {
    const uint32_t seen = load(&through.value);
    if (fetch_add(&arrived, 1) + 1 == threads) {
      store(&arrived, 0);
      store(&next, (int64_t)0);
      through.raise();
    } else {
      through.wait_beyond(seen);
    }
  }
  void part(int thread) {
    if (stack_left() < stack_bytes) store(&refused, 1);
    barrier();
    if (load(&refused)) return;
    for (int i = from; i < to; ++i) {
      const int64_t tasks = plan->tasks[i];
      void* const* given = args + plan->first_args[i];
      if (tasks == threads) {
        plan->entries[i](given, thread, tasks);
      } else {
        for (int64_t task; (task = fetch_add(&next, (int64_t)1)) < tasks;) plan->entries[i](given, task, tasks);
      }
      barrier();
    }
  }
  void alone() {
    for (int i = from; i < to; ++i)
      for (int64_t task = 0; task < plan->tasks[i]; ++task) plan->entries[i](args + plan->first_args[i], task, plan->tasks[i]);
  }
};

Parallel parallel = nullptr;
TeamSize team_size = nullptr;
bool forked = false;

// Threads of our own. A call has them all: those beyond what it wants look at it and go back to wait.
struct Pool {
  int taken;                          // 1: somebody's call is at work
  int workers;                        // threads that are there
  uint32_t born[MOST_THREADS];        // of each: `started` before its first call
  Call* call;
  int first;                          // worker i is thread `first` + i of the call
  alignas(64) Signal<IDLE_SPINS> started;  // there is a call
  alignas(64) int left;               // workers that have not seen the call's end
};
Pool pool;

void* worker(void* argument) {
  const int me = (int)(intptr_t)argument;
  for (uint32_t seen = pool.born[me];; ++seen) {
    pool.started.wait_beyond(seen);
    const int thread = pool.first + me;
    if (thread < pool.call->threads) pool.call->part(thread);
    fetch_add(&pool.left, -1);
  }
  return nullptr;
}

// Has at least `count` workers, or as many as the system grants; those that are new begin with the next call.
void grow(int count) {
  pthread_attr_t attributes;
  if (pool.workers >= count || pthread_attr_init(&attributes)) return;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  for (; pool.workers < count; ++pool.workers) {
    pthread_t handle;
    pool.born[pool.workers] = load(&pool.started.value);
    if (pthread_create(&handle, &attributes, worker, (void*)(intptr_t)pool.workers)) break;
  }
  pthread_attr_destroy(&attributes);
}

// The call on up to `threads` threads of ours, of which the caller is one if it `takes_part`. wait: for whoever has the pool;
// else false where somebody has it, or there are no threads: nothing was run then.
bool on_pool(Call& call, int threads, bool takes_part, bool wait) {
  for (int taken = 0; !__atomic_compare_exchange_n(&pool.taken, &taken, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); taken = 0) {
    if (!wait) return false;
    syscall(SYS_sched_yield);
  }
  grow(takes_part ? threads - 1 : threads);
  const int there = pool.workers + takes_part;
  call.threads = threads < there ? threads : there;
  if (there) {
    pool.call = &call;
    pool.first = takes_part;
    store(&pool.left, pool.workers);
    pool.started.raise();
    if (takes_part) call.part(0);
    for (int spins = 0; load(&pool.left); ++spins) {  // nobody may look at a call that is over
      if (spins < IDLE_SPINS) relax();
      else syscall(SYS_sched_yield);
    }
  }
  store(&pool.taken, 0);
  return there && !call.refused;
}

void in_child() {
  forked = true;
  memset((void*)&pool, 0, sizeof pool);
}

void openmp_part(void* data) {
  Call* call = (Call*)data;
  const int thread = fetch_add(&call->joined, 1);
  store(&call->threads, team_size());
  call->part(thread);
}

using cuda::copied;

}  // namespace

extern "C" {

enum Way { ALONE = 0, POOL = 1, OPENMP = 2 };
enum Answer { RAN = 0, NO_STACK = 1 };

int fp_version() { return 1; }

// Once in a process, before anything else. 0, or an error number.
int fp_begin() { return pthread_atfork(nullptr, nullptr, in_child); }

// From now on there are the program's OpenMP threads: GOMP_parallel and omp_get_num_threads of the library that it uses.
void fp_use_openmp(void* gomp_parallel, void* omp_get_num_threads) {
  parallel = (Parallel)gomp_parallel;
  team_size = (TeamSize)omp_get_num_threads;
}

// A plan from its steps: entries[i] with counts[i] arguments and tasks[i] tasks; places: of all arguments, in order. nullptr
// where there is no memory.
void* fp_plan(int steps, void* const* entries, const int* counts, const int* places, const int64_t* tasks) {
  Plan* plan = (Plan*)malloc(sizeof(Plan));
  if (!plan) return nullptr;
  plan->steps = steps, plan->all_args = 0;
  plan->entries = (Entry*)copied(entries, steps);
  plan->first_args = copied(counts, steps);
  plan->tasks = copied(tasks, steps);
  for (int i = 0; i < steps; ++i) plan->all_args += counts[i];
  plan->places = copied(places, plan->all_args);
  if (!plan->entries || !plan->first_args || !plan->tasks || !plan->places) return nullptr;
  for (int i = 0, at = 0; i < steps; ++i) plan->first_args[i] = at, at += counts[i];
  return plan;
}

void fp_free(void* handle) {
  Plan* plan = (Plan*)handle;
  free(plan->entries), free(plan->first_args), free(plan->places), free(plan->tasks), free(plan);
}

// Runs steps `from` to before `to`. addresses: of inputs, outputs and temporaries. threads: at most so many, the caller
// among them. stack_bytes: that every thread has to have left; where the caller's or OpenMP's have less, threads of ours run
// all of it. way: a wish, for who cannot have it runs alone. NO_STACK: nothing was run, on any thread.
int fp_run(const void* handle, int from, int to, void* const* addresses, int threads, int way, int64_t stack_bytes) {
  const Plan* plan = (const Plan*)handle;
  void** args = (void**)__builtin_alloca(sizeof(void*) * (size_t)(plan->all_args + 1));
  for (int i = 0; i < plan->all_args; ++i) args[i] = addresses[plan->places[i]];
  Call call = {plan, from, to, args, (size_t)stack_bytes, 0, 0, 0, {}, 0, 0};
  bool shared = false;
  for (int i = from; i < to && !shared; ++i) shared = plan->tasks[i] > 1;
  threads = !shared || threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
  const bool enough = stack_left() >= call.stack_bytes;
  if (enough && threads > 1 && way == OPENMP && parallel && !forked) {
    parallel(openmp_part, &call, (unsigned)threads, 0);
    if (!call.refused) return RAN;
    call = {plan, from, to, args, (size_t)stack_bytes, 0, 0, 0, {}, 0, 0};
    return on_pool(call, threads, true, true) ? RAN : NO_STACK;
  }
  if (!enough) return on_pool(call, threads, false, true) ? RAN : NO_STACK;
  if (threads > 1 && way == POOL && on_pool(call, threads, true, false)) return RAN;
  call.alone();
  return RAN;
}

// From now on plans for CUDA devices are launched by these functions of the driver, in the order of cuda::Driver.
void fp_use_cuda(void* const* functions) { memcpy((void*)&cuda::driver, functions, sizeof cuda::driver); }

void fp_cuda_free(void* handle) {
  cuda::Plan* plan = (cuda::Plan*)handle;
  free(plan->of), free(plan->arguments), free(plan->maps), free(plan);
}

// A plan for a CUDA device from its kernels: of the functions of a context, with their arguments and maps in order.
// nullptr where there is no memory.
void* fp_cuda_plan(void* context, int steps, const cuda::Step* of, const cuda::Argument* arguments, const cuda::Map* maps) {
  cuda::Plan* plan = (cuda::Plan*)malloc(sizeof(cuda::Plan));
  if (!plan) return nullptr;
  *plan = {context, steps, 0, 0, copied(of, steps), nullptr, nullptr};
  int all_arguments = 0, all_maps = 0;
  for (int i = 0; i < steps; ++i) {
    all_arguments += of[i].arguments, all_maps += of[i].maps;
    if (of[i].arguments > plan->most_arguments) plan->most_arguments = of[i].arguments;
    if (of[i].maps > plan->most_maps) plan->most_maps = of[i].maps;
  }
  plan->arguments = copied(arguments, all_arguments);
  plan->maps = copied(maps, all_maps);
  if (plan->of && plan->arguments && plan->maps) return plan;
  fp_cuda_free(plan);
  return nullptr;
}

// Queues steps `from` to before `to` on a stream, whatever context the thread has. addresses: what arguments are behind of.
// 0, or the driver's error.
int fp_cuda_run(const void* handle, int from, int to, char* const* addresses, void* stream) {
  const cuda::Plan* plan = (const cuda::Plan*)handle;
  void* before = nullptr;
  int status = cuda::driver.current(&before);
  if (status) return status;
  const bool is_other = before != plan->context;
  if (is_other && (status = cuda::driver.push(plan->context))) return status;
  status = cuda::launch(plan, from, to, addresses, stream);
  if (is_other) {
    const int after = cuda::driver.pop(&before);
    status = status ? status : after;
  }
  return status;
}

// out[i] = whether the number i that PyTorch's generator would give next is below `limit` 2^-53; then the generator is behind
// them. state: what `torch.Generator.get_state` gives of one on a CPU. vector_bits: of instructions that the CPU has: 512
// (AVX-512 F, BW, DQ, VL), 256 (AVX2) or 0. A compiler need not know a way to ask.
void fp_draw_below(void* state, uint8_t* out, int64_t count, uint64_t limit, int vector_bits) {
  TwisterState* twister = (TwisterState*)state;
#if defined(__x86_64__)
  if (vector_bits == 512) return draw_below_avx512(twister, out, count, limit);
  if (vector_bits == 256) return draw_below_avx2(twister, out, count, limit);
#endif
  draw_below_anywhere(twister, out, count, limit);
}

}
