"""Access widths: never wider than the addresses allow, and as wide as they allow."""

import random
from itertools import product

import pytest

from codegen.lowering.access import in_groups, pattern
from codegen.lowering.index import Affine, Axes, digit, var
from tests.unit.codegen.test_index import value


def widest(e: Affine, lane: object, vector: int, alignment: int) -> int:
    """Largest power of two such that every group of so many lanes is consecutive and starts at a multiple of it."""
    others = [a for a in e.axes if a is not lane]
    width = 1
    while 2 * width <= min(vector, alignment):
        bigger = 2 * width
        for point in product(*(range(a.extent) for a in others)):
            at = dict(zip(others, point, strict=True))
            for start in range(0, lane.extent - vector + 1, vector):  # type: ignore[attr-defined]
                offsets = [value(e, at | {lane: start + l}) for l in range(vector)]  # type: ignore[dict-item]
                for first in range(0, vector, bigger):
                    group = offsets[first : first + bigger]
                    if group[0] % bigger or group != list(range(group[0], group[0] + bigger)):
                        return width
        width = bigger
    return width


@pytest.mark.parametrize("seed", range(400))
@pytest.mark.sweep(0.25)
def test_vector_width_is_what_addresses_allow(seed: int) -> None:
    rng = random.Random(seed)
    axes = Axes()
    lane = axes.new(rng.choice([8, 16, 32]))
    others = [axes.new(rng.choice([2, 3, 4])) for _ in range(rng.randrange(3))]
    e = Affine.of(
        rng.choice([0, 0, 1, 2, 4, 6, 8]), [(lane, 1), *((a, rng.choice([1, 2, 3, 4, 6, 8, 24, 64])) for a in others)]
    )
    vector, alignment = rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 4, 8, 16])
    found = pattern(e, lane, vector, alignment)
    assert found.kind == "vector"
    assert found.width == widest(e, lane, vector, alignment)


@pytest.mark.parametrize("seed", range(300))
@pytest.mark.sweep(0.25)
def test_digit_patterns_say_what_lanes_read(seed: int) -> None:
    """A tile repeats its first `step` lanes, a repeat holds each element for `step` lanes; anything else is "lanes"."""
    rng = random.Random(seed)
    axes = Axes()
    inner, outer = rng.choice([1, 2, 3, 4, 8]), rng.choice([2, 3, 5, 16])
    lane, other = axes.new(inner * outer), axes.new(3)
    term = digit(var(lane), 1, inner) if rng.random() < 0.5 else digit(var(lane), inner, outer)
    e = term * rng.choice([1, 1, 1, 2]) + var(other) * rng.choice([1, 4, 8, 32]) + rng.choice([0, 1, 4])
    vector = rng.choice([2, 4, 8])
    found = pattern(e, lane, vector, 16)
    for at in ({other: o} for o in range(3)):
        for start in range(0, lane.extent - vector + 1, vector):
            lanes = [value(e, at | {lane: start + l}) for l in range(vector)]
            base = lanes[0]
            if found.kind == "tile":
                assert lanes == [base + l % found.step for l in range(vector)]
            elif found.kind == "repeat":
                assert lanes == [base + l // found.step for l in range(vector)]
            elif found.kind == "vector":
                assert lanes == [base + l for l in range(vector)]
            elif found.kind == "strided":
                assert lanes == [base + found.step * l for l in range(vector)]
            elif found.kind == "splat":
                assert set(lanes) == {base}
            if found.kind in ("tile", "repeat"):
                assert base % found.width == 0


@pytest.mark.parametrize("seed", range(400))
@pytest.mark.sweep(0.25)
def test_groups_of_lanes_are_the_largest_that_one_address_reads(seed: int) -> None:
    """Against all addresses: no group is wrong, and none could be twice as large."""
    rng = random.Random(seed)
    axes = Axes()
    inner, outer = rng.choice([2, 3, 4, 5, 6, 10, 12, 24]), rng.choice([2, 4, 6, 16])
    lane, other = axes.new(inner * outer), axes.new(3)
    term = digit(var(lane), 1, inner) if rng.random() < 0.5 else digit(var(lane), inner, outer)
    e = term * rng.choice([1, 1, 1, 2]) + var(other) * rng.choice([1, 2, 4, 6, 12]) + rng.choice([0, 0, 2, 3])
    vector, alignment = 8, rng.choice([1, 4, 8])
    found = in_groups(e, lane, vector, alignment)
    assert found.kind == "lanes"
    assert 1 in (found.width, found.step)
    size = found.width * found.step
    rows = [[value(e, {other: o, lane: l}) for l in range(lane.extent)] for o in range(3)]

    def is_read(group: list[int], width: int) -> bool:
        return group == [group[0] + l // (len(group) // width) for l in range(len(group))] and group[0] % width == 0

    groups = [row[first : first + size] for row in rows for first in range(0, lane.extent - size + 1, size)]
    assert all(is_read(group, found.width) for group in groups)
    twice = [row[first : first + 2 * size] for row in rows for first in range(0, lane.extent - 2 * size + 1, 2 * size)]
    if twice and 2 * size <= vector:
        assert not all(is_read(group, 1) for group in twice)
        assert 2 * size > alignment or not all(is_read(group, 2 * size) for group in twice)


def test_no_lane_is_a_splat() -> None:
    i = Axes().new(4)
    assert pattern(var(i), None, 8, 8).kind == "splat"
    assert pattern(Affine(3), i, 8, 8).kind == "splat"
