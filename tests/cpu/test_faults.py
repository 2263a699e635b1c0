"""Kernels and compilers that do everything wrong: each ends as its status within its limit plus one second, and the
next job is right.

A second beyond the limit is what the parent may need: up to 0.25 s until it sees that a run has begun (it looks at a
page, so as not to disturb), and the rest to end the child with all of its memory. Compiling is not part of it, and
neither is starting the next child, which the next job pays for.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.sandbox.limits import GIB, Limits, allowance_seconds
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.cpu import CpuCompiler, find_compiler
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Measurement, Status
from tests.support.devices import with_small_cache
from tests.support.faults import DECLARED, FAULTS, Fault
from tests.support.kernels import SUM, bare_headers, sum_graph, sum_kernel
from tests.support.processes import descendants, within
from tests.support.whole import in_turn, some

N = 1001
# A child that ended is followed by another, which imports NumPy first: 0.3 s on one machine, 1.3 on another.
GRACE_SECONDS = 3.0
LIMITS = Limits(
    kernel_seconds=1.0, memory_bytes=GIB, timing_seconds=0.02, output_bytes=1 << 16, compile_seconds=1.0,
    compile_memory_bytes=GIB, binary_bytes=1 << 20,
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("faults")
    cache = ObjectCache(folder / "cache")
    device = with_small_cache(detect("cpu", cache, ceilings=False))
    with Workbench(device, cache, LIMITS, compiler=find_compiler(device, LIMITS, bare_headers(folder / "h"))) as made:
        yield made


def measure(bench: Workbench, body: str, name: str = "k") -> Measurement:
    (row,) = bench.measure(sum_graph(N), "segment", [sum_kernel(N, name, body, before=DECLARED)])
    return row


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
@pytest.mark.sweep(0.15)
def test_a_faulty_kernel_ends_as_its_status_within_its_limit(bench: Workbench, fault: Fault) -> None:
    assert measure(bench, SUM).status is Status.ok
    kernel = sum_kernel(N, "k", fault.body, before=DECLARED)
    bench.compile([kernel])
    most = allowance_seconds(LIMITS.kernel_seconds, 12 * N, N)
    limit = most if fault.limited or fault.status is Status.out_of_memory else 0.0  # memory takes time to fill
    start = time.monotonic()
    (row,) = bench.measure(sum_graph(N), "segment", [kernel])
    seconds = time.monotonic() - start
    assert row.status is fault.status, row.detail
    assert row.samples_us == ()
    assert row.detail
    if row.status is not Status.compile_failed:  # fails twice, if it is not remembered
        assert seconds <= limit + GRACE_SECONDS
    start = time.monotonic()
    after = measure(bench, SUM)
    assert after.status is Status.ok, after.detail
    assert time.monotonic() - start < 5


@pytest.mark.soak
def test_no_fault_leaves_a_process_behind(bench: Workbench) -> None:
    before = set(descendants(os.getpid()))
    for name in some(("leaves a process behind", "goes on twice", "spins"), 2):
        assert measure(bench, next(f.body for f in FAULTS if f.name == name)).status is not Status.ok
        timers = set(descendants(os.getpid())) - before
        assert within(1.0, lambda timers=timers: not timers & set(descendants(os.getpid())) or len(timers) <= 1), name


# What the compiler does with a file that holds the word MISCOMPILED; all others it compiles.
COMPILERS = {
    "hangs": ("sleep 600", Status.compile_timeout, 1.0),
    "hangs with children": ("sleep 600 & sleep 600", Status.compile_timeout, 1.0),
    "spins": ("while :; do :; done", Status.compile_timeout, 1.0),
    "does not end when asked to": ("trap '' TERM INT HUP; while :; do sleep 600; done", Status.compile_timeout, 1.0),
    "prints without end": ("while :; do echo error; done", Status.compile_failed, 0.0),
    "writes without end": ("cat /dev/zero > unit.so", Status.compile_failed, 0.0),
    "is killed": ("kill -9 $$", Status.compile_failed, 0.0),
    "crashes": ("kill -11 $$", Status.compile_failed, 0.0),
    "kills its parent": ("kill -9 $PPID", Status.out_of_memory, 0.0),
    "writes nothing": ("exit 0", Status.compile_failed, 0.0),
    "writes no library": ("echo nothing > unit.so", Status.compile_failed, 0.0),
    # Grows, but touches nothing: where pages come slowly, filling gigabytes takes longer than a compiler may.
    "runs out of memory": (
        "{python} -c 'import numpy; x = [numpy.empty(1 << 26, numpy.uint8) for _ in range(1000)]' || exit 1",
        Status.out_of_memory, 1.0,
    ),
    "is not there": ("exec /no/such/compiler", Status.compile_failed, 0.0),
}  # fmt: skip


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize("name", COMPILERS)
def test_a_faulty_compiler_ends_as_its_status_within_its_limit(name: str, tmp_path: Path) -> None:
    body, status, limit = COMPILERS[name]
    cache = ObjectCache(tmp_path / "cache")
    device = with_small_cache(detect("cpu", cache, ceilings=False))
    real = find_compiler(device, LIMITS, bare_headers(tmp_path / "h"))
    script = tmp_path / "c++"
    body = body.replace("{python}", sys.executable)
    script.write_text(f'#!/bin/sh\ngrep -q MISCOMPILED unit.cpp || exec {" ".join(real.command)} "$@"\n{body}\n')
    script.chmod(0o755)
    compiler = CpuCompiler((str(script),), real.version, device, LIMITS, real.include)
    with Workbench(device, cache, LIMITS, compiler=compiler) as bench:
        assert measure(bench, SUM).status is Status.ok
        start = time.monotonic()
        row = measure(bench, "/* MISCOMPILED */" + SUM, "faulty")
        assert time.monotonic() - start <= limit + GRACE_SECONDS
        assert row.status is status, row.detail
        assert row.detail
        assert measure(bench, SUM + " ").status is Status.ok


# Bodies at file scope that a real compiler cannot cope with.
BOMBS = {
    "takes for ever": "constexpr long f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); } constexpr long big = f(70);",
    "takes all memory": "template<int N, class... T> struct B : B<N - 1, T..., T..., int> {}; "
    "template<class... T> struct B<0, T...> { char x[sizeof...(T)]; }; B<26, int> bomb;",
    "includes itself": '#include "unit.cpp"',
}


@pytest.mark.soak
@pytest.mark.parametrize("name", in_turn(BOMBS, 1, "bombs"))
def test_a_file_that_no_compiler_can_take(bench: Workbench, name: str) -> None:
    kernel = sum_kernel(N, "bomb", SUM, before=BOMBS[name])
    start = time.monotonic()
    (row,) = bench.measure(sum_graph(N), "segment", [kernel])
    assert time.monotonic() - start <= LIMITS.compile_seconds + GRACE_SECONDS
    assert row.status in (Status.compile_timeout, Status.out_of_memory, Status.compile_failed), row.detail
    assert measure(bench, SUM).status is Status.ok
