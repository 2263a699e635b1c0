"""Arithmetic, logic and moves of registers."""

from collections.abc import Callable

import numpy as np

from tests.support.ptx.syntax import BITS, Instruction, Many, Pair, PtxError
from tests.support.ptx.values import (
    DTYPES,
    NAN_F32,
    UNSIGNED,
    Array,
    flushed,
    fma32,
    fma64,
    from_bf16,
    odd,
    sum_to_odd,
    to_bf16,
    to_f16,
    to_tf32,
)
from tests.support.ptx.warp import Handler, Warp

FLOATS = ("f32", "f64")


def only(i: Instruction, *words: str) -> None:
    """Raises PtxError where the opcode has a word besides these, its first one and types."""
    unknown = [w for w in i.words[1:] if w not in words and w not in BITS]
    if unknown:
        raise PtxError(f"unknown .{unknown[0]}")


def sources(w: Warp, i: Instruction, kind: str) -> list[Array]:
    """Operands behind the first, denormals flushed where it says .ftz."""
    found = [w.get(o, kind) for o in i.operands[1:]]
    return [flushed(x) for x in found] if "ftz" in i.words else found


def finish(w: Warp, i: Instruction, values: Array, mask: Array) -> None:
    """Writes the result: flushed where it says .ftz, between 0 and 1 where .sat."""
    if "ftz" in i.words:
        values = flushed(values)
    if "sat" in i.words:
        if values.dtype.kind != "f":
            raise PtxError("unknown .sat")
        values = np.where(np.isnan(values), 0, np.clip(values, 0, 1) + 0).astype(values.dtype)
    w.set(i.operands[0], values, mask)


def wrapped(kind: str, f: Callable[..., Array], *values: Array) -> Array:
    """Integers by unsigned arithmetic."""
    dtype = DTYPES[kind]
    unsigned = UNSIGNED[np.dtype(dtype).itemsize]
    return f(*(v.view(unsigned) for v in values)).astype(unsigned).view(dtype)


def add_sub(w: Warp, i: Instruction, mask: Array) -> None:
    only(i, "rn", "ftz", "sat")
    kind = i.type
    a, b = sources(w, i, kind)
    if kind in FLOATS:
        finish(w, i, a + b if i.words[0] == "add" else a - b, mask)
    else:
        finish(w, i, wrapped(kind, np.add if i.words[0] == "add" else np.subtract, a, b), mask)


def products(kind: str, a: Array, b: Array) -> tuple[Array, Array]:
    """Low and high halves."""
    bits = BITS[kind]
    exact = [int(x) * int(y) for x, y in zip(a, b, strict=True)]
    low, high = ([(p >> s) & (1 << bits) - 1 for p in exact] for s in (0, bits))
    unsigned = UNSIGNED[bits // 8]
    return np.array(low, unsigned).view(DTYPES[kind]), np.array(high, unsigned).view(DTYPES[kind])


def multiply(w: Warp, i: Instruction, mask: Array) -> None:
    """mul and mad."""
    only(i, "rn", "ftz", "sat", "lo", "hi", "wide")
    kind = i.type
    if kind in FLOATS:
        if i.words[0] != "mul":
            raise PtxError("mad of floats")
        a, b = sources(w, i, kind)
        finish(w, i, a * b, mask)
        return
    a, b = (w.get(o, kind) for o in i.operands[1:3])
    if "wide" in i.words:
        kind = f"{kind[0]}{2 * BITS[kind]}"
        wide_a: Array = a.astype(DTYPES[kind])
        result = wide_a * b.astype(DTYPES[kind])
    elif "hi" in i.words:
        result = products(kind, a, b)[1]
    elif "lo" in i.words:
        result = wrapped(kind, np.multiply, a, b)
    else:
        raise PtxError("neither .lo nor .hi nor .wide")
    if i.words[0] == "mad":
        result = wrapped(kind, np.add, result, w.get(i.operands[3], kind))
    w.set(i.operands[0], result, mask)


def fused(w: Warp, i: Instruction, mask: Array) -> None:
    only(i, "rn", "ftz", "sat")
    kind = i.type
    if kind in ("bf16x2", "f16x2"):
        if "sat" in i.words or "ftz" in i.words:
            raise PtxError("unknown modifier of pairs")
        words = [w.get(o, kind) for o in i.operands[1:]]
        halves: list[Array] = []
        for shift in (0, 16):
            parts = [(x >> shift & 0xFFFF).astype(np.uint16) for x in words]
            a, b, c = (from_bf16(p) if kind == "bf16x2" else p.view(np.float16).astype(np.float64) for p in parts)
            exact = sum_to_odd(a * b, c)
            halves.append((to_bf16 if kind == "bf16x2" else to_f16)(exact).astype(np.uint32))
        w.set(i.operands[0], halves[0] | halves[1] << 16, mask)
        return
    a, b, c = sources(w, i, kind)
    finish(w, i, (fma32 if kind == "f32" else fma64)(a, b, c), mask)


def divide(w: Warp, i: Instruction, mask: Array) -> None:
    """div and rem; by 0, integers give all ones."""
    only(i, "rn", "ftz")
    kind = i.type
    a, b = sources(w, i, kind)
    if kind in FLOATS:
        finish(w, i, a / b, mask)
        return
    remainder, found = i.words[0] == "rem", list[int]()
    for x, y in zip(map(int, a), map(int, b), strict=True):
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1
        found.append((x - quotient * y if remainder and y else quotient) & (1 << 64) - 1)
    w.set(i.operands[0], np.array(found, np.uint64).astype(UNSIGNED[a.itemsize]).view(a.dtype), mask)


def extreme(w: Warp, i: Instruction, mask: Array) -> None:
    """min and max: -0 is below +0; of a number and a NaN the number, or with .NaN the NaN."""
    only(i, "ftz", "NaN")
    kind = i.type
    a, b = sources(w, i, kind)
    least = i.words[0] == "min"
    if kind not in FLOATS:
        w.set(i.operands[0], (np.minimum if least else np.maximum)(a, b), mask)
        return
    first = np.where(a == b, np.signbit(a) == least, a < b if least else a > b)
    found = np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where(first, a, b))).astype(a.dtype)
    nan = np.isnan(a) | np.isnan(b) if "NaN" in i.words else np.isnan(a) & np.isnan(b)
    w.set(
        i.operands[0], np.where(nan, NAN_F32.view(np.float32) if kind == "f32" else np.nan, found).astype(a.dtype), mask
    )


def unary(w: Warp, i: Instruction, mask: Array) -> None:
    """abs, neg, not, sqrt and the approximations, which are rounded correctly here: no device does better."""
    name, kind = i.words[0], i.type
    [x] = sources(w, i, kind)
    if name == "not":
        only(i)
        w.set(i.operands[0], ~w.get(i.operands[1], "pred") if kind == "pred" else ~x, mask)
        return
    if name in ("abs", "neg"):
        only(i, "ftz")
        found = (
            (np.abs(x) if name == "abs" else -x)
            if kind in FLOATS
            else wrapped(kind, np.negative, x)
            if name == "neg"
            else np.abs(x)
        )
        finish(w, i, found, mask)
        return
    only(i, "rn", "approx", "ftz")
    exactly = "rn" in i.words and name in ("sqrt", "rcp")
    if exactly == ("approx" in i.words) or (not exactly and kind != "f32"):
        raise PtxError("unknown rounding")
    wide = x.astype(np.float64)
    found = {"ex2": lambda: np.exp2(wide), "rcp": lambda: 1 / wide, "lg2": lambda: np.log2(wide),
             "rsqrt": lambda: 1 / np.sqrt(wide), "sqrt": lambda: np.sqrt(wide)}[name]().astype(x.dtype)  # fmt: skip
    if "approx" in i.words and w.machine.unit_ulps:
        normal = np.isfinite(found) & (np.abs(found) > 2.0**-125)
        found = np.where(normal, found.view(np.int32) + w.machine.unit_ulps, found.view(np.int32)).view(np.float32)
    if kind == "f32":
        found = np.where(np.isnan(found), NAN_F32.view(np.float32), found).astype(np.float32)
    finish(w, i, found, mask)


def copy_sign(w: Warp, i: Instruction, mask: Array) -> None:
    """copysign: the sign of the first, the rest of the second."""
    only(i)
    a, b = sources(w, i, i.type)
    w.set(i.operands[0], np.copysign(b, a), mask)


def logic(w: Warp, i: Instruction, mask: Array) -> None:
    only(i)
    kind = i.type
    f = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[i.words[0]]
    w.set(i.operands[0], f(*sources(w, i, kind)), mask)


def shift(w: Warp, i: Instruction, mask: Array) -> None:
    """By any amount: beyond the width nothing is left, or the sign."""
    only(i)
    kind = i.type
    x, by = w.get(i.operands[1], kind), w.get(i.operands[2], "u32").astype(np.int64)
    bits = BITS[kind]
    inside = np.minimum(by, bits - 1).astype(x.dtype)
    if i.words[0] == "shl":
        found = np.where(by < bits, np.left_shift(x, inside), 0)
    else:
        found = np.right_shift(x, inside) if kind[0] == "s" else np.where(by < bits, np.right_shift(x, inside), 0)
    w.set(i.operands[0], found.astype(x.dtype), mask)


def funnel(w: Warp, i: Instruction, mask: Array) -> None:
    """shf: 32 bits of a pair of words."""
    only(i, "l", "r", "wrap", "clamp")
    low, high, by = (w.get(o, "u32").astype(np.uint64) for o in i.operands[1:])
    by = by & np.uint64(31) if "wrap" in i.words else np.minimum(by, np.uint64(32))
    both = high << np.uint64(32) | low
    found = both << by >> np.uint64(32) if "l" in i.words else both >> by
    w.set(i.operands[0], found.astype(np.uint32), mask)


def bit_field(w: Warp, i: Instruction, mask: Array) -> None:
    """bfe: `length` bits from `start` on, with the top one as the sign."""
    only(i)
    kind = i.type
    bits = BITS[kind]
    x, start, length = w.get(i.operands[1], kind), w.get(i.operands[2], "u32"), w.get(i.operands[3], "u32")
    found: list[int] = []
    for value, s, n in zip(map(int, x), map(int, start & 0xFF), map(int, length & 0xFF), strict=True):
        top = min(s + n - 1, bits - 1)
        sign = kind[0] == "s" and n > 0 and value >> top & 1
        part = (value & (1 << bits) - 1) >> s & (1 << n) - 1
        kept = max(min(n, bits - s), 0)
        found.append((part | (-1 << kept if sign else 0)) & (1 << bits) - 1)
    w.set(i.operands[0], np.array(found, UNSIGNED[bits // 8]).view(x.dtype), mask)


def permute(w: Warp, i: Instruction, mask: Array) -> None:
    """prmt: four of the eight bytes of b:a, or their signs."""
    only(i)
    a, b, choice = (w.get(o, "u32").astype(np.uint64) for o in i.operands[1:])
    both, found = b << np.uint64(32) | a, np.zeros(len(a), np.uint64)
    for k in range(4):
        chosen = choice >> np.uint64(4 * k) & np.uint64(15)
        byte = both >> (chosen & np.uint64(7)) * np.uint64(8) & np.uint64(255)
        byte = np.where(chosen & np.uint64(8), np.where(byte & np.uint64(128), 255, 0).astype(np.uint64), byte)
        found |= byte << np.uint64(8 * k)
    w.set(i.operands[0], found.astype(np.uint32), mask)


def table_of_three(w: Warp, i: Instruction, mask: Array) -> None:
    """lop3: bit 4 a + 2 b + c of the table."""
    only(i)
    a, b, c, table = (w.get(o, "u32") for o in i.operands[1:])
    found = np.zeros_like(a)
    for entry in range(8):
        picked = (a if entry & 4 else ~a) & (b if entry & 2 else ~b) & (c if entry & 1 else ~c)
        found |= np.where(table >> entry & 1, picked, 0).astype(np.uint32)
    w.set(i.operands[0], found, mask)


def count_bits(w: Warp, i: Instruction, mask: Array) -> None:
    only(i)
    x, bits = w.get(i.operands[1], i.type), BITS[i.type]
    ones = i.words[0] == "popc"
    found = [v.bit_count() if ones else bits - v.bit_length() for v in map(int, x)]
    w.set(i.operands[0], np.array(found, np.uint32), mask)


def compare(w: Warp, i: Instruction, mask: Array) -> None:
    """setp, with another predicate joined to it by and, or, xor."""
    kind = i.type
    name = i.words[1]
    a, b = (w.get(o, kind) for o in i.operands[1:3])
    if "ftz" in i.words:
        a, b = flushed(a), flushed(b)
    unordered = (np.isnan(a) | np.isnan(b)) if kind in FLOATS else np.zeros(len(a), bool)
    plain = {"eq": a == b, "ne": (a != b) & ~unordered, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    named = plain | {"lo": a < b, "ls": a <= b, "hi": a > b, "hs": a >= b, "num": ~unordered, "nan": unordered}
    named |= {f"{n}u": v | unordered for n, v in plain.items()}
    if name not in named:
        raise PtxError(f"unknown .{name}")
    found = named[name]
    joined = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.get(i.words[2])
    only(i, name, "ftz", *(("and", "or", "xor") if joined else ()))
    other = w.get(i.operands[3], "pred") if joined else np.ones(len(a), bool)
    results = (found, ~found) if joined is None else (joined(found, other), joined(~found, other))
    first = i.operands[0]
    for register, value in zip(first if isinstance(first, Pair) else (first,), results, strict=False):
        w.set(register, value, mask)


def select(w: Warp, i: Instruction, mask: Array) -> None:
    only(i)
    a, b = (w.get(o, i.type) for o in i.operands[1:3])
    w.set(i.operands[0], np.where(w.get(i.operands[3], "pred"), a, b).astype(a.dtype), mask)


def move(w: Warp, i: Instruction, mask: Array) -> None:
    """mov, which also packs and unpacks."""
    only(i)
    kind = i.type
    to, source = i.operands
    if isinstance(to, Many):
        part = BITS[kind] // len(to.items)
        x = w.get(source, f"b{BITS[kind]}").astype(np.uint64)
        for k, register in enumerate(to.items):
            w.set(register, (x >> np.uint64(part * k)).astype(UNSIGNED[part // 8]), mask)
    elif isinstance(source, Many):
        part = BITS[kind] // len(source.items)
        bits = [w.get(o, f"b{part}").astype(np.uint64) << np.uint64(part * k) for k, o in enumerate(source.items)]
        w.set(to, np.bitwise_or.reduce(bits).astype(UNSIGNED[BITS[kind] // 8]), mask)
    else:
        w.set(to, w.get(source, kind), mask)


def convert(w: Warp, i: Instruction, mask: Array) -> None:
    """cvt between integers and floats; pairs of narrow floats, the first operand in the upper half."""
    kinds = [word for word in i.words if word in BITS]
    if len(kinds) != 2:
        raise PtxError("not two types")
    to, source = kinds
    roundings = [word for word in i.words[1:] if word not in BITS]
    if to in ("bf16x2", "f16x2") and roundings == ["rn"]:
        high, low = (
            (to_bf16 if to == "bf16x2" else to_f16)(w.get(o, "f32").astype(np.float64)) for o in i.operands[1:]
        )
        w.set(i.operands[0], high.astype(np.uint32) << 16 | low, mask)
        return
    x = w.get(i.operands[1], source)
    if to == "tf32" and source == "f32" and roundings == ["rna"]:
        w.set(i.operands[0], to_tf32(x), mask)
        return
    if "ftz" in roundings:
        x = flushed(x)
        roundings.remove("ftz")
    floats = ("f16", "bf16", *FLOATS)
    dtype = np.dtype(DTYPES[to])
    if to in floats and source in floats:
        if roundings == ["rni"] or roundings == ["rmi"] or roundings == ["rpi"] or roundings == ["rzi"]:
            f = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}[roundings[0]]
            found = f(x).astype(dtype)
        elif (dtype.itemsize < x.itemsize) != (roundings == ["rn"]):
            raise PtxError("unknown rounding")
        elif to in ("f16", "bf16"):
            found = (to_bf16 if to == "bf16" else to_f16)(x.astype(np.float64)).view(dtype)
        else:
            found = (from_bf16(x.view(np.uint16)) if source == "bf16" else x).astype(dtype)
    elif to in floats:
        if roundings != ["rn"] or to == "bf16":
            raise PtxError("unknown rounding")
        exact = x.astype(np.float64)
        if source in ("s64", "u64") and to != "f64":  # through f64, rounded to odd
            rest = [int(v) - int(e) for v, e in zip(x, exact, strict=True)]
            exact = odd(exact, np.array(rest, np.float64))
        found = exact.astype(dtype)
    elif source in floats:
        f = {"rni": np.rint, "rmi": np.floor, "rpi": np.ceil, "rzi": np.trunc}.get(roundings[0] if roundings else "")
        if f is None or len(roundings) > 1:
            raise PtxError("unknown rounding")
        info = np.iinfo(to.replace("s", "int").replace("u", "uint"))
        whole = f(x.astype(np.float64))
        numbers = [0 if v != v else int(min(max(v, float(info.min)), float(info.max) * 1.5)) for v in map(float, whole)]
        found = np.array([min(max(n, info.min), info.max) for n in numbers], dtype)
    elif roundings:
        raise PtxError(f"unknown .{roundings[0]}")
    else:
        found = x.astype(dtype)
    w.set(i.operands[0], found, mask)


def arithmetic() -> dict[str, Handler]:
    return {
        "add": add_sub, "sub": add_sub, "mul": multiply, "mad": multiply, "fma": fused, "div": divide, "rem": divide,
        "min": extreme, "max": extreme, **dict.fromkeys("abs neg not sqrt ex2 rcp lg2 rsqrt".split(), unary),
        "and": logic, "or": logic, "xor": logic, "shl": shift, "shr": shift, "shf": funnel, "bfe": bit_field,
        "prmt": permute, "lop3": table_of_three, "popc": count_bits, "clz": count_bits, "setp": compare,
        "selp": select, "copysign": copy_sign, "mov": move, "cvt": convert,
    }  # fmt: skip
