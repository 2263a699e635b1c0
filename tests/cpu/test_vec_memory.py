"""Loads and stores: the lanes they move, and that nothing beside them is touched."""

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np
import pytest

from codegen.toolchain.cpu import host_features
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.dtype import DTYPES
from testing.vec_compare import differing
from testing.vec_harness import CTYPE, NATIVE, SPELLINGS, Library, Spelling, build, random_bits
from tests.support.whole import WHOLE, in_turn, one_part

TYPES = tuple(DTYPES.values())
WIDTHS = (1, 4, 32, 128)
OTHERS = [s for s in SPELLINGS if s.name in ("g++ SSE2", "clang native", "CUDA on the host")]
SPELLED = [NATIVE, *in_turn(OTHERS, 1, "memory")]
MOVED = one_part(((t, w) for w in WIDTHS for t in TYPES), 6, "memory")
PAGE = mmap.PAGESIZE


def source() -> str:
    """Per type and width of MOVED every kind of load and of store; a function (p, q, stride, n) moves one vector from p
    to q."""
    lines = [
        "#define EXPORT(name, T, ...) \\",
        'extern "C" void name(const T* p, T* q, long s, long n) { (void)s; (void)n; __VA_ARGS__ }',
    ]
    for t, w in MOVED:
        c = CTYPE[t.name]
        dense = f"store<{w}, 1>(q,"
        bodies = {
            "load": f"{dense} load<{w}, 1>(p));",
            "masked": f"{dense} load_masked<{w}, 1>(p, n));",
            "strided": f"{dense} load_strided<{w}>(p, s));",
            "strided_n": f"{dense} load_strided<{w}>(p, s, n));",
            "lanes": f"{dense} load_lanes<{w}>([=](int l) {{ return p[(l * l) % 13]; }}, n));",
            "splat": f"{dense} splat<{w}>(load<1, 1>(p)));",
            "tile": f"{dense} load_tile<{w}, {max(1, w // 4)}>(p));",
            "repeat": f"{dense} load_repeat<{w}, {max(1, w // 4)}>(p));",
            "tile_1": f"{dense} load_tile<{w}, 1>(p));",
            "repeat_2": f"{dense} load_repeat<{w}, {min(2, w)}>(p));",
            "to_stream": f"store_stream<{w}, 1>(q, load<{w}, 1>(p)); stream_fence();",
            "to_masked": f"store_masked<{w}, 1>(q, load<{w}, 1>(p), n);",
            "to_strided": f"store_strided<{w}>(q, s, load<{w}, 1>(p));",
            "to_strided_n": f"store_strided<{w}>(q, s, load<{w}, 1>(p), n);",
            "to_lanes": f"store_lanes<{w}>(load<{w}, 1>(p), [=](int l, {c} y) {{ q[2 * l + 1] = y; }}, n);",
            "set_get": f"auto v = load<{w}, 1>(p); set(v, (int)s, get(v, (int)n)); {dense} v);",
        }
        if w > 1:
            bodies["halves"] = f"const auto v = load<{w}, 1>(p); {dense} join(high(v), low(v)));"
        lines += [f"EXPORT({name}_{t}_{w}, {c}, {body})" for name, body in bodies.items()]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=SPELLED, ids=lambda s: s.name)
def library(request: pytest.FixtureRequest) -> Library:
    if not request.param.available():
        pytest.skip(f"no {request.param.compiler[0]}")
    return build(source(), request.param)


def call(library: Library, name: str, p: int, q: int, stride: int = 1, n: int = 0) -> None:
    library.symbol(name)(ctypes.c_void_p(p), ctypes.c_void_p(q), ctypes.c_long(stride), ctypes.c_long(n))


CASES = [pytest.param(t, w, id=f"{t}-{w}") for t, w in MOVED]
Case = pytest.mark.parametrize(("t", "w"), CASES)


def moved(library: Library, name: str, data: np.ndarray, w: int, stride: int = 1, n: int = 0) -> np.ndarray:
    """The w elements that a load gives of data that is aligned to its element and no further."""
    shifted = np.empty(len(data) + 1, data.dtype)[1:]
    shifted[:] = data
    out = np.zeros(w, data.dtype)
    call(library, name, shifted.ctypes.data, out.ctypes.data, stride, n)
    return out


@Case
@pytest.mark.soak
def test_loads(t, w: int, library: Library) -> None:
    data = random_bits(t, 8 * w + 16, np.random.default_rng(w))
    zero = data.dtype.type(0)
    lane = np.arange(w)
    part = max(1, w // 4)
    expected = {
        "load": data[:w], "splat": data[[0] * w], "tile": data[lane % part], "repeat": data[lane // part],
        "tile_1": data[[0] * w], "repeat_2": data[lane // min(2, w)],
    }  # fmt: skip
    for name, values in expected.items():
        assert differing(moved(library, f"{name}_{t}_{w}", data, w), values).size == 0, name
    for stride in (0, 1, 3, 7):
        assert differing(moved(library, f"strided_{t}_{w}", data, w, stride), data[lane * stride]).size == 0
    for n in (-1, 0, 1, w // 2 + 1, w - 1, w, w + 5):
        for name, values in (("masked", data[:w]), ("strided_n", data[lane * 3]), ("lanes", data[lane * lane % 13])):
            got = moved(library, f"{name}_{t}_{w}", data, w, 3, n)
            assert differing(got, np.where(lane < n, values, zero).astype(data.dtype)).size == 0, (name, n)
    if w > 1:
        assert differing(moved(library, f"halves_{t}_{w}", data, w), np.roll(data[:w], w // 2)).size == 0
        changed = data[:w].copy()
        changed[w - 1] = data[w // 2]
        assert differing(moved(library, f"set_get_{t}_{w}", data, w, w - 1, w // 2), changed).size == 0


@Case
@pytest.mark.soak
def test_stores(t, w: int, library: Library) -> None:
    rng = np.random.default_rng(w)
    data, before = random_bits(t, w, rng), random_bits(t, 8 * w + 200, rng)

    def stored(name: str, at: int, stride: int = 1, n: int = 0) -> np.ndarray:
        buffer = np.concatenate([before, np.zeros(128, data.dtype)])
        start = (-buffer.ctypes.data // t.bytes) % (64 // t.bytes)  # 64-byte aligned, from there `at` elements
        out = buffer[start + at : start + at + len(before)]
        out[:] = before
        call(library, f"{name}_{t}_{w}", data.ctypes.data, out.ctypes.data + 16 * t.bytes, stride, n)
        return out

    def check(got: np.ndarray, positions: np.ndarray, values: np.ndarray) -> None:
        expected = before.copy()
        expected[16 + positions] = values
        assert differing(got, expected).size == 0

    lane = np.arange(w)
    for at in (0, 1, 32 // t.bytes if t.bytes < 8 else 4, 48):
        check(stored("to_stream", at), lane, data)
    for stride in (1, 2, 5):
        check(stored("to_strided", 0, stride), lane * stride, data)
    for n in (-3, 0, 1, w // 2 + 1, w - 1, w, w + 9):
        first = lane[lane < n]
        check(stored("to_masked", 1, n=n), first, data[first])
        check(stored("to_strided_n", 0, 3, n), first * 3, data[first])
        check(stored("to_lanes", 0, n=n), 2 * first + 1, data[first])


# Bytes of machine code of an access: so many, and for each of its registers so many, however many lanes these have.
# With registers of 32 bytes, one of bools is put together from bytes and taken apart again. There some of eight lanes
# of 1 or 2 bytes are moved one by one, 28 bytes each: through memory 13 columns of bf16 took 1.6 times as long.
LANES = 16 if "avx512f" in host_features() else 8  # of a register, half of that where they have 8 bytes
ACCESS_BYTES, REGISTER_BYTES = 480, 112 if LANES == 16 else 240
OF_BOOLS = 1 if LANES == 16 else 2
BY_LANES = {"lanes", "to_lanes"}  # by what the functions of this file compute for each lane
GROWING = {"set_get"}  # by lane numbers that no kernel leaves open


@Case
@pytest.mark.soak
def test_code_does_not_grow_with_every_lane(t, w: int) -> None:
    """Scalars of 64 lanes joined: 10,842 instructions of 13 loads, 28 s of g++."""
    code_bytes = build(source(), NATIVE).code_bytes
    bytes_ = {name.rpartition(f"_{t}_{w}")[0]: n for name, n in code_bytes.items() if name.endswith(f"_{t}_{w}")}
    registers = -(-w // (LANES // 2 if t.bytes == 8 else LANES)) * (OF_BOOLS if t.kind == "bool" else 1)
    assert bytes_.keys() >= {"strided", "strided_n", "to_strided", "masked", "tile", "repeat"}
    for name, found in bytes_.items():
        if name not in GROWING:
            assert found <= (3 if name in BY_LANES else 1) * ACCESS_BYTES + REGISTER_BYTES * registers, (name, found)


@pytest.fixture(scope="module")
def two_pages() -> Iterator[int]:
    """The address of a page after which nothing may be read or written."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory = mmap.mmap(-1, 2 * PAGE)
    view = ctypes.c_char.from_buffer(memory)
    address = ctypes.addressof(view)
    assert libc.mprotect(ctypes.c_void_p(address + PAGE), PAGE, 0) == 0
    yield address
    assert libc.mprotect(ctypes.c_void_p(address + PAGE), PAGE, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    del view
    memory.close()


@Case
@pytest.mark.soak
def test_masked_moves_touch_nothing_beyond_their_lanes(t, w: int, library: Library, two_pages: int) -> None:
    """The lanes that are left lie against the protected page: a byte too many ends the process."""
    out = np.zeros(w + 8, t.numpy)
    for n in (-1, 0, 1, w // 2, w - 1, w):
        edge = two_pages + PAGE - max(n, 0) * t.bytes
        call(library, f"masked_{t}_{w}", edge, out.ctypes.data, 1, n)
        call(library, f"to_masked_{t}_{w}", out.ctypes.data, edge, 1, n)


# ---- masked moves with a conversion between them, which compilers may make one instruction of with either
CONVERTED_WIDTHS = (2, 4, 8, 16, 32, 64, 128) if WHOLE else in_turn((4, 16, 64), 1, "converted")
CONVERTED_BY = [s for s in SPELLINGS if "SSE2" not in s.name and (WHOLE or s is NATIVE)]


def converted_source(w: int) -> str:
    """Per pair of types a function (p, q, stride, n) that loads, casts and stores n lanes, and one for three quarters
    of them, a number that the compiler knows."""
    return "\n".join(
        f'extern "C" void {name}_{t}_{u}(const {CTYPE[t.name]}* p, {CTYPE[u.name]}* q, long, long n) {{ '
        f"(void)n; store_masked<{w}, 1>(q, cast<{CTYPE[u.name]}>(load_masked<{w}, 1>(p, {n})), {n}); }}"
        for t in TYPES
        for u in TYPES
        for name, n in (("some", "n"), ("known", 3 * w // 4))
        if name == "some" or w <= 16
    )


@pytest.mark.soak
@pytest.mark.parametrize("spelling", CONVERTED_BY, ids=lambda s: s.name)
@pytest.mark.parametrize("w", CONVERTED_WIDTHS)
def test_converted_tails_touch_nothing_beyond_their_lanes(spelling: Spelling, w: int, two_pages: int) -> None:
    """g++ 12 made one vextracti32x4 of a narrowing and a masked store, which faults at lanes that its mask leaves
    out."""
    if not spelling.available():
        pytest.skip(f"no {spelling.compiler[0]}")
    library = build(converted_source(w), spelling)
    out = np.zeros(8 * w + 8, np.uint8)
    for t in TYPES:
        data = random_bits(t, w, np.random.default_rng(w))
        with np.errstate(all="ignore"):
            expected = {u: round_to(data, u) for u in TYPES}
        for u in TYPES:
            tails = [(f"some_{t}_{u}", n) for n in sorted({0, 1, w // 2, w // 2 + 1, w - 1, w})]
            tails += [(f"known_{t}_{u}", 3 * w // 4)] if w <= 16 else []
            for name, n in tails:
                edge = two_pages + PAGE - n * t.bytes
                ctypes.memmove(edge, data.ctypes.data, n * t.bytes)
                out[:] = 0xA5
                call(library, name, edge, out.ctypes.data, n=n)
                got, rest = out[: n * u.bytes].view(u.numpy), out[n * u.bytes :]
                assert differing(got, expected[u][:n]).size == 0 and (rest == 0xA5).all(), (name, n)
                edge = two_pages + PAGE - n * u.bytes
                call(library, name, data.ctypes.data, edge, n=n)
                stored = (ctypes.c_uint8 * (n * u.bytes)).from_address(edge)
                assert bytes(stored) == got.tobytes(), (name, n)
