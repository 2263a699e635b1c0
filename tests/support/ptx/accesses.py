"""Loads, stores, atomics, fences, and copies from global to shared memory."""

import numpy as np

from tests.support.ptx.arithmetic import only
from tests.support.ptx.memory import Space
from tests.support.ptx.syntax import BITS, Address, Constant, Instruction, Many, Name, Operand, PtxError
from tests.support.ptx.values import DTYPES, LANES, Array
from tests.support.ptx.warp import PARAMETERS, SHARED, Handler, Warp

CACHES = ("nc", "cs", "cg", "ca", "cv", "lu", "wb", "wt", "L1", "L2", "evict_first", "evict_last", "no_allocate")
SPACES = ("global", "shared", "shared::cta")
WIDE_SCOPES = ("gpu", "sys", "cluster")


def space_of(w: Warp, i: Instruction, addresses: Array, mask: Array) -> tuple[Space, Array]:
    """Resolves the memory that an instruction names, or its generic addresses do, and the addresses in it."""
    if "global" in i.words:
        return w.machine.memory, addresses
    if "shared" in i.words or "shared::cta" in i.words:
        return w.block.shared, addresses
    if (addresses[mask] >> np.uint64(32) == SHARED >> 32).all():
        return w.block.shared, addresses - np.uint64(SHARED)
    return w.machine.memory, addresses


def vector(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Many) else (operand,)


def checked(i: Instruction, vectors: int) -> None:
    """Raises PtxError for words that no access has, and for a list of another length than it says."""
    only(
        i,
        *CACHES,
        *SPACES,
        "param",
        "const",
        "volatile",
        "relaxed",
        "acquire",
        "release",
        "gpu",
        "cta",
        "sys",
        "cluster",
        "v2",
        "v4",
    )
    said = 4 if "v4" in i.words else 2 if "v2" in i.words else 1
    if said != vectors:
        raise PtxError(f"{vectors} registers")


def of_parameters(w: Warp, address: Operand) -> tuple[Array, int]:
    """Bytes [lane, byte] of the parameter that an address names, and where the address begins there."""
    if not isinstance(address, Address) or not isinstance(address.base, Name):
        raise PtxError("no parameter")
    name = address.base.name
    if name in w.machine.addresses and w.frame.function is w.machine.kernel:
        whole = np.broadcast_to(w.machine.parameters, (LANES, len(w.machine.parameters)))
        return whole, w.machine.addresses[name] - PARAMETERS + address.offset
    if name not in w.frame.variables:
        raise PtxError(f"no parameter {name}")
    return w.frame.variables[name], address.offset


def load(w: Warp, i: Instruction, mask: Array) -> None:
    to = vector(i.operands[0])
    checked(i, len(to))
    size = BITS[i.type] // 8
    if "param" in i.words:
        whole, at = of_parameters(w, i.operands[1])
        data = whole[:, at : at + len(to) * size]
    else:
        addresses = w.address(i.operands[1])
        space, addresses = space_of(w, i, addresses, mask)
        relaxed = any(word in i.words for word in ("volatile", "relaxed", "acquire"))
        data = np.zeros((LANES, len(to) * size), np.uint8)
        if "const" in i.words:
            space = w.machine.memory
        threads = w.threads[mask]
        data[mask] = space.read(addresses[mask], len(to) * size, threads, relaxed=relaxed)
        if relaxed:
            for thread, address in zip(threads, addresses[mask], strict=True):
                given = space.flags.get(int(address))
                if given is not None:
                    np.maximum(w.machine.clocks.heard[thread], given, out=w.machine.clocks.heard[thread])
                    if "acquire" in i.words and any(s in i.words for s in WIDE_SCOPES):
                        w.machine.clocks.acquire(int(thread), given)
            w.yields(mask)
    for k, register in enumerate(to):
        part = np.ascontiguousarray(data[:, k * size : (k + 1) * size]).view(DTYPES[i.type])[:, 0]
        w.set(register, part, mask)


def raw(w: Warp, operand: Operand, kind: str) -> Array:
    """Low bytes of a register: [lane, byte]."""
    return np.ascontiguousarray(w.get(operand, kind)).view(np.uint8).reshape(LANES, -1)


def store(w: Warp, i: Instruction, mask: Array) -> None:
    values = vector(i.operands[1])
    checked(i, len(values))
    data = np.concatenate([raw(w, v, i.type) for v in values], axis=1)
    if "param" in i.words:
        whole, at = of_parameters(w, i.operands[0])
        whole[mask, at : at + data.shape[1]] = data[mask]
        return
    addresses = w.address(i.operands[0])
    space, addresses = space_of(w, i, addresses, mask)
    relaxed = any(word in i.words for word in ("volatile", "relaxed", "release"))
    threads = w.threads[mask]
    space.write(addresses[mask], data[mask], threads, relaxed=relaxed)
    for thread, address in zip(threads, addresses[mask], strict=True):
        if relaxed:
            wide = "release" in i.words and any(s in i.words for s in WIDE_SCOPES)
            clocks = w.machine.clocks
            space.flags[int(address)] = clocks.release(int(thread)) if wide else clocks.given[thread].copy()
        else:
            space.flags.pop(int(address), None)


ATOMICS = frozenset("add min max exch and or xor cas inc dec".split())


def updated(name: str, old: Array, x: Array, other: Array) -> Array:
    """Values that an atomic operation leaves. other: the last operand, which cas alone looks at."""
    match name:
        case "add":
            return old + x
        case "min" | "max":
            return (np.minimum if name == "min" else np.maximum)(old, x)
        case "and" | "or" | "xor":
            return {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[name](old, x)
        case "cas":
            return np.where(old == x, other, old)
        case "inc":
            return np.where(old >= x, 0, old + 1)
        case "dec":
            return np.where((old == 0) | (old > x), x, old - 1)
        case _:
            return x


def atomic(w: Warp, i: Instruction, mask: Array) -> None:
    """atom, and red, which gives nothing: lane by lane."""
    names = [word for word in i.words[1:] if word in ATOMICS]
    if len(names) != 1:
        raise PtxError("unknown operation")
    only(i, *SPACES, *names, "relaxed", "acq_rel", "acquire", "release", "gpu", "cta", "sys", "cluster", "rn", "noftz")
    given = i.operands if i.words[0] == "red" else i.operands[1:]
    space, addresses = space_of(w, i, w.address(given[0]), mask)
    values = [w.get(o, i.type) for o in given[1:]]
    first, second = values[0], values[-1]
    clocks = w.machine.clocks
    strong = any(s in i.words for s in WIDE_SCOPES)
    result = np.zeros(LANES, DTYPES[i.type])
    for l in np.flatnonzero(mask):
        thread, place = w.threads[l : l + 1], addresses[l : l + 1]
        old = space.read(place, first.itemsize, thread, relaxed=True).view(first.dtype).reshape(-1)
        new = updated(names[0], old, first[l : l + 1], second[l : l + 1]).astype(first.dtype)
        heard = space.flags.get(int(place[0]))
        if heard is not None:
            np.maximum(clocks.heard[thread[0]], heard, out=clocks.heard[thread[0]])
            if strong and ("acq_rel" in i.words or "acquire" in i.words):
                clocks.acquire(int(thread[0]), heard)
        mine = clocks.given[thread[0]].copy()
        if strong and ("acq_rel" in i.words or "release" in i.words):
            mine = clocks.release(int(thread[0]))
        space.flags[int(place[0])] = mine if heard is None else np.maximum(mine, heard)
        space.write(place, new.view(np.uint8).reshape(1, -1), thread, relaxed=True)
        result[l] = old[0]
    if i.words[0] == "atom":
        w.set(i.operands[0], result, mask)
    w.yields(mask)


def fence(w: Warp, i: Instruction, mask: Array) -> None:
    """fence and membar. Scope .cta orders nothing between blocks, and nothing here."""
    if i.words[1:] == ("proxy", "async", "shared::cta"):
        for thread in w.threads[mask]:
            w.block.shared.fence_async(int(thread))
    elif i.words[1:] == ("mbarrier_init", "release", "cluster"):
        for barrier in w.block.mbarriers.values():
            barrier.announced |= barrier.maker in w.threads[mask]
    elif i.words[1:] in (("acq_rel", "gpu"), ("sc", "gpu"), ("acq_rel", "sys"), ("sc", "sys"), ("gl",), ("sys",)):
        for thread in w.threads[mask]:
            w.machine.clocks.fence(int(thread))
    elif i.words[1:] not in (("acq_rel", "cta"), ("sc", "cta"), ("cta",)):
        raise PtxError("unknown fence")


def address_conversion(w: Warp, i: Instruction, mask: Array) -> None:
    """cvta: global and parameters lie in generic addresses as they are."""
    only(i, "to", "global", "shared", "param")
    x = w.get(i.operands[1], i.type)
    if "shared" in i.words:
        x = x - np.uint64(SHARED) if "to" in i.words else x + np.uint64(SHARED)
    w.set(i.operands[0], x, mask)


def number(operand: Operand) -> int:
    """Raises PtxError for what is no constant."""
    if not isinstance(operand, Constant):
        raise PtxError(f"{operand} is no constant")
    return operand.value


def copy(w: Warp, i: Instruction, mask: Array) -> None:
    """cp.async: what a thread copies lands when it waits for the group."""
    if i.words[2:] == ("commit_group",):
        for l in np.flatnonzero(mask):
            w.groups[l].append(w.copies[l])
            w.copies[l] = []
        return
    if i.words[2:] in (("wait_group",), ("wait_all",)):
        everything = i.words[2] == "wait_all"
        for l in np.flatnonzero(mask):
            late = 0 if everything else number(i.operands[0])
            ready = w.groups[l][: len(w.groups[l]) - late] if late < len(w.groups[l]) else []
            w.groups[l] = w.groups[l][len(ready) :]
            if everything:
                ready, w.copies[l] = [*ready, w.copies[l]], []
            for land in (each for group in ready for each in group):
                land()
        return
    if i.words[2:] not in (
        ("ca", "shared", "global"),
        ("cg", "shared", "global"),
        ("ca", "shared::cta", "global"),
        ("cg", "shared::cta", "global"),
    ):
        raise PtxError("unknown copy")
    size = number(i.operands[2])
    if size not in ((16,) if "cg" in i.words else (4, 8, 16)):
        raise PtxError(f"copies {size} bytes")
    to, source = w.address(i.operands[0]), w.address(i.operands[1])
    there = w.get(i.operands[3], "u32") if len(i.operands) > 3 else np.full(LANES, size, np.uint32)
    if (there[mask] > size).any():
        raise PtxError(f"reads {int(there[mask].max())} bytes of {size}")
    for l in np.flatnonzero(mask):

        def land(l: int = int(l)) -> None:
            data = np.zeros((1, size), np.uint8)
            thread = w.threads[l : l + 1]
            if there[l]:
                data[:, : there[l]] = w.machine.memory.read(source[l : l + 1], int(there[l]), thread, alignment=size)
            w.block.shared.write(to[l : l + 1], data, thread)

        w.copies[l].append(land)


def accesses() -> dict[str, Handler]:
    return {
        "ld": load,
        "st": store,
        "atom": atomic,
        "red": atomic,
        "fence": fence,
        "membar": fence,
        "cvta": address_conversion,
    }
