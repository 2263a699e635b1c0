// Threads that run the steps of a plan on the CPU, and the clock around them. One pool per process, driven by one thread.
//
// A step is one kernel over `tasks` tasks; steps of a program run one after the other with a barrier between them, without
// going back to the caller. The calling thread is thread 0. Waiting threads spin for some microseconds, then sleep.

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

typedef void (*Entry)(void* const* args, long task, long tasks);

struct Step {
  Entry entry;
  void* const* args;
  int64_t tasks;
};

namespace {

// A counter that threads wait on.
struct Signal {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  void raise() {
    value.fetch_add(1);
    if (sleepers.load()) syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
  }
  void wait_beyond(uint32_t seen) {
    for (int i = 0; i < 4000; ++i) {
      if (value.load(std::memory_order_acquire) != seen) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#else
      __asm__ __volatile__("yield");
#endif
    }
    sleepers.fetch_add(1);
    while (value.load() == seen) syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    sleepers.fetch_sub(1);
  }
};

struct Pool {
  int threads = 1;
  std::vector<std::thread> workers;
  alignas(64) Signal started;  // a program is there to run
  alignas(64) Signal finished;  // every thread is through with a step
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<int64_t> next{0};  // first task of the step that nobody has taken
  const Step* steps = nullptr;
  int count = 0;
  bool stop = false;

  void work(const Step& step, int thread) {
    if (step.tasks == threads) {
      step.entry(step.args, thread, step.tasks);
      return;
    }
    for (int64_t task; (task = next.fetch_add(1)) < step.tasks;) step.entry(step.args, task, step.tasks);
  }
  void barrier() {
    uint32_t seen = finished.value.load();
    if (arrived.fetch_add(1) + 1 == threads) {
      arrived.store(0);
      next.store(0);
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
  void run(const Step* new_steps, int new_count) {
    if (!new_count) return;
    steps = new_steps, count = new_count;
    if (threads > 1) started.raise();
    part(new_steps, new_count, 0);
  }
};

Pool* pool = nullptr;

void pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // where it is refused, threads stay unpinned
}

void worker(Pool* p, int thread, int cpu) {
  pin(cpu);
  for (uint32_t seen = 0;; ++seen) {
    p->started.wait_beyond(seen);
    if (p->stop) return;
    p->part(p->steps, p->count, thread);
  }
}

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

void nothing(void* const*, long, long) {}

}  // namespace

extern "C" {

// Starts the pool; the caller becomes thread 0. cpus[i]: where thread i is pinned, or -1.
void fp_start(int threads, const int* cpus) {
  pool = new Pool;
  pool->threads = threads;
  pin(cpus[0]);
  for (int i = 1; i < threads; ++i) pool->workers.emplace_back(worker, pool, i, cpus[i]);
}

void fp_stop() {
  pool->stop = true;
  pool->started.raise();
  for (auto& thread : pool->workers) thread.join();
  delete pool;
  pool = nullptr;
}

// Runs `count` steps.
void fp_run(const Step* steps, int count) { pool->run(steps, count); }

// Times `samples` single runs. `programs` holds `sets` programs of `count` steps each, the same on different memory; sample
// i runs program (first + i) % sets. Threads are awake when the clock starts.
void fp_time(const Step* programs, int count, int sets, int first, int samples, double* out_us) {
  Step wake = {nothing, nullptr, pool->threads};
  for (int i = 0; i < samples; ++i) {
    const Step* program = programs + (int64_t)((first + i) % sets) * count;
    pool->run(&wake, 1);
    double start = now_us();
    pool->run(program, count);
    out_us[i] = now_us() - start;
  }
}

void fp_nothing(void* const* args, long task, long tasks) { nothing(args, task, tasks); }
}
