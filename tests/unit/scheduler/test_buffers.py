"""Tensors that share a buffer are never alive together, and fit."""

import random

from scheduler.plans.buffers import Lifetime, share_buffers


def test_random_lifetimes() -> None:
    saved = 0
    for seed in range(200):
        rng = random.Random(seed)
        tensors = []
        for _ in range(rng.randint(0, 12)):
            first = rng.randint(0, 10)
            tensors.append(Lifetime(first, first + rng.randint(0, 4), rng.randint(0, 100)))
        buffer_of, bytes_ = share_buffers(tensors)
        for i, one in enumerate(tensors):
            assert bytes_[buffer_of[i]] >= one.bytes
            for j in range(i):
                other = tensors[j]
                if buffer_of[i] == buffer_of[j]:
                    assert one.last < other.first or other.last < one.first, (seed, one, other)
        assert sum(bytes_) <= sum(t.bytes for t in tensors)
        saved += len(bytes_) < len(tensors)
    assert saved > 100


def test_a_chain_needs_two() -> None:
    buffer_of, bytes_ = share_buffers([Lifetime(i, i + 1, 10) for i in range(6)])
    assert buffer_of == (0, 1, 0, 1, 0, 1)
    assert bytes_ == (10, 10)


def test_the_smallest_that_holds_is_taken_else_the_largest_grows() -> None:
    alive = [Lifetime(0, 1, 10), Lifetime(0, 1, 100), Lifetime(2, 3, 5), Lifetime(2, 3, 200)]
    buffer_of, bytes_ = share_buffers(alive)
    assert buffer_of[3] == buffer_of[1]
    assert buffer_of[2] == buffer_of[0]
    assert sorted(bytes_) == [10, 200]
