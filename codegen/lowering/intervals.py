"""Ranges: bounds that whole numbers provably keep to, from constants, indices and types."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from codegen.lowering.index import volume
from codegen.lowering.scatters import ADD_LISTED
from codegen.lowering.value import Value
from fusion_ir.dtype import DType

Range = tuple[int, int]  # least and largest
Rule = Callable[[Sequence[Range]], Range | None]

LONGEST_SHIFT = 63


def whole(dtype: DType) -> Range:
    """All values of an integer type, or of bool as 0 and 1."""
    if dtype.kind == "bool":
        return 0, 1
    bits = 8 * dtype.bytes
    return (0, (1 << bits) - 1) if dtype.kind == "uint" else (-(1 << bits - 1), (1 << bits - 1) - 1)


def within(a: Range, b: Range) -> bool:
    return b[0] <= a[0] and a[1] <= b[1]


def _corners(f: Callable[[int, int], int]) -> Rule:
    """Rule of a function that is monotonic in each operand: its values at the corners of the operands' ranges."""

    def rule(args: Sequence[Range]) -> Range:
        found = [f(a, b) for a, b in product(*args)]
        return min(found), max(found)

    return rule


def _square(args: Sequence[Range]) -> Range:
    low, high = _abs(args)
    return low * low, high * high


def _abs(args: Sequence[Range]) -> Range:
    ((low, high),) = args
    return max(low, -high, 0), max(-low, high)


def _where(args: Sequence[Range]) -> Range:
    _, a, b = args
    return min(a[0], b[0]), max(a[1], b[1])


def _clamp(args: Sequence[Range]) -> Range:
    at_low, at_high = ([min(max(x, low), high) for x, low, high in zip(*args, strict=True)][i] for i in (0, 1))
    return at_low, at_high


def _if_positive(rule: Rule) -> Rule:
    """Rule of a quotient or a remainder: `rule` for divisors above 0, None where the divisor may be 0 or less."""
    return lambda args: rule(args) if args[1][0] > 0 else None


def _truncated(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


def _remainder(args: Sequence[Range]) -> Range:
    a, b = args
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def _fmod(args: Sequence[Range]) -> Range:
    a, b = args
    return max(min(a[0], 0), 1 - b[1]), min(max(a[1], 0), b[1] - 1)


def _if_short(rule: Rule) -> Rule:
    """Rule of a shift: `rule` for counts from 0 to LONGEST_SHIFT, which mean one thing in every type; else None."""
    return lambda args: rule(args) if within(args[1], (0, LONGEST_SHIFT)) else None


def _bits(args: Sequence[Range]) -> Range:
    """Range of a bitwise result: as many bits as the longest operand; not negative where no operand can be."""
    bits = max((x if x >= 0 else ~x).bit_length() for a in args for x in a)
    return (0 if all(a[0] >= 0 for a in args) else -(1 << bits)), (1 << bits) - 1


def _and(args: Sequence[Range]) -> Range:
    masks = [a[1] for a in args if a[0] >= 0]
    return (0, min(masks)) if masks else _bits(args)


# By op: from the operands' ranges the range of the exact result, before anything wraps.
RULES: Mapping[str, Rule] = {
    "add": _corners(lambda a, b: a + b),
    "sub": _corners(lambda a, b: a - b),
    "mul": _corners(lambda a, b: a * b),
    "maximum": _corners(max),
    "minimum": _corners(min),
    "clamp": _clamp,
    "where": _where,
    "neg": lambda args: (-args[0][1], -args[0][0]),
    "abs": _abs,
    "square": _square,
    "sign": lambda args: ((args[0][0] > 0) - (args[0][0] < 0), (args[0][1] > 0) - (args[0][1] < 0)),
    "relu": lambda args: (max(args[0][0], 0), max(args[0][1], 0)),
    "floordiv": _if_positive(_corners(lambda a, b: a // b)),
    "div": _if_positive(_corners(_truncated)),
    "remainder": _if_positive(_remainder),
    "fmod": _if_positive(_fmod),
    "bitwise_and": _and,
    "bitwise_or": _bits,
    "bitwise_xor": _bits,
    "bitwise_not": lambda args: (~args[0][1], ~args[0][0]),
    "shift_left": _if_short(_corners(lambda a, b: a << b)),
    "shift_right": _if_short(_corners(lambda a, b: a >> b)),
}


@dataclass
class Intervals:
    """Ranges of values whose types are integers or bool. Ask for operands before their users."""

    known: dict[Value, Range] = field(default_factory=dict[Value, Range])

    def of(self, v: Value) -> Range:
        """The range in which every element of `v` lies."""
        if v not in self.known:
            exact = self.exact(v)
            self.known[v] = exact if exact and within(exact, whole(v.dtype)) else whole(v.dtype)
        return self.known[v]

    def exact(self, v: Value) -> Range | None:
        """Range of the result of `v` before it wraps to its type; None where nothing is known of it."""
        if v.op == "const":
            return int(v.scalar.value), int(v.scalar.value)
        if v.op == "index":
            return v.offset.low, v.offset.high
        if any(a.dtype.is_float for a in v.args) or v.dtype.kind == "bool":
            return None
        if v.op == "cast":
            return self.of(v.args[0])
        if v.op in ("reduce", "scan"):
            return self._of_many(v)
        rule = RULES.get(v.op)
        return rule([self.of(a) for a in v.args]) if rule else None

    def _of_many(self, v: Value) -> Range | None:
        """Range of a reduction's or scan's result and of all its partial results, such as a sum of fewer terms."""
        (low, high), count = self.of(v.args[0]), volume((*v.bound, *v.scanned))
        if v.attr[0] in ("add", ADD_LISTED):
            return min(low, 0) * count, max(high, 0) * count
        return (low, high) if v.attr[0] in ("minimum", "maximum") else None
