"""Statements of inline PTX in the headers, and their words to the compiler, which no run of PTX can show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BEGIN = re.compile(r"\b(asm(?: volatile)?|SM90A_ASM)\(")
OPCODE = re.compile(r"(?<![%\w.])([a-z]\w*)\.[\w.:]+")
# A function of its operands: may be left out, joined with others and moved.
PURE = frozenset("cvt ex2 fma max min mov mul rcp rsqrt".split())
# Of several threads, or of a resource, but not of memory that the compiler knows of.
COLLECTIVE = frozenset("mma setmaxnreg setp shfl vote".split())


@dataclass(frozen=True)
class Statement:
    """raw: all that stands between the parentheses. clobbers: of its last part."""

    header: str
    line: int
    word: str
    raw: str

    @property
    def volatile(self) -> bool:
        return self.word != "asm"

    @property
    def parts(self) -> list[str]:
        """Text, results, operands, clobbers: as many as there are."""
        found, at = [""], 0
        for piece in re.findall(r'"(?:\\.|[^"])*"|::(?=\s*[\w])|.', self.raw, flags=re.S):
            if piece == ":":
                found.append("")
                at += 1
            else:
                found[at] += piece
        return found

    @property
    def opcodes(self) -> set[str]:
        """First words of the instructions; those of macros by the macro's name."""
        text = self.parts[0]
        literals = " ".join(re.findall(r'"((?:\\.|[^"])*)"', text)).replace("\\n", "\n")
        found = set(OPCODE.findall(literals))
        macros = {"TENSOR_LOAD": "cp", "WGMMA_TEXT": "mma"}
        return found | {opcode for macro, opcode in macros.items() if macro in text}

    @property
    def problem(self) -> str:
        """Names what is missing: "" if nothing."""
        kinds = self.opcodes
        if self.raw == "__VA_ARGS__":
            return "" if self.volatile else "is not volatile"
        if kinds <= PURE:
            return ""
        if not self.volatile:
            return "is not volatile"
        if not kinds <= PURE | COLLECTIVE and '"memory"' not in "".join(self.parts[3:]):
            return "does not clobber memory"
        return ""


def statements(include: Path) -> Iterator[Statement]:
    """Yields those of the headers for CUDA in a folder."""
    for header in sorted(include.glob("*.cuh")):
        source = header.read_text()
        text = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), source).replace("\\\n", " \n")
        for match in BEGIN.finditer(text):
            if text[: match.start()].endswith("#define "):
                continue
            yield Statement(header.name, text.count("\n", 0, match.start()) + 1, match[1], _within(text, match.end()))


def _within(text: str, start: int) -> str:
    """Text from `start` to the parenthesis that closes."""
    depth, at = 1, start
    for piece in re.finditer(r'"(?:\\.|[^"])*"|.', text[start:], flags=re.S):
        depth += {"(": 1, ")": -1}.get(piece[0], 0)
        if not depth:
            at = start + piece.start()
            break
    return text[start:at].strip()


def problems(include: Path) -> list[str]:
    """Statements that the compiler may move, join or leave out though it must not."""
    return [f"{s.header}:{s.line}: {s.raw[:60]!r} {s.problem}" for s in statements(include) if s.problem]
