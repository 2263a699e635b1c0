// Fibers: stacks of their own, between which one thread of the host switches.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

namespace emulator {
constexpr size_t STACK_BYTES = 256 << 10;  // address space: only what is touched takes memory

#if defined(__x86_64__)
// Saves what a call keeps on the stack of the caller, and goes on where `to` was saved.
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
.type emulator_switch,@function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
using Place = void*;
inline void go(Place* from, Place* to) { emulator_switch(from, *to); }
inline void begin(Place* place, unsigned char* stack, void (*entry)()) {
  void** top = (void**)(stack + STACK_BYTES);
  *--top = nullptr;  // where a call would have left its way back: the stack is aligned 8 bytes above
  *--top = (void*)entry;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  *place = top;
}
#elif defined(__aarch64__)
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
.type emulator_switch,@function
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
using Place = void*;
inline void go(Place* from, Place* to) { emulator_switch(from, *to); }
inline void begin(Place* place, unsigned char* stack, void (*entry)()) {
  uint64_t* top = (uint64_t*)(stack + STACK_BYTES) - 20;
  for (int i = 0; i < 20; i++) top[i] = 0;
  top[11] = (uint64_t)entry;  // x30
  *place = top;
}
#else
#include <ucontext.h>
using Place = ucontext_t;
inline void go(Place* from, Place* to) { swapcontext(from, to); }
inline void begin(Place* place, unsigned char* stack, void (*entry)()) {
  getcontext(place);
  place->uc_stack.ss_sp = stack;
  place->uc_stack.ss_size = STACK_BYTES;
  place->uc_link = nullptr;
  makecontext(place, entry, 0);
}
#endif

// Stacks are kept for later launches. Each has a page below it that must not be touched.
struct Stacks {
  unsigned char* spare[1 << 15] = {};
  int count = 0;

  unsigned char* take() {
    if (count) return spare[--count];
    const size_t page = sysconf(_SC_PAGESIZE);
    void* p = mmap(nullptr, STACK_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, page, PROT_NONE)) abort();
    return (unsigned char*)p + page;
  }
  void give(unsigned char* stack) { spare[count++] = stack; }
};
}  // namespace emulator
