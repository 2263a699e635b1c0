"""Which tensor an access of machine code is to: its address, followed back to the kernel's parameters."""

import re
from collections import Counter
from dataclasses import dataclass

from codegen.hardware.architectures import capability
from tests.support.sass import GLOBAL_LOADS, GLOBAL_STORES, Sass, width_bytes

REGISTER = re.compile(r"\b(U?R\d+)\b")
ADDRESS = re.compile(r"\[((?:U?R\d|U?RZ)[^\]]*)\]")
PARAMETER = re.compile(r"\bc\[0x0\]\[(0x[0-9a-f]+)\]")
TABLE = re.compile(r"\bc\[0x4\]")
POINTER_BYTES = 8
ENDS = ("LDG", "LD", "LDS", "S2R", "S2UR", "CS2R", "SHFL", "ATOM", "ATOMG")  # what they give is no address of a tensor
PAIRS = (".64", ".WIDE")  # opcodes that write two registers


@dataclass(frozen=True)
class Found:
    """Accesses to one place by width in bytes. place: number of the parameter, "table" for a constant array of the
    module, None where the address cannot be followed."""

    place: int | str | None
    stores: bool
    widths: Counter[int]


def first_parameter(arch: str) -> int:
    """Where in constant bank 0 parameters begin."""
    number = capability(arch)
    return 0x160 if number < 90 else 0x210 if number < 100 else 0x380


def accesses_by_parameter(sass: Sass, arch: str) -> list[Found]:
    """Loads from and stores to global memory, by parameter and width."""
    found: dict[tuple[int | str | None, bool], Counter[int]] = {}
    for at, (name, operands) in enumerate(sass.instructions):
        opcode = name.partition(".")[0]
        if opcode in GLOBAL_LOADS or opcode in GLOBAL_STORES:
            address = ADDRESS.findall(operands)[-1]
            places = _origins(sass, at, REGISTER.findall(address), first_parameter(arch))
            if "table" in places and opcode in GLOBAL_LOADS:  # what else is in the address is the index
                places = {"table"}
            place = next(iter(places)) if len(places) == 1 else None
            found.setdefault((place, opcode in GLOBAL_STORES), Counter())[width_bytes(name)] += 1
    return [Found(place, stores, widths) for (place, stores), widths in found.items()]


def _origins(sass: Sass, at: int, registers: list[str], first: int) -> set[int | str]:
    """Parameters and tables that these registers were computed from, at that instruction. Follows the text backwards,
    which is the order of execution but for loops, whose steps lead back to the value before them."""
    places: set[int | str] = set()
    seen: set[tuple[int, str]] = set()
    waiting = [(at, r) for r in registers]
    while waiting:
        start, register = waiting.pop()
        for i in range(start - 1, -1, -1):
            name, operands = sass.instructions[i]
            if not _writes(name, operands, register):
                continue
            if (i, register) in seen or name.partition(".")[0] in ENDS:
                break
            seen.add((i, register))
            places |= {
                (int(c, 16) - first) // POINTER_BYTES for c in PARAMETER.findall(operands) if int(c, 16) >= first
            }
            if TABLE.search(operands):
                places.add("table")
            waiting += [(i, r) for r in REGISTER.findall(operands.partition(",")[2])]
            break
    return places


def _writes(name: str, operands: str, register: str) -> bool:
    """Whether an instruction's result is in this register: the first one named, or the second of a pair."""
    target = re.match(r"(U?R)(\d+)\b", operands)
    if target is None or name.startswith(("ST", "BAR", "RED", "EXIT", "BRA")):
        return False
    numbers = [int(target[2])]
    if any(part in name for part in PAIRS):
        numbers.append(numbers[0] + 1)
    return register in {f"{target[1]}{n}" for n in numbers}
