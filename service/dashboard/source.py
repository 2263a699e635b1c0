"""Generated source for reading: lines of escaped text with a few kinds of token marked."""

import re
from html import escape

MAX_LINES = 3000

_TOKENS = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<directive>^[ \t]*#[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<keyword>\b(?:auto|bool|boolean|break|char|const|constexpr|continue|double|else|extern|f16|bf16|f8e4m3|f8e5m2|float|for|if|idx_t"
    r"|inline|int|int8_t|int16_t|int32_t|int64_t|uint8_t|uint32_t|uint64_t|long|namespace|return|short|signed|sizeof|static|struct|template"
    r"|typename|unsigned|using|void|while|Vec|__global__|__device__|__shared__|__restrict__|RESTRICT|VDEV)\b)"
    r"|(?P<number>\b(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)[fFuUlL]*\b)",
    re.MULTILINE | re.DOTALL,
)


def count(text: str) -> int:
    """Lines of a text."""
    return text.rstrip("\n").count("\n") + 1


def lines(text: str) -> list[str]:
    """One piece of HTML per line; every character of `text` is escaped. At most MAX_LINES; the caller says so."""
    pieces: list[str] = []
    position = 0
    for match in _TOKENS.finditer(text):
        pieces.append(escape(text[position : match.start()]))
        # A token over several lines (a block comment) is marked on each, so that lines stand alone.
        marked = (f'<span class="{match.lastgroup}">{escape(part)}</span>' for part in match.group().split("\n"))
        pieces.append("\n".join(marked))
        position = match.end()
    pieces.append(escape(text[position:]))
    return "".join(pieces).rstrip("\n").split("\n")[:MAX_LINES]
