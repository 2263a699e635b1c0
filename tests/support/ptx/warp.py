"""A warp: 32 lanes that go through a function, those with the least address first, until they cannot go on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.ptx.memory import Space
from tests.support.ptx.syntax import (
    Address,
    Constant,
    Function,
    Instruction,
    Many,
    Name,
    Operand,
    PtxError,
    Register,
)
from tests.support.ptx.values import DTYPES, LANES, UNSIGNED, Array

if TYPE_CHECKING:
    from tests.support.ptx.machine import Machine

SHARED, PARAMETERS = 0x7E0000000000, 0x7D0000000000  # where generic addresses of each begin
RUNS, BLOCKED, MEETS, YIELDS, DONE = range(5)  # what a lane does; MEETS: waits for others at the same instruction
STEPS = 60_000
POISON = 0xFFFA5A5AFFFA5A5A  # in registers that nothing was written to
# Handles an instruction for the lanes of a mask. Gives the lanes that go on to the next one; None: all.
Handler = Callable[["Warp", Instruction, Array], Array | None]


@dataclass(frozen=True)
class TensorMap:
    """A tensor, its sizes and box innermost first, and the bytes of its swizzle: what a tensor map stands for."""

    tensor: Array
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    element_bytes: int


@dataclass
class Arrivals:
    """A barrier of the hardware, or of a cluster: how many threads have come, of how many."""

    expected: int
    waiting: list[tuple["Warp", Array]] = field(default_factory=list[tuple["Warp", Array]])
    arrived: list[int] = field(default_factory=list[int])


@dataclass
class Block:
    index: int
    cluster: "Cluster"
    shared: Space
    barriers: dict[int, Arrivals] = field(default_factory=dict[int, Arrivals])
    mbarriers: dict[int, Any] = field(default_factory=dict[int, Any])


@dataclass
class Cluster:
    blocks: list[Block] = field(default_factory=list[Block])
    arrived: list[int] = field(default_factory=list[int])
    phase: int = 0
    threads: int = 0


class Frame:
    """A function that a warp is in: registers, and for each lane the next instruction."""

    def __init__(self, function: Function, mask: Array) -> None:
        self.function, self.code = function, function.code
        self.registers = [
            np.full(LANES, 0 if bits == 1 else POISON & (1 << bits) - 1, np.uint64) for bits in function.widths
        ]
        self.at = np.zeros(LANES, np.int64)
        self.status = np.where(mask, RUNS, DONE)
        self.variables: dict[str, Array] = {}
        for variable in (*function.variables, *function.parameters, *function.results):
            if variable.space == "param":
                size = max(variable.bytes, self.variables.get(variable.name, np.zeros((0, 0))).shape[-1])
                self.variables[variable.name] = np.zeros((LANES, size), np.uint8)


class Warp:
    """32 threads of a block."""

    def __init__(self, machine: "Machine", block: Block, first: int, count: int) -> None:
        self.machine, self.block = machine, block
        self.first = first  # in its block
        self.threads = block.index * machine.threads + first + np.arange(LANES)  # in the grid
        self.frame = Frame(machine.kernel, np.arange(LANES) < count)
        self.at = 0
        self.clusters_arrived = np.full(LANES, -1)
        self.copies: list[list[Any]] = [[] for _ in range(LANES)]  # since the last commit
        self.groups: list[list[list[Any]]] = [[] for _ in range(LANES)]
        self.products: list[Any] = []
        self.product_groups: list[list[Any]] = []
        self.fenced = False
        self.registers = machine.registers

    # ---- operands
    def get(self, operand: Operand, kind: str) -> Array:
        """Values of an operand for all lanes. Raises PtxError for what has none."""
        if kind == "pred":
            if not isinstance(operand, Register) or operand.bits != 1:
                raise PtxError(f"{operand} is no predicate")
            return (self.frame.registers[operand.slot] != 0) ^ operand.negated
        if isinstance(operand, Register):
            if operand.bits == 1 or operand.bits < 8 * np.dtype(DTYPES[kind]).itemsize:
                raise PtxError(f"a register of {operand.bits} bits as {kind}")
            bits = self.frame.registers[operand.slot]
        elif isinstance(operand, Constant):
            bits = np.full(LANES, operand.value & (1 << 64) - 1, np.uint64)
        elif isinstance(operand, Name):
            bits = self.named(operand.name)
        else:
            raise PtxError(f"{operand} has no value")
        dtype = DTYPES[kind]
        return bits.astype(UNSIGNED[np.dtype(dtype).itemsize]).view(dtype)

    def set(self, operand: Operand, values: Array, mask: Array) -> None:
        """Writes a register of the mask's lanes. Raises PtxError where it is narrower."""
        if operand == Name("_"):
            return
        if not isinstance(operand, Register):
            raise PtxError(f"{operand} is no register")
        if operand.bits == 1:
            bits = values.astype(np.uint64)
        else:
            if values.itemsize * 8 > operand.bits:
                raise PtxError(f"{values.dtype} into a register of {operand.bits} bits")
            if values.dtype.kind == "i":
                bits = values.astype(np.int64).view(np.uint64) & np.uint64((1 << operand.bits) - 1)
            else:
                bits = np.ascontiguousarray(values).view(UNSIGNED[values.itemsize]).astype(np.uint64)
        registers = self.frame.registers
        registers[operand.slot] = np.where(mask, bits, registers[operand.slot])

    def address(self, operand: Operand) -> Array:
        """Addresses of all lanes. Raises PtxError for an operand that is none."""
        if not isinstance(operand, Address):
            raise PtxError(f"{operand} is no address")
        narrow = isinstance(operand.base, Register) and operand.base.bits == 32
        base = self.get(operand.base, "u32" if narrow else "u64").astype(np.uint64)
        found = base + np.uint64(operand.offset & (1 << 64) - 1)
        return found & np.uint64(0xFFFFFFFF) if narrow else found

    def named(self, name: str) -> Array:
        """A special register, or the address of a variable. Raises PtxError for unknown ones."""
        machine = self.machine
        if name in machine.addresses:
            return np.full(LANES, machine.addresses[name], np.uint64)
        thread = self.first + np.arange(LANES, dtype=np.uint64)
        blocks = len(machine.blocks)
        clustered = len(self.block.cluster.blocks)
        whole = {
            "%ntid.x": machine.threads, "%ctaid.x": self.block.index, "%nctaid.x": blocks,
            "%cluster_ctarank": self.block.index % clustered, "%cluster_nctarank": clustered,
            "%clusterid.x": self.block.index // clustered, "%warpid": self.first // LANES,
        }  # fmt: skip
        if name in whole:
            return np.full(LANES, whole[name], np.uint64)
        if name in ("%tid.y", "%tid.z", "%ctaid.y", "%ctaid.z"):
            return np.zeros(LANES, np.uint64)
        if name in ("%ntid.y", "%ntid.z", "%nctaid.y", "%nctaid.z"):
            return np.ones(LANES, np.uint64)
        if name in ("%tid.x", "%laneid"):
            return thread if name == "%tid.x" else thread % np.uint64(LANES)
        raise PtxError(f"unknown name {name}")

    # ---- running
    @property
    def done(self) -> bool:
        return bool((self.frame.status == DONE).all())

    def run(self) -> None:
        """Until no lane can go on."""
        frame = self.frame
        while True:
            runs = frame.status == RUNS
            if not runs.any():
                return
            at = int(frame.at[runs].min())
            mask = runs & (frame.at == at)
            others = frame.at[runs & ~mask]
            self.straight(frame, at, mask, int(others.min()) if others.size else len(frame.code))

    def straight(self, frame: Frame, at: int, mask: Array, until: int) -> None:
        """Runs the lanes up to instruction `until`, or the first that others may meet or that may lead elsewhere."""
        machine = self.machine
        while True:
            if at >= len(frame.code):
                raise PtxError(f"{frame.function.name} ends without ret")
            instruction = frame.code[at]
            machine.steps += 1
            if machine.steps > STEPS:
                raise PtxError(f"line {instruction.line}: still running after {STEPS} steps")
            lanes = mask if instruction.guard is None else mask & self.get(instruction.guard, "pred")
            handler = machine.handlers.get(instruction.words[0])
            self.at = at
            went: Array | None = None
            try:
                if handler is None:
                    raise PtxError("unknown instruction")
                if lanes.any():
                    went = handler(self, instruction, lanes)
            except PtxError as e:
                if str(e).startswith("line "):
                    raise
                raise PtxError(f"line {instruction.line}: {instruction.opcode}: {e}") from e
            at += 1
            if instruction.words[0] not in SIMPLE or not SPINS.isdisjoint(instruction.words):
                advance = (mask & ~lanes) | (lanes if went is None else went)
                frame.at[advance] = at
                return
            if at == until:
                frame.at[mask] = at
                return

    def meet(self, mask: Array, needed: Array) -> Array:
        """Lanes that go on: those whose `needed` lanes, bits of a mask for each lane, have all come here. The rest
        wait. Raises PtxError where one that is needed has ended."""
        frame = self.frame
        here = mask | ((frame.status == MEETS) & (frame.at == self.at))
        members = needed[:, None] >> np.arange(LANES, dtype=np.uint32) & 1 != 0
        if (members[here] & (frame.status == DONE)).any():
            raise PtxError("a lane of the mask has ended")
        if not members[np.arange(LANES), np.arange(LANES)][here].all():
            raise PtxError("a lane is not in its own mask")
        ready = here & ~(members & ~here).any(1)
        frame.status[here] = MEETS
        frame.status[ready] = RUNS
        return ready

    def meet_all(self, mask: Array) -> Array:
        """Lanes that go on: all, or none until the others that have not ended are here too."""
        alive = int(np.packbits(self.frame.status != DONE, bitorder="little").view(np.uint32)[0])
        return self.meet(mask, np.full(LANES, alive, np.uint32))

    def yields(self, mask: Array) -> None:
        """Lanes that look at what others write go on when nobody else can."""
        self.frame.status[mask] = YIELDS

    def wakes(self) -> bool:
        """Whether a lane had yielded: it goes on."""
        yielding = self.frame.status == YIELDS
        self.frame.status[yielding] = RUNS
        return bool(yielding.any())

    # ---- control
    def branch(self, i: Instruction, mask: Array) -> Array:
        target = i.operands[0]
        if not isinstance(target, Name):
            raise PtxError("no label")
        self.frame.at[mask] = self.frame.function.labels[target.name]
        return np.zeros(LANES, bool)

    def leave(self, i: Instruction, mask: Array) -> Array:
        self.frame.status[mask] = DONE
        return mask

    def call(self, i: Instruction, mask: Array) -> None:
        """A device function, to its end: nothing in it may wait for other threads."""
        lists = [[item.name for item in o.items if isinstance(item, Name)] for o in i.operands if isinstance(o, Many)]
        names = [o.name for o in i.operands if isinstance(o, Name)]
        function = self.machine.module.functions.get(names[0])
        if function is None:
            raise PtxError(f"no function {names[0]}")
        given, taken = (lists[-1] if function.parameters else []), (lists[0] if function.results else [])
        caller, self.frame = self.frame, Frame(function, mask)
        for variable, name in zip(function.parameters, given, strict=True):
            self.frame.variables[variable.name] = caller.variables[name].copy()
        while not self.done:
            self.run()
            if not self.done and not self.wakes():
                raise PtxError("a device function waits for other threads")
        for variable, name in zip(function.results, taken, strict=True):
            caller.variables[name][mask] = self.frame.variables[variable.name][mask]
        self.frame = caller


SIMPLE = frozenset(
    "abs add and bfe clz copysign cp cvt cvta div ex2 fence fma ld lg2 lop3 mad mapa max membar min mov mul neg "
    "not or popc prefetch prmt rcp red rem rsqrt selp setp shf shl shr sqrt st sub testp xor".split()
)


SPINS = frozenset(("acquire", "relaxed", "volatile"))  # loads by which a lane may wait for what another one writes


def control() -> dict[str, Handler]:
    return {"bra": Warp.branch, "ret": Warp.leave, "exit": Warp.leave, "call": Warp.call}
