"""Every function of device_cuda.cuh in the emulator, against what it means in numpy, on several orders of threads."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from codegen.kernel import Kernel, Launch
from codegen.launch.emulator import Emulation, run_arrays
from testing.emulated_kernels import build
from testing.vec_harness import CTYPE

Array = np.ndarray[Any, Any]
LANES = np.arange(32)
EXCHANGED = {"u8": np.uint8, "i16": np.int16, "i32": np.int32, "f32": np.float32, "i64": np.int64, "f64": np.float64}
FLOAT16 = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Case:
    """A kernel of one block: its body reads in0, in1, ..., writes out0 and knows `i`, the thread. expected: of the
    inputs."""

    name: str
    body: str
    inputs: tuple[tuple[str, Array], ...]  # C++ type and values
    result: str
    expected: Callable[..., Array]
    threads: int = 64
    shared_bytes: int = 8192

    def kernel(self) -> Kernel:
        params = ", ".join(f"const {t}* RESTRICT in{k}" for k, (t, _) in enumerate(self.inputs))
        source = (
            f'extern "C" __global__ void __launch_bounds__({self.threads}) k_{self.name}({params}, '
            f"{self.result}* RESTRICT out0) {{\n"
            f"  SHARED_MEMORY(shared);\n  const int i = threadIdx.x;\n{self.body}\n}}\n"
        )
        launch = Launch((1, 1, 1), (self.threads, 1, 1), self.shared_bytes)
        return Kernel(f"k_{self.name}", source, "cuda", "test", self.name, launch)


def values(dtype: type, *shape: int, seed: int = 3) -> Array:
    """Any bits for integers; floats without special values."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def by_warp(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: np.concatenate([f(w) for w in x.reshape(-1, 32)])


def exchanges() -> list[Case]:
    found: list[Case] = []
    for name, dtype in EXCHANGED.items():
        t, x = CTYPE[name], values(dtype, 64)
        moves: dict[str, Array] = {
            "shuffle_xor(x, 5)": LANES ^ 5,
            "shuffle_down(x, 7)": np.where(LANES + 7 < 32, LANES + 7, LANES),
            "shuffle_up(x, 3)": np.where(LANES >= 3, LANES - 3, LANES),
            "shuffle_from(x, i * 11 + 2)": (LANES * 11 + 2) % 32,
        }
        for k, (call, lanes) in enumerate(moves.items()):
            body = f"  const {t} x = read(in0 + i);\n  write(out0 + i, ({t}){call});"
            found.append(Case(f"{name}_{k}", body, ((t, x),), t, by_warp(lambda w, lanes=lanes: w[lanes])))
    halves = "  write(out0 + i, shuffle_xor(read(in0 + i), 1, i % 32 < 16 ? 0xffffu : 0xffff0000u));"
    found.append(
        Case("half_warps", halves, (("float", values(np.float32, 64)),), "float", by_warp(lambda w: w[LANES ^ 1]))
    )
    return found


def votes() -> list[Case]:
    x = values(np.int32, 64) % 5
    x[32:] = 1
    cases = {
        "ballot": (
            "(int)vote_ballot(x > 0)",
            lambda w: np.full(32, np.packbits(w > 0, bitorder="little").view(np.int32)[0]),
        ),
        "any": ("(int)vote_any(x < 0)", lambda w: np.full(32, (w < 0).any())),
        "all": ("(int)vote_all(x > 0)", lambda w: np.full(32, (w > 0).all())),
    }
    return [
        Case(name, f"  const int x = read(in0 + i);\n  write(out0 + i, {call});", (("int", x),), "int",
             by_warp(lambda w, f=f: f(w).astype(np.int32)))
        for name, (call, f) in cases.items()
    ]  # fmt: skip


def atomics() -> list[Case]:
    found: list[Case] = []
    for name, dtype in {
        "i32": np.int32,
        "f32": np.float32,
        "u32": np.uint32,
        "f64": np.float64,
        "i64": np.int64,
    }.items():
        t = {"u32": "uint32_t"}.get(name) or CTYPE[name]
        x = (values(np.int32, 64) % 100).astype(dtype)
        for op, f in {"add": lambda v: v.sum(dtype=v.dtype), "max": np.max, "min": np.min}.items():
            if op != "add" and name == "i64":
                continue
            body = (
                f"  {t}* const place = ({t}*)shared;\n  if (i == 0) shared_store(place, splat<1>(read(in0)));\n"
                f"  block_barrier();\n  if (i) atomic_{op}(place, read(in0 + i));\n  block_barrier();\n"
                f"  if (i == 0) store<1, 1>(out0, shared_load<{t}, 1>(place));"
            )
            found.append(Case(f"atomic_{op}_{name}", body, ((t, x),), t, lambda v, f=f: np.array([f(v)])))
    return found


def copies() -> list[Case]:
    found: list[Case] = []
    for size in (4, 8, 16):
        body = (
            f"  copy_async<{size}>(shared_address(shared + i * {size}), in0 + i * {size}, i % 3 != 1);\n"
            f"  copy_async_commit();\n  copy_async_wait<0>();\n  block_barrier();\n"
            f"  const int other = 63 - i;\n"
            f"  for (int b = 0; b < {size}; b++)\n"
            f"    store<1, 1>(out0 + i * {size} + b, shared_load<uint8_t, 1>((uint8_t*)shared + other * {size} + b));"
        )

        def expected(x: Array, size: int = size) -> Array:
            rows = x.reshape(64, size).copy()
            rows[np.arange(64) % 3 == 1] = 0
            return rows[::-1].reshape(-1)

        found.append(Case(f"copy_{size}", body, (("uint8_t", values(np.uint8, 64 * size)),), "uint8_t", expected))
    for t, width in (("uint8_t", 16), ("float", 4), ("double", 2), ("uint16_t", 4), ("uint8_t", 2), ("int", 1)):
        body = (
            f"  {t}* const place = ({t}*)shared;\n"
            f"  shared_store(place + i * {width}, load<{width}, {width}>(in0 + i * {width}));\n"
            f"  block_barrier();\n"
            f"  store<{width}, {width}>(out0 + i * {width}, shared_load<{t}, {width}>(place + (i ^ 33) * {width}));"
        )
        dtype = np.dtype({"float": "f4", "double": "f8", "int": "i4"}.get(t) or t[:-2]).type
        x = values(dtype, 64 * width)
        found.append(
            Case(
                f"shared_{t}_{width}",
                body,
                ((t, x),),
                t,
                lambda x, width=width: x.reshape(64, width)[np.arange(64) ^ 33].reshape(-1),
            )
        )
    return found  # fmt: skip


def matrices() -> list[Case]:
    """ldmatrix: rows at addresses in any order; every lane's registers are written out."""
    found: list[Case] = []
    order = np.random.default_rng(1).permutation(32).astype(np.int32)
    x = values(np.int16, 32, 8)
    for count in (2, 4):
        for transposed in (False, True):
            name = f"load_matrix_x{count}{'_transposed' if transposed else ''}"
            body = (
                f"  short* const rows = (short*)shared;\n"
                f"  shared_store(rows + i * 8, load<8, 8>(in0 + i * 8));\n  warp_barrier();\n"
                f"  uint32_t r[{count}];\n  {name}(r, shared_address(rows + read(in1 + i) * 8));\n"
                f"  for (int q = 0; q < {count}; q++) write(out0 + i * {count} + q, r[q]);"
            )

            def expected(x: Array, order: Array, count: int = count, transposed: bool = transposed) -> Array:
                given = x[order].reshape(4, 8, 8)[:count]
                given = given.transpose(0, 2, 1) if transposed else given
                return np.ascontiguousarray(given).view(np.uint32).reshape(count, 32).T.reshape(-1)

            inputs = (("short", x), ("int", order))
            found.append(Case(name, body, inputs, "uint32_t", expected, threads=32))
    return found


def products() -> list[Case]:
    """mma: fragments are read as the PTX manual lays them out. Small integers: sums are exact."""
    found: list[Case] = []
    load_floats = (
        "  float d[4];\n  for (int r = 0; r < 4; r++) d[r] = read(in2 + (i / 4 + r / 2 * 8) * 8 + i % 4 * 2 + r % 2);\n"
    )
    store = "  for (int r = 0; r < 4; r++) write(out0 + (i / 4 + r / 2 * 8) * 8 + i % 4 * 2 + r % 2, d[r]);"

    def fragments(k: int, per: int) -> str:
        """Registers of `per` neighbours along K."""
        return (
            f"  uint32_t a[4], b[2];\n"
            f"  for (int r = 0; r < 4; r++)\n"
            f"    a[r] = read((const uint32_t*)in0 + (i / 4 + r % 2 * 8) * {k // per} + r / 2 * 4 + i % 4);\n"
            f"  for (int r = 0; r < 2; r++) b[r] = read((const uint32_t*)in1 + i / 4 * {k // per} + r * 4 + i % 4);\n"
        )

    def expected(a: Array, b: Array, c: Array) -> Array:
        return (c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T).astype(c.dtype)

    def operands(dtype: Any, k: int) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng(k)
        out = np.int32 if dtype == np.int8 else np.float32
        return (
            rng.integers(-8, 9, (16, k)).astype(dtype),
            rng.integers(-8, 9, (8, k)).astype(dtype),
            rng.integers(-99, 99, (16, 8)).astype(out),
        )

    for name, dtype in FLOAT16.items():
        a, b, c = operands(dtype, 16)
        body = fragments(16, 2) + load_floats + f"  mma_16x8x16<{name}>(d, a, b[0], b[1]);\n" + store
        found.append(Case(f"mma_{name}", body, ((name, a), (name, b), ("float", c)), "float", expected, threads=32))
    a, b, c = operands(np.float32, 8)
    body = fragments(8, 1) + load_floats + "  mma_16x8x8_tf32(d, a, b[0], b[1]);\n" + store
    found.append(Case("mma_tf32", body, (("float", a), ("float", b), ("float", c)), "float", expected, threads=32))
    a, b, c = operands(np.int8, 32)
    body = fragments(32, 4) + load_floats.replace("float", "int") + "  mma_16x8x32_s8(d, a, b[0], b[1]);\n" + store
    found.append(Case("mma_s8", body, (("int8_t", a), ("int8_t", b), ("int", c)), "int", expected, threads=32))
    return found


def rounding() -> list[Case]:
    x = values(np.float32, 64) * np.float32(3e5)
    x[:4] = [1 + 2.0**-11, -1 - 2.0**-11, np.inf, 65504.0]

    def expected(x: Array) -> Array:
        """Ties away from zero at 10 bits of mantissa."""
        finite = np.where(np.isfinite(x), x, 0).astype(np.float64)
        mantissa, exponent = np.frexp(finite)
        rounded = np.ldexp(np.sign(mantissa) * np.floor(np.abs(mantissa) * 2048 + 0.5), exponent - 11)
        return np.where(np.isfinite(x), rounded, x).astype(np.float32)

    body = "  write(out0 + i, core::as<float>(tf32(read(in0 + i))));"
    return [Case("tf32", body, (("float", x),), "float", expected)]


def flags() -> list[Case]:
    """Words that a thread releases and its neighbour acquires, waiting for them where it is the later one."""
    found: list[Case] = []
    for name, dtype in {"i32": np.int32, "f32": np.float32, "i64": np.int64}.items():
        t, x = CTYPE[name], np.abs(values(dtype, 64)) + dtype(1)
        body = (
            f"  write(out0 + i, ({t})0);\n  block_barrier();\n"
            "  if (i % 32 == 0) store_release(out0 + i, read(in0 + i));\n"
            "  else if (i % 32 == 1)\n"
            f"    store_release(out0 + i, wait_until(out0 + i - 1, []({t} y) {{ return y != 0; }}));\n"
            "  block_barrier();\n"
            f"  const {t} y = load_acquire(out0 + i / 32 * 32 + 1);\n  block_barrier();\n"
            f"  if (i % 32 > 1) store_release(out0 + i, ({t})(y + read(in0 + i)));"
        )
        found.append(
            Case(
                f"flags_{name}",
                body,
                ((t, x),),
                t,
                by_warp(lambda w: np.where(LANES > 1, w[0] + w, w[0]).astype(w.dtype)),
            )
        )
    return found


TOPICS = (exchanges, votes, atomics, copies, matrices, products, rounding, flags)
CASES = {c.name: c for topic in TOPICS for c in topic()}


@lru_cache(maxsize=1)
def emulations() -> dict[str, Emulation]:
    return {e.entry: e for e in build([c.kernel() for c in CASES.values()])}


@pytest.mark.parametrize("name", CASES)
def test_function_does_what_it_means(name: str) -> None:
    case = CASES[name]
    arrays = [a for _, a in case.inputs]
    expected = np.ascontiguousarray(case.expected(*arrays))
    for seed in range(5):
        out = np.full_like(expected, 77)
        run_arrays(emulations()[f"k_{name}"], arrays, [out], seed=seed)
        np.testing.assert_array_equal(out, expected.reshape(out.shape))
