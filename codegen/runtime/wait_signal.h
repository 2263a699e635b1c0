// A counter that threads wait on: they spin for a while, then sleep in the kernel. No C++ library is needed.
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

template <class T>
T load(const T* p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
template <class T>
void store(T* p, T v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
template <class T>
T fetch_add(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ __volatile__("yield");
#endif
}

template <int SPINS>
struct Signal {
  uint32_t value = 0;
  uint32_t sleepers = 0;

  void raise() {
    fetch_add(&value, 1u);
    if (load(&sleepers)) syscall(SYS_futex, &value, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
  }
  void wait_beyond(uint32_t seen) {
    for (int i = 0; i < SPINS; ++i) {
      if (load(&value) != seen) return;
      relax();
    }
    fetch_add(&sleepers, 1u);
    while (load(&value) == seen) syscall(SYS_futex, &value, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
    fetch_add(&sleepers, -1u);
  }
};

}  // namespace
