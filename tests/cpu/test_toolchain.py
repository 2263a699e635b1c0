"""The C++ compiler: found, run within limits, many kernels per file, nothing compiled twice."""

import ctypes
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.kernel import Kernel, Launch
from codegen.sandbox.limits import DEFAULT_LIMITS, Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain import compile_patience as patience
from codegen.toolchain import cpu
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary, CompilerMissing, Failure
from codegen.toolchain.compiler_key import compiler_key
from codegen.toolchain.cpu import CpuCompiler, cpu_reports, find_compiler, host_features
from codegen.toolchain.runtime import runtime_library
from fusion_ir.records import CompileReport, Status
from tests.support.kernels import SUM, bare_headers, sum_kernel
from tests.support.whole import WHOLE

pytestmark = pytest.mark.compiles

MakeBuilder = Callable[..., Builder]


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


@pytest.fixture
def compiler(tmp_path: Path) -> CpuCompiler:
    return find_compiler(include=bare_headers(tmp_path / "include"))


@pytest.fixture
def builder(cache: ObjectCache, compiler: CpuCompiler) -> Iterator[MakeBuilder]:
    made: list[Builder] = []

    def make(use: CpuCompiler = compiler, limits: Limits = DEFAULT_LIMITS, jobs: int = 2) -> Builder:
        made.append(Builder(use, cache, limits, jobs))
        return made[-1]

    yield make
    for each in made:
        each.close()


def script(folder: Path, body: str) -> CpuCompiler:
    """A compiler that does what `body` says (sh), in place of compiling."""
    file = folder / "c++"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return CpuCompiler((str(file),), "fake 1.0", None, Limits(), bare_headers(folder / "include"))


def test_kernels_share_files_and_come_back_from_the_cache(builder: MakeBuilder, cache: ObjectCache) -> None:
    kernels = [sum_kernel(8, f"k{i}") for i in range(6)]
    first = builder(jobs=2).compile(kernels)
    assert all(isinstance(b, Binary) for b in first)
    assert [b.entry for b in first if isinstance(b, Binary)] == [k.entry for k in kernels]
    assert len({b.sha256 for b in first if isinstance(b, Binary)}) == 2
    again = builder(CpuCompiler(("/no/such/compiler",), *_rest(builder()))).compile(kernels)
    for old, new in zip(first, again, strict=True):
        assert isinstance(old, Binary)
        assert isinstance(new, Binary)
        assert (new.sha256, new.source, new.seconds) == (old.sha256, old.source, 0.0)
        path = cache.path(old.sha256)
        assert path is not None
        assert getattr(ctypes.CDLL(str(path)), old.entry)
        source = cache.get(old.source)
        assert source is not None
        assert old.entry in source.decode()


def _rest(builder: Builder) -> tuple[str, None, Limits, Path]:
    """Version, no device, limits and include folder: the fields of the builder's compiler behind `command`."""
    assert isinstance(builder.compiler, CpuCompiler)
    return builder.compiler.version, None, builder.compiler.limits, builder.compiler.include


def test_alone_means_a_file_each(builder: MakeBuilder) -> None:
    built = builder().compile([sum_kernel(8, f"k{i}") for i in range(3)], alone=True)
    assert len({b.sha256 for b in built if isinstance(b, Binary)}) == 3


def test_reports_tell_large_kernels_and_those_with_arrays(builder: MakeBuilder) -> None:
    """Reports from real files: two kernels that share a file, both again from the cache, and one kernel alone."""
    small = sum_kernel(8, "small")
    helper = (
        "__attribute__((noinline)) static void fill(float* x, long n) { volatile float b[1000]; b[n] = 1; *x = b[0]; }"
    )
    large = sum_kernel(
        8, "large", f"{SUM} fill(out, n); for (long i = low; i < high; i++) out[i] /= b[i];", before=helper
    )
    for _ in range(2):
        found = [b for b in builder(jobs=1).compile([small, large]) if isinstance(b, Binary)]
        reports = {b.entry: b.report for b in found}
        assert reports["small"] is not None
        assert reports["large"] is not None
        sizes = [(r.code_bytes, r.frame_bytes) for r in (reports["small"], reports["large"])]
        (code, frame), (more_code, more_frame) = sizes
        assert code is not None
        assert more_code is not None
        assert 16 <= code < more_code < 4000
        assert frame is not None
        assert more_frame is not None
        assert frame < 500
        assert 4000 - 128 <= more_frame < 4500, "the helper's array, but for what a leaf may use below the stack"
    (alone,) = builder(jobs=1).compile([small], alone=True)
    assert isinstance(alone, Binary)
    assert alone.report is not None
    assert alone.report.frame_bytes == reports["small"].frame_bytes
    assert alone.report.code_bytes is not None
    assert reports["small"].code_bytes is not None
    # Loops begin at multiples of 16 bytes: what lies before them depends on where the kernel begins in its file.
    assert abs(alone.report.code_bytes - reports["small"].code_bytes) < 16


def test_a_compiler_that_lists_no_frames(cache: ObjectCache, tmp_path: Path) -> None:
    """Frames come in lines of a file that not every compiler writes, or writes so."""
    assert cpu_reports(b"no ELF", "", ["k"]) == {}
    lines = "k:1:2:void k0::k(void* const*, long)\t48\tdynamic,bounded\nloops_cpu.h:3:4:int f()\t9000\tstatic\nnoise\n"
    assert cpu_reports(b"", lines, ["k", "other"]) == {"k": CompileReport(frame_bytes=48)}


def test_a_bad_kernel_does_not_spoil_the_others(builder: MakeBuilder) -> None:
    kernels = [sum_kernel(8, f"k{i}", "no C++ at all;" if i == 1 else "") for i in range(4)]
    built = builder(jobs=1).compile(kernels)
    assert [isinstance(b, Binary) for b in built] == [True, False, True, True]
    failure = built[1]
    assert isinstance(failure, Failure)
    assert failure.status is Status.compile_failed
    assert "k1:" in failure.detail


def test_undefined_functions_fail_in_the_compiler_not_in_the_run(builder: MakeBuilder) -> None:
    (failure,) = builder().compile([sum_kernel(8, "k", "nowhere();", before="void nowhere();")])
    assert isinstance(failure, Failure)
    assert "nowhere" in failure.detail


def test_equal_helpers_and_equal_entries_do_not_meet(builder: MakeBuilder) -> None:
    helper = "static int helper() { return %d; }"
    kernels = [sum_kernel(8, f"k{i}", "out[0] = helper();", before=helper % i) for i in range(3)]
    kernels.append(sum_kernel(8, "k0", "out[0] = 7;"))
    built = builder(jobs=1).compile(kernels)
    assert all(isinstance(b, Binary) for b in built)
    assert isinstance(built[0], Binary)
    assert isinstance(built[3], Binary)
    assert built[0].sha256 != built[3].sha256


def test_the_key_holds_source_flags_headers_and_compiler(
    builder: MakeBuilder, compiler: CpuCompiler, tmp_path: Path
) -> None:
    other = bare_headers(tmp_path / "other")
    (other / "loops_cpu.h").write_text("// changed\n")
    device = detect("cpu", ObjectCache(tmp_path / "cache"), ceilings=False)
    identities = {
        CpuCompiler(compiler.command, version, d, Limits(), include).identity()
        for version in (compiler.version, "g++ 99")
        for d in (device, device.model_copy(update={"features": ()}))
        for include in (compiler.include, other)
    }
    assert len(identities) == 8


def test_binaries_need_no_openmp(builder: MakeBuilder, cache: ObjectCache) -> None:
    (built,) = builder().compile([sum_kernel(8, "k")])
    assert isinstance(built, Binary)
    data = cache.get(built.sha256)
    assert data is not None
    assert b"libgomp" not in data
    assert b"libstdc++" not in data


def test_a_library_call_is_its_own_binary(builder: MakeBuilder, cache: ObjectCache) -> None:
    text = '{"library": "cublaslt"}'
    call = Kernel("call_1", text, "cuda", "aten", "aten{}", Launch(scratch_bytes=4096), libraries=("cublaslt",))
    made = builder()
    for _ in range(2):  # the second time from the cache
        first, described, last = made.compile([sum_kernel(8, "a"), call, sum_kernel(8, "b")])
        assert isinstance(first, Binary)
        assert isinstance(last, Binary)
        assert isinstance(described, Binary)
        assert cache.get(described.sha256) == text.encode()
        assert (described.entry, described.source) == ("call_1", described.sha256)


def test_code_for_another_cpu_uses_only_its_features(compiler: CpuCompiler, tmp_path: Path) -> None:
    device = detect("cpu", ObjectCache(tmp_path / "cache"), ceilings=False)
    here = CpuCompiler(compiler.command, compiler.version, device, Limits(), compiler.include)
    assert "native" in here.machine_flags()[0]
    if device.arch == "x86-64":
        modest = device.model_copy(update={"features": ("avx", "sse4_1")})
        there = CpuCompiler(compiler.command, compiler.version, modest, Limits(), compiler.include)
        assert there.machine_flags() == ("-march=x86-64", "-mavx", "-msse4.1")
        built = Builder(there, ObjectCache(tmp_path / "cache"), Limits(), 1)
        (result,) = built.compile([sum_kernel(8, "k")])
        built.close()
        assert isinstance(result, Binary)


def test_host_features_are_sorted_and_known_to_compilers() -> None:
    assert list(host_features()) == sorted(host_features())
    assert set(host_features()) <= {*cpu.X86_FEATURES, *cpu.ARM_FEATURES}


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param("sleep 60", Status.compile_timeout, id="hangs"),
        pytest.param("sleep 60 & sleep 60", Status.compile_timeout, id="hangs with children"),
        pytest.param("while :; do echo error; done", Status.compile_failed, id="prints without end"),
        pytest.param("kill -9 $$", Status.compile_failed, id="dies"),
        pytest.param("exit 0", Status.compile_failed, id="writes nothing"),
        pytest.param(
            "echo 'virtual memory exhausted: Cannot allocate memory'; exit 1",
            Status.out_of_memory,
            id="runs out of memory",
        ),
        pytest.param("head -c 3000000 /dev/zero > unit.so", Status.compile_failed, id="writes without end"),
    ],
)
def test_compilers_that_misbehave(builder: MakeBuilder, tmp_path: Path, body: str, status: Status) -> None:
    compiler = script(tmp_path, body)
    limits = Limits(compile_seconds=1.0, binary_bytes=1 << 20)
    bounded = CpuCompiler(compiler.command, compiler.version, None, limits, compiler.include)
    start = time.monotonic()
    (failure,) = builder(bounded, limits, 1).compile([sum_kernel(8, "k")])
    assert isinstance(failure, Failure)
    assert failure.status is status
    assert time.monotonic() - start < 10


def test_a_kernel_that_takes_a_compiler_far_longer_than_others_costs_itself_alone(
    builder: MakeBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_compiler(None)
    command = " ".join(real.command)
    spinning = script(tmp_path, f'if grep -q slow unit.cpp; then while :; do :; done; fi; exec {command} "$@"')
    monkeypatch.setattr(patience, "LEAST_S", 0.3)
    monkeypatch.setattr(patience, "TIMES", 4.0)
    built = builder(spinning, Limits(compile_seconds=60.0, kernels_per_file=3), 2)
    quick = built.compile([sum_kernel(8 + n, f"quick_{n}") for n in range(patience.LEAST_PEERS)], alone=True)
    assert all(isinstance(r, Binary) for r in quick)
    names = ["a", "b", "slow", "c", "d", "e"]
    results = dict(zip(names, built.compile([sum_kernel(32, n) for n in names]), strict=True))
    slow = results.pop("slow")
    assert isinstance(slow, Failure)
    assert slow.status is Status.compile_timeout
    assert slow.seconds < 30
    assert all(isinstance(r, Binary) for r in results.values()), "those in its file, too"


def test_a_compiler_that_is_killed_leaves_no_files(
    builder: MakeBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    wrote = tmp_path / "wrote"
    limits = Limits(compile_seconds=1.0)
    compiler = script(tmp_path, f"mktemp > {wrote}; sleep 60")
    (failure,) = builder(compiler, limits, 1).compile([sum_kernel(8, "k")])
    assert isinstance(failure, Failure)
    assert failure.status is Status.compile_timeout
    assert wrote.read_text().startswith(str(scratch))
    assert not list(scratch.iterdir())


@pytest.mark.turn("compile bombs")
def test_a_compile_bomb_is_stopped(builder: MakeBuilder) -> None:
    bomb = "template<int N> struct B { static const long v = B<N-1>::v + B<N-2>::v * N; char x[B<N-1>::v % 7 + 1]; };"
    deep = "constexpr long f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); } constexpr long big = f(60);"
    limits = Limits(compile_seconds=2.0, compile_memory_bytes=1 << 30)
    (failure,) = builder(limits=limits, jobs=1).compile(
        [sum_kernel(8, "k", before=f"{bomb}\n{deep}\nstatic char c[B<800>::v % 3 + 1];")]
    )
    assert isinstance(failure, Failure)


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "")
    monkeypatch.setattr(cpu, "find_spec", lambda name: None)
    with pytest.raises(CompilerMissing, match=r"apt-get install g\+\+.*pip install ziglang"):
        find_compiler()


def test_cxx_is_preferred_and_a_broken_one_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = script(tmp_path, "echo fancy 12.3")
    monkeypatch.setenv("CXX", f"{compiler.command[0]} -fancy")
    assert find_compiler().command == (compiler.command[0], "-fancy")
    assert find_compiler().version == "fancy 12.3"
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    assert find_compiler().command != (str(tmp_path / "none"),)


def test_what_a_compiler_says_of_itself_is_kept_until_its_file_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: ObjectCache
) -> None:
    """A copy of /bin/echo is a program by a compiler's name, and says what it is asked."""
    echo = shutil.which("echo")
    assert echo is not None
    program = tmp_path / "g++"
    shutil.copy(os.path.realpath(echo), program)
    monkeypatch.setenv("CXX", f"{program} one")

    def asked() -> str:
        monkeypatch.setattr(cpu, "FOUND", {})
        return find_compiler(cache=cache).version

    told = asked()
    key = compiler_key((str(program), "one"), os.environ["PATH"])
    assert key is not None
    assert cache.recall(key) == told
    cache.remember(key, "kept")
    assert asked() == "kept"
    os.utime(program, (1, 1))
    assert asked() == told
    monkeypatch.setenv("CXX", f"{program} two")
    assert asked() != "kept", "the command is part of what is asked"


def test_what_a_wrapper_says_of_itself_is_not_kept(tmp_path: Path) -> None:
    wrapper = script(tmp_path, "exec g++ $@")
    assert compiler_key(wrapper.command, "") is None
    by_name = tmp_path / "clang++"
    shutil.copy(wrapper.command[0], by_name)
    assert compiler_key((str(by_name),), "") is None, "a script by a compiler's name"
    cache = tmp_path / "ccache"
    shutil.copy(os.path.realpath(shutil.which("echo") or ""), cache)
    (tmp_path / "g++").symlink_to(cache)
    assert compiler_key((str(tmp_path / "g++"),), "") is None, "a link to something of another name"
    assert compiler_key(("none",), "") is None


@pytest.fixture
def ziglang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CpuCompiler:
    """The compiler that is found where the ziglang wheel is the only one."""
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "")
    return find_compiler(include=bare_headers(tmp_path / "include"))


def test_the_ziglang_wheel_is_found_where_there_is_no_other_compiler(ziglang: CpuCompiler) -> None:
    assert "ziglang" in ziglang.command
    assert "clang" in ziglang.version


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="takes half a minute, most of it for libraries of its own: `make soak` runs it")
def test_the_ziglang_wheel_is_a_compiler_too(ziglang: CpuCompiler, builder: MakeBuilder, cache: ObjectCache) -> None:
    compiler = ziglang
    with compiler.slot() as slot:
        assert ctypes.CDLL(str(runtime_library("pool", compiler, slot, cache)))
    (built,) = builder(compiler, jobs=1).compile([sum_kernel(8, "k")])
    assert isinstance(built, Binary)


@pytest.mark.parametrize(("flag", "files"), [("-fno-tree-pre", 2), ("-O1", 6)])
def test_a_fault_of_the_compiler_itself_is_met_with_less_optimisation(
    tmp_path: Path, builder: MakeBuilder, flag: str, files: int
) -> None:
    """The whole file without one pass, as long as that helps; else each of its kernels alone, in the end with -O1."""
    found = find_compiler()
    if "clang" in found.version:
        pytest.skip("passes are named as g++ does")
    real, log = " ".join(found.command), tmp_path / "log"
    faulty = script(
        tmp_path,
        f"""case " $* " in *" -shared "*) echo compiled >> {log};; esac
case " $* " in *" {flag} "*|*" {flag}") exec {real} "$@";; esac
grep -q fragile unit.cpp || exec {real} "$@"
echo "unit.cpp:1:1: internal compiler error: Segmentation fault" >&2; exit 1""",
    )
    kernels = [sum_kernel(8, "sound"), sum_kernel(8, "fragile", before="// fragile")]
    assert all(isinstance(b, Binary) for b in builder(faulty, jobs=1).compile(kernels))
    assert log.read_text().count("compiled") == files  # 2 of both; then `sound`, and 3 of `fragile`
