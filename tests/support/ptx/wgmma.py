"""Products of warp groups: wgmma, done when a warp waits for them."""

from dataclasses import dataclass

import numpy as np

from tests.support.ptx.accesses import number
from tests.support.ptx.sm90 import swizzled
from tests.support.ptx.syntax import Instruction, Many, Operand, PtxError, Register, Single
from tests.support.ptx.values import LANES, Array
from tests.support.ptx.warp import Frame, Handler, Warp
from tests.support.ptx.warps import GROUP, MEMBER, elements, first_operand, operand_list, words

SWIZZLES = {1: 128, 2: 64, 3: 32}


@dataclass(frozen=True)
class Product:
    """A wgmma under way: registers stay those of the warp, and are read and written in the end."""

    frame: Frame
    sums: tuple[Single, ...]
    a: int | tuple[Single, ...]
    b: int
    adds: bool
    signs: tuple[int, int]
    across: tuple[bool, bool]
    kind: str


def operand_at(w: Warp, descriptor: int, rows: range, across: bool, kind: str) -> Array:
    """Rows of an operand [row, 16] in shared memory. across: rows lie side by side, else the 16 do.
    Raises PtxError for a layout that is none, and for what was written and not fenced."""
    address, leading, stride = ((descriptor >> s & 0x3FFF) << 4 for s in (0, 16, 32))
    swizzle = SWIZZLES.get(descriptor >> 62)
    if swizzle is None or descriptor >> 49 & 7:
        raise PtxError(f"descriptor {descriptor:#x}")
    i, k = np.meshgrid(np.array(rows), np.arange(16), indexing="ij")
    run = swizzle // 2
    if across:
        at = i // run * leading + k // 8 * stride + k % 8 * swizzle + i % run * 2
    else:
        at = i // 8 * stride + i % 8 * swizzle + k * 2
    at = swizzled(address + at, swizzle)
    shared = w.block.shared
    found = shared.places(at.reshape(-1).astype(np.uint64), 2, 2)
    shared.by_copies(found.reshape(-1))
    bits = shared.bytes[found].view(np.uint16).reshape(at.shape)
    if kind == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.view(np.float16).astype(np.float64)


def finish(w: Warp, p: Product) -> None:
    """Computes the 16 rows of this warp."""
    frame, w.frame = w.frame, p.frame
    first = w.first // LANES % 4 * 16
    if isinstance(p.a, int):
        a = operand_at(w, p.a, range(first, first + 16), p.across[0], p.kind)
    else:
        a = first_operand(elements(w, p.a, p.kind))
    columns = len(p.sums) * 2
    b = operand_at(w, p.b, range(columns), p.across[1], p.kind)
    exact = (p.signs[0] * a) @ (p.signs[1] * b).T
    everyone = np.ones(LANES, bool)
    for r, to in enumerate(p.sums):
        part = exact[GROUP + r % 4 // 2 * 8, r // 4 * 8 + MEMBER * 2 + r % 2]
        if p.adds:
            part = part + w.get(to, "f32").astype(np.float64)
        w.set(to, part.astype(np.float32), everyone)
    w.frame = frame


def descriptor(w: Warp, operand: Operand) -> int:
    values = w.get(operand, "b64")
    if (values != values[0]).any():
        raise PtxError("descriptors of lanes differ")
    return int(values[0])


def choice(operand: Operand, *allowed: int) -> int:
    value = number(operand)
    if value not in allowed:
        raise PtxError(f"{value} is none of {allowed}")
    return value


def issue(w: Warp, i: Instruction) -> None:
    """Adds a product to those that the next commit takes."""
    if not w.fenced:
        raise PtxError("no wgmma.fence before")
    shape, *kinds = i.words[4:]
    columns = int(shape.removeprefix("m64n").removesuffix("k16"))
    words(i, *(("mma_async", "sync", "aligned", f"m64n{columns}k16", "f32", t, t) for t in ("f16", "bf16")))
    if not 8 <= columns <= 256 or columns % 8:
        raise PtxError(f"{columns} columns")
    operands = list(i.operands)
    sums, a = operand_list(operands[0], columns // 2), operands[1]
    if len({s.slot for s in sums if isinstance(s, Register)}) != len(sums):
        raise PtxError("registers of the sums repeat")
    registers = operand_list(a, 4) if isinstance(a, Many) else None
    adds = w.get(operands[3], "pred")
    signs = (choice(operands[4], 1, -1), choice(operands[5], 1, -1))
    across = [bool(choice(o, 0, 1)) for o in operands[6:]]
    if len(across) != (1 if registers else 2) or (adds != adds[0]).any():
        raise PtxError("operands")
    both = (False, across[0]) if registers else (across[0], across[1])
    left = registers if registers else descriptor(w, a)
    w.products.append(Product(w.frame, sums, left, descriptor(w, operands[2]), bool(adds[0]), signs, both, kinds[1]))


def warp_group(w: Warp, i: Instruction, mask: Array) -> Array:
    """wgmma. Warps of a group go on by themselves: each has rows of its own."""
    ready = w.meet_all(mask)
    if not ready.any():
        return ready
    if not ready.all() or w.machine.threads % 128:
        raise PtxError("threads of the warp group are missing")
    if i.words[1] == "mma_async":
        issue(w, i)
    elif (
        words(i, ("fence", "sync", "aligned"), ("commit_group", "sync", "aligned"), ("wait_group", "sync", "aligned"))[
            0
        ]
        == "fence"
    ):
        w.fenced = True
    elif i.words[1] == "commit_group":
        w.product_groups.append(w.products)
        w.products = []
    else:
        late = number(i.operands[0])
        while len(w.product_groups) > late:
            for product in w.product_groups.pop(0):
                finish(w, product)
        w.fenced = False
    return ready


def products() -> dict[str, Handler]:
    return {"wgmma": warp_group}
