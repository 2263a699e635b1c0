"""Kernels whose results are known, to run as PTX: the emulator's tables, and functions that those lack."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from codegen.kernel import Kernel, Launch
from fusion_ir.dtype import f32
from fusion_ir.ops import OPS
from fusion_ir.records import TensorMapSpec
from testing.vec_compare import differing, exact, ulps_off
from testing.vec_harness import specials
from testing.vec_ops import math_operands
from tests.emulator import test_vocabulary
from tests.support import sm90_vocabulary
from tests.support.ptx.compiled import run_ptx
from tests.support.ptx.machine import Argument
from tests.support.ptx.syntax import Module, PtxError
from tests.support.ptx.values import Array
from tests.support.ptx.warp import TensorMap
from tests.support.sm90_vocabulary import BOXES, ProductCase, aligned

# Gives how a result is wrong, or "".
Judge = Callable[[Array, Array], str]
BOTH = ("75", "80")


def same_bits(got: Array, expected: Array) -> str:
    """NaNs are all equal."""
    got, expected = got.reshape(-1), expected.reshape(-1)
    wrong = np.flatnonzero(got != expected) if expected.dtype.kind in "iub" else differing(got, expected)
    return f"element {wrong[0]} is {got[wrong[0]]}, expected {expected[wrong[0]]}" if wrong.size else ""


@dataclass(frozen=True)
class PtxCase:
    """A kernel of parameters: inputs, result, tensor maps. archs: of compute_..., to run it for. flags: words of zeros
    behind the result. unit_ulps: errors of the special function unit to run it with."""

    name: str
    kernel: Kernel
    inputs: tuple[Array, ...]
    expected: Array
    archs: tuple[str, ...]
    judge: Judge = same_bits
    flags: int = 0
    unit_ulps: tuple[int, ...] = (0,)

    def problem(self, module: Module) -> str:
        """How the module's kernel is wrong, with its warps in either order: "" if it is right."""
        launch = self.kernel.launch
        for ulps, backwards in product(self.unit_ulps, (False, True)):
            result = np.full(self.expected.shape, 77).astype(self.expected.dtype)
            flags = [np.zeros(self.flags, np.uint32)] if self.flags else []
            arguments: list[Argument] = [*self.inputs, result, *flags]
            arguments += [tensor_map(spec, self.inputs) for spec in launch.tensor_maps]
            try:
                found = run_ptx(
                    module, self.kernel.entry, arguments, threads=launch.block[0], blocks=launch.grid[0],
                    cluster=launch.cluster, shared_bytes=launch.shared_bytes, backwards=backwards, unit_ulps=ulps,
                )  # fmt: skip
            except PtxError as e:
                return str(e)
            if wrong := self.judge(found[len(self.inputs)], self.expected):
                return wrong
        return ""


def tensor_map(spec: TensorMapSpec, inputs: Sequence[Array]) -> TensorMap:
    tensor = inputs[spec.argument]
    return TensorMap(
        tensor, tuple(spec.sizes), tuple(spec.strides_bytes), tuple(spec.box), spec.swizzle, spec.element_bytes
    )


# ---- tables of the emulator
def table() -> Iterator[PtxCase]:
    for name, case in test_vocabulary.CASES.items():
        inputs = tuple(a for _, a in case.inputs)
        expected = np.ascontiguousarray(case.expected(*inputs))
        archs = ("80",) if name in ("mma_bf16", "mma_tf32", "mma_s8", "tf32") else BOTH
        yield PtxCase(name, case.kernel(), inputs, expected, archs)


def sm90_table() -> Iterator[PtxCase]:
    for name, case in sm90_vocabulary.CASES.items():
        yield PtxCase(name, case.kernel, case.inputs, case.expected, ("90a",))


# ---- functions of device_cuda.cuh
def hand(
    name: str, parameters: str, body: str, inputs: Sequence[Array], expected: Array, *, threads: int = 64,
    blocks: int = 1, flags: int = 0, unit_ulps: tuple[int, ...] = (0,), judge: Judge = same_bits,
) -> PtxCase:  # fmt: skip
    source = (
        f'extern "C" __global__ void __launch_bounds__({threads}) k_{name}({parameters}) {{\n'
        f"  SHARED_MEMORY(shared);\n  const int i = threadIdx.x;\n{body}\n}}\n"
    )
    launch = Launch((blocks, 1, 1), (threads, 1, 1), 8192)
    kernel = Kernel(f"k_{name}", source, "cuda", "test", name, launch)
    return PtxCase(name, kernel, tuple(inputs), expected, BOTH, judge, flags, unit_ulps)


def between_blocks() -> Iterator[PtxCase]:
    """Block 1 reads what block 0 wrote, after it sees a flag: the read is a race without release and acquire."""
    x = np.arange(7, 71, dtype=np.int32)
    parameters = "const int* in, int* out, int* flags"
    for t, value in (("int", 0x12345678), ("int64_t", 0x123456789ABCDEF)):
        body = f"""
  {t}* const flag = ({t}*)flags;
  if (blockIdx.x == 0) {{
    write(out + i, read(in + i));
    block_barrier();
    if (i == 0) store_release(flag, ({t}){value:#x});
  }} else {{
    if (i == 0) {{
      const {t} seen = wait_until(flag, []({t} x) {{ return x != 0; }});
      write(out + 128, (int)(seen == ({t}){value:#x} && load_acquire(flag) == seen));
    }}
    block_barrier();
    write(out + 64 + i, read(out + i) + 1);
  }}"""
        expected = np.concatenate([x, x + 1, [1]]).astype(np.int32)
        yield hand(f"flag_{t}", parameters, body, [x], expected, blocks=2, flags=2)
    body = """
  if (blockIdx.x == 0) {
    write(out + i, read(in + i));
    block_barrier();
    if (i == 0) {
      memory_fence();
      atomic_add(flags, 1);
    }
  } else {
    if (i == 0) {
      while (atomic_add(flags, 0) == 0) {}
      memory_fence();
    }
    block_barrier();
    write(out + 64 + i, read(out + i) + 1);
  }"""
    expected = np.concatenate([x, x + 1]).astype(np.int32)
    yield hand("fences", parameters, body, [x], expected, blocks=2, flags=1)


def barriers() -> Iterator[PtxCase]:
    x = np.arange(3, 131, dtype=np.int32)
    groups = """
  int* const place = (int*)shared;
  shared_store(place + i, splat<1>(read(in + i)));
  named_barrier(1 + i / 64, 64);
  write(out + i, shared_load<int, 1>(place + (i ^ 63)).v[0]);"""
    yield hand("named_barriers", "const int* in, int* out", groups, [x], x[np.arange(128) ^ 63], threads=128)
    branches = """
  int* const place = (int*)shared;
  const uint32_t mask = i % 2 ? 0xaaaaaaaau : 0x55555555u;
  if (i % 2) shared_store(place + i, splat<1>(read(in + i) + 1));
  else shared_store(place + i, splat<1>(read(in + i)));
  warp_barrier(mask);
  write(out + i, shared_load<int, 1>(place + (i ^ 2)).v[0]);"""
    expected = (x + np.arange(128) % 2).astype(np.int32)[np.arange(128) ^ 2]
    yield hand("warp_barriers", "const int* in, int* out", branches, [x], expected, threads=128)


def copies() -> Iterator[PtxCase]:
    """Two groups of copies under way; those of the first are read before the second has come. And early loads."""
    x = np.arange(64 * 4, dtype=np.int32)
    body = """
  int* const place = (int*)shared;
  copy_async<16>(shared_address(place + i * 4), in + i * 4);
  copy_async_commit();
  copy_async<8>(shared_address(place + 256 + i * 4), in + i * 4);
  copy_async<4>(shared_address(place + 256 + i * 4 + 2), in + i * 4 + 2);
  copy_async<4>(shared_address(place + 256 + i * 4 + 3), in + i * 4 + 3, false);
  copy_async_commit();
  copy_async_wait<1>();
  store<4, 4>(out + i * 4, shared_load<int, 4>(place + i * 4));
  copy_async_wait<0>();
  block_barrier();
  store<4, 4>(out + 256 + i * 4, shared_load<int, 4>(place + 256 + (63 - i) * 4));"""
    later = x.reshape(64, 4)[::-1].copy()
    later[:, 3] = 0
    yield hand("groups", "const int* in, int* out", body, [x], np.concatenate([x, later.reshape(-1)]))
    early = "  store<8, 8>(out + i * 8, load_early<8, 8>(in + i * 8));\n  block_barrier();"
    for t, dtype in (("int", np.int32), ("uint16_t", np.uint16)):
        values = np.arange(512).astype(dtype)
        yield hand(f"load_early_{t}", f"const {t}* in, {t}* out", early, [values], values)


def branches() -> Iterator[PtxCase]:
    """Exchange among the lanes of a branch, whose mask leaves out the others."""
    x = np.arange(64, dtype=np.int32) * 3 - 40
    body = """
  const int x = read(in + i);
  int y = -1;
  if (i % 32 < 16) {
    const uint32_t mask = 0xffffu;
    y = CALL;
  }
  write(out + i, y);"""
    lanes = np.arange(16)
    first = x.reshape(2, 32)[:, :16]
    calls = {
        "shuffle_xor(x, 5, mask)": first[:, lanes ^ 5],
        "shuffle_up(x, 3, mask)": first[:, np.where(lanes >= 3, lanes - 3, lanes)],
        "shuffle_from(x, i * 7 % 16, mask)": first[:, lanes * 7 % 16],
        "(int)vote_ballot(x > 0, mask)": np.repeat(((first > 0) << lanes).sum(1)[:, None], 16, 1),
    }
    for k, (call, result) in enumerate(calls.items()):
        expected = np.full((2, 32), -1, np.int32)
        expected[:, :16] = result
        yield hand(f"branch_{k}", "const int* in, int* out", body.replace("CALL", call), [x], expected.reshape(-1))


# ---- narrow floats, and the special function unit
def narrow() -> Iterator[PtxCase]:
    ties = [1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 65519.0, 65520.0, 3.4e38, 1e-40, 2.0**-133, 2.0**-25, 6e-8]
    rng = np.random.default_rng(5)
    spread = rng.standard_normal(512) * 10.0 ** rng.integers(-9, 9, 512)
    x = np.concatenate([specials(f32), ties, spread]).astype(np.float32)[:512]

    def each(
        name: str, expression: str, types: tuple[str, ...], inputs: list[Array], expected: Array
    ) -> Iterator[PtxCase]:
        *sources, to = types
        parameters = ", ".join([*(f"const {t}* in{k}" for k, t in enumerate(sources)), f"{to}* out"])
        for width in (1, 4):
            loads = [f"load<{width}, {width}>(in{k} + k)" for k in range(len(sources))]
            body = (
                f"  for (int k = i * {width}; k < 512; k += 64 * {width})\n"
                f"    store<{width}, {width}>(out + k, {expression.format(*loads)});"
            )
            yield hand(f"{name}_{width}", parameters, body, inputs, expected)

    with np.errstate(all="ignore"):
        for t, dtype in test_vocabulary.FLOAT16.items():
            rounded = x.astype(dtype)
            yield from each(f"to_{t}", f"cast<{t}>({{}})", ("float", t), [x], rounded)
            yield from each(f"from_{t}", "cast<float>({})", (t, "float"), [rounded], rounded.astype(np.float32))
        bf16 = test_vocabulary.FLOAT16["bf16"]
        pair = [rng.permutation(x).astype(bf16) for _ in range(2)]
        a, b = (p.astype(np.float32) for p in pair)
        for name, result in {"add": a + b, "sub": a - b, "mul": a * b}.items():
            expression = f"narrow_{name}_({{}}, {{}})"
            yield from each(f"narrow_{name}", expression, ("bf16",) * 3, pair, result.astype(bf16))


def extremes() -> Iterator[PtxCase]:
    values = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-40], np.float32)
    a, b = (np.ascontiguousarray(x.reshape(-1)) for x in np.meshgrid(values, values))
    for name in ("maximum", "minimum"):
        call = OPS[name].cpp.format("load<1, 1>(in0 + i)", "load<1, 1>(in1 + i)")
        expected = exact(OPS[name], a, b).astype(np.float32)
        parameters = "const float* in0, const float* in1, float* out"
        yield hand(name, parameters, f"  store<1, 1>(out + i, {call});", [a, b], expected)


UNIT = ("exp", "exp2", "sigmoid", "tanh", "erf", "rsqrt")


def within(name: str, exactly: Array) -> Judge:
    """Judges by the ulps of the op."""

    def judge(got: Array, _: Array) -> str:
        off = ulps_off(got, exactly)
        at = int(np.argmax(off))
        return f"{off[at]:.1f} ulps off at element {at}: {got[at]}" if off[at] > OPS[name].ulps else ""

    return judge


def unit() -> Iterator[PtxCase]:
    """Elementary functions by the unit: special arguments, the range of exponentials, and some of all magnitudes."""
    ends = np.array([80.0, -80.0, 88.5, -87.3, -103.0, 89.0, 127.5, -126.5, -149.0, 0.75])
    for name in UNIT:
        (drawn,) = math_operands(OPS[name], f32, seed=7, count=2000)
        some = np.random.default_rng(1).choice(drawn, 2048)
        ranges = [np.linspace(-110, 110, 600), np.linspace(-1, 1, 200)]
        x = np.concatenate([specials(f32), ends, *ranges, some])[:2048].astype(np.float32)
        body = f"  store<8, 8>(out + i * 8, {OPS[name].cpp.format('load<8, 8>(in + i * 8)')});"
        exactly = exact(OPS[name], x)
        yield hand(
            name, "const float* in, float* out", body, [x], np.zeros(2048, np.float32), threads=256,
            unit_ulps=(0, 1, -1), judge=within(name, exactly),
        )  # fmt: skip


def beside_the_middle() -> Array:
    """Dividends and divisors whose quotients are as close to the middle of two floats as any: b odd of 24 bits and m
    odd of 25 bits, a 2^k = b m - 1 or b m + 1. Shape: 2, 3072."""
    rng = np.random.default_rng(3)
    b = rng.integers(1 << 23, 1 << 24, 30_000) | 1
    inverse = b.copy()  # mod 2^25, by Newton's iteration
    for _ in range(4):
        inverse = inverse * (2 - b * inverse) % (1 << 25)
    found: list[Array] = []
    for sign, modulus in product((1, -1), (24, 25)):
        middle = inverse * sign % (1 << modulus)
        middle = middle + (1 << 24) * (modulus == 24)
        whole = b * middle - sign
        for bits in (24, 25):
            a = whole >> bits
            fits = (whole % (1 << bits) == 0) & (a >= 1 << 23) & (a < 1 << 24) & (middle >= 1 << 24)
            found.append(np.stack([a[fits], b[fits]]))
    pairs = np.concatenate(found, axis=1).astype(np.float32) * np.float32(2.0**-23)
    return rng.permutation(pairs, axis=1)[:, :3072]


def divided() -> Iterator[PtxCase]:
    """Quotients of many by one: next to the middle of two floats, ordinary, and where the short way is not taken."""
    rng = np.random.default_rng(4)
    a, b = np.ones((4096, 2), np.float32), np.ones(4096, np.float32)
    hard = beside_the_middle()
    a[:3072], b[:3072] = hard[0][:, None], hard[1]
    rest, by = a[3072:], b[3072:]
    by[:] = 1 + rng.random(1024)
    rest[:256] = rng.standard_normal((256, 2))
    by[256:512] = np.exp2(rng.uniform(-20, 20, 256))
    rest[256:512] = np.exp2(rng.uniform(-99, 60, (256, 2)))
    rest[512:768] = rng.choice([3.0, 5.0, 7.0], (256, 2)) * 2.0**-123  # remainders that are denormal
    rest[768:896] = np.exp2(rng.uniform(-149, 127, (128, 2)))
    by[768:896] = np.exp2(rng.uniform(-149, 127, 128))
    rest[896:900] = np.array([[0.0, -0.0], [np.inf, 1], [np.nan, 2], [-3, 1e-40]])
    rest[900:904], by[900:904] = 1.5, (0.0, -0.0, np.inf, -7)
    body = """
  for (int k = i; k < 4096; k += 256)
    store<2, 2>(out + 2 * k, divided_(load<2, 2>(in0 + 2 * k), load<1, 1>(in1 + k)));"""
    with np.errstate(all="ignore"):
        expected = (a / b[:, None]).reshape(-1)
    parameters = "const float* in0, const float* in1, float* out"
    yield hand("divided", parameters, body, [a, b], expected, threads=256, unit_ulps=(0, 1, -1))


# ---- sm_90a
def sm90() -> Iterator[PtxCase]:
    def made(name: str, parameters: str, body: str, expected: Array, threads: int, cluster: int = 1) -> PtxCase:
        kernel = sm90_vocabulary.kernel(f"k_{name}", parameters, body, threads=threads, cluster=cluster)
        return PtxCase(name, kernel, (), expected, ("90a",), flags=int("flags" in parameters))

    meet = """
  if (blockIdx.x == 0) atomic_add(flags, (int)threadIdx.x + 1);
  cluster_meet();
  if (blockIdx.x == 1) write(out + threadIdx.x, atomic_add(flags, 0));
  cluster_meet();"""
    yield made("meet", "int* out, int* flags", meet, np.full(64, 64 * 65 // 2, np.int32), 64, 2)
    apart = """
  if (blockIdx.x == 0) write(out + threadIdx.x, (int)cluster_rank() + 5);
  cluster_barrier();
  if (blockIdx.x == 1) write(out + 64 + threadIdx.x, read(out + (63 - threadIdx.x)) + (int)cluster_rank());
  cluster_barrier();"""
    yield made("cluster_barriers", "int* out", apart, np.repeat([5, 6], 64).astype(np.int32), 64, 2)
    there = """
  const uint32_t bar = shared_address(shared);
  if (threadIdx.x == 0) { barrier_init(bar, 32); fence_barrier_init(); }
  cluster_barrier();
  if (blockIdx.x == 0) barrier_arrive_at(bar, 1);
  else barrier_wait(bar, 0);
  write(out + blockIdx.x * 32 + threadIdx.x, (int)threadIdx.x);
  cluster_barrier();"""
    yield made("arrive_at", "int* out", there, np.tile(np.arange(32, dtype=np.int32), 2), 32, 2)
    trade = """
  if (threadIdx.x < 128) registers_down<40>();
  else registers_up<232>();
  write(out + threadIdx.x, (int)threadIdx.x);"""
    yield made("registers", "int* out", trade, np.arange(256, dtype=np.int32), 256)
    rng = np.random.default_rng(9)
    for i, case in enumerate(BOXES):
        tensor = rng.integers(1, 60_000, tuple(reversed(case.sizes))).astype(case.dtype)
        kernel = sm90_vocabulary.box_kernel(i, case, multicast=True)
        source = kernel.source.replace(f"box{i}(", f"many{i}(")
        source = source.replace("const uint32_t bar", "tensor_prefetch(map0);\n  const uint32_t bar")
        expected = np.tile(case.expected(tensor), (2, 1))
        yield PtxCase(
            f"many{i}", replace(kernel, entry=f"many{i}", source=source), (aligned(tensor),), expected, ("90a",)
        )


def products(columns: Sequence[int] = range(8, 257, 8)) -> Iterator[PtxCase]:
    """wgmma of every width, with a from shared memory and from registers."""
    for n, registers, dtype in product(columns, (False, True), ("f16", "bf16")):
        name = f"wgmma_{n}_{dtype}{'_registers' if registers else ''}"
        case = ProductCase(dtype, n, False, False, 128, registers)
        made = sm90_vocabulary.product_case(0, case, np.random.default_rng(n))
        source = made.kernel.source.replace("product0(", f"{name}(")
        yield PtxCase(name, replace(made.kernel, entry=name, source=source), made.inputs, made.expected, ("90a",))


FUNCTIONS = (table, between_blocks, barriers, copies, branches, narrow, extremes, unit, divided, sm90_table, sm90)
CASES: dict[str, PtxCase] = {c.name: c for cases in FUNCTIONS for c in cases()}
