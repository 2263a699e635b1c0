"""Code that somebody else put where we find files: none of it runs, in us or in any process that we start."""

import ast
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codegen.kernel import Kernel
from codegen.kernel import Launch as KernelLaunch
from codegen.sandbox import isolation
from codegen.sandbox.limits import GIB, Limits
from codegen.sandbox.object_cache import CacheError, ObjectCache
from codegen.sandbox.shared_object import load_object, private_copy
from codegen.sandbox.slot import ChildLimits, Slot
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cpu import CpuCompiler, find_compiler
from codegen.toolchain.runtime import runtime_library
from tests.support.processes import gone, within

pytestmark = pytest.mark.compiles

ROOT = Path(__file__).resolve().parents[2]
OURS = ("codegen", "fusion_ir", "scheduler", "service", "tuning_db")
STARTS = {
    ("subprocess", "Popen"),
    ("subprocess", "run"),
    ("subprocess", "check_output"),
    ("os", "system"),
    ("os", "popen"),
}
# A person types these; the demo starts the command line as they would.
STARTS_OTHERS = {
    "codegen/sandbox/child_process.py",
    "service/api/readers.py",
    "service/dashboard/layout.py",
    "service/demo.py",
    "service/server.py",
}


@pytest.fixture(scope="module")
def compiler() -> CpuCompiler:
    return find_compiler()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that appears as soon as planted Python code runs; the code lies wherever an interpreter looks."""
    mark, code = tmp_path / "it ran", tmp_path / "planted"
    text = f"open({str(mark)!r}, 'a').write(__name__)\n"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / ".local" / "lib" / version / "site-packages"
    for folder in (code, site, tmp_path):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("usercustomize", "sitecustomize", "startup", "json", "numpy", "runpy", "codegen", "service"):
            (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(code)
    for name, value in {
        "HOME": tmp_path,
        "TMPDIR": tmp_path,
        "PYTHONPATH": code,
        "PYTHONUSERBASE": tmp_path / ".local",
        "PYTHONSTARTUP": code / "startup.py",
        "PYTHONHOME": code,
        "PYTHONINSPECT": "1",
        "PYTHONBREAKPOINT": "planted.run",
        "LD_PRELOAD": code / "planted.so",
        "LD_AUDIT": code / "planted.so",
        "GCC_EXEC_PREFIX": code,
        "COMPILER_PATH": code,
        "CPATH": code,
    }.items():
        monkeypatch.setenv(name, str(value))
    return mark


def test_a_child_imports_nothing_from_where_others_write(planted: Path) -> None:
    show = "import json, os, sys; print(json.dumps([dict(os.environ), os.getcwd(), sys.flags.isolated, sys.path]))"
    with Slot("codegen.child.cpu_compiler", ChildLimits(memory_bytes=GIB), dies_with_parent=False) as slot:
        answer = slot.call({"job": "run", "argv": ["env"], "cwd": "/"}, seconds=20)
        seen = dict(line.partition("=")[::2] for line in answer["output"].splitlines())
        pid = slot.pid
        home = Path(seen["HOME"])
        assert (home.stat().st_uid, home.stat().st_mode & 0o777, list(home.iterdir())) == (os.geteuid(), 0o700, [])
        slot.call({"job": "run", "argv": [sys.executable, "-I", "-c", show], "cwd": "/"}, seconds=20)
    assert not planted.exists()
    assert seen["TMPDIR"] == seen["HOME"] != str(Path.home())
    unknown = set(seen) - {*isolation.INHERITED, "HOME", "TMPDIR", "CUPY_CACHE_IN_MEMORY", "ZIG_GLOBAL_CACHE_DIR"}
    assert unknown <= {"PWD", "SHLVL", "_", "LC_CTYPE"}
    assert pid is not None
    assert within(5, lambda: gone(pid) and not home.exists()), "its folder goes with it"


@pytest.mark.parametrize("module", ["service.worker", "service.dashboard.layout_child", "codegen.child.cpu_bench"])
def test_no_process_of_ours_imports_what_was_planted(planted: Path, module: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # the loader would say so
    ended = subprocess.run(
        isolation.command(module, "--help"), env=environment, capture_output=True, timeout=60, input=b"", check=False
    )
    assert not planted.exists(), ended.stderr.decode()
    assert module != "service.worker" or ended.returncode == 0


def test_all_our_processes_are_started_in_isolation() -> None:
    """By a look at the sources: whoever starts a process is known, and names no interpreter itself."""
    starting = set[str]()
    for package in OURS:
        for file in (ROOT / package).rglob("*.py"):
            name = str(file.relative_to(ROOT))
            tree = ast.parse(file.read_text())
            for node in ast.walk(tree):
                match node:
                    case ast.Call(func=ast.Attribute(ast.Name(module), function)) if (module, function) in STARTS:
                        starting.add(name)
                    case ast.List([ast.Attribute(ast.Name("sys"), "executable"), *rest]) | ast.Tuple(
                        [ast.Attribute(ast.Name("sys"), "executable"), *rest]
                    ):
                        assert ast.unparse(rest[0]) == "'-I'" or name == "service/demo.py", name
                    case _:
                        pass
    assert starting == STARTS_OTHERS | {"codegen/child/cpu_compiler.py"}  # which runs compilers in the child's place


SOURCE = 'extern "C" long answer(long x) { return x + %d; }'
PLANTED = """
extern "C" int creat(const char*, unsigned);
__attribute__((constructor)) static void run() { creat("%s", 0600); }
"""


@pytest.fixture(scope="module")
def objects(compiler: CpuCompiler, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A library, and one that leaves a file behind when it is loaded."""
    mark = tmp_path_factory.mktemp("mark") / "it ran"
    flags = ["-shared", "-fPIC"]
    with compiler.slot() as slot:
        right = compiler.build(slot, SOURCE % 1, flags, 30.0)
        planted = compiler.build(slot, SOURCE % 2 + PLANTED % mark, flags, 30.0)
    assert isinstance(right, tuple) and isinstance(planted, tuple)
    return {"right": right[0], "planted": planted[0], "mark": mark}


def test_an_object_is_loaded_as_it_was_checked(objects: dict[str, Any], tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache")
    file = cache.path(cache.put(objects["right"]))
    assert file is not None
    library = load_object(file)
    assert library.answer(ctypes.c_long(4)) == 5
    file.write_bytes(objects["planted"])
    assert load_object(file) is library, "loaded once"
    other = cache.path(cache.put(objects["right"] + b"\0"))
    assert other is not None
    other.write_bytes(objects["planted"])
    for load in (load_object, private_copy):
        with pytest.raises(CacheError, match="was changed: expected content of sha256"):
            load(other)
    assert not objects["mark"].exists()
    assert ctypes.CDLL(str(other)) and objects["mark"].exists(), "it is one that would have run"
    objects["mark"].unlink()


def test_objects_of_one_name_are_not_taken_for_each_other(objects: dict[str, Any], tmp_path: Path) -> None:
    """The loader goes by names, and descriptors, which these have in them, are used again."""
    cache = ObjectCache(tmp_path / "cache")
    files = [cache.path(cache.put(objects["right"] + bytes([i]))) for i in range(5)]
    loaded = [load_object(str(file)) for file in files]
    assert len({ctypes.cast(library.answer, ctypes.c_void_p).value for library in loaded}) == len(files)


def test_a_changed_object_is_compiled_anew(objects: dict[str, Any], compiler: CpuCompiler, tmp_path: Path) -> None:
    """Also in a process that had found it right."""
    cache = ObjectCache(tmp_path / "cache")
    with compiler.slot() as slot:
        file = runtime_library("pool", compiler, slot, cache)
        content = file.read_bytes()
        file.write_bytes(objects["planted"])
        again = runtime_library("pool", compiler, slot, cache)
    assert again.read_bytes() == content


def test_what_was_planted_with_its_digest_is_compiled_anew(
    objects: dict[str, Any], compiler: CpuCompiler, tmp_path: Path
) -> None:
    """A memo and an object that agree, by somebody who could write to the folder and does not know the seal."""
    kernel = Kernel("answer", SOURCE % 1, "cpu", "t", "t", KernelLaunch())
    ours, theirs = ObjectCache(tmp_path / "cache", b"ours"), ObjectCache(tmp_path / "cache", b"theirs")
    builders = {cache: Builder(compiler, cache, Limits(), 1) for cache in (ours, theirs)}
    (right,) = builders[ours].compile([kernel])
    assert isinstance(right, Binary)
    sha = theirs.put(objects["planted"])
    for file in list((tmp_path / "cache" / "memo").glob("*/*")):
        head, text = file.read_text().split("\n", 1)
        forged = text.replace(right.sha256, sha)
        for cache in (theirs, ObjectCache(tmp_path / "cache")):
            cache.remember(builders[ours]._key(kernel, False), forged)  # pyright: ignore[reportPrivateUsage]
        file.write_text(f"{head}\n{forged}")
    (found,) = builders[ours].compile([kernel])
    assert isinstance(found, Binary) and found.sha256 == right.sha256 and found.seconds > 0
    (kept,) = builders[ours].compile([kernel])
    assert isinstance(kept, Binary) and kept.seconds == 0, "known by now"
    for builder in builders.values():
        builder.close()
