"""Sampled inputs: layouts, domains, indices, reproducibility."""

import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.dtype import DTYPES, bf16, bool_, f32, f64, i64, u8
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from testing.tensors import graph_of, same_bits, spec
from tests.support.small_graphs import random_graph


def one(given, read=lambda x: x, seed: int = 0, integers: bool = False) -> np.ndarray:
    return sample_inputs(graph_of([given], read), seed, integers)[0]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("integers", [False, True])
def test_arrays_have_the_specs_shape_dtype_and_strides(seed: int, integers: bool) -> None:
    graph = random_graph(seed)
    for given, array in zip(graph.inputs, sample_inputs(graph, seed, integers), strict=True):
        assert array.shape == given.sizes
        assert array.dtype == given.dtype.numpy
        assert array.strides == tuple(s * given.dtype.bytes for s in given.strides)
        assert array.ctypes.data % 64 == 0
        if given.dtype.is_float:
            assert np.isfinite(array.astype(np.float64)).all()


def test_strides_of_zero_repeat_and_gaps_are_poisoned() -> None:
    x = one(spec((3, 4), f32, (0, 2)))
    assert (x == x[0]).all()
    assert len(np.unique(x)) == 4
    behind = np.lib.stride_tricks.as_strided(x[0], (7,), (4,))
    assert np.isnan(behind[1::2]).all()
    assert one(spec((0, 3), f32)).size == 0


def test_same_seed_same_values() -> None:
    given = spec((100,), f32)
    assert same_bits(one(given, seed=5), one(given, seed=5))
    assert not same_bits(one(given, seed=5), one(given, seed=6))
    x, y = sample_inputs(graph_of([given, given], build.add), 5)
    assert not same_bits(x, y)


def test_ordinary_floats_are_normal_within_4() -> None:
    for dtype in (f32, f64, bf16):
        x = one(spec((20_000,), dtype)).astype(np.float64)
        assert abs(x.mean()) < 0.05
        assert abs(x.std() - 1) < 0.05
        assert np.abs(x).max() <= 4


def test_domains_reach_through_views_and_casts() -> None:
    def read(x):
        return build.log(build.cast(build.permute(build.reshape(x, (10, 20)), (1, 0)), f32))

    x = one(spec((200,), bf16), read).astype(np.float64)
    assert x.min() >= 0.0625
    assert x.max() <= 64
    assert x.max() > 16
    both = one(spec((500,), f32), lambda a: [build.log1p(a), build.asin(a)])
    assert both.min() >= -0.875
    assert both.max() <= 1
    graph = graph_of([spec((200,), bf16)], read)
    assert np.isfinite(interpret(graph, sample_inputs(graph, 0))[0]).all()


def test_integers_are_small_and_divisors_are_not_zero() -> None:
    n = one(spec((1000,), i64))
    assert n.min() == -8
    assert n.max() == 8
    assert one(spec((1000,), u8)).max() <= 8
    numerator, divisor = sample_inputs(graph_of([spec((1000,), i64)] * 2, build.div), 0)
    assert divisor.min() > 0
    assert numerator.min() > 0
    flags = one(spec((1000,), bool_))
    assert 0.4 < flags.mean() < 0.6


def test_indices_are_within_the_axis_but_for_a_few() -> None:
    graph = graph_of([spec((50, 7), f32), spec((4000,), i64)], lambda x, i: build.index_select(x, 0, i))
    index = sample_inputs(graph, 0)[1]
    inside = (index >= 0) & (index < 50)
    assert 0.97 < inside.mean() < 1
    assert len(np.unique(index[inside])) == 50


def test_whole_numbers() -> None:
    for dtype in DTYPES.values():
        x = one(spec((500,), dtype), integers=True).astype(np.float64)
        assert (x == np.rint(x)).all()
        assert np.abs(x).max() <= 4
    positive = one(spec((500,), f32), build.sqrt, integers=True)
    assert positive.min() >= 0
    assert len(np.unique(positive)) > 2


@pytest.mark.parametrize("dtype", [f32, bf16, i64], ids=str)
def test_large_tensors_repeat_at_no_distance(dtype) -> None:
    """They are laid out of tiles: a kernel that is off by some number of elements must not meet the same values."""
    x = one(spec((3, 500_001), dtype)).reshape(-1)
    share = np.mean(x[: x.size // 2] == x[1 : x.size // 2 + 1])  # equal by chance
    for distance in (2, 1 << 10, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 500_001, 3 * (1 << 17)):
        assert np.mean(x[distance:] == x[:-distance]) < share + 0.2
    wide = x.astype(np.float64)
    if dtype.is_float:
        assert abs(wide.mean()) < 0.01
        assert abs(wide.std() - 1) < 0.01
