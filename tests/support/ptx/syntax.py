"""PTX as NVRTC writes it, read into instructions whose registers are numbered."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

BITS = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32,
    "tf32": 32, "f32": 32, "f64": 64,
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (16, 32, 64)},
}  # fmt: skip
TOKEN = re.compile(
    r'(?P<space>\s+)|(?P<string>"[^"]*")|(?P<number>0[fFdD][0-9a-fA-F]+|0[xX][0-9a-fA-F]+U?|\d+U?)'
    r"|(?P<name>[.%$_A-Za-z][\w.$%]*(?:::[\w.]+)*)|(?P<sign>[-{}\[\](),;:@!+<>|=])"
)


class PtxError(Exception):
    """PTX that cannot be read, that does something undefined, or that never ends; with the line where it stands."""


class Register(NamedTuple):
    """Register `slot` of a function, `bits` wide; 1: a predicate. negated: of a predicate, as a source."""

    slot: int
    bits: int
    negated: bool = False


class Constant(NamedTuple):
    """An integer, or a float's bits: `float_bits` 32 or 64, 0 for an integer."""

    value: int
    float_bits: int = 0


class Name(NamedTuple):
    """A special register, a variable, a parameter, a label or a function."""

    name: str


class Address(NamedTuple):
    """[base + offset], or [base, {coordinates}]."""

    base: "Register | Constant | Name"
    offset: int
    coordinates: tuple["Register | Constant | Name", ...] = ()


class Many(NamedTuple):
    """{a, b, ...}; of a call, (a, b, ...)."""

    items: tuple["Register | Constant | Name", ...]


class Pair(NamedTuple):
    """d|p: a result and a predicate."""

    first: "Register | Name"
    second: "Register | Name"


Single = Register | Constant | Name
Operand = Single | Address | Many | Pair


@dataclass(frozen=True)
class Instruction:
    """words: the opcode, split at its dots. guard: the predicate before it. line: of the module, from 1 on."""

    words: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    line: int

    @property
    def opcode(self) -> str:
        return ".".join(self.words)

    @property
    def type(self) -> str:
        """Type of the instruction: the last word that is one. Raises PtxError where none is."""
        for word in reversed(self.words):
            if word in BITS:
                return word
        raise PtxError(f"line {self.line}: {self.opcode} has no type")


@dataclass(frozen=True)
class Variable:
    """A variable, or parameter: `count` elements of `type`. values: that it starts with; the rest are zeros."""

    name: str
    type: str
    count: int
    align: int
    space: str
    values: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        return max(BITS[self.type], 8) // 8 * self.count


@dataclass
class Function:
    """A kernel or a device function."""

    name: str
    parameters: list[Variable] = field(default_factory=list[Variable])
    results: list[Variable] = field(default_factory=list[Variable])
    code: list[Instruction] = field(default_factory=list[Instruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    variables: list[Variable] = field(default_factory=list[Variable])
    widths: list[int] = field(default_factory=list[int])


@dataclass
class Module:
    functions: dict[str, Function] = field(default_factory=dict[str, Function])
    variables: dict[str, Variable] = field(default_factory=dict[str, Variable])


class Token(NamedTuple):
    kind: str
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """Raises PtxError for a character that begins nothing."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    found: list[Token] = []
    for number, line in enumerate(text.split("\n"), 1):
        line, at = line.partition("//")[0], 0
        while at < len(line):
            match = TOKEN.match(line, at)
            if not match:
                raise PtxError(f"line {number}: cannot read {line[at:]!r}")
            if match.lastgroup != "space":
                found.append(Token(str(match.lastgroup), match[0], number))
            at = match.end()
    return found


def parse(text: str) -> Module:
    """Raises PtxError for what it does not know."""
    return _Parser(tokens(text)).module()


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self.tokens = found
        self.at = 0
        self.scopes: list[dict[str, Register]] = []
        self.function = Function("")

    # ---- tokens
    @property
    def next(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise PtxError("the module ends within something")
        self.at += 1
        return self.tokens[self.at - 1].text

    def expect(self, text: str) -> None:
        if self.next != text:
            self.fail(f"expected {text!r}, found {self.next!r}")
        self.at += 1

    def taken(self, text: str) -> bool:
        if self.next != text:
            return False
        self.at += 1
        return True

    def fail(self, problem: str) -> None:
        line = self.tokens[min(self.at, len(self.tokens) - 1)].line
        raise PtxError(f"line {line}: {problem}")

    # ---- modules
    def module(self) -> Module:
        module = Module()
        while self.next:
            word = self.take()
            if word in (".visible", ".weak", ".extern"):
                continue
            if word in (".version", ".target", ".address_size"):
                line = self.tokens[self.at - 1].line
                while self.at < len(self.tokens) and self.tokens[self.at].line == line:
                    self.at += 1
            elif word in (".entry", ".func"):
                function = self.read_function()
                if function.code or function.name not in module.functions:
                    module.functions[function.name] = function
            elif word in (".global", ".shared", ".const"):
                variable = self.variable(word[1:])
                module.variables[variable.name] = variable
                self.expect(";")
            else:
                self.fail(f"cannot read {word!r}")
        return module

    def variable(self, space: str) -> Variable:
        align, kind = 1, ""
        while self.next.startswith("."):
            word = self.take()
            if word == ".align":
                align = int(self.take())
            elif word[1:] in BITS:
                kind = word[1:]
            elif word not in (".ptr", ".global", ".shared"):
                self.fail(f"cannot read {word!r}")
        if not kind:
            self.fail("no type")
        name, count, values = self.take(), 1, tuple[int, ...]()
        if self.taken("["):
            count = 0 if self.next == "]" else int(self.take())
            self.expect("]")
        if self.taken("="):
            several = self.taken("{")
            listed = [self.constant().value]
            while several and self.taken(","):
                listed.append(self.constant().value)
            if several:
                self.expect("}")
            values = tuple(listed)
        return Variable(name, kind, count, align, space, values)

    def parameters(self) -> list[Variable]:
        found: list[Variable] = []
        self.expect("(")
        while not self.taken(")"):
            self.expect(".param")
            found.append(self.variable("param"))
            self.taken(",")
        return found

    def read_function(self) -> Function:
        function = self.function = Function("")
        if self.next == "(":
            function.results = self.parameters()
        function.name = self.take()
        if self.next == "(":
            function.parameters = self.parameters()
        while self.next not in ("{", ";"):  # .maxntid 64, 1, 1 and the like
            self.take()
        if self.take() == "{":
            self.scopes = [{}]
            while self.scopes:
                self.statement()
        for instruction in function.code:
            target = instruction.operands[0] if instruction.words[0] == "bra" else None
            if isinstance(target, Name) and target.name not in function.labels:
                raise PtxError(f"line {instruction.line}: no label {target.name}")
        return function

    # ---- statements
    def statement(self) -> None:
        if not self.next:
            raise PtxError("the module ends within something")
        if self.taken("{"):
            self.scopes.append({})
        elif self.taken("}"):
            self.scopes.pop()
        elif self.next == ".reg":
            self.registers()
        elif self.next in (".shared", ".param", ".local"):
            self.function.variables.append(self.variable(self.take()[1:]))
            self.expect(";")
        elif self.next in (".pragma", ".loc"):
            while self.take() != ";":
                pass
        elif self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].text == ":":
            self.function.labels[self.take()] = len(self.function.code)
            self.take()
        else:
            self.instruction()

    def registers(self) -> None:
        self.take()
        bits = BITS[self.take()[1:]]
        while True:
            name = self.take()
            if self.taken("<"):
                names = [f"{name}{i}" for i in range(int(self.take()))]
                self.expect(">")
            else:
                names = [name]
            for each in names:
                self.scopes[-1][each] = Register(len(self.function.widths), bits)
                self.function.widths.append(bits)
            if not self.taken(","):
                break
        self.expect(";")

    def instruction(self) -> None:
        line, guard = self.tokens[self.at].line, None
        if self.taken("@"):
            negated = self.taken("!")
            found = self.single()
            if not isinstance(found, Register) or found.bits != 1:
                raise PtxError(f"line {line}: no predicate after @")
            guard = found._replace(negated=negated)
        words, operands = tuple(self.take().split(".")), list[Operand]()
        while not self.taken(";"):
            operands.append(self.operand())
            if not self.taken(","):
                self.expect(";")
                break
        self.function.code.append(Instruction(words, tuple(operands), guard, line))

    def operand(self) -> Operand:
        if self.taken("["):
            base, offset = self.single(), 0
            if self.taken("+") or self.next == "-":
                offset = self.constant().value
            coordinates = self.listed("{", "}") if self.taken(",") else ()
            self.expect("]")
            return Address(base, offset, coordinates)
        if self.next == "{":
            return Many(self.listed("{", "}"))
        if self.next == "(":
            return Many(self.listed("(", ")"))
        first = self.single()
        if self.taken("|"):
            second = self.single()
            if isinstance(first, Constant) or isinstance(second, Constant):
                raise PtxError(f"line {self.tokens[self.at].line}: a constant as a result")
            return Pair(first, second)
        return first

    def listed(self, begin: str, end: str) -> tuple[Single, ...]:
        self.expect(begin)
        found: list[Single] = []
        while not self.taken(end):
            found.append(self.single())
            self.taken(",")
        return tuple(found)

    def single(self) -> Single:
        if self.taken("!"):
            found = self.single()
            if not isinstance(found, Register):
                raise PtxError(f"line {self.tokens[self.at].line}: no predicate after !")
            return found._replace(negated=True)
        if self.next == "-" or self.tokens[self.at].kind == "number":
            return self.constant()
        if self.tokens[self.at].kind != "name":
            self.fail(f"expected an operand, found {self.next!r}")
        name = self.take()
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return Name(name)

    def constant(self) -> Constant:
        if self.taken("-"):
            return Constant(-self.constant().value)
        text = self.take()
        kind = text[:2].lower()
        if kind in ("0f", "0d"):
            return Constant(int(text[2:], 16), 32 if kind == "0f" else 64)
        try:
            return Constant(int(text.rstrip("U"), 0))
        except ValueError as e:
            raise PtxError(f"line {self.tokens[self.at - 1].line}: {text!r} is no number") from e
