"""Machine code of cubins as text, by NVIDIA's disassembler, and what it does to memory.

The disassembler is the package nvidia-cuda-nvdisasm (extra `dev`), or that of a CUDA toolkit on the PATH.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import NamedTemporaryFile

SECTION = re.compile(r"^\.text\.(\w+):")
INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
# Opcodes that access memory with one width per thread, by kind of memory. LDGSTS is cp.async.
GLOBAL_LOADS, GLOBAL_STORES = ("LDG", "LD", "LDGSTS"), ("STG", "ST")
SHARED_LOADS, SHARED_STORES = ("LDS",), ("STS",)
LOCAL = ("LDL", "STL")
NARROW = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


@dataclass(frozen=True)
class Sass:
    """The instructions of one kernel in order, as (opcode with modifiers, operands), without predicates."""

    instructions: tuple[tuple[str, str], ...]

    def count(self, *opcodes: str) -> int:
        """How many instructions are any of these, whatever their modifiers: "HMMA" counts HMMA.16816.F32 too."""
        return sum(name.partition(".")[0] in opcodes for name, _ in self.instructions)

    def widths(self, *opcodes: str) -> Counter[int]:
        """Accesses of these opcodes by bytes that one thread moves."""
        return Counter(width_bytes(name) for name, _ in self.instructions if name.partition(".")[0] in opcodes)

    @property
    def global_loads(self) -> Counter[int]:
        """Loads from global memory by width in bytes, cp.async among them."""
        return self.widths(*GLOBAL_LOADS)

    @property
    def global_stores(self) -> Counter[int]:
        """Stores to global memory by width in bytes."""
        return self.widths(*GLOBAL_STORES)

    @property
    def shared_loads(self) -> Counter[int]:
        """Loads from shared memory by width in bytes, without LDSM."""
        return self.widths(*SHARED_LOADS)

    @property
    def shared_stores(self) -> Counter[int]:
        """Stores to shared memory by width in bytes."""
        return self.widths(*SHARED_STORES)

    @property
    def local(self) -> int:
        """Accesses to local memory: spilled registers, and arrays with an index that is not known."""
        return self.count(*LOCAL)


def width_bytes(name: str) -> int:
    """Bytes that one thread moves with an instruction such as LDG.E.128.CONSTANT; 4 where it does not say."""
    return next((NARROW[part] for part in name.split(".")[1:] if part in NARROW), 4)


def disassemble(cubin: bytes) -> dict[str, Sass]:
    """The machine code of each kernel of a cubin, by entry. Raises FileNotFoundError without a disassembler,
    ValueError for what it does not take."""
    tool = nvdisasm()
    if tool is None:
        raise FileNotFoundError("no nvdisasm: pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit on the PATH")
    with NamedTemporaryFile(suffix=".cubin") as file:  # it does not read from a pipe
        file.write(cubin)
        file.flush()
        done = subprocess.run([tool, "--print-code", "--no-dataflow", file.name], capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"nvdisasm: {done.stderr.decode(errors='replace').strip()}")
    return parse_sass(done.stdout.decode())


def parse_sass(text: str) -> dict[str, Sass]:
    """Kernels of what `nvdisasm -c` prints, by entry."""
    found: dict[str, list[tuple[str, str]]] = {}
    entry = ""
    for line in text.splitlines():
        if section := SECTION.match(line):
            entry = section[1]
            found[entry] = []
        elif entry and (instruction := INSTRUCTION.match(line)):
            found[entry].append((instruction[1], instruction[2].strip()))
    return {name: Sass(tuple(instructions)) for name, instructions in found.items()}


@lru_cache(maxsize=1)
def nvdisasm() -> Path | None:
    """The disassembler, None where there is none."""
    try:
        files = importlib.metadata.files("nvidia-cuda-nvdisasm") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    packaged = [Path(str(f.locate())) for f in files if f.name in ("nvdisasm", "nvdisasm.exe")]
    toolkit = [Path(os.environ["CUDA_PATH"], "bin", "nvdisasm")] if "CUDA_PATH" in os.environ else []
    on_path = shutil.which("nvdisasm")
    return next((p for p in (*packaged, *toolkit, *([Path(on_path)] if on_path else [])) if p.exists()), None)
