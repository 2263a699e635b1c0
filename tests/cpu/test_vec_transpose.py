"""Tiles: what lies across the lanes goes in and out as it is, and nothing beside it is touched."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from codegen.launch.cpu import GuardedTensor
from fusion_ir.dtype import DTYPES, DType
from testing.vec_compare import differing
from testing.vec_harness import CTYPE, NATIVE, SPELLINGS, Library, build, random_bits
from tests.support.whole import in_turn, one_part

ROWS, COLUMNS = 36, 40  # of a tile: whole blocks and a part of one, whatever the registers
PARTS = [(1, 1), (3, 40), (16, 16), (17, 33), (36, 7), (32, 32), (36, 40)]
SPELLED = [s for s in SPELLINGS if s.header == "vec_cpu.h"]
SPELLED.append(replace(NATIVE, name="g++ without shuffles", flags=(*NATIVE.flags, "-DVEC_NO_SHUFFLES")))
SPELLED = in_turn(SPELLED, 2, "tiles")
TYPES = one_part(DTYPES.values(), 2, "tiles")


def source() -> str:
    """Functions (p, q, stride, rows, columns). across: a tile of what is at p, dense, to q. to_across: the tile that is
    dense at p, to q."""
    lines: list[str] = []
    for t in TYPES:
        c = CTYPE[t.name]
        tile = f"static Tile<{c}, {ROWS}, {COLUMNS}> k; memset(&k, 0x7a, sizeof k);"
        rows = f"for (int i = 0; i < {ROWS}; i++) memcpy({{}}, {COLUMNS} * sizeof({c}));"
        out, back = rows.format(f"q + i * {COLUMNS}, k.at[i]"), rows.format(f"k.at[i], p + i * {COLUMNS}")
        bodies = {
            "across": f"{tile} read_across(k, p, s, rows, columns); {out}",
            "to_across": f"{tile} {back} write_across<false>(q, s, k, rows, columns);",
            "to_across_past": f"{tile} {back} write_across<true>(q, s, k, rows, columns); stream_fence();",
            "fetch": f"(void)q; (void)columns; fetch_across<{ROWS}, {COLUMNS}>(p, s, rows);",
        }
        arguments = f"const {c}* p, {c}* q, long s, long rows, long columns"
        lines += [f'extern "C" void {name}_{t}({arguments}) {{ {body} }}' for name, body in bodies.items()]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module", params=SPELLED, ids=lambda s: s.name)
def library(request: pytest.FixtureRequest) -> Library:
    if not request.param.available():
        pytest.skip(f"no {request.param.compiler[0]}")
    return build(source(), request.param)


def call(library: Library, name: str, p: int, q: int, stride: int, rows: int, columns: int) -> None:
    longs = [ctypes.c_long(x) for x in (stride, rows, columns)]
    library.symbol(name)(ctypes.c_void_p(p), ctypes.c_void_p(q), *longs)


def guarded(values: np.ndarray, at_end: bool) -> tuple[GuardedTensor, np.ndarray]:
    """A copy between pages that nobody may touch, against one of them: a byte too many ends the process."""
    memory = GuardedTensor(values.nbytes, values.itemsize, at_end)
    view = memory.bytes.view(values.dtype)
    view[:] = values
    return memory, view


@pytest.mark.soak
@pytest.mark.parametrize("t", TYPES, ids=str)
def test_tiles(t: DType, library: Library) -> None:
    rng = np.random.default_rng(t.bytes)
    for rows, columns in PARTS:
        for stride in (rows, rows + 5):
            at = np.arange(columns)[:, None] * stride + np.arange(rows)
            data, tile = random_bits(t, int(at.max()) + 1, rng), random_bits(t, ROWS * COLUMNS, rng)
            for at_end in (False, True):
                source, p = guarded(data, at_end)
                source.freeze()
                got = np.zeros((ROWS, COLUMNS), data.dtype)
                call(library, f"across_{t}", source.address, got.ctypes.data, stride, rows, columns)
                read = np.ascontiguousarray(got[:rows, :columns])
                assert differing(read.ravel(), p[at].T.ravel()).size == 0, (rows, columns, stride)
                for name in ("to_across", "to_across_past"):
                    target, q = guarded(data, at_end)
                    call(library, f"{name}_{t}", tile.ctypes.data, target.address, stride, rows, columns)
                    expected = data.copy()
                    expected[at] = tile.reshape(ROWS, COLUMNS)[:rows, :columns].T
                    assert target.intact and differing(q.copy(), expected).size == 0, (name, rows, columns, stride)


@pytest.mark.soak
def test_fetching_may_go_anywhere(library: Library) -> None:
    memory = GuardedTensor(64, TYPES[0].bytes, at_end=True)
    for t in range(ROWS):
        call(library, f"fetch_{TYPES[0]}", memory.address, 0, 1 << 20, t, 0)
