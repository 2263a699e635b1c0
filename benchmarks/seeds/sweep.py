"""Small products, K = 1 ... 256: which family is fastest for each M, N and K, all timed in one race.

Families know in advance what they may take: up to 16 products an element are summed in index order, so no library may
have them, and beyond that the pointwise family does not write them out. A sweep that kept to this would see no
crossing, so it lifts both limits: `written_out` says up to how many products are. That makes no kernel wrong, but what
the library sums in another order than the language promises is told apart by the check (`wrong_result`).
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import exp, log
from statistics import fmean
from typing import Any

from benchmarks.seeds.place import Place
from benchmarks.seeds.plot import Panel, panels_svg
from codegen.families import FAMILIES
from codegen.gemm import call
from codegen.kernel import EmitError, Kernel
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import DTYPES
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make_input
from fusion_ir.ops.contract import ORDERED_PRODUCTS
from fusion_ir.records import Device, Measurement, Status
from scheduler.cost.roofline_cpu import predicted_kernel_us
from scheduler.cost.traffic import traffic_of

SHAPES = ((8, 32), (1, 4096), (16, 4096), (64, 4096), (256, 256), (1024, 1024))
DEPTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DTYPE_NAMES = ("f32", "bf16")
FIRST = 3  # schedules of each family
# Products that are written out at the most: of 64, the pointwise kernel of f32[64, 4096] took g++ 27 s, and 4.5 times
# as long as the library.
WRITTEN_OUT = 32
PANELS_PER_ROW = 3
CLEARLY = 1.1
LEAST = "naive"  # computes everything and wins nothing: left out

Row = dict[str, Any]


def product(m: int, n: int, k: int, dtype: str) -> Graph:
    """[m, k] @ [k, n], stored in the operands' dtype."""
    specs = tuple(InputSpec(shape_of(s), DTYPES[dtype], dense_strides(s)) for s in ((m, k), (k, n)))
    node = build.matmul(make_input(0, specs[0]), make_input(1, specs[1]))
    return Graph(specs, (OutputSpec(node, dense_strides(node.sizes)),))


@contextmanager
def written_out(most: int) -> Iterator[None]:
    """Families take products of up to `most` terms for such as are written out, longer ones for such as a library may
    have, however short a call of it."""
    least = call.LEAST_DEPTH, call.LEAST_PRODUCTS
    try:
        _set_ordered_products(most)
        call.LEAST_DEPTH, call.LEAST_PRODUCTS = 2, 1
        yield
    finally:
        _set_ordered_products(ORDERED_PRODUCTS)
        call.LEAST_DEPTH, call.LEAST_PRODUCTS = least


def _set_ordered_products(most: int) -> None:
    """In every module that has the limit by name, and nothing kept of what was found with another one."""
    for module in [m for name, m in sys.modules.items() if name.startswith("codegen.")]:
        if hasattr(module, "ORDERED_PRODUCTS"):
            vars(module)["ORDERED_PRODUCTS"] = most
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


def kernels(graph: Graph, depth: int, device: Device, first: int = FIRST) -> list[Kernel]:
    """The first schedules of every family that takes the product in either way, different kernels only."""
    found: dict[object, Kernel] = {}
    for most in (depth if depth <= WRITTEN_OUT else 0, 0):
        with written_out(most):
            for name, family in FAMILIES.items():
                if name == LEAST or family.accepts(graph, device) is not None:
                    continue
                for schedule in family.space(graph, device)[:first]:
                    try:
                        kernel = family.emit(graph, schedule, device)
                    except EmitError:
                        continue
                    found.setdefault(kernel.identity, kernel)
    return list(found.values())


def by_rule(graph: Graph, device: Device) -> list[str]:
    """Families that take the product as their limits are."""
    return [name for name, family in FAMILIES.items() if name != LEAST and family.accepts(graph, device) is None]


def rows(place: Place, before: Sequence[Row]) -> Iterator[Row]:
    """A row for each point that is not among `before`."""
    known = {row["key"] for row in before}
    points = [(f"{d} {m}x{n}x{k}", d, m, n, k) for d in DTYPE_NAMES for m, n in SHAPES for k in DEPTHS]
    left = [point for point in points if point[0] not in known]
    if not place.is_there:
        for key, dtype, m, n, k in left:
            graph = product(m, n, k, dtype)
            point = {"key": key, "dtype": dtype, "m": m, "n": n, "k": k, "by_rule": by_rule(graph, place.device)}
            yield {**point, **_predicted(graph, k, place)}
        return
    with place.bench() as bench:
        for key, dtype, m, n, k in left:
            graph = product(m, n, k, dtype)
            tried = kernels(graph, k, place.device)
            measured = bench.measure(graph, graph_key(graph), tried, seed=place.seed) if tried else []
            point = {"key": key, "dtype": dtype, "m": m, "n": n, "k": k, "by_rule": by_rule(graph, place.device)}
            yield {**point, **_families(measured)}


def _families(measured: Sequence[Measurement]) -> Row:
    """Each family's best, and what became of families without one."""
    best: dict[str, Measurement] = {}
    failed: dict[str, str] = {}
    for m in measured:
        if m.status is Status.ok and m.time_us is not None:
            if m.family not in best or m.time_us < (best[m.family].time_us or 0.0):
                best[m.family] = m
        else:
            failed[m.family] = m.status.value
    return {
        "us": {f: round(m.time_us or 0.0, 3) for f, m in best.items()},
        "schedules": {f: m.schedule for f, m in best.items()},
        "failed": {f: status for f, status in failed.items() if f not in best},
    }


def _predicted(graph: Graph, depth: int, place: Place) -> Row:
    """By each family's first kernel."""
    traffic, us, schedules = traffic_of(graph), dict[str, float](), dict[str, str]()
    tried = kernels(graph, depth, place.device, 1)
    among = [k.family for k in tried]
    for kernel in tried:
        predicted = predicted_kernel_us(traffic, kernel, None, place.device, among)
        if predicted < us.get(kernel.family, float("inf")):
            us[kernel.family], schedules[kernel.family] = round(predicted, 3), kernel.schedule
    return {"us": us, "schedules": schedules, "failed": {}}


def winner(row: Row) -> str:
    """The fastest family of a point, "" where there is none."""
    return min(row["us"], key=row["us"].__getitem__, default="")


def page(found: Sequence[Row], is_measured: bool) -> list[str]:
    """A table for each dtype: the winner of each point, and how much longer the next family takes."""
    word = "measured" if is_measured else "**predicted**"
    lines = [
        f"Each point is one race of the first {FIRST} schedules of every family that can take it ({word}). The fastest "
        "family, its time, and how many times as long the next one took. At K = 1 there is no sum and so no library "
        f"call; products are written out up to K = {WRITTEN_OUT}."
    ]
    for dtype in DTYPE_NAMES:
        own = {(r["m"], r["n"], r["k"]): r for r in found if r["dtype"] == dtype}
        if not own:
            continue
        lines += ["", f"| {dtype}, M x N | {' | '.join(f'K = {k}' for k in DEPTHS)} |", "|---|" + "---|" * len(DEPTHS)]
        for m, n in SHAPES:
            cells = [_cell(own.get((m, n, k))) for k in DEPTHS]
            lines.append(f"| {m} x {n} | {' | '.join(cells)} |")
    lost = sorted(((lost_by_rule(row), row["key"]) for row in found), reverse=True)
    worse = [f"{key} {ratio:.2f}x" for ratio, key in lost if ratio > CLEARLY]
    mean = exp(fmean(log(ratio) for ratio, _ in lost))
    won = ", ".join(f"{family} {count}" for family, count in summary(found).items())
    return [
        *lines,
        "",
        f"Fastest: {won}. What the families' own limits cost, the best that they admit over the best of all: "
        f"{mean:.3f}x, geometric mean of {len(lost)} points; more than {CLEARLY - 1:.0%}: "
        f"{', '.join(worse) or 'nowhere'}.",
    ]


def lost_by_rule(row: Row) -> float:
    """The best family that may take the point as limits are, over the best of all; 1 where none of them is known."""
    admitted = [row["us"][family] for family in row["by_rule"] if family in row["us"]]
    return min(admitted) / row["us"][winner(row)] if admitted else 1.0


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    first = winner(row)
    if not first:
        return "none"
    others = {f: us for f, us in row["us"].items() if f != first}
    second = min(others, key=others.__getitem__, default="")
    text = f"{first} {row['us'][first]:.3g} us"
    wrong = [f for f, status in row["failed"].items() if status == Status.wrong_result.value]
    text += f"; {second} {others[second] / row['us'][first]:.2f}x" if second else ""
    return text + (f"; {', '.join(wrong)} sums otherwise" if wrong else "")


def summary(found: Sequence[Row]) -> Mapping[str, int]:
    """How many points each family wins."""
    won: dict[str, int] = {}
    for row in found:
        won[winner(row)] = won.get(winner(row), 0) + 1
    return won


def plot(found: Sequence[Row], title: str) -> str:
    """Every family's time over the fastest one's, a panel for each M, N and dtype."""
    panels: list[Panel] = []
    for dtype in DTYPE_NAMES:
        for m, n in SHAPES:
            own = sorted((r for r in found if (r["dtype"], r["m"], r["n"]) == (dtype, m, n)), key=lambda r: r["k"])
            series: dict[str, list[tuple[float, float]]] = {}
            for row in own:
                for family, us in row["us"].items():
                    series.setdefault(family, []).append((row["k"], us / row["us"][winner(row)]))
            if series:
                panels.append(Panel(f"{dtype}, {m} x {n}", {f: series[f] for f in FAMILIES if f in series}))
    return panels_svg(title, panels, PANELS_PER_ROW, "K", "time over that of the fastest family", 10.0)
