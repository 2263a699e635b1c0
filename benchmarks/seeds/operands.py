"""Contractions whose operands keep their own axes: every role and order, and nothing broadcast in memory.

A mapping is planned and raced beside PyTorch's einsum, and beside its spelling as broadcast, multiply and sum of f32.
That spelling is no contraction: its products are rounded before they are summed. With bf16 operands it is read as the
contraction itself (`fusion_ir/building/recognise_contractions.py`).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import exp, log
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from benchmarks.corpus.pytorch import torch
from benchmarks.racing import paired_ratio
from benchmarks.seeds.place import Function, Place
from fusion_ir import building as build
from fusion_ir.building.recognise_contractions import contracted
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Attr, Node
from fusion_ir.dtype import DTYPES, DType, bf16, f32
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import RuleError, make, make_input
from fusion_ir.records import Plan
from fusion_ir.reference.sample_inputs import sample_inputs

EXTENTS = {"a": 3, "b": 8, "m": 192, "n": 256, "k": 128, "l": 4, "o": 4, "p": 2}
# Axes of a, of b, of the result: a letter for each.
MAPPINGS = (
    ("mk", "kn", "mn"), ("km", "nk", "nm"), ("bmk", "bkn", "bmn"), ("mbk", "bnk", "mbn"), ("kbm", "nbk", "nmb"),
    ("bmk", "nk", "bmn"), ("mkl", "nkl", "mn"), ("mkl", "lnk", "mn"), ("abmk", "abkn", "abmn"),
    ("mok", "pkn", "mnop"), ("bmk", "kbn", "nbm"),
)  # fmt: skip
DTYPE_NAMES = ("f32", "bf16")
PLAN, SPELLED, EAGER, COMPILED = "plan", "broadcast-multiply-sum", "einsum", "einsum, compile"


class Mapping(NamedTuple):
    """Arguments of a contraction: sizes of both operands, positions of the root's axes in each (-1: not in it), and
    how many axes are summed."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    a_axes: tuple[int, ...]
    b_axes: tuple[int, ...]
    reduced: int


# By what is wrong.
REJECTED: dict[str, Mapping] = {
    "lists of unequal length": Mapping((2, 3), (3, 4), (0, -1, 1), (-1, 1), 1),
    "an axis that is in neither operand": Mapping((2, 3), (3, 4), (0, -1, -1, 1), (-1, 1, -1, 0), 1),
    "a position out of range": Mapping((2, 3), (3, 4), (0, -1, 2), (-1, 1, 0), 1),
    "a position below -1": Mapping((2, 3), (3, 4), (0, -1, -2), (-1, 1, 0), 1),
    "a position used twice": Mapping((2, 3), (3, 4), (0, 0, 1), (-1, 1, 0), 1),
    "an operand axis that is not mentioned": Mapping((2, 3), (3, 4), (0, -1), (-1, 1), 0),
    "a reduced axis missing from a": Mapping((2,), (3, 4), (0, -1, -1), (-1, 1, 0), 1),
    "a reduced axis missing from b": Mapping((2, 3), (4,), (0, -1, 1), (-1, 0, -1), 1),
    "unequal extents": Mapping((2, 3), (5, 4), (0, -1, 1), (-1, 1, 0), 1),
    "an extent of 1 against a longer one": Mapping((2, 1), (5, 4), (0, -1, 1), (-1, 1, 0), 1),
    "more reduced axes than there are": Mapping((2, 3), (3, 4), (0, -1, 1), (-1, 1, 0), 4),
}

Row = dict[str, Any]


def rejection(of: Mapping) -> str:
    """The message with which the language rejects such a contraction of f32 tensors, "" where it accepts it."""
    operands = [make_input(i, InputSpec(shape_of(s), f32, dense_strides(s))) for i, s in enumerate((of.a, of.b))]
    attrs: dict[str, Attr] = {"a_axes": of.a_axes, "b_axes": of.b_axes, "reduced": of.reduced}
    try:
        make("contract", operands, attrs | {"acc": f32, "out_dtype": f32})
    except RuleError as e:
        return str(e)
    return ""


def contraction(a: str, b: str, out: str, dtype: DType) -> Graph:
    """The mapping as one contraction."""
    labels = [[ord(c) for c in axes] for axes in (a, b, out)]
    return _graph(a, b, dtype, lambda x, y: build.einsum(x, y, labels[0], labels[1], labels[2]))


def spelled(a: str, b: str, out: str, dtype: DType) -> Graph:
    """The mapping as f32 operands that are broadcast to all axes, multiplied and summed."""
    root = out + "".join(dict.fromkeys(c for c in a + b if c not in out))

    def spread(x: Node, own: str) -> Node:
        x = build.permute(build.cast(x, f32), [own.index(c) for c in root if c in own])
        places = [i for i, c in enumerate(root) if c in own]
        return build.broadcast_in_dim(x, [EXTENTS[c] for c in root], places)

    def make_sum(x: Node, y: Node) -> Node:
        total = build.sum_(build.mul(spread(x, a), spread(y, b)), range(len(out), len(root)))
        return build.cast(total, dtype)

    return _graph(a, b, dtype, make_sum)


def _graph(a: str, b: str, dtype: DType, compute: Any) -> Graph:
    sizes = [tuple(EXTENTS[c] for c in axes) for axes in (a, b)]
    specs = tuple(InputSpec(shape_of(s), dtype, dense_strides(s)) for s in sizes)
    node: Node = compute(*(make_input(i, spec) for i, spec in enumerate(specs)))
    return Graph(specs, (OutputSpec(node, dense_strides(node.sizes)),))


def materialised_bytes(plan: Plan, graph: Graph) -> int:
    """Bytes that a plan moves beyond reading the operands and writing the result once, and bytes of the tensors that it
    stores in between; a library's workspace does not count."""
    moved = sum(step.bytes for step in plan.steps)
    stored = {ref.index for step in plan.steps for ref in step.writes if ref.place == "tmp"}
    return moved - graph.read_bytes - graph.written_bytes + sum(plan.buffers[i].bytes for i in stored)


def rows(place: Place, before: Sequence[Row]) -> Iterator[Row]:
    """The rejections, then a row for each mapping and dtype that is not among `before`."""
    known = {row["key"] for row in before}
    for name, mapping in REJECTED.items():
        if name not in known:
            yield {"key": name, "rejected": rejection(mapping)}
    for dtype in DTYPE_NAMES:
        for a, b, out in MAPPINGS:
            if (key := f"{dtype} {a},{b}->{out}") not in known:
                yield {"key": key, "dtype": dtype, "mapping": [a, b, out], **_row(place, (a, b, out), DTYPES[dtype])}


def _row(place: Place, mapping: tuple[str, str, str], dtype: DType) -> Row:
    graph, other = contraction(*mapping, dtype), spelled(*mapping, dtype)
    plan = place.plan(graph)
    found: Row = {
        "kernels": [s.schedule for s in plan.steps],
        "materialised_bytes": materialised_bytes(plan, graph),
        "bytes": graph.read_bytes + graph.written_bytes,
        "broadcast_bytes": 2 * 4 * int(np.prod([EXTENTS[c] for c in {*"".join(mapping)}])),
        "same_graph": graph_key(contracted(other)) == graph_key(graph),
        "gflop": sum(s.operations for s in plan.steps) / 1e9,
    }
    if place.sides is None:
        return {**found, "us": {PLAN: plan.time_us or plan.predicted_us}, "over": {}}
    torch.compiler.reset()  # what was compiled before would count against the limit of recompilations
    tensors = place.sides.tensors(sample_inputs(graph, place.seed))
    einsum = partial(_einsum, f"{mapping[0]},{mapping[1]}->{mapping[2]}")
    functions: dict[str, Function] = {PLAN: place.sides.function(plan), EAGER: einsum}
    functions[COMPILED] = torch.compile(einsum, fullgraph=True, dynamic=False)
    if dtype == f32:
        functions[SPELLED] = place.sides.function(place.plan(other))
    for name, function in functions.items():
        _agree(name, function(*tensors)[0], einsum(*tensors)[0], dtype)
    calls = {name: partial(function, *tensors) for name, function in functions.items()}
    times = place.sides.race(calls, place.rounds, place.seed)
    over = {name: paired_ratio(times[name], times[PLAN]) for name in times if name != PLAN}
    return {
        **found,
        "us": {name: side.median_us for name, side in times.items()},
        "over": {name: [r.median, r.low, r.high] for name, r in over.items()},
    }


def _einsum(equation: str, a: Any, b: Any) -> tuple[Any, ...]:
    return (torch.einsum(equation, a, b).contiguous(),)


def _agree(name: str, got: Any, expected: Any, dtype: DType) -> None:
    """Raises ValueError where a side is further from PyTorch's einsum than sums in another order take it."""
    difference = float((got.double() - expected.double()).abs().max())
    most = (2.0**-6 if dtype == bf16 else 2.0**-16) * max(float(expected.double().abs().max()), 1.0)
    if tuple(got.shape) != tuple(expected.shape) or difference > most:
        raise ValueError(f"{name} differs by {difference:.3g} from einsum, {most:.3g} are allowed")


def page(found: Sequence[Row], is_measured: bool) -> list[str]:
    """Mappings, then rejections."""
    word = "us" if is_measured else "**predicted** us"
    lines = [
        "Letters are axes: b and a batch, m and o of the first operand, n and p of the second, k and l summed; "
        f"{', '.join(f'{c} = {n}' for c, n in EXTENTS.items())}. Moved besides: bytes that the plan moves or keeps "
        "beyond reading the operands and writing the result once. Broadcast: what both operands would take so. "
        "Spelled: what broadcast, multiply and sum of them is.",
        "",
        f"| mapping | dtype | kernels | moved besides | broadcast | spelled | {word} | others over it |",
        "|---|---|---|---:|---:|---|---:|---|",
    ]
    for row in (r for r in found if "mapping" in r):
        a, b, out = row["mapping"]
        families = ", ".join(k.partition("{")[0] for k in row["kernels"])
        others = "; ".join(f"{n} {mid:.2f}x [{low:.2f}, {high:.2f}]" for n, (mid, low, high) in row["over"].items())
        same = "the same graph" if row["same_graph"] else "no contraction"
        lines.append(
            f"| {a}, {b} → {out} | {row['dtype']} | {families} | {row['materialised_bytes']} | "
            f"{row['broadcast_bytes'] / 2**20:.0f} MiB | {same} | {row['us'][PLAN]:.0f} | {others} |"
        )
    better = [min(row["over"][EAGER], row["over"][COMPILED]) for row in found if EAGER in row.get("over", {})]
    if better:
        mean = exp(fmean(log(median) for median, *_ in better))
        slower = sum(high < 1 for _, _, high in better)
        lines += [
            "",
            f"The better of PyTorch's two over the plan: {mean:.2f}x, geometric mean of {len(better)}; its interval is "
            f"below 1 for {slower} of them.",
        ]
    lines += ["", "| rejected | message |", "|---|---|"]
    return lines + [f"| {r['key']} | {r['rejected']} |" for r in found if "rejected" in r]
