"""Every spelling of the headers gives the same bits: compilers, instruction sets, and CUDA's header on the host."""

import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fusion_ir.dtype import DTYPES
from fusion_ir.ops import Op
from testing.vec_compare import differing
from testing.vec_harness import (
    CTYPE,
    FLAGS,
    INCLUDE,
    NATIVE,
    SPELLINGS,
    ZIG,
    Function,
    Library,
    build_everywhere,
    random_bits,
    specials,
)
from testing.vec_ops import EXACT, INEXACT, functions, math_operands, operands_for
from tests.support.whole import one_part

WIDTH = 16
EVERY_CAST = [
    Function(f"cast_{a}_{b}", f"cast<{CTYPE[b.name]}>({{0}})", (a,), b, WIDTH)
    for a, b in product(DTYPES.values(), repeat=2)
]
DRAWN = one_part([*functions((*EXACT, *INEXACT), WIDTH), *((None, f) for f in EVERY_CAST)], 14, "bits")
OPS_FUNCTIONS: dict[str, tuple[Op, Function]] = {f.name: (op, f) for op, f in DRAWN if op is not None}
CASTS = [f for op, f in DRAWN if op is None]


@pytest.fixture(scope="module")
def libraries() -> dict[str, Library]:
    return build_everywhere([*(f for _, f in OPS_FUNCTIONS.values()), *CASTS])


def compare(function: Function, arrays: list[np.ndarray], libraries: dict[str, Library]) -> None:
    expected = libraries[NATIVE.name].run(function, *arrays)
    for name, library in libraries.items():
        got = library.run(function, *arrays)
        wrong = differing(got, expected)
        assert wrong.size == 0, (name, wrong.size, [(*(a[i] for a in arrays), got[i], expected[i]) for i in wrong[:5]])


@pytest.mark.parametrize("name", OPS_FUNCTIONS)
@pytest.mark.soak
def test_op(name: str, libraries: dict[str, Library]) -> None:
    op, function = OPS_FUNCTIONS[name]
    arrays = operands_for(op, function.operands, seed=len(name), count=10000)
    if op.ulps:
        arrays = math_operands(op, function.operands[0], seed=len(name), count=5000)
    compare(function, arrays, libraries)


@pytest.mark.soak
@pytest.mark.parametrize("function", CASTS, ids=lambda f: f.name)
def test_cast(function: Function, libraries: dict[str, Library]) -> None:
    rng = np.random.default_rng(0)
    (source,) = function.operands
    compare(function, [np.concatenate([specials(source), random_bits(source, 70000, rng)])], libraries)


def test_cuda_on_the_host_is_among_them(libraries: dict[str, Library]) -> None:
    assert {"g++ native", "CUDA on the host"} <= libraries.keys() <= {s.name for s in SPELLINGS}


@pytest.mark.soak
@pytest.mark.skipif(not SPELLINGS[3].available(), reason="no clang")
def test_compiles_for_aarch64(tmp_path: Path) -> None:
    file = tmp_path / "functions.cc"
    functions_64 = [replace(f, width=4) for f in (*(f for _, f in OPS_FUNCTIONS.values()), *CASTS)]
    file.write_text('#include "vec_cpu.h"\n' + "".join(f.source() for f in functions_64))
    flags = [f for f in FLAGS if f != "-shared"]
    command = [
        *ZIG,
        "-target",
        "aarch64-linux-gnu",
        *flags,
        f"-I{INCLUDE}",
        "-c",
        str(file),
        "-o",
        str(tmp_path / "functions.o"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:4000]
