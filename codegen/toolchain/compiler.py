"""The interface of compilers, the results that they hand back, and the code that they have in common."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from codegen.kernel import Kernel
from codegen.sandbox.slot import Slot
from fusion_ir.records import CompileReport, Status

INCLUDE = Path(__file__).resolve().parent.parent / "include"
RUNTIME = Path(__file__).resolve().parent.parent / "runtime"


class CompilerMissing(Exception):
    """No compiler for this target. The message says what to install."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel: the file that holds it (sha256 in the object cache), its entry, and its source, which
    compiles alone (sha256 too). `seconds`: time to compile, 0 when it was in the cache."""

    sha256: str
    entry: str
    source: str
    seconds: float = 0.0
    report: CompileReport | None = None
    quickly: bool = False  # compiled for less of a compiler's time


@dataclass(frozen=True, slots=True)
class Failure:
    """A kernel that did not become a binary."""

    status: Status
    detail: str
    seconds: float = 0.0


class OutOfTime(Exception):
    """The time for a search is over, and there are files that no compiler has begun."""


class Compiler(Protocol):
    """One compiler for one device."""

    def identity(self) -> str:
        """Everything but the source that decides the binary: version, flags, headers."""
        ...

    def unit(self, kernels: Sequence[Kernel]) -> str:
        """One file with these kernels. Their entries must differ."""
        ...

    def slot(self) -> Slot:
        """A child that compiles."""
        ...

    def compile(
        self,
        slot: Slot,
        source: str,
        entries: Sequence[str],
        seconds: float,
        libraries: Sequence[str] = (),
        cpu_seconds: float | None = None,
        quickly: bool = False,
    ) -> "tuple[bytes, dict[str, CompileReport]] | Failure":
        """The binary of one file, linked with `libraries` (see codegen.hardware.libraries). cpu_seconds: limit
        of each process, where the compiler can be held to it. quickly: with flags that take less time, where the
        compiler has a choice. Raises SlotError."""
        ...


@lru_cache(maxsize=8)
def header_digest(folder: Path = INCLUDE) -> str:
    """Digest of all headers that kernels may include."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(folder)}\n{file.stat().st_size}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def inclusions(prelude: str, kernels: Sequence[Kernel]) -> str:
    """The headers that a file with these kernels begins with."""
    return "".join(f'#include "{name}"\n' for name in (prelude, *sorted({h for k in kernels for h in k.headers})))


def in_namespaces(kernels: Sequence[Kernel]) -> str:
    """The kernels, each in a namespace of its own, so that helpers of equal names do not meet."""
    return "".join(f'namespace k{i} {{\n#line 1 "{k.entry}"\n{k.source}\n}}\n' for i, k in enumerate(kernels))


def last_lines(text: str, limit: int = 2000) -> str:
    """Compiler output, cut for a table row: the first errors are what matters."""
    errors = [line for line in text.splitlines() if "error" in line.lower() or "undefined" in line.lower()]
    return "\n".join(errors or text.splitlines())[:limit]


def compile_status(status: Status) -> Status:
    """Status of a kernel whose compiler child ended with `status`."""
    known = {Status.timed_out: Status.compile_timeout, Status.out_of_memory: Status.out_of_memory}
    return known.get(status, Status.compile_failed)
