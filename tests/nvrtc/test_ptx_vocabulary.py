"""Every function that kernels call, as the PTX that NVRTC makes of it, gives what the emulator's table says.

`tests.support.ptx` runs the PTX; the words of inline PTX to the compiler, which no run shows, are read in the headers.
"""

import re
from functools import lru_cache
from pathlib import Path

import pytest

from codegen.toolchain.compiler import INCLUDE
from tests.support.asm_statements import problems, statements
from tests.support.ptx.compiled import compile_ptx
from tests.support.ptx.syntax import Constant, Module, parse
from tests.support.ptx_cases import CASES, products
from tests.support.whole import in_turn

pytest.importorskip("cupy.cuda", reason="needs cupy and NVRTC")
WIDTHS = {case.name: case for case in products(in_turn(range(8, 257, 8), 2, "widths of wgmma"))}


@lru_cache(maxsize=4)
def compiled(arch: str, widths: bool = False) -> Module:
    cases = WIDTHS.values() if widths else [case for case in CASES.values() if arch in case.archs]
    return parse(compile_ptx("".join(case.kernel.source for case in cases), arch))


@pytest.mark.parametrize(("name", "arch"), [(c.name, arch) for c in CASES.values() for arch in c.archs])
def test_function_does_what_it_means(name: str, arch: str) -> None:
    assert CASES[name].problem(compiled(arch)) == ""


@pytest.mark.soak
@pytest.mark.parametrize("name", WIDTHS)
def test_products_of_every_width(name: str) -> None:
    assert WIDTHS[name].problem(compiled("90a", True)) == ""


def test_the_compiler_may_neither_move_nor_drop_what_has_an_effect() -> None:
    headers = Path(INCLUDE)
    assert {s.header for s in statements(headers)} >= {"device_cuda.cuh", "device_sm90.cuh", "wgmma_sm90.cuh"}
    assert problems(headers) == []


def test_shared_memory_begins_at_a_multiple_of_a_swizzle() -> None:
    shared = compiled("90a").variables["shared"]
    assert (shared.space, shared.align) == ("shared", 1024)


def test_hints_are_there() -> None:
    """No result shows them: registers that a warp group gives or takes, and maps that are fetched early."""
    functions = compiled("90a").functions
    changes = [(i.opcode, i.operands) for i in functions["k_registers"].code if i.words[0] == "setmaxnreg"]
    assert sorted(changes) == [
        ("setmaxnreg.dec.sync.aligned.u32", (Constant(40),)),
        ("setmaxnreg.inc.sync.aligned.u32", (Constant(232),)),
    ]
    assert "prefetch.tensormap" in [i.opcode for i in functions["many0"].code]


@pytest.mark.parametrize("header", ["device_cuda.cuh", "device_sm90.cuh"])
def test_every_function_of_a_header_has_a_case(header: str) -> None:
    text = re.sub(r"namespace core \{.*?\n\}", "", Path(INCLUDE, header).read_text(), flags=re.S)
    named = set(re.findall(r"^(?:template <.*?> )?VDEV [\w<>, ]*?(\w+)\(", text, flags=re.M))
    assert len(named) > 10
    sources = "".join(case.kernel.source for case in CASES.values())
    assert {name for name in named if not re.search(rf"\b{name}\b", sources)} == set()
