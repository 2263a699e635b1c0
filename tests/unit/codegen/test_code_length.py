"""How long a kernel's code may become, whatever its schedule says."""

import random
import re

import pytest

from codegen.families import FAMILIES
from codegen.families.loops import loop_choices
from codegen.kernel import EmitError
from codegen.schedule import schedule_text, schedule_values
from fusion_ir import build as B
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.records import Device
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.tensors import graph_of, spec

NATIVE = CPU_DEVICE.vector_bytes // 4


def functions(count: int, dtype: str, ending: str) -> Graph:
    """Long functions one behind the other."""

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
    """Of the family's first schedule with all numbers of lanes, by these."""
    values = schedule_values(FAMILIES[family].space(graph, CPU_DEVICE)[0])
    choices = loop_choices(graph, CPU_DEVICE)["lanes"]
    texts = {n: schedule_text(family, {**values, "lanes": n}) for n in choices if isinstance(n, int)}
    return {n: FAMILIES[family].emit(graph, text, CPU_DEVICE).source for n, text in texts.items()}


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("family", ["pointwise", "reduction", "normalization"])
def test_many_long_functions_are_computed_of_narrower_vectors(family: str, dtype: str) -> None:
    found = sources(family, functions(8, dtype, family))
    assert widest(found[NATIVE]) == NATIVE
    assert widest(found[8 * NATIVE]) < 8 * NATIVE
    assert widest(found[8 * NATIVE]) >= NATIVE


@pytest.mark.parametrize("family", ["pointwise", "reduction", "normalization"])
def test_few_are_computed_of_vectors_as_wide_as_the_schedule_says(family: str) -> None:
    found = sources(family, functions(1, "f32", family))
    assert {n: widest(source) for n, source in found.items()} == {n: n for n in found}


def many(x: Node, count: int = 8) -> Node:
    """Long functions one behind the other."""
    for _ in range(count):
        x = B.sin(B.add(B.tanh(x), B.erf(x)))
    return x


def long_graphs(rows: int, columns: int, dtype: DType) -> dict[str, Graph]:
    """One for each family that prints loops, with long functions in front and behind."""
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
    }


# Of the functions above, in registers (cpu) or elements (cuda) of a thread: four blocks of them, with the masked rest.
MOST_FUNCTIONS = {"cpu": 8 * 24, "cuda": 16 * 24}
LOOPS = ("pointwise", "reduction", "normalization", "scan", "transpose", "gemv")


@pytest.mark.parametrize("device", [CPU_DEVICE, CUDA_DEVICE], ids=["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("sizes", [(24, 80), (1024, 1024)], ids=["small", "large"])
@pytest.mark.parametrize("family", LOOPS)
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
            together = NATIVE if device.target == "cpu" else 1
            count = len(re.findall(r"\b(?:sin|tanh|erf)_\(", source)) * max(widest(source) // together, 1)
            longest = max(longest, (count, f"{name}: {schedule}"))
    assert longest[0] <= MOST_FUNCTIONS[device.target], longest
