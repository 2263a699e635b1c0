// Threads that run the steps of a plan on the CPU, and the clock around them. One pool per process, driven by one thread.
//
// A step is one kernel over `tasks` tasks; steps of a program run one after the other with a barrier between them, without
// going back to the caller. The calling thread is thread 0. Waiting threads spin for some microseconds, then sleep. No C++
// library is needed, so that none has to be installed or linked.

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

#include "wait_signal.h"

typedef void (*Entry)(void* const* args, long task, long tasks);

struct Step {
  Entry entry;
  void* const* args;
  int64_t tasks;
};

namespace {

const int MOST_THREADS = 1024;
const int SPINS = 4000;
const size_t STACK_BYTES = 8 << 20;  // kernels keep up to 4 MiB there; the default may be no more than that

struct Worker {
  pthread_t handle;
  int thread, cpu;
};

struct Pool {
  int threads;
  bool unpinned;
  cpu_set_t allowed;
  int first_cpu;               // of thread 0, or -1
  int cpu_of[MOST_THREADS];  // where each thread was when it last began
  Worker workers[MOST_THREADS];
  alignas(64) Signal<SPINS> started;   // a program is there to run
  alignas(64) Signal<SPINS> finished;  // every thread is through with a step
  alignas(64) int arrived;
  alignas(64) int64_t next;  // first task of the step that nobody has taken
  const Step* steps;
  int count;
  bool stop;

  void work(const Step& step, int thread) {
    if (step.tasks == threads) {
      step.entry(step.args, thread, step.tasks);
      return;
    }
    for (int64_t task; (task = fetch_add(&next, (int64_t)1)) < step.tasks;) step.entry(step.args, task, step.tasks);
  }
  void barrier() {
    uint32_t seen = load(&finished.value);
    if (fetch_add(&arrived, 1) + 1 == threads) {
      store(&arrived, 0);
      store(&next, (int64_t)0);
      finished.raise();
    } else {
      finished.wait_beyond(seen);
    }
  }
  void part(const Step* steps, int count, int thread) {
    for (int i = 0; i < count; ++i) {
      work(steps[i], thread);
      barrier();
    }
  }
  // Woken on the caller's CPU, where it slept, an unpinned thread would wait until the caller is through with its own share:
  // it is kept off the CPUs of threads before it.
  void part_ways() {
    store(&cpu_of[0], sched_getcpu());
    for (int t = 1; t < threads; t++) {
      cpu_set_t rest = allowed;
      bool meets = load(&cpu_of[t]) < 0;
      for (int other = 0; other < t; other++) {
        const int cpu = load(&cpu_of[other]);
        meets |= cpu == load(&cpu_of[t]);
        if (cpu >= 0) CPU_CLR(cpu, &rest);
      }
      if (meets && CPU_COUNT(&rest)) pthread_setaffinity_np(workers[t].handle, sizeof rest, &rest);
    }
  }
  void run(const Step* new_steps, int new_count) {
    if (!new_count) return;
    steps = new_steps, count = new_count;
    if (unpinned) part_ways();
    if (threads > 1) started.raise();
    part(new_steps, new_count, 0);
  }
};

Pool pool;

void pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // where it is refused, threads stay unpinned
}

void* worker(void* argument) {
  const Worker* self = (const Worker*)argument;
  pin(self->cpu);
  for (uint32_t seen = 0;; ++seen) {
    pool.started.wait_beyond(seen);
    if (pool.stop) return nullptr;
    store(&pool.cpu_of[self->thread], sched_getcpu());
    pool.part(pool.steps, pool.count, self->thread);
  }
}

// The calling thread where thread 0 is pinned, while programs run: threads that it starts in between would stay there.
struct InPlace {
  cpu_set_t before;
  bool moved;
  InPlace() {
    moved = pool.first_cpu >= 0 && !pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    if (moved) pin(pool.first_cpu);
  }
  ~InPlace() {
    if (moved) pthread_setaffinity_np(pthread_self(), sizeof before, &before);
  }
};

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

void nothing(void* const*, long, long) {}

// Notes that `program` is at work and may take `seconds`, as codegen/sandbox/heartbeat.py does.
void note(int64_t* page, int64_t program, double seconds) {
  const int64_t count = page[0] + 1;
  int64_t* slot = page + 1 + 2 * (count & 1);
  int64_t bits;
  __builtin_memcpy(&bits, &seconds, sizeof bits);
  store(slot, program);
  store(slot + 1, bits);
  store(page, count);
}

}  // namespace

extern "C" {

// Starts the pool; the caller becomes thread 0. cpus[i]: where thread i is pinned, or -1; the caller while programs run. 0,
// or an error number.
int fp_start(int threads, const int* cpus) {
  if (threads < 1 || threads > MOST_THREADS) return 22;
  pool.threads = threads;
  pool.unpinned = cpus[0] < 0 && !sched_getaffinity(0, sizeof pool.allowed, &pool.allowed);
  for (int i = 0; i < threads; i++) pool.cpu_of[i] = -1;
  pool.stop = false;
  pool.started.value = 0;
  pool.first_cpu = cpus[0];
  pthread_attr_t attributes;
  if (int error = pthread_attr_init(&attributes)) return error;
  int error = pthread_attr_setstacksize(&attributes, STACK_BYTES);
  for (int i = 1; i < threads && !error; ++i) {
    pool.workers[i].thread = i;
    pool.workers[i].cpu = cpus[i];
    error = pthread_create(&pool.workers[i].handle, &attributes, worker, &pool.workers[i]);
  }
  pthread_attr_destroy(&attributes);
  return error;
}

void fp_stop() {
  pool.stop = true;
  pool.started.raise();
  for (int i = 1; i < pool.threads; ++i) pthread_join(pool.workers[i].handle, nullptr);
}

// Runs `count` steps.
void fp_run(const Step* steps, int count) {
  InPlace in_place;
  pool.run(steps, count);
}

// Times `samples` single runs. `programs` holds `sets` programs of `count` steps each, the same on different memory; sample
// i runs program (first + i) % sets. Threads are awake when the clock starts. Before each run a note is made on `page`, if
// there is one: each has its own time limit.
void fp_time(const Step* programs, int count, int sets, int first, int samples, double* out_us, int64_t* page,
             int64_t noted, double seconds) {
  Step wake = {nothing, nullptr, pool.threads};
  InPlace in_place;
  for (int i = 0; i < samples; ++i) {
    const Step* program = programs + (int64_t)((first + i) % sets) * count;
    if (page) note(page, noted, seconds);
    pool.run(&wake, 1);
    double start = now_us();
    pool.run(program, count);
    out_us[i] = now_us() - start;
  }
}

void fp_nothing(void* const* args, long task, long tasks) { nothing(args, task, tasks); }
}
