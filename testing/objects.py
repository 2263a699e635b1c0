"""Compiled files of tests, kept by the content of what they are made of: one run compiles each once, the next none.

FUSEPLAN_TEST_OBJECTS names the folder, which the processes of a run share (tests/conftest.py sets it to a folder of
pytest's cache; `pytest --cache-clear` empties that). Without it nothing is kept.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any

from codegen.sandbox.temporary_folders import make_folder
from codegen.toolchain.compiler import Failure, header_digest
from codegen.toolchain.cpu import CpuCompiler
from codegen.toolchain.cuda import CudaCompiler
from fusion_ir.records import CompileReport

VARIABLE = "FUSEPLAN_TEST_OBJECTS"
MOST_BYTES = 3 << 30  # of objects that a run leaves for the next one
_LOCKS = 4096

Built = tuple[bytes, dict[str, CompileReport]] | Failure


class Objects:
    """A folder of compiled files, safe for several processes: who asks for what another one is making waits for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "locks").mkdir(parents=True, exist_ok=True)

    def get(self, parts: Sequence[str], make: Callable[[], bytes | None]) -> bytes | None:
        """The object made of `parts`, made now where there is none. make: gives None for what is not to be kept."""
        key = hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()
        file = self.folder / key[:2] / key
        with self._lock(key):
            try:
                data = file.read_bytes()
                os.utime(file)
                return data
            except FileNotFoundError:
                data = make()
            if data is not None:
                file.parent.mkdir(exist_ok=True)
                partial_ = file.with_name(f"{key}.{os.getpid()}")
                partial_.write_bytes(data)
                partial_.replace(file)
            return data

    def trim(self, most_bytes: int = MOST_BYTES) -> None:
        """Removes the objects that were used least recently, until the others have at most so many bytes."""
        files = [(f.stat().st_mtime, f.stat().st_size, f) for f in self.folder.glob("[0-9a-f][0-9a-f]/*")]
        kept = 0
        for _, size, file in sorted(files, reverse=True, key=lambda found: found[0]):
            kept += size
            if kept > most_bytes:
                file.unlink()

    @contextmanager
    def _lock(self, key: str) -> Iterator[None]:
        number = int(key[:8], 16) % _LOCKS
        with (self.folder / "locks" / str(number)).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@lru_cache(maxsize=1)
def objects() -> Objects:
    """The objects of this run; where none are kept, of this process."""
    return Objects(Path(os.environ.get(VARIABLE) or make_folder()))


def program(command: Sequence[str]) -> str | None:
    """The identity of a compiler's program. None for one that stands in a temporary folder, where tests put theirs."""
    found = shutil.which(command[0])
    if found is None or (command[0] != sys.executable and Path(found).is_relative_to(tempfile.gettempdir())):
        return None
    stat = Path(found).resolve().stat()
    return f"{' '.join(command[1:])} {Path(found).resolve()} {stat.st_size} {stat.st_mtime_ns}"


@lru_cache(maxsize=1)
def machine() -> str:
    """The identity of this machine's processor, which -march=native compiles for."""
    told = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    named = ("model name", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
    return "\n".join(line for line in told if line.partition(":")[0].strip() in named)


def headers(flags: Sequence[str]) -> list[str]:
    """The flags, with the digest of its files in place of each folder of headers."""
    return [f"-I {header_digest(Path(f[2:]))}" if f.startswith("-I") else f for f in flags]


class Keeping:
    """Compilers of this process that take from `objects` what they made before. active: whether they do now."""

    def __init__(self) -> None:
        self.active = True

    def install(self, patch: Callable[[type, str, Any], None]) -> None:
        """Replaces the methods that compile. patch: as `pytest.MonkeyPatch.setattr`."""
        patch(CpuCompiler, "build", self._kept(CpuCompiler.build, _cpu_parts))
        patch(CudaCompiler, "compile", self._kept(CudaCompiler.compile, _cuda_parts))

    def _kept(self, method: Callable[..., Built], parts_of: Callable[..., list[str] | None]) -> Callable[..., Built]:
        @wraps(method)
        def build(compiler: Any, slot: Any, source: str, *others: Any, **named: Any) -> Built:
            make = partial(method, compiler, slot, source, *others, **named)
            parts = parts_of(compiler, source, *others, **named) if self.active else None
            if parts is None:
                return make()
            failed: list[Failure] = []

            def made() -> bytes | None:
                built = make()
                if isinstance(built, Failure):
                    failed.append(built)
                    return None
                reports = {entry: report.model_dump(mode="json") for entry, report in built[1].items()}
                return json.dumps(reports).encode() + b"\n" + built[0]

            data = objects().get(parts, made)
            if data is None:
                return failed[0]
            told, _, binary = data.partition(b"\n")
            return binary, {e: CompileReport.model_validate(report) for e, report in json.loads(told).items()}

        return build


def _cpu_parts(
    compiler: CpuCompiler, source: str, flags: Sequence[str], _seconds: float, entries: Sequence[str] = (), *_: object
) -> list[str] | None:
    identity = program(compiler.command)
    if identity is None:
        return None
    return ["cpu", identity, machine(), compiler.identity(), repr(compiler.limits), *headers(flags), *entries, source]


def _cuda_parts(
    compiler: CudaCompiler, source: str, entries: Sequence[str], _seconds: float, *others: object, **named: object
) -> list[str] | None:
    return ["cuda", compiler.identity(), repr(compiler.limits), repr(others), repr(named), *entries, source]
