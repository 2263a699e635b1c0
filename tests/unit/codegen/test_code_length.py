"""How long a kernel's code may become, whatever its schedule says."""

import random
import re
from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import loop_choices
from codegen.kernel import EmitError
from codegen.schedule import schedule_text, schedule_values
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.records import Device
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.unit.test_keys import planned

NATIVE = CPU_DEVICE.vector_bytes // 4


def functions(count: int, dtype: str, ending: str) -> Graph:
    """A graph of `count` steps of functions with long code, then a reduction, a softmax or nothing, by `ending`."""

    def made(x: Node, y: Node) -> Node:
        for _ in range(count):
            x, y = B.pow_(B.tanh(B.add(x, y)), B.erf(y)), B.sin(x)
        x = B.add(x, y)
        return B.sum_(x, -1) if ending == "reduction" else B.softmax(x) if ending == "normalization" else x

    return graph_of([spec((100, 1000), DTYPES[dtype])] * 2, made)


def widest(source: str) -> int:
    """Lanes of the widest vector loaded."""
    return max(int(n) for n in re.findall(r"\bload\w*<(\d+)", source))


def sources(family: str, graph: Graph) -> dict[int, str]:
    """Sources of the family's first schedule with each possible number of lanes, by that number."""
    values = schedule_values(FAMILIES[family].space(graph, CPU_DEVICE)[0])
    choices = loop_choices(graph, CPU_DEVICE)["lanes"]
    texts = {n: schedule_text(family, {**values, "lanes": n}) for n in choices if isinstance(n, int)}
    return {n: FAMILIES[family].emit(graph, text, CPU_DEVICE).source for n, text in texts.items()}


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("family", ["pointwise", "reduction", "normalization"])
def test_many_long_functions_are_computed_of_narrower_vectors(family: str, dtype: str) -> None:
    found = sources(family, functions(8, dtype, family))
    own = NATIVE * 4 // max(DTYPES[dtype].bytes, 4)  # of one register
    assert widest(found[NATIVE]) == own
    assert own <= widest(found[8 * NATIVE]) < 8 * NATIVE


@pytest.mark.parametrize("family", ["pointwise", "reduction", "normalization"])
def test_few_are_computed_of_vectors_as_wide_as_the_schedule_says(family: str) -> None:
    found = sources(family, functions(1, "f32", family))
    assert {n: widest(source) for n, source in found.items()} == {n: n for n in found}


def many(x: Node, count: int = 8) -> Node:
    """`count` times sin(tanh(x) + erf(x)), each applied to the one before: functions with long code."""
    for _ in range(count):
        x = B.sin(B.add(B.tanh(x), B.erf(x)))
    return x


def long_graphs(rows: int, columns: int, dtype: DType) -> dict[str, Graph]:
    """A graph for each family that prints loops, with `many` functions before and behind its operation, by name."""
    x, w = spec((rows, columns), dtype), spec((columns, columns), dtype)
    return {
        "pointwise": graph_of([x], many),
        "reduction": graph_of([x], lambda x: many(B.sum_(many(x), 1))),
        "reduction down": graph_of([x], lambda x: many(B.sum_(many(x), 0))),
        "normalization": graph_of([x], lambda x: B.softmax(many(x))),
        "normalization down": graph_of([x], lambda x: B.softmax(many(x), 0)),
        "scan": graph_of([x], lambda x: many(B.cumsum(many(x), 1))),
        "transpose": graph_of(
            [x, spec((columns, rows), dtype)], lambda x, y: many(B.add(many(x), B.permute(y, (1, 0))))
        ),
        "gemv": graph_of([spec((3, columns), dtype), w], lambda x, w: many(B.matmul(many(x), many(w)))),
        "gemv, few columns": graph_of([x, spec((columns, 3), dtype)], lambda x, w: many(B.matmul(many(x), w))),
        "matmul": graph_of([x, w], lambda x, w: many(B.matmul(x, w))),
    }


# Of the functions above, in registers (cpu) or elements (cuda) of a thread: four blocks of them, with the masked rest.
MOST_FUNCTIONS = {"cpu": 8 * 24, "cuda": 16 * 24}
LOOPS = ("pointwise", "reduction", "normalization", "scan", "transpose", "gemv")
PRINTED = [(name, device) for device in (CPU_DEVICE, CUDA_DEVICE) for name in LOOPS] + [("matmul", CPU_DEVICE)]


@pytest.mark.parametrize(("family", "device"), PRINTED, ids=[f"{name}-{device.target}" for name, device in PRINTED])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("sizes", [(24, 80), (1024, 1024)], ids=["small", "large"])
@pytest.mark.sweep(0.06)
def test_no_schedule_writes_out_more_than_a_compiler_can_take(
    family: str, sizes: tuple[int, int], dtype: str, device: Device
) -> None:
    """Statements of functions in the source, by the lanes of the widest vector, over first and drawn schedules."""
    rng, longest = random.Random(1), (0, "")
    for name, graph in long_graphs(*sizes, DTYPES[dtype]).items():
        if FAMILIES[family].accepts(graph, device) is not None:
            continue
        choices = FAMILIES[family].choices(graph, device)
        drawn = [
            schedule_text(family, {k: rng.choice(v) for k, v in choices.items()}) for _ in range(12 if choices else 0)
        ]
        if choices:
            drawn.append(schedule_text(family, {k: v[-1] for k, v in choices.items()}))
        for schedule in dict.fromkeys([*FAMILIES[family].space(graph, device), *drawn]):
            try:
                source = FAMILIES[family].emit(graph, schedule, device).source
            except EmitError:
                continue
            together = NATIVE * 4 // max(DTYPES[dtype].bytes, 4) if device.target == "cpu" else 1
            count = len(re.findall(r"\b(?:sin|tanh|erf)_\(", source)) * max(widest(source) // together, 1)
            longest = max(longest, (count, f"{name}: {schedule}"))
    assert longest[0] <= MOST_FUNCTIONS[device.target], longest


def chain(x: Node, count: int) -> Node:
    """`count` functions, each applied to the sum before it: sin, tanh, erf and pow, the ones with the longest code."""
    for i in range(count):
        x = B.add((B.sin, B.tanh, B.erf, lambda y: B.pow_(y, y))[i % 4](x), x)
    return x


def attention(scores: Callable[[Node], Node], k: Callable[[Node], Node]) -> Callable[[Node, Node, Node], Node]:
    return lambda q, k_, v: B.matmul(B.softmax(scores(B.matmul(q, B.permute(k(k_), (1, 0))))), v)


def chains(count: int, dtype: DType) -> dict[str, Graph]:
    """Chains of functions wherever a segment may have them."""

    def long(x: Node) -> Node:
        return chain(x, count)

    def same(x: Node) -> Node:
        return x

    x, w, thin = spec((256, 256), dtype), spec((256, 256), dtype), spec((3, 256), dtype)
    few, qkv = [spec((256, 12), dtype), spec((12, 256), dtype)], [spec((256, 64), dtype)] * 3
    return {
        "alone": graph_of([x], long),
        "before a sum": graph_of([x], lambda x: B.sum_(long(x), 1)),
        "around a softmax": graph_of([x], lambda x: long(B.softmax(long(x)))),
        "before a scan": graph_of([x], lambda x: B.cumsum(long(x), 1)),
        "turned": graph_of([x, w], lambda x, y: long(B.add(x, B.permute(y, (1, 0))))),
        "of few rows and a matrix": graph_of([thin, w], lambda x, w: B.matmul(long(x), long(w))),
        "behind a product": graph_of([x, w], lambda x, w: long(B.matmul(x, w))),
        "left of a product": graph_of([x, w], lambda x, w: B.matmul(long(x), w)),
        "right of a product": graph_of([x, w], lambda x, w: B.matmul(x, long(w))),
        "around a product of few": graph_of(few, lambda x, w: long(B.matmul(long(x), w))),
        "of scores": graph_of(qkv, attention(long, same)),
        "of keys": graph_of(qkv, attention(same, long)),
    }


# What a family may take, in functions of one element: none refuses a handful, none takes hundreds.
FEW, MANY = 3, 70


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("device", [CPU_DEVICE, CUDA_DEVICE], ids=["cpu", "cuda"])
def test_what_no_schedule_makes_short_is_refused(device: Device, dtype: str) -> None:
    few, many_ = (chains(count, DTYPES[dtype]) for count in (FEW, MANY))
    reasons = {f.name: [f.accepts(g, device) for g in many_.values()] for f in FAMILIES.values()}
    assert not [name for name, found in reasons.items() if None in found]
    said = {name for name, found in reasons.items() if any(r and "as much code as" in r.reason for r in found)}
    taken = {f.name for f in FAMILIES.values() for g in few.values() if f.accepts(g, device) is None}
    assert taken - said <= {"aten"}, "families that take few functions and say nothing of the length of many"
    for name in taken:
        for g in few.values():
            if FAMILIES[name].accepts(g, device) is None:
                FAMILIES[name].emit(g, FAMILIES[name].space(g, device)[0], device)


@pytest.mark.parametrize(
    ("family", "where", "schedule"),
    [
        ("matmul", "behind a product", "matmul{path=fma,bm=128,bn=128,bk=16,stages=2,warps_m=2,warps_n=2,group=8}"),
        ("matmul", "behind a product", "matmul{path=mma,bm=64,bn=64,bk=32,stages=2,warps_m=1,warps_n=1,group=8}"),
        ("matmul", "left of a product", "matmul{path=fma,bm=128,bn=32,bk=64,stages=2,warps_m=1,warps_n=4,group=1}"),
        ("matmul", "right of a product", "matmul{path=mma,bm=64,bn=128,bk=64,stages=4,warps_m=2,warps_n=2,group=8}"),
        (
            "wgmma",
            "behind a product",
            "wgmma{rows=64,columns=64,stages=4,consumers=1,pingpong=0,cluster=1,group=8,staged=64}",
        ),
        ("attention", "of scores", "attention{rows=32,warps=4,groups=1,stages=4,turns=1,blocks=1}"),
    ],
)
def test_tiles_whose_code_would_be_too_long_are_no_schedules(family: str, where: str, schedule: str) -> None:
    """The tile of `schedule` is emitted with few functions and refused with more, for which smaller tiles are left."""
    few, more = (chains(count, DTYPES["bf16"])[where] for count in (1, 8))
    FAMILIES[family].emit(few, schedule, CUDA_DEVICE)
    with pytest.raises(EmitError, match="its code would be as long as"):
        FAMILIES[family].emit(more, schedule, CUDA_DEVICE)
    left = FAMILIES[family].space(more, CUDA_DEVICE)
    assert left and FAMILIES[family].accepts(more, CUDA_DEVICE) is None
    for other in left:
        FAMILIES[family].emit(more, other, CUDA_DEVICE)


@pytest.mark.parametrize("device", [CPU_DEVICE, CUDA_DEVICE], ids=["cpu", "cuda"])
@pytest.mark.parametrize("family", ["naive", "pointwise"])
def test_what_views_repeat_counts_as_often(family: str, device: Device) -> None:
    """Every round computes what is before it at three more places."""

    def rounds(x: Node, count: int) -> Node:
        for _ in range(count):
            rolled = B.cat([B.slice_(B.sin(x), [0, 1], [64, 64]), B.slice_(x, [0, 0], [64, 1])], 1)
            x = B.add(B.pow_(x, x), rolled)
        return x

    few, more = (graph_of([spec((64, 64), DTYPES["f32"])], lambda x, n=n: rounds(x, n)) for n in (2, 10))
    schedule = FAMILIES[family].space(few, device)[0]
    FAMILIES[family].emit(few, schedule, device)
    assert FAMILIES[family].accepts(more, device) is None
    with pytest.raises(EmitError, match="its code would be as long as"):
        FAMILIES[family].emit(more, schedule, device)


def windows(parts: str, tokens: int = 16, width: int = 16, heads: int = 4) -> Graph:
    """Attention in windows of an image, as parts of it: "p", queries, keys and values from one layer; "a", attention;
    "o", a layer behind that and the sum with the image; "r", the image shifted by half a window."""

    def compute(x: Node, w: Node, u: Node) -> Node:
        y, size = x, width // heads
        if "p" in parts or "a" in parts:
            y = B.matmul(x, w) if "p" in parts else B.cat([x, x, x], 2)
            y = B.permute(B.reshape(y, (8, tokens, 3, heads, size)), (2, 0, 3, 1, 4))
        if "a" in parts:
            q, k, v = (
                B.reshape(B.slice_(y, (i, 0, 0, 0, 0), (i + 1, 8, heads, tokens, size)), (8, heads, tokens, size))
                for i in range(3)
            )
            y = B.matmul(B.softmax(B.matmul(q, B.permute(k, (0, 1, 3, 2)))), v)
            y = B.reshape(B.permute(y, (0, 2, 1, 3)), (8, tokens, width))
        if "o" in parts:
            y = B.add(B.matmul(y, u), x)
        if "r" in parts:
            y = B.reshape(B.permute(B.reshape(y, (2, 2, 2, 4, 4, width)), (0, 1, 3, 2, 4, 5)), (2, 8, 8, width))
            for axis in (1, 2):
                ends = [B.slice_(y, start, stop) for start, stop in _halves(y.sizes, axis)]
                y = B.cat(ends[::-1], axis)
        return y

    sizes = (8, tokens, width), (width, 3 * width), (width, width)
    return graph_of([spec(s, DTYPES["f32"]) for s in sizes], compute)


def _halves(sizes: tuple[int, ...], axis: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Bounds of the first two along an axis, and of the rest."""
    first = tuple(2 if d == axis else n for d, n in enumerate(sizes))
    return [((0,) * len(sizes), first), (tuple(2 if d == axis else 0 for d in range(len(sizes))), sizes)]


MOST_STATEMENTS = 2500  # g++ takes some seconds for so many


@pytest.mark.parametrize("parts", ["p", "a", "pa", "ao", "pao", "or", "aor", "paor"])
def test_few_products_that_are_written_out_in_one_another(parts: str) -> None:
    """A product of 16 terms of a product of 16 of a softmax of 16: each of them is written out for each of the others.
    Kernels of 6,000 statements took g++ more than a minute, and a search that met them had no plan after that."""
    graph = windows(parts)
    for family in FAMILIES.values():
        if family.accepts(graph, CPU_DEVICE) is None:
            for schedule in family.space(graph, CPU_DEVICE):
                try:
                    source = family.emit(graph, schedule, CPU_DEVICE).source
                except EmitError:
                    continue
                assert source.count(";\n") < MOST_STATEMENTS, schedule
    if parts in ("pao", "paor"):
        said = [family.accepts(graph, CPU_DEVICE) for family in FAMILIES.values()]
        assert any(r and "written out in one another" in r.reason for r in said)


def test_a_search_among_few_products_has_a_plan_of_few_kernels() -> None:
    plan = planned(windows("ao"), CPU_DEVICE)
    assert 1 < len(plan.steps) <= 6
