"""Interpreter of PTX: instructions whose results the PTX ISA gives, and what it refuses."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from tests.support.ptx.compiled import run_ptx
from tests.support.ptx.syntax import PtxError, parse
from tests.support.ptx.values import Array, fma32, fma64, to_bf16
from tests.support.ptx.warp import TensorMap

HEAD = """.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 shared[];
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .align 64 .b8 k_param_2[128])
.maxntid 64, 1, 1
{
  .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %d<16>; .reg .f64 %g<4>;
  ld.param.u64 %d1, [k_param_0]; ld.param.u64 %d2, [k_param_1];
  mov.u32 %r1, %tid.x; mul.wide.u32 %d3, %r1, 4; add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;
  ld.global.u32 %r2, [%d4]; mov.b32 %f2, %r2; shl.b32 %r14, %r1, 2; mov.u32 %r15, shared; add.u32 %r14, %r14, %r15;
"""
TAIL = "\n  st.global.u32 [%d5], %r3; ret;\n}\n"
TAIL_FLOAT = "\n  mov.b32 %r3, %f3;" + TAIL
FIRST_LINE = HEAD.count("\n") + 1
MAP = TensorMap(np.arange(64, dtype=np.int32).reshape(8, 8), (8, 8), (32,), (4, 2), 0, 4)


def run(body: str, x: Array, threads: int = 32, backwards: bool = False) -> Array:
    """%r3 of each thread after the body, which has its number in %r1, its element of x in %r2 and %f2, the address of a
    word of shared memory in %r14."""
    tail = TAIL_FLOAT if "%f3" in body else TAIL
    out = np.zeros(threads, np.uint32)
    arguments = [np.ascontiguousarray(x), out, MAP]
    return run_ptx(HEAD + body + tail, "k", arguments, threads=threads, shared_bytes=1024, backwards=backwards)[1]


def bits(x: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


NAN, CANONICAL = 0x7FC00001, 0x7FFFFFFF
ROWS: list[tuple[str, int, int]] = [
    ("add.u32 %r3, %r2, 1;", 0xFFFFFFFF, 0),
    ("sub.s32 %r3, 0, %r2;", 0x80000000, 0x80000000),
    ("mul.lo.s32 %r3, %r2, -3;", 5, 0xFFFFFFF1),
    ("mul.hi.u32 %r3, %r2, %r2;", 0xFFFFFFFF, 0xFFFFFFFE),
    ("mul.hi.s32 %r3, %r2, %r2;", 0xFFFFFFFF, 0),
    ("mul.wide.s32 %d6, %r2, -2; shr.u64 %d6, %d6, 32; cvt.u32.u64 %r3, %d6;", 3, 0xFFFFFFFF),
    ("mad.lo.s32 %r3, %r2, %r2, 7;", 0xFFFFFFFE, 11),
    ("div.s32 %r3, %r2, 2;", 0xFFFFFFF9, 0xFFFFFFFD),
    ("rem.s32 %r3, %r2, 4;", 0xFFFFFFF9, 0xFFFFFFFD),
    ("min.s32 %r3, %r2, 3;", 0xFFFFFFFF, 0xFFFFFFFF),
    ("min.u32 %r3, %r2, 3;", 0xFFFFFFFF, 3),
    ("abs.s32 %r3, %r2;", 0xFFFFFFF0, 16),
    ("not.b32 %r3, %r2;", 0x0F0F0F0F, 0xF0F0F0F0),
    ("shl.b32 %r3, %r2, 33;", 1, 0),
    ("shr.u32 %r3, %r2, 32;", 0xFFFFFFFF, 0),
    ("shr.s32 %r3, %r2, 40;", 0x80000000, 0xFFFFFFFF),
    ("shf.l.wrap.b32 %r3, %r2, %r2, 8;", 0x11223344, 0x22334411),
    ("shf.r.clamp.b32 %r3, %r2, 0x55, 40;", 0x11223344, 0x55),
    ("bfe.u32 %r3, %r2, 4, 8;", 0xFF0, 0xFF),
    ("bfe.s32 %r3, %r2, 4, 8;", 0xFF0, 0xFFFFFFFF),
    ("bfe.s32 %r3, %r2, 28, 8;", 0x70000000, 7),
    ("prmt.b32 %r3, %r2, 0, 0x0123;", 0x11223344, 0x44332211),
    ("prmt.b32 %r3, %r2, 0x99, 0x4c81;", 0x80000080, 0x99FFFF00),
    ("lop3.b32 %r3, %r2, 0x0f0f0f0f, 0x00ff00ff, 0x96;", 0x12345678, 0x12345678 ^ 0x0FF00FF0),
    ("lop3.b32 %r3, %r2, 0x0f0f0f0f, 0x00ff00ff, 0xe8;", 0xFFFFFFFF, 0x0FFF0FFF),
    ("popc.b32 %r3, %r2;", 0xF0F0, 8),
    ("clz.b32 %r3, %r2;", 0, 32),
    ("cvt.s32.s8 %r3, %r2;", 0x80, 0xFFFFFF80),
    ("cvt.u32.u16 %r3, %r2;", 0x12345678, 0x5678),
    ("cvt.rni.s32.f32 %r3, %f2;", bits(2.5), 2),
    ("cvt.rzi.u32.f32 %r3, %f2;", bits(-1.0), 0),
    ("cvt.rzi.s32.f32 %r3, %f2;", bits(1e20), 0x7FFFFFFF),
    ("cvt.rzi.s32.f32 %r3, %f2;", NAN, 0),
    ("cvt.rn.f32.s32 %f3, %r2;", 0x01000001, bits(16777216.0)),
    ("cvt.rna.tf32.f32 %r3, %f2;", 0x3F801000, 0x3F802000),
    ("cvt.rna.tf32.f32 %r3, %f2;", 0x3F800FFF, 0x3F800000),
    ("cvt.rn.bf16x2.f32 %r3, 0f40000000, %f2;", 0x3F808000, 0x40003F80),
    ("cvt.rn.f16x2.f32 %r3, %f2, 0f40000000;", bits(65520.0), 0x7C004000),
    ("cvt.rn.f16.f32 %h1, %f2; cvt.u32.u16 %r3, %h1;", bits(2.0**-25), 0),
    ("cvt.u16.u32 %h1, %r2; cvt.f32.f16 %f3, %h1;", 0x0001, bits(2.0**-24)),
    ("max.NaN.f32 %f3, %f2, 0f3F800000;", NAN, CANONICAL),
    ("max.f32 %f3, %f2, 0f3F800000;", NAN, bits(1.0)),
    ("max.f32 %f3, %f2, 0f00000000;", bits(-0.0), 0),
    ("min.NaN.f32 %f3, 0f00000000, %f2;", bits(-0.0), bits(-0.0)),
    ("fma.rn.sat.f32 %f3, %f2, %f2, %f2;", NAN, 0),
    ("fma.rn.sat.f32 %f3, %f2, %f2, %f2;", bits(3.0), bits(1.0)),
    ("fma.rn.f32 %f3, %f2, %f2, 0fBF800000;", 0x3F800001, bits(2.0**-22 + 2.0**-46)),
    ("mul.rn.ftz.f32 %f3, %f2, 0f40000000;", 0x00400000, 0),
    ("mul.f32 %f3, %f2, 0f40000000;", 0x00400000, 0x00800000),
    ("ex2.approx.ftz.f32 %f3, %f2;", bits(-127.0), 0),
    ("ex2.approx.f32 %f3, %f2;", bits(-127.0), 0x00400000),
    ("rcp.approx.ftz.f32 %f3, %f2;", bits(3.0), 0x3EAAAAAB),
    ("rcp.approx.ftz.f32 %f3, %f2;", bits(-0.0), bits(-np.inf)),
    ("rsqrt.approx.f32 %f3, %f2;", bits(4.0), bits(0.5)),
    ("rsqrt.approx.ftz.f32 %f3, %f2;", 1, bits(np.inf)),
    ("sqrt.rn.f32 %f3, %f2;", bits(2.0), 0x3FB504F3),
    ("div.rn.f32 %f3, 0f3F800000, %f2;", bits(3.0), 0x3EAAAAAB),
    ("neg.f32 %f3, %f2;", 0, 0x80000000),
    ("copysign.f32 %f3, %f2, 0f40000000;", bits(-0.0), bits(-2.0)),
    ("fma.rn.bf16x2 %r3, %r2, 0x40003f80, 0x3f803f80;", 0x3F803F80, 0x40404000),
    ("setp.lt.f32 %p1, %f2, 0f3F800000; selp.b32 %r3, 1, 0, %p1;", NAN, 0),
    ("setp.ltu.f32 %p1, %f2, 0f3F800000; selp.b32 %r3, 1, 0, %p1;", NAN, 1),
    ("setp.nan.f32 %p1, %f2, %f2; selp.b32 %r3, 1, 0, %p1;", NAN, 1),
    ("setp.lo.u32 %p1, %r2, 3; selp.b32 %r3, 1, 0, %p1;", 0xFFFFFFFF, 0),
    ("setp.ne.s32 %p2, 0, 0; setp.eq.or.s32 %p1, %r2, 9, %p2; selp.b32 %r3, 1, 0, %p1;", 9, 1),
    ("mov.b64 %d6, {%r2, 5}; mov.b64 {%r4, %r3}, %d6;", 9, 5),
    ("mov.b32 {%h1, %h2}, %r2; mov.b32 %r3, {%h2, %h1};", 0x11223344, 0x33441122),
    ("st.shared.u32 [%r14], %r2; ld.shared.s8 %r3, [%r14+1];", 0x8000, 0xFFFFFF80),
    ("mov.b32 {%h1, %h2}, %r2; st.shared.v2.u16 [%r14], {%h2, %h1}; ld.shared.u32 %r3, [%r14];", 0x70003, 0x30007),
    ("mov.u32 %r3, 1; setp.eq.s32 %p1, %r2, 0; @!%p1 mov.u32 %r3, 2;", 4, 2),
    ("{ .reg .b32 r; mov.b32 r, 5; { .reg .b32 r; mov.b32 r, 6; } mov.b32 %r3, r; }", 0, 5),
]  # fmt: skip


@pytest.mark.parametrize(("body", "given", "expected"), ROWS)
def test_instruction(body: str, given: int, expected: int) -> None:
    found = run(body, np.full(32, given, np.uint32))
    assert {hex(v) for v in map(int, found)} == {hex(expected)}


LANE = np.arange(32)
FULL = "0xffffffff"
# The body, and what lane l of a warp has where x is l.
EXCHANGES: dict[str, tuple[str, Callable[[Array], Array]]] = {
    "down": (f"shfl.sync.down.b32 %r3, %r2, 1, 0x1f, {FULL};", lambda l: np.minimum(l + 1, 31)),
    "up": (f"shfl.sync.up.b32 %r3, %r2, 2, 0, {FULL};", lambda l: np.where(l < 2, l, l - 2)),
    "across": (f"shfl.sync.bfly.b32 %r3, %r2, 3, 0x1f, {FULL};", lambda l: l ^ 3),
    "within fours": (f"shfl.sync.idx.b32 %r3, %r2, 1, 0x1c1f, {FULL};", lambda l: l // 4 * 4 + 1),
    "down within eights": (f"shfl.sync.down.b32 %r3, %r2, 1, 0x181f, {FULL};",
        lambda l: np.where(l % 8 == 7, l, l + 1)),
    "whether inside": (
        f"shfl.sync.up.b32 %r4|%p1, %r2, 1, 0, {FULL}; selp.b32 %r3, 1, 0, %p1;",
        lambda l: (l > 0).astype(int),
    ),
    "ballot": (
        f"setp.lt.u32 %p1, %r2, 3; vote.sync.ballot.b32 %r3, %p1, {FULL};",
        lambda l: np.full(32, 7),
    ),
    "ballot of the rest": (
        f"setp.lt.u32 %p1, %r2, 28; vote.sync.ballot.b32 %r3, !%p1, {FULL};",
        lambda l: np.full(32, 0xF0000000),
    ),
    "branches": (
        "setp.lt.u32 %p1, %r2, 10; @%p1 bra FEW; mov.u32 %r3, 1; bra.uni END;"
        " FEW: mov.u32 %r3, 2; END: add.u32 %r3, %r3, 5;",
        lambda l: np.where(l < 10, 7, 6),
    ),
    "loops of their own": (
        "mov.u32 %r3, 0; mov.u32 %r4, 0; AGAIN: add.u32 %r3, %r3, %r4; add.u32 %r4, %r4, 1;"
        " setp.le.u32 %p1, %r4, %r2; @%p1 bra AGAIN;",
        lambda l: l * (l + 1) // 2,
    ),
    "lanes that meet in a branch": (
        "and.b32 %r4, %r2, 1; setp.eq.u32 %p1, %r4, 1; @%p1 bra ODD; shfl.sync.bfly.b32 %r3, %r2, 2, 0x1f, 0x55555555;"
        " bra.uni END; ODD: shfl.sync.bfly.b32 %r3, %r2, 4, 0x1f, 0xaaaaaaaa; END: ",
        lambda l: np.where(l % 2, l ^ 4, l ^ 2),
    ),
    "atomics": ("mov.u32 %r5, 0; st.shared.u32 [shared], %r5; bar.warp.sync 0xffffffff;"
                " atom.shared.add.u32 %r6, [shared], 2; bar.warp.sync 0xffffffff; ld.shared.u32 %r3, [shared];",
                lambda l: np.full(32, 64)),
    "swaps": ("st.shared.u32 [%r14], %r2; atom.shared.cas.b32 %r4, [%r14], 3, 99; ld.shared.u32 %r3, [%r14];",
              lambda l: np.where(l == 3, 99, l)),
}  # fmt: skip


@pytest.mark.parametrize("name", EXCHANGES)
def test_lanes_of_a_warp(name: str) -> None:
    body, expected = EXCHANGES[name]
    np.testing.assert_array_equal(run(body, LANE.astype(np.uint32)), expected(LANE).astype(np.uint32))


def test_matrices_by_columns_and_rows() -> None:
    """Lane l has elements 2 (l % 4), 2 (l % 4) + 1 of row l / 4; with .trans of column l / 4."""
    x = (2 * LANE | (2 * LANE + 1) << 16).astype(np.uint32)  # the matrix 0 to 63
    load = """
  st.shared.u32 [%r14], %r2; bar.warp.sync 0xffffffff;
  and.b32 %r4, %r1, 7; shl.b32 %r4, %r4, 4; add.u32 %r4, %r4, %r15;"""
    rows = run(load + " ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r4];", x)
    np.testing.assert_array_equal(rows, x)
    columns = run(load + " ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r3}, [%r4];", x)
    first = LANE % 4 * 16 + LANE // 4
    np.testing.assert_array_equal(columns, first | (first + 8) << 16)


def test_product_of_matrices() -> None:
    """a[g, 2 t + e] = 1 where its row is its column, b of ones and zeros: d[g, 2 t] is b's row g, column 2 t."""
    body = """
  shr.u32 %r4, %r1, 2; and.b32 %r5, %r1, 3;
  shr.u32 %r6, %r4, 1; setp.eq.u32 %p1, %r6, %r5; and.b32 %r7, %r4, 1; setp.eq.u32 %p2, %r7, 1;
  selp.b32 %r8, 0x3c000000, 0x00003c00, %p2; selp.b32 %r8, %r8, 0, %p1; mov.u32 %r9, 0;
  mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f3, %f4, %f5, %f6}, {%r8, %r9}, {%r2},
    {0f40000000, %f4, %f5, %f6};"""
    values = np.arange(64, dtype=np.float16).reshape(8, 8)  # b[k, n]
    x = np.ascontiguousarray(values.T).reshape(8, 4, 2).view(np.uint32).reshape(32)
    found = run(body, x).view(np.float32)
    np.testing.assert_array_equal(found, values[LANE // 4, LANE % 4 * 2].astype(np.float32) + 2)


COPY = "cp.async.ca.shared.global [%r14], [%d4], 4, {}; cp.async.commit_group; {} ld.shared.u32 %r3, [%r14];"


@pytest.mark.parametrize(
    ("size", "wait", "expected"),
    [(4, "cp.async.wait_group 0;", 7), (0, "cp.async.wait_group 0;", 0), (2, "cp.async.wait_all;", 7),
     (4, "", 0xFFFFFFFF), (4, "cp.async.wait_group 1;", 0xFFFFFFFF)],
)  # fmt: skip
def test_copies_land_when_they_are_waited_for(size: int, wait: str, expected: int) -> None:
    assert {*run(COPY.format(size, wait), np.full(32, 7, np.uint32)).tolist()} == {expected}


BOX = """
  mov.u64 %d6, k_param_2; cvta.param.u64 %d6, %d6; mov.u32 %r4, 512; add.u32 %r4, %r4, %r15; setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READY;
  mbarrier.init.shared::cta.b64 [%r4], 1; fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 32;
  mov.u32 %r6, AT; mov.u32 %r7, 3;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r15], [%d6, {%r6, %r7}], [%r4];
  READY: bar.warp.sync 0xffffffff;
  AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra AGAIN;
  and.b32 %r5, %r1, 7; shl.b32 %r5, %r5, 2; add.u32 %r5, %r5, %r15; ld.shared.u32 %r3, [%r5];"""


@pytest.mark.parametrize(("at", "expected"), [(4, [28, 29, 30, 31, 36, 37, 38, 39]), (-4, [0] * 8), (8, [0] * 8)])
def test_boxes(at: int, expected: list[int]) -> None:
    assert run(BOX.replace("AT", str(at)), LANE.astype(np.uint32))[:8].tolist() == expected


def test_blocks_pass_barriers_together() -> None:
    body = """
  st.shared.u32 [%r14], %r2; barrier.sync 0; sub.u32 %r4, %r15, %r14; add.u32 %r4, %r4, %r15;
  ld.shared.u32 %r3, [%r4+252];"""
    for backwards in (False, True):
        found = run(body, np.arange(64, dtype=np.uint32), 64, backwards)
        np.testing.assert_array_equal(found, 63 - np.arange(64))


FAILURES: dict[str, tuple[str, str]] = {
    "unknown instruction": ("tanh.approx.f32 %f3, %f2;", f"line {FIRST_LINE}: tanh.approx.f32: unknown instruction"),
    "unknown modifier": ("add.rz.f32 %f3, %f2, %f2;", "unknown .rz"),
    "unknown rounding": ("cvt.rm.f16.f32 %h1, %f2; mov.u32 %r3, 0;", "unknown rounding"),
    "unknown name": ("mov.u32 %r3, %clock;", "unknown name %clock"),
    "unreadable": ("mov.u32 %r3, #;", "cannot read"),
    "no label": ("bra NOWHERE; mov.u32 %r3, 0;", "no label NOWHERE"),
    "narrow register": ("add.u32 %h1, %r2, %r2; mov.u32 %r3, 0;", "into a register of 16 bits"),
    "not aligned": ("ld.shared.u32 %r3, [%r14+2];", "not aligned"),
    "beyond shared memory": ("ld.shared.u32 %r3, [%r14+1024];", "beyond shared memory"),
    "beyond an array": ("ld.global.u32 %r3, [%d4+384];", "beyond global memory"),
    "race": ("st.shared.u32 [%r14], %r2; xor.b32 %r4, %r14, 4; ld.shared.u32 %r3, [%r4];", "race: thread 0"),
    "too few at a barrier": (
        "setp.lt.u32 %p1, %r1, 32; mov.u32 %r3, 0; @!%p1 bra END; barrier.sync 1, 64; END: ", "threads wait there",
    ),
    "barrier 16": ("barrier.sync 16; mov.u32 %r3, 0;", "barriers [16], of 16"),
    "half a warp": ("barrier.sync 1, 16; mov.u32 %r3, 0;", "16 threads"),
    "endless": ("mov.u32 %r3, 0; AGAIN: bra AGAIN;", "still running after"),
    "absent lane": ("shfl.sync.idx.b32 %r3, %r2, 20, 0x1f, 0xffff;", "a lane is not in its own mask"),
    "from outside of the mask": (
        "setp.ge.u32 %p1, %r1, 16; mov.u32 %r3, 0; @%p1 bra END;"
        " shfl.sync.idx.b32 %r3, %r2, 20, 0x1f, 0xffff; END: ",
        "takes from a lane that does not take part",
    ),
    "ended lane": ("setp.ge.u32 %p1, %r1, 16; mov.u32 %r3, 0; @%p1 ret; bar.warp.sync 0xffffffff;", "has ended"),
    "box within 16 bytes": (BOX.replace("AT", "1"), "a box from element 1"),
    "box that nobody announced": (
        BOX.replace("AT", "4").replace("fence.mbarrier_init.release.cluster;", ""), "no fence.mbarrier_init",
    ),
    "box over what was not fenced": (
        BOX.replace("AT", "4").replace("mov.u32 %r6", "st.shared.u32 [%r15], %r2; mov.u32 %r6"),
        "was written and not fenced",
    ),
    "bytes that never come": (BOX.replace("AT", "4").replace(", 32;", ", 64;"), "threads wait there"),
    "one warp of four": ("wgmma.fence.sync.aligned; mov.u32 %r3, 0;", "threads of the warp group are missing"),
    "more registers by giving": ("setmaxnreg.dec.sync.aligned.u32 232; mov.u32 %r3, 0;", "232 registers, after 168"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_what_is_undefined_is_refused(name: str) -> None:
    body, problem = FAILURES[name]
    with pytest.raises(PtxError) as error:
        run(body, np.arange(64, dtype=np.uint32), 64 if "few" in name else 32)
    assert problem in str(error.value)


def test_parameters_have_to_match() -> None:
    with pytest.raises(PtxError, match="1 arguments for 3 parameters"):
        run_ptx(HEAD + "mov.u32 %r3, 0;" + TAIL, "k", [np.zeros(32, np.uint32)])
    with pytest.raises(PtxError, match="no kernel other"):
        run_ptx(HEAD + "mov.u32 %r3, 0;" + TAIL, "other", [])
    with pytest.raises(PtxError, match="ends within something"):
        parse(HEAD)


def test_device_functions_are_called() -> None:
    function = """.func (.param .b32 result) twice(.param .b32 given) {
  .reg .b32 %r<3>;
  ld.param.u32 %r1, [given]; add.u32 %r2, %r1, %r1; st.param.b32 [result+0], %r2; ret;
}
"""
    call = """{ .param .b32 a; st.param.b32 [a+0], %r2; .param .b32 b;
  call.uni (b), twice, (a); ld.param.b32 %r3, [b+0]; }"""
    text = HEAD.replace(".visible", function + ".visible") + call + TAIL
    found = run_ptx(text, "k", [LANE.astype(np.uint32), np.zeros(32, np.uint32), MAP], shared_bytes=1024)[1]
    np.testing.assert_array_equal(found, 2 * LANE)


def test_sums_of_products_are_rounded_once() -> None:
    one = np.array([1 + 2.0**-12], np.float32)
    assert fma32(one, one, np.array([2.0**-60], np.float32))[0] == np.float32(1 + 2.0**-11 + 2.0**-23)
    assert fma32(one, one, np.array([-(2.0**-60)], np.float32))[0] == np.float32(1 + 2.0**-11)
    big = np.array([1 + 2.0**-52])
    assert fma64(big, big, np.array([-1.0]))[0] == 2.0**-51 + 2.0**-104
    middle = np.array([1 + 2.0**-8, np.nextafter(1 + 2.0**-8, 2), np.nextafter(1 + 2.0**-8, 1), np.nan])
    assert to_bf16(middle).tolist() == [0x3F80, 0x3F81, 0x3F80, 0x7FFF]
