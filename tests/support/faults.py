"""Kernels that misbehave, as C++ bodies for `tests.support.kernels.sum_kernel`, each with how it has to end.

Bodies see a, b, out, n, task, tasks, and low and high of their part.
"""

from dataclasses import dataclass

from fusion_ir.records import Status
from tests.support.kernels import SUM

DECLARED = """extern "C" {
int puts(const char*); long write(int, const void*, unsigned long); int raise(int); int fork(); int setsid();
void exit(int); void _exit(int); void abort(); int close(int); int getpid(); int pause(); int usleep(unsigned);
void* malloc(unsigned long); void* memset(void*, int, unsigned long);
}
static int calls = 0;  // of the first task: two in the checks, more when it is timed
static unsigned long long state = 88172645463325252ull;
static int recurse(volatile int* p) { volatile int q[64] = {*p}; return recurse(q) + q[1]; }
static unsigned draw() {
  state ^= state << 13; state ^= state >> 7; state ^= state << 17;
  return (unsigned)(state >> 33);
}
"""
FIRST = "if (task == 0) "
SPIN = "for (volatile int x = 0;;) x = x;"


@dataclass(frozen=True, slots=True)
class Fault:
    """limited: it ends by the limit on a run's time; otherwise at once."""

    name: str
    body: str
    status: Status
    limited: bool = False


FAULTS = (
    Fault("spins", SPIN, Status.timed_out, True),
    Fault("spins in another thread", f"if (task == 1) {SPIN} {SUM}", Status.timed_out, True),
    Fault("sleeps", FIRST + "for (;;) pause();", Status.timed_out, True),
    Fault("stops itself", FIRST + "raise(19);", Status.timed_out, True),
    Fault("spins when it is timed", SUM + FIRST + f"if (++calls > 6) {SPIN}", Status.timed_out, True),
    Fault("writes just behind", SUM + FIRST + "((volatile float*)out)[n] = 0;", Status.wrong_result),
    Fault("writes just before", SUM + FIRST + "((volatile float*)out)[-1] = 0;", Status.wrong_result),
    Fault("writes behind", SUM + FIRST + "((volatile float*)out)[n + 16] = 0;", Status.crashed),
    Fault("writes before", SUM + FIRST + "((volatile float*)out)[-5000] = 0;", Status.crashed),
    Fault("writes rows behind", SUM + FIRST + "((volatile float*)out)[n + 10000] = 0;", Status.crashed),
    Fault("writes far behind", SUM + FIRST + "((volatile float*)out)[1l << 40] = 0;", Status.crashed),
    Fault("writes far before", SUM + FIRST + "((volatile float*)out)[-(1l << 40)] = 0;", Status.crashed),
    Fault("reads behind", SUM + FIRST + "(void)((volatile float*)a)[n + 3];", Status.crashed),
    Fault("reads before", SUM + FIRST + "(void)((volatile float*)b)[-1];", Status.crashed),
    Fault("writes into an input", SUM + FIRST + "((volatile float*)a)[0] = 1;", Status.crashed),
    Fault(
        "writes into an input when it is timed",
        SUM + FIRST + "if (++calls > 2) ((volatile float*)a)[n - 1] = 1;",
        Status.wrong_result,
    ),
    Fault("null pointer", "*(volatile int*)8 = 1;", Status.crashed),
    Fault("divides by zero", "volatile int zero = 0, x = 7 % zero;", Status.crashed),
    Fault("aborts", FIRST + "abort();", Status.crashed),
    Fault("exits", FIRST + "exit(0);", Status.crashed),
    Fault("exits at once", FIRST + "_exit(0);", Status.crashed),
    Fault("is terminated", FIRST + "raise(15);", Status.crashed),
    Fault("is interrupted", SUM + FIRST + "raise(2);", Status.crashed),
    Fault("traps", FIRST + "__builtin_trap();", Status.crashed),
    Fault("recurses without end", FIRST + "{ volatile int x = 0; recurse(&x); }", Status.crashed),
    Fault("is killed, as the system does for memory", FIRST + "raise(9);", Status.out_of_memory),
    Fault("allocates without end", FIRST + "for (;;) ((volatile char*)operator new(1 << 26))[0] = 1;",
          Status.out_of_memory),
    # An eighth of it: where pages come slowly, filling all of it takes longer than the limit on time.
    Fault("fills some of what it allocates", FIRST + "for (;;) memset(operator new(1 << 24), 1, 1 << 21);",
          Status.out_of_memory),
    Fault("writes where nothing was allocated", FIRST + "for (;;) *(volatile char*)malloc(1 << 26) = 1;",
          Status.crashed),
    Fault("prints without end", FIRST + 'for (;;) puts("x");', Status.crashed),
    Fault("prints without end from all tasks", 'for (;;) write(2, "0123456789abcdef", 16);', Status.crashed),
    Fault("closes every pipe", SUM + FIRST + "for (int i = 0; i < 64; i++) close(i);", Status.crashed),
    Fault("closes every pipe and spins", FIRST + f"{{ for (int i = 0; i < 64; i++) close(i); {SPIN} }}",
          Status.crashed),
    Fault("leaves a process behind", SUM + FIRST + "if (!fork()) for (;;) pause();", Status.crashed),
    Fault("leaves the child of a child behind",
          SUM + FIRST + "if (!fork()) { if (!fork()) for (;;) pause(); _exit(0); }", Status.crashed),
    Fault("goes on twice", SUM + FIRST + "fork();", Status.crashed),
    Fault("gives wrong numbers", "for (long i = low; i < high; i++) out[i] = a[i] - b[i];", Status.wrong_result),
    Fault("one number is wrong", SUM + "if (task == 1) out[n - 1] = 0;", Status.wrong_result),
    Fault("writes nothing", "", Status.wrong_result),
    Fault("leaves the last out", "for (long i = low; i < high - 1; i++) out[i] = a[i] + b[i];", Status.wrong_result),
    Fault("gives other numbers each time", SUM + FIRST + "out[draw() % n] += 1.0f;", Status.wrong_result),
    Fault("is right twice and wrong afterwards", SUM + FIRST + "if (++calls > 2) out[0] = 0;", Status.wrong_result),
    Fault("writes nothing after the second time", "if (task == 0) calls++; if (calls < 3) { " + SUM + " }",
          Status.wrong_result),
    Fault("is wrong now and then", SUM + FIRST + "if (++calls > 2 && draw() % 16 == 0) out[n / 3] += 1.0f;",
          Status.wrong_result),
    Fault("is no C++", "this is no C++", Status.compile_failed),
    Fault("calls what is not there", "nowhere();", Status.compile_failed),
)  # fmt: skip
