"""Barriers in shared memory, boxes of tensors, clusters, registers of a warp group: sm_90."""

from dataclasses import dataclass, field
from itertools import product

import numpy as np

from tests.support.ptx.accesses import copy, number
from tests.support.ptx.syntax import Address, Instruction, PtxError
from tests.support.ptx.values import LANES, Array
from tests.support.ptx.warp import Block, Handler, TensorMap, Warp
from tests.support.ptx.warps import words

RANK_BIT = 24  # of an address of shared::cluster: the block's rank, plus 1; 0: the own block


@dataclass
class MemoryBarrier:
    """An mbarrier object. phase: how many are over. announced: whether copies and other blocks may know of it."""

    count: int
    maker: int
    pending: int
    bytes: int = 0
    phase: int = 0
    announced: bool = False
    gathered: list[Array] = field(default_factory=list[Array])
    over: Array | None = None

    def settle(self) -> None:
        """Ends the phase when all have come. Raises PtxError where more come than it takes."""
        if self.pending < 0:
            raise PtxError(f"more arrivals than {self.count} in a phase")
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            if self.gathered:
                self.over = np.maximum.reduce(self.gathered)


def barrier_at(block: Block, address: int, *, from_outside: bool = False) -> MemoryBarrier:
    if address not in block.mbarriers:
        raise PtxError(f"no barrier at {address:#x} of block {block.index}")
    found: MemoryBarrier = block.mbarriers[address]
    if from_outside and not found.announced:
        raise PtxError("a barrier that no fence.mbarrier_init announced")
    return found


def memory_barrier(w: Warp, i: Instruction, mask: Array) -> None:
    form = words(
        i, ("init", "shared::cta", "b64"), ("arrive", "shared::cta", "b64"), ("arrive", "shared::cluster", "b64"),
        ("arrive", "expect_tx", "shared::cta", "b64"), ("try_wait", "parity", "shared::cta", "b64"),
    )  # fmt: skip
    if form[0] == "init":
        addresses, counts = w.address(i.operands[0]), w.get(i.operands[1], "u32")
        for l in np.flatnonzero(mask):
            w.block.shared.places(addresses[l : l + 1], 8, 8)
            if not 0 < counts[l] < 1 << 20:
                raise PtxError(f"{int(counts[l])} arrivals")
            w.block.mbarriers[int(addresses[l])] = MemoryBarrier(int(counts[l]), int(w.threads[l]), int(counts[l]))
        return
    addresses = w.address(i.operands[1])
    if form[0] == "arrive":
        bytes_ = w.get(i.operands[2], "u32") if "expect_tx" in form else np.zeros(LANES, np.uint32)
        for l in np.flatnonzero(mask):
            block, address = w.block, int(addresses[l])
            outside = "shared::cluster" in form and address >> RANK_BIT != 0
            if outside:
                block = w.block.cluster.blocks[(address >> RANK_BIT) - 1]
                address &= (1 << RANK_BIT) - 1
            found = barrier_at(block, address, from_outside=outside and block is not w.block)
            found.bytes += int(bytes_[l])
            found.pending -= 1
            found.gathered.append(w.machine.clocks.release(int(w.threads[l])))
            found.settle()
        return
    parity = w.get(i.operands[2], "u32")
    over = np.zeros(LANES, bool)
    for l in np.flatnonzero(mask):
        found = barrier_at(w.block, int(addresses[l]))
        if parity[l] > 1:
            raise PtxError(f"parity {int(parity[l])}")
        over[l] = found.phase & 1 != parity[l]
        if over[l] and found.over is not None:
            w.machine.clocks.acquire(int(w.threads[l]), found.over)
    w.set(i.operands[0], over, mask)
    w.yields(mask & ~over)


def map_address(w: Warp, i: Instruction, mask: Array) -> None:
    words(i, ("shared::cluster", "u32"))
    address, rank = w.get(i.operands[1], "u32"), w.get(i.operands[2], "u32")
    if (rank[mask] >= len(w.block.cluster.blocks)).any():
        raise PtxError(f"block {int(rank[mask].max())} of a cluster of {len(w.block.cluster.blocks)}")
    w.set(i.operands[0], address | rank + np.uint32(1) << np.uint32(RANK_BIT), mask)


def box_of(tensor_map: TensorMap, at: tuple[int, ...]) -> Array:
    """Bytes [row of the box, byte]: zeros outside of the tensor. at: innermost first."""
    size = tensor_map.element_bytes
    memory = np.ascontiguousarray(tensor_map.tensor).view(np.uint8).reshape(-1)
    rows = list(product(*(range(n) for n in reversed(tensor_map.box[1:]))))
    found = np.zeros((len(rows), tensor_map.box[0] * size), np.uint8)
    first, last = max(at[0], 0), min(at[0] + tensor_map.box[0], tensor_map.sizes[0])
    for r, row in enumerate(rows):
        where = [a + n for a, n in zip(at[1:], reversed(row), strict=True)]
        if first < last and all(0 <= x < n for x, n in zip(where, tensor_map.sizes[1:], strict=True)):
            start = sum(x * s for x, s in zip(where, tensor_map.strides_bytes, strict=True))
            part = memory[start + first * size : start + last * size]
            found[r, (first - at[0]) * size : (first - at[0]) * size + len(part)] = part
    return found


def swizzled(addresses: Array, swizzle: int) -> Array:
    """Where a byte lies: bits 4 to 6 of its address are mixed with bits 7 to 9, as many as the swizzle says."""
    return addresses ^ (addresses >> 7 & swizzle // 16 - 1) << 4 if swizzle else addresses


def copy_box(w: Warp, i: Instruction, mask: Array) -> None:
    """cp.async.bulk.tensor: lands when nobody else can go on."""
    rank = i.words[4]
    form = ("shared::cluster", "global", "tile", "mbarrier::complete_tx::bytes")
    words(i, *(("async", "bulk", "tensor", rank, *form, *m) for m in ((), ("multicast::cluster",))))
    to, source, barrier = i.operands[:3]
    if not isinstance(source, Address):
        raise PtxError("no coordinates")
    if f"{len(source.coordinates)}d" != rank:
        raise PtxError(f"{len(source.coordinates)} coordinates")
    places, maps, barriers = w.address(to), w.get(source.base, "u64"), w.address(barrier)
    coordinates = [w.get(c, "s32") for c in source.coordinates]
    chosen = w.get(i.operands[3], "u16") if "multicast::cluster" in i.words else None
    for l in np.flatnonzero(mask):
        tensor_map = w.machine.maps.get(int(maps[l]))
        if tensor_map is None:
            raise PtxError(f"no tensor map at {int(maps[l]):#x}")
        if len(tensor_map.box) != len(coordinates):
            raise PtxError(f"a tensor of {len(tensor_map.box)} axes")
        at = tuple(int(c[l]) for c in coordinates)
        if at[0] * tensor_map.element_bytes % 16:
            raise PtxError(f"a box from element {at[0]} of a row")
        place = int(places[l])
        if place % 128:
            raise PtxError(f"a box to {place:#x}")
        blocks = (
            [w.block] if chosen is None else [b for k, b in enumerate(w.block.cluster.blocks) if chosen[l] >> k & 1]
        )
        if not blocks or (chosen is not None and int(chosen[l]) >> len(w.block.cluster.blocks)):
            raise PtxError(f"a mask of {int(chosen[l]) if chosen is not None else 0:#x}")
        for block in blocks:
            barrier_at(block, int(barriers[l]), from_outside=True)

            def land(
                block: Block = block,
                l: int = int(l),
                m: TensorMap = tensor_map,
                at: tuple[int, ...] = at,
                place: int = place,
            ) -> None:
                data = box_of(m, at).reshape(-1)
                addresses = np.array([place], np.uint64)
                block.shared.places(addresses, data.size, 128)
                block.shared.copied(swizzled(place + np.arange(data.size), m.swizzle), data)
                found = barrier_at(block, int(barriers[l]))
                found.bytes -= data.size
                found.settle()

            w.machine.landing.append(land)


def copies(w: Warp, i: Instruction, mask: Array) -> None:
    (copy_box if i.words[1:4] == ("async", "bulk", "tensor") else copy)(w, i, mask)


def prefetch(w: Warp, i: Instruction, mask: Array) -> None:
    words(i, ("tensormap",))
    for address in w.address(i.operands[0])[mask]:
        if int(address) not in w.machine.maps:
            raise PtxError(f"no tensor map at {int(address):#x}")


def change_registers(w: Warp, i: Instruction, mask: Array) -> Array:
    """setmaxnreg: a warp's number of registers a thread, in steps of 8."""
    direction = words(i, ("dec", "sync", "aligned", "u32"), ("inc", "sync", "aligned", "u32"))[0]
    ready = w.meet_all(mask)
    if ready.any():
        new = number(i.operands[0])
        if new % 8 or not 24 <= new <= 256 or (new > w.registers if direction == "dec" else new < w.registers):
            raise PtxError(f"{new} registers, after {w.registers}")
        w.registers = new
    return ready


def sm90() -> dict[str, Handler]:
    return {
        "mbarrier": memory_barrier,
        "mapa": map_address,
        "cp": copies,
        "prefetch": prefetch,
        "setmaxnreg": change_registers,
    }
