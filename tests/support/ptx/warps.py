"""Instructions of whole warps and blocks: exchange, votes, barriers, matrices."""

import numpy as np

from tests.support.ptx.syntax import Instruction, Many, Operand, Pair, PtxError, Single
from tests.support.ptx.values import LANES, Array
from tests.support.ptx.warp import BLOCKED, RUNS, Arrivals, Handler, Warp

LANE = np.arange(LANES)
GROUP, MEMBER = LANE // 4, LANE % 4


def words(i: Instruction, *allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Words of the opcode behind the first. Raises PtxError where they are none of the allowed."""
    if i.words[1:] not in allowed:
        raise PtxError("unknown form")
    return i.words[1:]


def shuffle(w: Warp, i: Instruction, mask: Array) -> Array:
    """shfl.sync: lane j of the segment that operand c describes, or the own value where j lies outside."""
    mode = words(i, *(("sync", m, "b32") for m in ("up", "down", "bfly", "idx")))[1]
    ready = w.meet(mask, w.get(i.operands[4], "u32"))
    value = w.get(i.operands[1], "u32")
    by, c = w.get(i.operands[2], "u32").astype(np.int64) & 31, w.get(i.operands[3], "u32").astype(np.int64)
    segment, clamp = c >> 8 & 31, c & 31
    last, first = LANE & segment | clamp & ~segment, LANE & segment
    if mode == "up":
        source, inside = LANE - by, LANE - by >= last
    elif mode == "idx":
        source = first | by & ~segment
        inside = source <= last
    else:
        source = LANE + by if mode == "down" else LANE ^ by
        inside = source <= last
    source = np.where(inside, source, LANE)
    if not ready[source][ready].all():
        raise PtxError("takes from a lane that does not take part")
    to = i.operands[0]
    w.set(to.first if isinstance(to, Pair) else to, value[source], ready)
    if isinstance(to, Pair):
        w.set(to.second, inside, ready)
    return ready


def vote(w: Warp, i: Instruction, mask: Array) -> Array:
    mode = words(i, ("sync", "ballot", "b32"), ("sync", "any", "pred"), ("sync", "all", "pred"))[1]
    members = w.get(i.operands[2], "u32")
    ready = w.meet(mask, members)
    holds = w.get(i.operands[1], "pred") & ready
    bits = np.packbits(holds, bitorder="little").view(np.uint32)[0] & members
    found = {"ballot": bits, "any": bits != 0, "all": bits == members}[mode]
    w.set(i.operands[0], found, ready)
    return ready


def barrier(w: Warp, i: Instruction, mask: Array) -> Array:
    """bar and barrier: of a warp's lanes, of a block's threads, of a cluster's."""
    if i.words[:2] == ("bar", "warp"):
        words(i, ("warp", "sync"))
        members = w.get(i.operands[0], "u32")
        ready = w.meet(mask, members)
        for chosen in {int(m) for m in members[ready]}:
            w.machine.clocks.join(w.threads[ready & (members == chosen)])
        return ready
    if i.words[1] == "cluster":
        return cluster_barrier(w, i, mask)
    if i.words[0] == "bar":
        words(i, ("sync",), ("cta", "sync"), ("arrive",), ("cta", "arrive"))
    else:
        words(i, ("sync",), ("cta", "sync"), ("sync", "aligned"), ("cta", "sync", "aligned"))
    ready = w.meet_all(mask)
    if not ready.any():
        return ready
    ids = w.get(i.operands[0], "u32")[ready]
    threads = w.machine.threads
    counts = w.get(i.operands[1], "u32")[ready] if len(i.operands) > 1 else np.full(len(ids), threads)
    if (ids != ids[0]).any() or (counts != counts[0]).any() or ids[0] > 15:
        raise PtxError(f"barriers {sorted(set(map(int, ids)))}, of 16")
    if (counts[0] % LANES and counts[0] != threads) or not 0 < counts[0] <= threads:
        raise PtxError(f"{int(counts[0])} threads, of {threads}, in warps")
    arrivals = w.block.barriers.setdefault(int(ids[0]), Arrivals(int(counts[0])))
    if arrivals.expected != int(counts[0]):
        raise PtxError(f"{int(counts[0])} threads, others say {arrivals.expected}")
    arrivals.arrived += [int(t) for t in w.threads[ready]]
    if "arrive" not in i.words:
        arrivals.waiting.append((w, ready))
        w.frame.status[ready] = BLOCKED
    if len(arrivals.arrived) > arrivals.expected:
        raise PtxError(f"{len(arrivals.arrived)} threads come to a barrier of {arrivals.expected}")
    if len(arrivals.arrived) == arrivals.expected:
        w.machine.clocks.join(np.array(arrivals.arrived))
        for other, lanes in arrivals.waiting:
            other.frame.status[lanes] = RUNS
        del w.block.barriers[int(ids[0])]
    return ready


def cluster_barrier(w: Warp, i: Instruction, mask: Array) -> Array:
    form = words(
        i, ("cluster", "arrive"), ("cluster", "arrive", "release"), ("cluster", "arrive", "relaxed"),
        ("cluster", "wait"), ("cluster", "wait", "acquire"),
    )  # fmt: skip
    cluster = w.block.cluster
    if form[1] == "arrive":
        if (w.clusters_arrived[mask] == cluster.phase).any():
            raise PtxError("a thread arrives twice")
        w.clusters_arrived[mask] = cluster.phase
        relaxed = form[2:] == ("relaxed",)
        cluster.arrived += [-1 if relaxed else int(t) for t in w.threads[mask]]
        if len(cluster.arrived) == cluster.threads:
            if -1 not in cluster.arrived:
                w.machine.clocks.join(np.array(cluster.arrived))
            cluster.arrived = []
            cluster.phase += 1
        return mask
    if (w.clusters_arrived[mask] < 0).any():
        raise PtxError("a thread waits that has not arrived")
    ready = mask & (w.clusters_arrived < cluster.phase)
    w.yields(mask & ~ready)
    return ready


def load_matrix(w: Warp, i: Instruction, mask: Array) -> Array:
    """ldmatrix: matrix q from the rows at the addresses of lanes 8 q to 8 q + 7."""
    plain = [("sync", "aligned", "m8n8", f"x{n}", *t, "shared", "b16") for n in (1, 2, 4) for t in ((), ("trans",))]
    form = words(i, *plain)
    ready = w.meet_all(mask)
    if not ready.any():
        return ready
    if not ready.all():
        raise PtxError("lanes of the warp are missing")
    count, to = int(form[3][1:]), i.operands[0]
    registers = to.items if isinstance(to, Many) else (to,)
    if len(registers) != count:
        raise PtxError(f"{len(registers)} registers")
    # The lanes that get a row's elements read them, for what they know of other threads.
    addresses = w.address(i.operands[1])
    for q, register in enumerate(registers):
        rows = addresses[8 * q : 8 * q + 8]
        w.block.shared.places(rows, 16, 16)
        source, column = (MEMBER * 2, GROUP) if "trans" in form else (GROUP, MEMBER * 2)
        both = [
            w.block.shared.read(rows[r] + 2 * c.astype(np.uint64), 2, w.threads).view(np.uint16)[:, 0]
            for r, c in (
                ((source, column), (source + 1, column))
                if "trans" in form
                else ((source, column), (source, column + 1))
            )
        ]
        w.set(register, both[0].astype(np.uint32) | both[1].astype(np.uint32) << 16, ready)
    return ready


def elements(w: Warp, registers: tuple[Single, ...], kind: str) -> Array:
    """Values of registers as f64: [lane, register, element]."""
    bits = np.stack([w.get(r, "b32") for r in registers], axis=1)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)[:, :, None]
    if kind == "bf16":
        halves = np.stack([bits << 16, bits & np.uint32(0xFFFF0000)], axis=2)
        return halves.view(np.float32).astype(np.float64)
    dtype = np.float16 if kind == "f16" else np.int8
    return bits.view(dtype).reshape(LANES, len(registers), -1).astype(np.float64)


def operand_list(operand: Operand, count: int) -> tuple[Single, ...]:
    if not isinstance(operand, Many) or len(operand.items) != count:
        raise PtxError(f"expected {count} registers")
    return operand.items


def first_operand(values: Array) -> Array:
    """a[16, k] of fragments [lane, register, element]: registers of rows g, g + 8, then of the second half of k."""
    _, count, per = values.shape
    halves = count // 2
    a = np.zeros((16, 4 * per * halves))
    for r in range(count):
        for e in range(per):
            a[GROUP + r % 2 * 8, MEMBER * per + e + r // 2 * 4 * per] = values[:, r, e]
    return a


SHAPES: dict[tuple[str, ...], tuple[int, int]] = {
    ("m16n8k8", "f32", "f16", "f16", "f32"): (2, 1), ("m16n8k8", "f32", "bf16", "bf16", "f32"): (2, 1),
    ("m16n8k16", "f32", "f16", "f16", "f32"): (4, 2), ("m16n8k16", "f32", "bf16", "bf16", "f32"): (4, 2),
    ("m16n8k8", "f32", "tf32", "tf32", "f32"): (4, 2), ("m16n8k32", "s32", "s8", "s8", "s32"): (4, 2),
}  # fmt: skip


def multiply(w: Warp, i: Instruction, mask: Array) -> Array:
    """mma.sync: registers of a and of b by shape and types."""
    form = words(i, *(("sync", "aligned", s[0], "row", "col", *s[1:]) for s in SHAPES))
    ready = w.meet_all(mask)
    if not ready.any():
        return ready
    if not ready.all():
        raise PtxError("lanes of the warp are missing")
    count_a, count_b = SHAPES[form[2], *form[5:]]
    a = first_operand(elements(w, operand_list(i.operands[1], count_a), form[6]))
    values = elements(w, operand_list(i.operands[2], count_b), form[7])
    per = values.shape[2]
    b = np.zeros((4 * per * count_b, 8))
    for r in range(count_b):
        for e in range(per):
            b[MEMBER * per + e + r * 4 * per, GROUP] = values[:, r, e]
    exact = a @ b
    for r, (to, c) in enumerate(zip(operand_list(i.operands[0], 4), operand_list(i.operands[3], 4), strict=True)):
        part = exact[GROUP + r // 2 * 8, MEMBER * 2 + r % 2]
        if form[8] == "s32":
            found = (
                (w.get(c, "s32").astype(np.int64) + part.astype(np.int64))
                .astype(np.uint64)
                .astype(np.uint32)
                .view(np.int32)
            )
        else:
            found = (w.get(c, "f32").astype(np.float64) + part).astype(np.float32)
        w.set(to, found, ready)
    return ready


def warps() -> dict[str, Handler]:
    return {"shfl": shuffle, "vote": vote, "bar": barrier, "barrier": barrier, "ldmatrix": load_matrix, "mma": multiply}
