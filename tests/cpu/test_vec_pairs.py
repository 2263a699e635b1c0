"""bf16 in pairs gives the bits that single elements give: in the order of memory, rounded once, denormals and all."""

import ctypes

import numpy as np
import pytest

from fusion_ir.dtype import DTYPES
from testing.vec_compare import differing
from testing.vec_harness import SPELLINGS, Library, build, every_value
from tests.support.whole import in_turn

BF16 = DTYPES["bf16"]
WIDTHS = in_turn((8, 16, 32, 64, 128), 1, "pairs")
SPELLED = in_turn((s for s in SPELLINGS if s.header == "vec_cpu.h"), 2, "pairs")
# What is done with a vector x of floats; {read}, {round}, ... are those of pairs, or of single elements.
DONE = {
    "copied": "{read}",
    "kept": "{exact}(x)",
    "relu": "{exact}(relu_(x))",
    "scaled": "{round}(mul_(x, splat<W>(1.37f)))",
    "denormal": "{round}(mul_(x, splat<W>(0x1.5p-40f)))",
    "numbered": "{round}(add_(x, cast<float>({iota}<int32_t, W>(i & 127))))",
    "rounded_twice": "{round}(sub_(widen({round}(mul_(x, splat<W>(0x1.5p-2f)))), x))",
}
PAIRS = {"read": "load_pairs<W, 1>(p + i)", "round": "round_pairs", "exact": "exact_pairs", "iota": "iota_pairs"}
SINGLE = {"read": "load<W, 1>(p + i)", "round": "cast<bf16>", "exact": "cast_exact<bf16>", "iota": "iota_"}


def source() -> str:
    """Per way, width and kind of store a function (p, q, n)."""
    lines: list[str] = []
    for kind, words in (("pairs", PAIRS), ("single", SINGLE)):
        for name, expression in DONE.items():
            for w in WIDTHS:
                for store in ("store", "store_stream"):
                    value = expression.format(**words).replace("W", str(w))
                    read = words["read"].replace("W", str(w))
                    lines.append(
                        f'extern "C" void {kind}_{name}_{w}_{store}(const bf16* p, bf16* q, long n) {{ '
                        f"for (long i = 0; i < n; i += {w}) {{ const auto x = cast<float>({read}); (void)x; "
                        f"{store}<{w}, 1>(q + i, {value}); }} stream_fence(); }}"
                    )
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=SPELLED, ids=lambda s: s.name)
def library(request: pytest.FixtureRequest) -> Library:
    if not request.param.available():
        pytest.skip(f"no {request.param.compiler[0]}")
    return build(source(), request.param)


@pytest.mark.soak
@pytest.mark.parametrize("w", WIDTHS)
@pytest.mark.parametrize("name", DONE)
def test_same_bits_as_single_elements(name: str, w: int, library: Library) -> None:
    """Every value of bf16, stored at an address that is a multiple of 64 bytes and at one element beyond it."""
    x = every_value(BF16)
    for at in (0, 1):
        found: list[np.ndarray] = []
        for kind, store in (("single", "store"), ("pairs", "store"), ("pairs", "store_stream")):
            memory = np.zeros(len(x) + 64, x.dtype)
            start = (-memory.ctypes.data // 2) % 32 + at
            out = memory[start : start + len(x)]
            function = library.symbol(f"{kind}_{name}_{w}_{store}")
            function(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(len(x)))
            assert not memory[:start].any() and not memory[start + len(x) :].any()
            found.append(out)
        for got in found[1:]:
            assert differing(got, found[0]).size == 0
