"""Compiles functions over the vocabulary of codegen/include and runs them on arrays, in every spelling of the headers.

A function makes one array of arrays of equal length: `extern "C" void NAME(const void* const* in, void* out, long n)`.
"""

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np

from codegen.sandbox.temporary_folders import make_folder
from codegen.toolchain.elf import symbol_bytes
from fusion_ir.arithmetic.conversions import dtype_of
from fusion_ir.dtype import DTYPES, DType
from testing.emulated_kernels import compiler
from testing.objects import headers, machine, objects, program

INCLUDE = Path(__file__).resolve().parents[1] / "codegen" / "include"
FLAGS = "-std=c++17 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC -shared -Wall -Werror".split()
CTYPE = {
    "f64": "double", "f32": "float", "f16": "f16", "bf16": "bf16", "f8e4m3": "f8e4m3", "f8e5m2": "f8e5m2",
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "bool": "boolean",
}  # fmt: skip
PADDING = 128  # elements: the widest vector


ZIG = (sys.executable, "-m", "ziglang", "c++")
# Without libraries, which it would build first, for each of the architectures: a minute each. What a function needs of
# the C library is there in the process that loads it.
ALONE = "-nostdlib"


@dataclass(frozen=True)
class Spelling:
    """One way to compile the headers: compiler, architecture, which header. width: lanes of f32 in a register."""

    name: str
    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    width: int
    header: str = "vec_cpu.h"

    def available(self) -> bool:
        return find_spec("ziglang") is not None if self.compiler == ZIG else shutil.which(self.compiler[0]) is not None


NATIVE = Spelling("g++ native", ("g++",), ("-march=native",), 16)
SPELLINGS = (
    NATIVE,
    Spelling("g++ AVX2", ("g++",), ("-march=x86-64-v3",), 8),
    Spelling("g++ SSE2", ("g++",), ("-march=x86-64",), 4),
    Spelling("clang native", ZIG, ("-march=native", ALONE), 16),
    Spelling("clang AVX2", ZIG, ("-march=x86_64_v3", ALONE), 8),
    Spelling("clang SSE2", ZIG, ("-march=x86_64", ALONE), 4),
    Spelling("CUDA on the host", ("g++",), ("-march=native", "-DFP_EMULATE"), 2, "vec_cuda.cuh"),
)


@dataclass(frozen=True)
class Function:
    """`expression` over the operands {0}, {1}, ..., Vecs of `width` lanes."""

    name: str
    expression: str
    operands: tuple[DType, ...]
    result: DType
    width: int

    def source(self) -> str:
        loads = (
            f"const auto x{i} = load<{self.width}, 1>((const {CTYPE[t.name]}*)in[{i}] + i);"
            for i, t in enumerate(self.operands)
        )
        value = self.expression.format(*(f"x{i}" for i in range(len(self.operands))))
        return (
            f'extern "C" void {self.name}(const void* const* in, void* out, long n) {{ '
            f"for (long i = 0; i < n; i += {self.width}) {{ {' '.join(loads)} "
            f"store<{self.width}, 1>(({CTYPE[self.result.name]}*)out + i, {value}); }} }}\n"
        )


class Library:
    """A compiled file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._library = ctypes.CDLL(str(path))

    @cached_property
    def code_bytes(self) -> dict[str, int]:
        """Bytes of machine code of each function, by name."""
        return symbol_bytes(self._path.read_bytes())

    def symbol(self, name: str) -> Callable[..., object]:
        """A function of any signature."""
        return self._library[name]

    def run(self, function: Function, *arrays: np.ndarray) -> np.ndarray:
        """The result of `function` over arrays of equal length."""
        n = len(arrays[0])
        padded = -(-n // PADDING) * PADDING
        operands = [np.concatenate([a, np.resize(a, padded - n)]) for a in arrays]
        assert tuple(dtype_of(a) for a in operands) == function.operands
        result = np.zeros(padded, function.result.numpy)
        pointers = (ctypes.c_void_p * len(operands))(*(a.ctypes.data for a in operands))
        self._library[function.name](pointers, ctypes.c_void_p(result.ctypes.data), ctypes.c_long(padded))
        return result[:n]


@lru_cache
def _folder() -> Path:
    """A folder of this process."""
    return Path(make_folder())


@lru_cache
def build(source: str, spelling: Spelling = NATIVE) -> Library:
    """Compiles `source` below the include of the spelling's header."""
    text = f'#include "{spelling.header}"\n{source}'
    command = [*spelling.compiler, *FLAGS, *spelling.flags, f"-I{INCLUDE}"]
    library = compiled_library(text, command)
    if "-DFP_EMULATE" in spelling.flags:
        compiler()  # loads what checks the accesses of kernels, and lets those of functions alone
    return Library(library)


def compiled_library(source: str, command: Sequence[str]) -> Path:
    """The shared library that a compiler makes of a source. command: without the names of files; its program is no
    test's own."""
    digest = hashlib.sha256(json.dumps([source, *command]).encode()).hexdigest()[:16]
    file, library = _folder() / f"{digest}.cc", _folder() / f"{digest}.so"

    def make() -> bytes:
        file.write_text(source)
        done = subprocess.run([*command, str(file), "-o", str(library)], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[:4000]}"
        return library.read_bytes()

    identity = program(command[:1])
    data = objects().get(["library", str(identity), machine(), *headers(command[1:]), source], make)
    if not library.exists():
        assert data is not None
        library.write_bytes(data)
    return library


def build_functions(functions: Iterable[Function], spelling: Spelling = NATIVE) -> Library:
    """One library of many functions."""
    return build("".join(f.source() for f in functions), spelling)


def build_everywhere(functions: Sequence[Function]) -> dict[str, Library]:
    """The functions compiled in every spelling whose compiler is there, at the spelling's width: libraries by the
    spelling's name."""

    def one(spelling: Spelling) -> Library:
        return build_functions((replace(f, width=spelling.width) for f in functions), spelling)

    spellings = [s for s in SPELLINGS if s.available()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip((s.name for s in spellings), pool.map(one, spellings), strict=True))


# ---- operands


def specials(dtype: DType) -> np.ndarray:
    """Values at which functions and conversions break."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        values = [
            0,
            1,
            2,
            3,
            5,
            7,
            8,
            9,
            15,
            16,
            17,
            31,
            32,
            33,
            63,
            64,
            65,
            100,
            info.max,
            info.max - 1,
            info.max // 2 + 1,
        ]
        values += [v for v in (-1, -2, -3, -8, -100, info.min, info.min + 1, info.min // 2) if v >= info.min]
        return np.array([v for v in values if v <= info.max], dtype.numpy)
    info = ml_dtypes.finfo(dtype.numpy)
    edges = [float(info.max), float(info.tiny), float(info.tiny) * 0.75, float(info.smallest_subnormal), float("inf")]
    whole = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 0.1, 0.7, 1.1, 10.3, 127.5, 128.0, 255.5, 256.0, 1e5]
    powers = [2.0**p + d for p in (15, 22, 23, 24, 30, 31, 32, 51, 52, 53, 62, 63, 64, 100) for d in (-0.5, 0.0)]
    values = np.array([v for p in edges + whole + powers for v in (p, -p)] + [float("nan")], np.float64)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def random_bits(dtype: DType, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` values whose every bit is random."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, count).astype(bool)
    return rng.integers(0, 256, count * dtype.bytes, np.uint8).view(dtype.numpy)


def domain(dtype: DType, low: float, high: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Values in [low, high], as many close to 0 as far from it."""
    values = rng.uniform(low, high, count) * rng.choice([1.0, 1.0, 2.0**-4, 2.0**-12], count)
    if dtype.kind == "bool":
        return values > (low + high) / 2
    return np.clip(values, low, high).astype(dtype.numpy)


def every_value(dtype: DType) -> np.ndarray:
    """All values of a type of up to 16 bits."""
    if dtype.kind == "bool":
        return np.array([False, True])
    return np.arange(2 ** (8 * dtype.bytes), dtype=f"u{dtype.bytes}").view(dtype.numpy)


COMPUTE = tuple(DTYPES[name] for name in ("f32", "f64", "i8", "i16", "i32", "i64", "u8", "bool"))
FLOATS = COMPUTE[:2]
