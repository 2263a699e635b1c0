"""Inputs to try a graph on: random, reproducible, in domains that its ops accept, with the strides that it states."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.arithmetic.threads import assign, side_by_side
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.contract import sums_in_any_order

DEFAULT_DOMAIN = (-4.0, 4.0)
_OUT_OF_RANGE = 1 / 64  # share of a gather's indices that are drawn beyond its axis, where clamping shows
_ALIGNMENT_BYTES = 64
_TILE = 1 << 17  # elements
_GAP_BYTE = 0xFF  # between the elements of a strided tensor: NaN in every float dtype, -1 in every integer


def samples(graph: Graph, seed: int) -> list[list[np.ndarray]]:
    """The sets of inputs that a kernel is tried on: random data, and where the graph sums, small integers too, whose
    sums are exact in every order (and which have equal values, for ops that take the first of several)."""
    kinds = [False, True] if any(map(_sums, graph.nodes)) else [False]
    return [sample_inputs(graph, seed, integers=integers) for integers in kinds]


def _sums(node: Node) -> bool:
    """Whether sums may run in any order."""
    return kind_of(node) in (OpKind.REDUCTION, OpKind.SCAN, OpKind.SCATTER) or (
        kind_of(node) is OpKind.CONTRACT and (sums_in_any_order(node) or not node.dtype.is_float)
    )


def sample_inputs(graph: Graph, seed: int, integers: bool = False) -> list[np.ndarray]:
    """One array per input, over fresh memory aligned to 64 bytes, with exactly the spec's strides.

    Floats are normal, cut to [-4, 4], or uniform over the domain of the ops that read the input directly, through
    views and casts (log, sqrt ...). Integers lie within -8 ... 8, indices of gathers mostly within the axis.
    `integers`: whole numbers of small size in every dtype, so that sums of products are exact.
    """
    readers = {n.attr("position", int): n for n in graph.nodes if n.op == "input"}
    arrays: list[np.ndarray] = []
    for position, spec in enumerate(graph.inputs):
        rng = np.random.default_rng([seed, position, int(integers)])
        wants = tuple(_wants(graph, readers[position])) if position in readers else ()
        # Axes of stride 0 hold one value each: draw that one.
        drawn = tuple(min(n, 1) if s == 0 else n for n, s in zip(spec.sizes, spec.strides, strict=True))
        arrays.append(_placed(spec, _values(rng, drawn, spec.dtype, wants, integers)))
    return arrays


@dataclass(frozen=True)
class ScatteredAlong:
    """Places along an axis of a scatter, which leaves out those beyond it on either side."""

    extent: int


# What a reader wants of its operand: an interval of values, or that it indexes an axis of some extent.
Interval = tuple[float, float]
Want = Interval | int | ScatteredAlong


def _wants(graph: Graph, source: Node) -> Iterator[Want]:
    """The wants of everything that reads `source` through views and casts between floats or between integers."""
    pending, seen = [source], {source}
    while pending:
        node = pending.pop()
        for user in graph.users[node]:
            row, kind = OPS[user.op], kind_of(user)
            same_kind = user.op == "cast" and user.dtype.is_float == node.dtype.is_float and user.dtype.kind != "bool"
            if kind is OpKind.VIEW or same_kind:
                if user not in seen:
                    seen.add(user)
                    pending.append(user)
            elif kind is OpKind.GATHER:
                if user.args[1] is node:
                    yield user.args[0].sizes[user.attr("axis", int)]
            elif kind is OpKind.SCATTER:
                if user.args[1] is node:
                    yield ScatteredAlong(user.attr("extent", int))
            elif row.domain != DEFAULT_DOMAIN:
                yield row.domain


def _values(
    rng: np.random.Generator, sizes: tuple[int, ...], dtype: DType, wants: tuple[Want, ...], integers: bool
) -> np.ndarray:
    """Dense random values of a dtype.

    Large tensors are laid out of tiles, each cut from the same random stretch at a random place: as quick as copying,
    and no distance between two elements, which a wrong index might be off by, leads to an equal value twice in a row.
    """
    count = math.prod(sizes)
    if count <= 2 * _TILE:
        return _drawn(rng, sizes, dtype, wants, integers)
    stretch = _drawn(rng, (2 * _TILE,), dtype, wants, integers)
    places = rng.integers(0, _TILE, -(-count // _TILE))
    result = np.empty(count, dtype.numpy)

    def lay(tile: tuple[int, int]) -> None:
        first, place = tile
        here = result[first : first + _TILE]
        here[:] = stretch[place : place + here.size]

    side_by_side(lay, zip(range(0, count, _TILE), places.tolist(), strict=True))
    return result.reshape(sizes)


def _drawn(
    rng: np.random.Generator, sizes: tuple[int, ...], dtype: DType, wants: tuple[Want, ...], integers: bool
) -> np.ndarray:
    """Independent random values."""
    if dtype.kind == "bool":
        return rng.random(sizes, np.float32) < 0.5
    extents = [w.extent if isinstance(w, ScatteredAlong) else w for w in wants if isinstance(w, int | ScatteredAlong)]
    if extents and dtype.is_integer:
        scattered = any(isinstance(w, ScatteredAlong) for w in wants)
        return _indices(rng, sizes, dtype, min(extents), either_side=scattered)
    domain = _intersection([w for w in wants if isinstance(w, tuple)])
    if dtype.is_integer or integers:
        low, high = _whole(domain or ((-3.0, 3.0) if integers else (-8.0, 8.0)), dtype, integers)
        return round_to(np.asarray(rng.integers(low, high, sizes, endpoint=True)), dtype)
    wide = np.float64 if dtype.name == "f64" else np.float32
    if domain is None:
        return round_to(np.asarray(np.clip(rng.standard_normal(sizes, wide), *DEFAULT_DOMAIN)), dtype)
    low, high = domain
    return round_to(np.asarray(rng.random(sizes, wide) * wide(high - low) + wide(low)), dtype)


def _indices(
    rng: np.random.Generator, sizes: tuple[int, ...], dtype: DType, extent: int, *, either_side: bool
) -> np.ndarray:
    """Indices of an axis, a few of them drawn from a stretch that goes beyond it; either_side: from beyond alone."""
    inside = rng.integers(0, max(extent, 1), sizes)
    beyond = rng.integers(-2, extent + 2, sizes, endpoint=True)
    if either_side:
        beyond = np.where(beyond % 2, -1 - beyond % 3, extent + beyond % 3)
    return np.asarray(np.where(rng.random(sizes, np.float32) < _OUT_OF_RANGE, beyond, inside)).astype(dtype.numpy)


def _intersection(domains: list[Interval]) -> Interval | None:
    """The intersection of all domains; the first domain where it is empty; None without domains."""
    if not domains:
        return None
    low, high = max(d[0] for d in domains), min(d[1] for d in domains)
    return (low, high) if low <= high else domains[0]


def _whole(domain: Interval, dtype: DType, small: bool) -> tuple[int, int]:
    """First and last of the whole numbers in a domain that the dtype holds; `small` keeps at most eight of them."""
    low, high = math.ceil(domain[0]), math.floor(domain[1])
    if dtype.kind == "uint":
        low, high = max(low, 0), max(high, 0)
    if low > high:
        low = high = round(sum(domain) / 2)
    if small and high - low > 7:
        middle = min(max(0, low), high)
        low, high = max(low, middle - 3), min(high, middle + 4)
    return low, high


def _placed(spec: InputSpec, values: np.ndarray) -> np.ndarray:
    """`values` in memory with the spec's strides; axes of stride 0 repeat the one value that `values` has there."""
    raw = np.empty(spec.bytes + _ALIGNMENT_BYTES, np.uint8)
    if values.size != spec.span:
        raw[:] = 0 if spec.dtype.kind == "bool" else _GAP_BYTE
    start = -raw.ctypes.data % _ALIGNMENT_BYTES
    # as_strided does not know the f8 types: it sees their bits.
    flat = raw[start : start + spec.bytes].view(f"u{spec.dtype.bytes}")
    strides = tuple(s * spec.dtype.bytes for s in spec.strides)
    assign(np.lib.stride_tricks.as_strided(flat, values.shape, strides).view(spec.dtype.numpy), values)
    return np.lib.stride_tricks.as_strided(flat, spec.sizes, strides).view(spec.dtype.numpy)
