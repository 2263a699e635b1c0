"""Index expressions: affine sums over loop axes, and their digits.

Axis      one loop variable with an extent; a digit of a mixed radix or a piece of a cut axis is an axis too
Affine    c + sum(coef * term), coef > 0; what a view op rewrites
Digit     (e // divisor) % extent, and Clamp: min(max(e, 0), extent - 1); opaque terms, used only where radices do not
          nest or pieces would be too many: no access over them is contiguous
Fetched   a value read from memory, used as an index (gathers)
Split/Cut raised by a view that cannot be expressed over the present axes; `pull` refines the axis and starts again
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd, prod
from typing import Protocol


@dataclass(frozen=True, eq=False)
class Axis:
    """A loop variable over [0, extent). Axes are told apart by identity; `uid` orders them."""

    uid: int
    extent: int

    def __repr__(self) -> str:
        return f"i{self.uid}"


class Axes:
    """Makes axes with consecutive numbers, so that a lowering prints the same text every time."""

    def __init__(self, uid: int = 0) -> None:
        self._uid = uid

    def new(self, extent: int) -> Axis:
        self._uid += 1
        return Axis(self._uid - 1, extent)

    def fork(self) -> "Axes":
        """A copy that counts on from here, for one of several lowerings with a common beginning."""
        return Axes(self._uid)


class Indexing(Protocol):
    """A value that can be an index: see `codegen.lowering.value.Value`."""

    @property
    def deps(self) -> frozenset[Axis]: ...
    @property
    def uid(self) -> int: ...


@dataclass(frozen=True)
class Fetched:
    """An integer value as an index, in [0, extent)."""

    value: Indexing
    extent: int

    def __repr__(self) -> str:
        return f"v{self.value.uid}"


@dataclass(frozen=True)
class Opaque:
    """A term that is not affine, with values in [0, extent). Either a digit or a clamped index of `of`."""

    of: "Affine"
    extent: int
    divisor: int = 1
    is_clamp: bool = False

    def __repr__(self) -> str:
        return f"clamp({self.of}, {self.extent})" if self.is_clamp else f"({self.of}) / {self.divisor} % {self.extent}"


Term = Axis | Opaque | Fetched


@dataclass(frozen=True)
class Affine:
    """c + sum(coef * term), terms of extent > 1 with coef > 0, the largest coef first. Build with `Affine.of`."""

    c: int = 0
    terms: tuple[tuple[Term, int], ...] = ()

    @staticmethod
    def of(c: int, pairs: Iterable[tuple[Term, int]]) -> "Affine":
        coefs: dict[Term, int] = {}
        for term, coef in pairs:
            if coef and term.extent > 1:
                coefs[term] = coefs.get(term, 0) + coef
        if len(coefs) < 2:
            return Affine(c, tuple(coefs.items()))
        return Affine(c, tuple(sorted(coefs.items(), key=_rank)))

    @cached_property
    def _hash(self) -> int:
        return hash((self.c, self.terms))

    def __hash__(self) -> int:
        """The hash, computed once: indices are keys of dictionaries whenever something is pulled."""
        return self._hash

    def __add__(self, other: "Affine | int") -> "Affine":
        if isinstance(other, int):
            return Affine(self.c + other, self.terms) if other else self
        if not other.terms:
            return self + other.c
        if not self.terms:
            return other + self.c
        return Affine.of(self.c + other.c, self.terms + other.terms)

    def __mul__(self, factor: int) -> "Affine":
        if factor == 1:
            return self
        return Affine.of(self.c * factor, [(t, k * factor) for t, k in self.terms])

    def __repr__(self) -> str:
        parts = [f"{k}*{t}" if k > 1 else f"{t}" for t, k in self.terms]
        return " + ".join(parts + ([str(self.c)] if self.c or not parts else []))

    @cached_property
    def low(self) -> int:
        """Least value."""
        return self.c

    @cached_property
    def high(self) -> int:
        """Largest value."""
        return self.c + sum(k * (t.extent - 1) for t, k in self.terms)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """The axes it varies with, those inside opaque terms included, once each."""
        found: dict[Axis, None] = {}
        for term, _ in self.terms:
            for axis in _axes_of(term):
                found[axis] = None
        return tuple(found)

    @cached_property
    def fetched(self) -> tuple[Indexing, ...]:
        """The values it is indexed by, once each."""
        found: dict[Indexing, None] = {}
        for term, _ in self.terms:
            inner = (term.value,) if isinstance(term, Fetched) else term.of.fetched if isinstance(term, Opaque) else ()
            found.update(dict.fromkeys(inner))
        return tuple(found)

    def coef(self, axis: Axis) -> int:
        """The coefficient of an axis as a plain term, 0 if it has none."""
        return next((k for t, k in self.terms if t is axis), 0)

    @property
    def opaque_axes(self) -> set[Axis]:
        """The axes inside opaque and fetched terms."""
        return {a for t, _ in self.terms if not isinstance(t, Axis) for a in _axes_of(t)}

    def subst(self, mapping: "Mapping[Axis, Affine]") -> "Affine":
        """Each axis replaced by its expression. Raises TypeError where a fetched value varies with one: `refetch`."""
        if not any(a in mapping for a in self.axes):
            return self
        total = Affine(self.c)
        for term, coef in self.terms:
            if isinstance(term, Fetched):
                if any(a in mapping for a in term.value.deps):
                    raise TypeError(f"{term} is a value: rewrite it first")
                total = total + Affine.of(0, [(term, coef)])
            elif isinstance(term, Opaque):
                total = total + (clamp if term.is_clamp else digit)(term.of.subst(mapping), *_shape(term)) * coef
            else:
                total = total + mapping.get(term, var(term)) * coef
        return total

    def refetch(self, change: "Callable[[Indexing], Indexing]") -> "Affine":
        """Each fetched value replaced by another of the same range."""
        if not self.fetched:
            return self

        def changed(term: Term) -> Term:
            if isinstance(term, Fetched):
                return Fetched(change(term.value), term.extent)
            return replace(term, of=term.of.refetch(change)) if isinstance(term, Opaque) else term

        return Affine.of(self.c, ((changed(t), k) for t, k in self.terms))


def _shape(term: Opaque) -> tuple[int, ...]:
    return (term.extent,) if term.is_clamp else (term.divisor, term.extent)


def _axes_of(term: Term) -> tuple[Axis, ...]:
    if isinstance(term, Axis):
        return (term,)
    return term.of.axes if isinstance(term, Opaque) else tuple(sorted(term.value.deps, key=lambda a: a.uid))


def _rank(item: tuple[Term, int]) -> tuple[int, tuple[int, ...]]:
    """Sort key of a term and its coefficient in an expression: larger coefficients first."""
    term, coef = item
    return -coef, _order(term)


def _order(term: Term) -> tuple[int, ...]:
    if isinstance(term, Fetched):
        return (1 << 31, term.value.uid)
    return (term.uid,) if isinstance(term, Axis) else (1 << 30, *(a.uid for a in term.of.axes))


def var(axis: Axis) -> Affine:
    """The axis itself (0 for one of extent 1)."""
    return Affine.of(0, [(axis, 1)])


def digit(e: Affine, divisor: int, extent: int) -> Affine:
    """(e // divisor) % extent as an opaque term; plain where the range of `e` allows."""
    if e.low >= 0 and e.high < divisor * extent and divisor == 1:
        return e
    if e.low // divisor == e.high // divisor:
        return Affine(e.low // divisor % extent)
    return Affine.of(0, [(Opaque(e, extent, divisor), 1)])


def clamp(e: Affine, extent: int) -> Affine:
    """min(max(e, 0), extent - 1); plain where the range of `e` allows."""
    if e.low >= 0 and e.high < extent:
        return e
    if e.high <= 0 or extent == 1:
        return Affine(0)
    if e.low >= extent - 1:
        return Affine(extent - 1)
    return Affine.of(0, [(Opaque(e, extent, is_clamp=True), 1)])


def flatten(index: Iterable[Affine], strides: Iterable[int]) -> Affine:
    """sum(index * stride)."""
    scaled = [(e, stride) for e, stride in zip(index, strides, strict=True)]
    terms = [(t, k * stride) for e, stride in scaled for t, k in e.terms]
    return Affine.of(sum(e.c * stride for e, stride in scaled), terms)


class Refine(Exception):
    """An axis must be refined before an index can be written over it."""

    def __init__(self, axis: Axis) -> None:
        super().__init__(f"refine {axis}")
        self.axis = axis


class Split(Refine):
    """axis -> inner * hi + lo."""

    def __init__(self, axis: Axis, inner: int) -> None:
        super().__init__(axis)
        self.inner = inner


class Cut(Refine):
    """Two pieces: axis in [0, at) and axis in [at, extent)."""

    def __init__(self, axis: Axis, at: int) -> None:
        super().__init__(axis)
        self.at = at


SMALL = 8  # an axis this short may be cut into single values


def div_mod(e: Affine, n: int, *, refine: bool) -> tuple[Affine, Affine]:
    """(e // n, e % n).

    Where a term straddles a multiple of n: raises Split or Cut if `refine`, else (and where radices do not nest) the
    two come back as opaque digits.
    """
    quotient = Affine.of(e.c // n, ((t, k // n) for t, k in e.terms))
    rest = Affine.of(e.c % n, ((t, k % n) for t, k in e.terms))
    if rest.high < n:
        return quotient, rest
    if refine:
        _refine_for(rest, n)
    return quotient + digit(rest, n, rest.high // n + 1), digit(rest, 1, n)


def _refine_for(rest: Affine, n: int) -> None:
    """Raises the Split or Cut that brings `rest` nearer to lying within one multiple of n; returns where none does."""
    plain = [(t, k) for t, k in rest.terms if isinstance(t, Axis)]
    for axis, k in plain:
        if n % k == 0:
            inner = gcd(n // k, axis.extent)
            if 1 < inner < axis.extent:
                raise Split(axis, inner)
            at = -(-(n - rest.c) // k)
            if 0 < at < axis.extent and rest.high < SMALL * n:
                raise Cut(axis, at)
    for axis, k in plain:
        if n % k:
            period = n // gcd(n, k)
            if period < axis.extent and axis.extent % period == 0:
                raise Split(axis, period)
    for axis, k in plain:
        if k > 1 and axis.extent <= SMALL:
            raise Cut(axis, 1)


def region(e: Affine, bounds: tuple[int, ...]) -> int | None:
    """Which of the ranges [bounds[i], bounds[i+1]) holds all of `e`; None if it straddles a bound."""
    for i in range(len(bounds) - 1):
        if bounds[i] <= e.low and e.high < bounds[i + 1]:
            return i
    return None


def cut_at(e: Affine, bounds: tuple[int, ...]) -> Cut | None:
    """The cut that separates `e` at the first bound inside its range; None where its terms are opaque."""
    for bound in bounds:
        if e.low < bound <= e.high:
            axis, k = e.terms[0]
            if isinstance(axis, Axis):
                return Cut(axis, min(max((bound - e.c) // k, 1), axis.extent - 1))
    return None


def volume(axes: Iterable[Axis]) -> int:
    """Product of the extents."""
    return prod(a.extent for a in axes)
