"""Lines of a MIGraphX program dump as data: name, op, attributes, arguments, modules, result type.

    @22 = reshape_lazy[dims={1, 348, 36, 64}](@21) -> half_type, {1, 348, 36, 64}, {801792, 2304, 64, 1}
    main:@9 = pointwise(main:@3,x), [main:pointwise0] -> float_type, {2, 3}, {3, 1}, target_id=0 # Add_3
    x = @param:x -> float_type, {2, 3}, {3, 1}
    @4 = @literal{-1, 784} -> int32_type, {2}, {1}
    @5 = @return(@4)

A line is one instruction or `module: "main"`. Times that `perf` prints behind a line, debug symbols behind ` # `, lines
of dots where an excerpt leaves something out, and what the driver says before the first instruction are skipped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fusion_ir.core.limits import LIMITS, check_count, check_lines
from fusion_ir.errors import FormatError, excerpt

_NAME = re.compile(r"[^\s,()\[\]{}=]+")
_OP = re.compile(r"@param:[^\s,()\[\]{}=]+|[^\s,()\[\]{}=]+")
_INTEGERS = re.compile(r"\{(-?\d{1,18}(?:, ?-?\d{1,18})*)?\}", re.ASCII)
_TYPE_NAME = re.compile(r"\w+", re.ASCII)
_MODULE = re.compile(r'module: ?"([^"]*)"')
_BEHIND = re.compile(r"(?:, ?target_id=\d+)?(?:: ?[-+.e\d]+ ?ms(?:, ?\d+%)?)?\s*(?:#(?:\s.*)?)?")
_CHATTER = ("Running [", "[", "Compiling ...", "Reading: ")
_CLOSING = {"[": "]", "{": "}", "(": ")"}
_EXAMPLE = "expected an instruction such as '@3 = add(@1,@2) -> float_type, {4}, {1}'"

# The beginning of a dump, without leading space and the driver's output before it.
START = re.compile(r'(?:module: ?"|\S+ = @(?:param:|literal\b)|(?:[\w:]*:)?@\d+ = )')


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of the text and its "line:column"."""

    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Type:
    """`half_type, {348, 768}, {768, 1}`: element type as written, extents, strides in elements."""

    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    place: str


@dataclass(frozen=True, slots=True)
class Instruction:
    """`name = op[attributes]{literal}(arguments), [modules] -> type`; only `@return` has no type."""

    name: Word
    op: Word
    attributes: dict[str, Word]
    literal: Word | None
    arguments: tuple[Word, ...]
    modules: tuple[Word, ...]
    type: Type | None


@dataclass(frozen=True, slots=True)
class Module:
    """The instructions under one `module:` line, in order; "main" where the text names none."""

    name: str
    place: str
    instructions: list[Instruction] = field(default_factory=list[Instruction])


def is_dump(text: str) -> bool:
    """Whether a text without leading space looks like a dump: its first line that is no message of the driver."""
    return any(START.match(line) for _, line in _without_chatter(text[:65536]))


def read_modules(text: str) -> tuple[Module, ...]:
    """The modules of a dump, in order. Raises FormatError with line and column."""
    check_lines(text)
    modules: dict[str, Module] = {}
    current: Module | None = None
    count = 0
    for number, line in _without_chatter(text):
        if not line.strip() or line.strip(". \t") == "":
            continue
        header = _MODULE.fullmatch(line.strip())
        if header is not None:
            name = header.group(1)
            if name in modules:
                raise FormatError(f"{number}:1", f"module {excerpt(name)} is printed twice, first at line "
                                  f"{modules[name].place.partition(':')[0]}")  # fmt: skip
            current = modules[name] = Module(name, f"{number}:1")
            continue
        if current is None:
            current = modules["main"] = Module("main", f"{number}:1")
        count += 1
        check_count(f"{number}:1", "instructions", count, LIMITS.nodes)
        current.instructions.append(_Line(line, number).instruction())
    return tuple(modules.values())


def _without_chatter(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from the first one on that the driver did not say itself."""
    begun = False
    for number, line in enumerate(text.split("\n"), 1):
        line = line.rstrip("\r")
        begun = begun or bool(line.strip() and not line.lstrip().startswith(_CHATTER))
        if begun:
            yield number, line


class _Line:
    """A line as far as it has been read."""

    def __init__(self, line: str, number: int) -> None:
        self.line = line
        self.number = number
        self.at = len(line) - len(line.lstrip())

    @property
    def place(self) -> str:
        return f"{self.number}:{self.at + 1}"

    def fail(self, expected: str) -> FormatError:
        rest = self.line[self.at :].rstrip()
        return FormatError(self.place, f"expected {expected}, got {excerpt(rest) if rest else 'the end of the line'}")

    def starts(self, text: str) -> bool:
        return self.line.startswith(text, self.at)

    def word(self, pattern: re.Pattern[str], expected: str) -> Word:
        found = pattern.match(self.line, self.at)
        if found is None:
            raise self.fail(expected)
        word = Word(found.group(), self.place)
        self.at = found.end()
        return word

    def instruction(self) -> Instruction:
        """The line as an instruction. Raises FormatError."""
        start = self.place
        name = _NAME.match(self.line, self.at)
        if name is None or not self.line.startswith(" = ", name.end()):
            raise FormatError(start, f"{_EXAMPLE}, got {excerpt(self.line.strip())}")
        self.at = name.end() + 3
        op = self.word(_OP, "the name of an op")
        attributes = self.attributes() if self.starts("[") else {}
        literal = self.enclosed() if self.starts("{") else None
        arguments = tuple(self.names(self.enclosed())) if self.starts("(") else ()
        modules: tuple[Word, ...] = ()
        if self.starts(", ["):
            self.at += 2
            modules = tuple(self.names(self.enclosed()))
        type_ = self.type() if op.text != "@return" else None
        behind = _BEHIND.fullmatch(self.line, self.at)
        if behind is None:
            raise self.fail("the end of the line")
        return Instruction(Word(name.group(), start), op, attributes, literal, arguments, modules, type_)

    def enclosed(self) -> Word:
        """The text within the brackets that open here, read past the closing one. Raises FormatError where brackets do
        not nest or close."""
        closing: list[str] = []
        for at in range(self.at, len(self.line)):
            character = self.line[at]
            if character in _CLOSING:
                closing.append(_CLOSING[character])
            elif closing and character in "]})":
                if character != closing.pop():
                    self.at = at
                    raise self.fail("the brackets to nest")
                if not closing:
                    inside = Word(self.line[self.at + 1 : at], f"{self.number}:{self.at + 2}")
                    self.at = at + 1
                    return inside
        opened, self.at = self.line[self.at], len(self.line)
        raise self.fail(f"the bracket that closes {opened!r}")

    def attributes(self) -> dict[str, Word]:
        """`[name=value,...]`. A comma inside a value is followed by a space, one between attributes is not."""
        inside = self.enclosed()
        found: dict[str, Word] = {}
        for piece in _split(inside, self.number):
            name, equals, value = piece.text.partition("=")
            if not equals or not name.strip():
                raise FormatError(piece.place, f"expected an attribute such as axis=1, got {excerpt(piece.text)}")
            if name in found:
                raise FormatError(piece.place, f"attribute {excerpt(name)} is given twice")
            found[name] = Word(value, piece.place)
        return found

    def names(self, inside: Word) -> Iterator[Word]:
        """Names with commas between them."""
        column = int(inside.place.partition(":")[2])
        pieces = inside.text.split(",")
        check_count(inside.place, "arguments", len(pieces), LIMITS.operands + 1)
        for piece in pieces:
            name = piece.strip()
            place = f"{self.number}:{column + len(piece) - len(piece.lstrip())}"
            if not _NAME.fullmatch(name) or name == "?":
                raise FormatError(place, f"expected the name of an instruction, got {excerpt(name)}")
            yield Word(name, place)
            column += len(piece) + 1

    def type(self) -> Type:
        if not self.starts(" -> "):
            raise self.fail("the result's type, such as ' -> half_type, {348, 768}, {768, 1}'")
        self.at += 4
        place = self.place
        if self.starts("["):
            raise FormatError(place, "results that are tuples are not read, expected one type")
        name = self.word(_TYPE_NAME, "an element type such as half_type")
        if name.text == "dynamic":
            raise FormatError(place, "dynamic extents are not read: print the program for fixed sizes")
        sizes = self.integers("extents such as {348, 768}")
        strides = self.integers("strides such as {768, 1}")
        return Type(name.text, sizes, strides, place)

    def integers(self, expected: str) -> tuple[int, ...]:
        if not self.starts(", "):
            raise self.fail(f"a comma and {expected}")
        self.at += 2
        return integers(self.word(_INTEGERS, expected))


def integers(word: Word) -> tuple[int, ...]:
    """`{1, -2}` as numbers. Raises FormatError."""
    if not _INTEGERS.fullmatch(word.text):
        raise FormatError(word.place, f"expected integers such as {{0, 1}}, got {excerpt(word.text)}")
    inside = word.text[1:-1]
    check_count(word.place, "integers", inside.count(",") + 1, LIMITS.operands)
    return tuple(int(item) for item in inside.split(",")) if inside else ()


def _split(inside: Word, number: int) -> Iterator[Word]:
    """Attributes with their places; the one behind a last comma, which kernels have, is left out."""
    column = int(inside.place.partition(":")[2])
    depth = begin = 0
    text = inside.text
    for at in range(len(text) + 1):
        character = text[at] if at < len(text) else ","
        depth += (character in "[{(") - (character in "]})")
        if character != "," or (depth and at < len(text)) or text.startswith(" ", at + 1):
            continue
        if at > begin or at < len(text):
            yield Word(text[begin:at], f"{number}:{column + begin}")
        begin = at + 1
