"""Index expressions against brute force."""

import random
from itertools import product

import pytest

from codegen.lowering.index import Affine, Axes, Axis, Cut, Opaque, Split, clamp, cut_at, digit, div_mod, region, var


def value(e: Affine, at: dict[Axis, int]) -> int:
    total = e.c
    for term, k in e.terms:
        if isinstance(term, Axis):
            total += k * at[term]
        else:
            assert isinstance(term, Opaque)
            inner = value(term.of, at)
            v = min(max(inner, 0), term.extent - 1) if term.is_clamp else inner // term.divisor % term.extent
            total += k * v
    return total


def points(axes: list[Axis]) -> list[dict[Axis, int]]:
    return [dict(zip(axes, p, strict=True)) for p in product(*(range(a.extent) for a in axes))]


def random_affine(rng: random.Random) -> tuple[Affine, list[Axis]]:
    axes = Axes()
    chosen = [axes.new(rng.choice([1, 2, 3, 4, 5, 6, 8])) for _ in range(rng.randrange(1, 4))]
    return Affine.of(rng.randrange(6), [(a, rng.choice([0, 1, 2, 3, 4, 6, 8, 12])) for a in chosen]), chosen


@pytest.mark.parametrize("seed", range(300))
def test_div_mod_is_division(seed: int) -> None:
    rng = random.Random(seed)
    e, axes = random_affine(rng)
    n = rng.choice([1, 2, 3, 4, 6, 7, 8, 12])
    quotient, rest = div_mod(e, n, refine=False)
    for at in points(axes):
        assert divmod(value(e, at), n) == (value(quotient, at), value(rest, at))


@pytest.mark.parametrize("seed", range(300))
def test_refinement_ends_and_keeps_every_point(seed: int) -> None:
    """Splits and cuts, followed until none is asked for, cover exactly the values that the expression had."""
    rng = random.Random(1000 + seed)
    e, axes = random_affine(rng)
    n = rng.choice([2, 3, 4, 6, 8])
    fresh = Axes()
    pieces, done = [e.subst({a: var(fresh.new(a.extent)) for a in axes})], []
    while pieces:
        piece = pieces.pop()
        assert len(pieces) + len(done) < 500
        try:
            div_mod(piece, n, refine=True)
            done.append(piece)
        except Split as s:
            axis, radix = s.axis, s.inner
            outer, inner = fresh.new(axis.extent // radix), fresh.new(radix)
            assert axis.extent % radix == 0
            pieces.append(piece.subst({axis: var(outer) * radix + var(inner)}))
        except Cut as c:
            axis, bound = c.axis, c.at
            assert 0 < bound < axis.extent
            first, second = fresh.new(bound), fresh.new(axis.extent - bound)
            pieces += [piece.subst({axis: var(first)}), piece.subst({axis: var(second) + bound})]
    axes = [a for a in axes if a.extent > 1 and e.coef(a)]
    whole = sorted(value(e, at) for at in points(axes))
    assert sorted(value(p, at) for p in done for at in points(list(p.axes))) == whole


def test_digit_and_clamp_are_plain_where_the_range_allows() -> None:
    i = Axes().new(8)
    assert digit(var(i), 1, 8) == var(i)
    assert digit(var(i) + 16, 8, 4) == Affine(2)
    assert clamp(var(i) + 1, 20) == var(i) + 1
    assert clamp(var(i) + -9, 20) == Affine(0)
    assert clamp(var(i) + 30, 20) == Affine(19)


def test_substitution_reaches_opaque_terms() -> None:
    axes = Axes()
    i, hi, lo = axes.new(12), axes.new(4), axes.new(3)
    e = digit(var(i) * 5, 4, 7) + clamp(var(i) + -2, 6) * 10
    f = e.subst({i: var(hi) * 3 + var(lo)})
    for at in points([hi, lo]):
        assert value(f, at) == value(e, {i: 3 * at[hi] + at[lo]})


def test_region_and_cut() -> None:
    i = Axes().new(10)
    assert region(var(i), (0, 10, 20)) == 0
    assert region(var(i) + 4, (0, 10, 20)) is None
    cut = cut_at(var(i) + 4, (0, 10, 20))
    assert cut is not None and (cut.axis, cut.at) == (i, 6)
