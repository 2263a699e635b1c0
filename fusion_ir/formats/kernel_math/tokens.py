"""The place of a %kernel_math dump in a text, and its tokens, each with line and column."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from fusion_ir.core.limits import LIMITS, check_count
from fusion_ir.errors import FormatError, excerpt, line_and_column

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      | (?P<header>%kernel(?:_math)?(?![A-Za-z0-9_]))
      | (?P<float>[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
      | (?P<integer>[0-9]+)
      | (?P<word>[A-Za-z_](?:[A-Za-z0-9_]|\.[A-Za-z_]|::[A-Za-z_])*)
      | (?P<mark><<|>>|<=|>=|==|!=|&&|\|\||[\[\](){},:;=<>+*/%&|^!~-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_INPUTS = re.compile(r"^[ \t]*Inputs:[ \t]*\r?$", re.MULTILINE)
_HEADER = re.compile(r"^[ \t]*%kernel(?:_math)?[ \t]*\{", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is header, float, integer, word, mark or end; `place` is "line:column"."""

    kind: str
    text: str
    place: str


class Cursor:
    """The tokens of the one dump in a text, read as they are asked for: memory does not grow with the text."""

    def __init__(self, text: str) -> None:
        start = _start(text)
        self._tokens = _tokens(text, start)
        self._ahead: deque[Token] = deque()
        self.last = Token("start", "", line_and_column(text, start))

    def peek(self, distance: int = 0) -> Token:
        """The token that comes next, or `distance` tokens behind it; the end token for ever after the end."""
        while len(self._ahead) <= distance:
            self._ahead.append(next(self._tokens))
        return self._ahead[distance]

    def take(self) -> Token:
        self.last = self.peek()
        return self._ahead.popleft()

    def at(self, mark: str, distance: int = 0) -> bool:
        """Whether `mark` (or word) stands there."""
        token = self.peek(distance)
        return token.text == mark and token.kind in ("mark", "word", "header")

    def skip(self, mark: str) -> bool:
        """Steps over `mark` if it comes next."""
        if self.at(mark):
            self.take()
            return True
        return False

    def expect(self, mark: str) -> Token:
        if not self.at(mark):
            raise self.error(repr(mark))
        return self.take()

    def error(self, expected: str) -> FormatError:
        """The error that says what was expected, and which token comes next instead."""
        token = self.peek()
        if token.kind == "end":
            return FormatError(token.place, f"the dump ends here, expected {expected}")
        return FormatError(token.place, f"expected {expected}, got {excerpt(token.text)}")


def _start(text: str) -> int:
    """Where `Inputs:` begins. Lines of a log around the dump are skipped; two dumps are refused."""
    inputs = list(_INPUTS.finditer(text))
    if not inputs:
        header = _HEADER.search(text)
        place = line_and_column(text, header.start()) if header else "1:1"
        raise FormatError(place, "expected the list 'Inputs:' on a line of its own before %kernel_math")
    headers = list(_HEADER.finditer(text, inputs[0].end()))
    for what, found in (("Inputs:", inputs), ("%kernel_math", headers)):
        if len(found) > 1:
            first, second = (line_and_column(text, f.start()).partition(":")[0] for f in found[:2])
            place = line_and_column(text, found[1].start())
            raise FormatError(place, f"{what} stands on line {first} and on line {second}: two dumps, expected one")
    return inputs[0].start()


def _tokens(text: str, start: int) -> Iterator[Token]:
    """The tokens up to the end of the text, then end tokens without end."""
    line, line_start, at = text.count("\n", 0, start) + 1, text.rfind("\n", 0, start) + 1, start
    behind_last, count = f"{line}:1", 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        place = f"{line}:{at - line_start + 1}"
        if match is None:
            raise FormatError(place, f"unexpected character {excerpt(text[at])}")
        at, count = match.end(), count + 1
        check_count(place, "words, numbers, marks and gaps between them", count, LIMITS.tokens)
        if match.lastgroup != "space":
            yield Token(str(match.lastgroup), match.group(), place)
            behind_last = f"{line}:{at - line_start + 1}"
        if newlines := match.group().count("\n"):
            line += newlines
            line_start = text.rfind("\n", 0, at) + 1
    while True:
        yield Token("end", "", behind_last)
