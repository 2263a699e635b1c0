"""Which tensor an access of a CPU kernel's machine code is to, and how many bytes it moves: x86-64, by objdump.

What registers point to is followed along every path from the kernel's entry: its arguments are an array of pointers,
those of inputs first, which are only read, as those of outputs are only written.
"""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

BYTES = {"BYTE": 1, "WORD": 2, "DWORD": 4, "QWORD": 8, "XMMWORD": 16, "YMMWORD": 32, "ZMMWORD": 64}
LINE = re.compile(r"^\s*([0-9a-f]+):\t(?:(?:bnd|notrack|rep\w*|lock|data16|[cdefgs]s)\s+)*(\S+)\s*([^#]*)")
TARGET = re.compile(r"^([0-9a-f]+)(?: <(\w+)@plt>)?")
SYMBOL = re.compile(r"^([0-9a-f]+) <(\w+)>:$")
MEMORY = re.compile(r"(?:(\w+) (?:PTR|BCST) )?(?:\w\w:)?\[([^\]]*)\]")
WORD = re.compile(r"\b[a-z][a-z0-9]*\b")
DISPLACEMENT = re.compile(r"([+-]0x[0-9a-f]+)$")
LEGACY = ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")
WHOLE = {name: f"r{x}" for x in LEGACY for name in (f"r{x}", f"e{x}", x)} | {
    f"r{n}{suffix}": f"r{n}" for n in range(8, 16) for suffix in ("", "d", "w", "b")
}
VECTORS = {f"{size}mm{n}": f"xmm{n}" for size in "xyz" for n in range(32)}  # some hold addresses
WHOLE |= VECTORS
REGISTERS = frozenset(WHOLE.values())
ENDS = ("ret", "ud2", "hlt")
ADDS = (
    "add",
    "sub",
    "lea",
    "or",
    "and",
    "inc",
    "dec",
    "imul",
    "adc",
    "sbb",
    "xadd",
)  # what they give still points there
MOVES = ("mov", "movabs", "movq", "vmovq")
QUOTIENTS = ("div", "idiv", "mul", "cqo", "cdq")
READ_ONLY = (*QUOTIENTS, "cmp", "test", "bt", "vucomiss", "vcomiss", "jmp", "call", "push")
CLOBBERED = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", *VECTORS.values())  # by what is called

Origins = frozenset[int | str]  # parameters by number; "args", "stack", "table"
State = dict[str, Origins]  # of registers, and of places on the stack by their text
NOWHERE: Origins = frozenset()


@dataclass(frozen=True)
class Moved:
    """An access. place: number of the parameter; None where the address cannot be followed."""

    place: int | None
    stores: bool
    bytes: int


@dataclass
class _Instruction:
    at: int
    name: str
    operands: list[str]
    before: State = field(default_factory=State)
    is_reached: bool = False


def objdump() -> str | None:
    """The disassembler."""
    return shutil.which("objdump")


def accesses_by_parameter(binary: Path, entries: Iterable[str], inputs: int) -> Mapping[str, frozenset[Moved]]:
    """Accesses of every kernel in a shared object, by its entry. inputs: how many parameters, the first, are inputs."""
    argv = [objdump() or "objdump", "-d", "-M", "intel", "--no-show-raw-insn", str(binary)]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()
    starts = {m[2]: int(m[1], 16) for m in map(SYMBOL.match, text) if m}
    lines = [m for m in map(LINE.match, text) if m]
    return {entry: frozenset(_moved(_reached(lines, starts, entry), inputs)) for entry in entries}


def _reached(lines: Iterable[re.Match[str]], starts: Mapping[str, int], entry: str) -> list[_Instruction]:
    """The instructions that can be reached from an entry, with what is known where they begin."""
    code = [_Instruction(int(m[1], 16), m[2], _split(m[3].strip())) for m in lines]
    index = {i.at: n for n, i in enumerate(code)}
    first = code[index[starts[entry]]]
    first.before, first.is_reached = {"rdi": frozenset({"args"}), "rsp": frozenset({"stack"})}, True
    waiting = [index[starts[entry]]]
    while waiting:
        n = waiting.pop()
        i = code[n]
        after = _after(i)
        following = [n + 1] if i.name not in (*ENDS, "jmp") and n + 1 < len(code) else []
        inside = [to for to in [_target(i, index, starts)] if to is not None]
        # What is called goes on with what registers hold, has a place on the stack of its own, and gives nothing back.
        registers = {k: v for k, v in i.before.items() if k in REGISTERS}
        found = [(to, registers if i.name == "call" else after) for to in inside] + [(to, after) for to in following]
        waiting += [to for to, state in found if _join(code[to], state)]
    return [i for i in code if i.is_reached]


def _target(i: _Instruction, index: Mapping[int, int], starts: Mapping[str, int]) -> int | None:
    """The instruction that is jumped to or called, if it is in the binary."""
    found = TARGET.match(i.operands[0]) if i.operands and (i.name == "call" or i.name.startswith("j")) else None
    return index.get(starts.get(found[2], int(found[1], 16))) if found else None


def _join(i: _Instruction, state: State) -> bool:
    """Whether anything is new there."""
    new = {k: i.before.get(k, NOWHERE) | v for k, v in state.items() if not v <= i.before.get(k, NOWHERE)}
    is_new, i.is_reached = bool(new) or not i.is_reached, True
    i.before |= new
    return is_new


def _after(i: _Instruction) -> State:
    state = dict(i.before)
    clobbered = CLOBBERED if i.name == "call" else ("rax", "rdx") if i.name in QUOTIENTS else ()
    for register in clobbered:
        state.pop(register, None)
    if not i.operands or i.name in READ_ONLY or (i.name == "xchg" and i.operands[0] == i.operands[1]):
        return state
    target, sources = i.operands[0], i.operands[1:]
    if MEMORY.search(target):
        if i.name in MOVES and (slot := _slot(target, state)):
            state[slot] = _value(sources[0], state)
        return state
    register = WHOLE.get(target)
    if register is None or register == "rsp":
        return state
    found = NOWHERE
    if i.name in MOVES or i.name.startswith("cmov") or i.name in ADDS:
        found = frozenset[int | str]().union(*(_value(s, state, i.name) for s in sources))
    if i.name.startswith("cmov") or (i.name in ADDS and i.name != "lea"):
        found |= state.get(register, NOWHERE)
    if i.name == "pop":
        found = NOWHERE
    state[register] = found
    return state


def _value(operand: str, state: State, name: str = "mov") -> Origins:
    """Origins that the value of an operand points to, NOWHERE where it points to none. name: the instruction's."""
    memory = MEMORY.search(operand)
    if memory is None:
        return state.get(WHOLE.get(operand, ""), NOWHERE)
    if name == "lea":
        return _address(memory[2], state)
    slot = _slot(operand, state)
    if slot:
        return state.get(slot, NOWHERE)
    if _address(memory[2], state) == {"args"}:
        away = DISPLACEMENT.search(memory[2])
        return frozenset({(int(away[1], 16) if away else 0) // 8})
    return NOWHERE


def _slot(operand: str, state: State) -> str | None:
    memory = MEMORY.search(operand)
    assert memory
    registers = [w for w in WORD.findall(memory[2]) if w in WHOLE]
    return f"[{memory[2]}]" if registers in (["rsp"], ["rbp"]) and _address(memory[2], state) == {"stack"} else None


def _address(text: str, state: State) -> Origins:
    words = WORD.findall(text)
    if "rip" in words:
        return frozenset({"table"})
    return frozenset[int | str]().union(*(state.get(WHOLE[w], NOWHERE) for w in words if w in WHOLE))


def _moved(code: Iterable[_Instruction], inputs: int) -> Iterator[Moved]:
    for i in code:
        memory = [(n, m) for n, o in enumerate(i.operands) if (m := MEMORY.search(o)) and m[1] in BYTES]
        if not memory or i.name.startswith(("prefetch", "lea", "nop", "call", "j")):
            continue
        (position, found), *_ = memory
        origins = _address(found[2], i.before)
        if origins and origins <= {"args", "stack", "table"}:
            continue
        stores = position == 0 and i.name not in READ_ONLY
        places = [o for o in origins if isinstance(o, int) and (o >= inputs) == stores]
        place = places[0] if len(places) == 1 else None
        yield Moved(place, stores, BYTES[found[1]])


def _split(operands: str) -> list[str]:
    """Operands, split at commas outside brackets and braces."""
    return [o.strip() for o in re.split(r",(?![^\[{]*[\]}])", operands)] if operands else []
