"""How long a kernel's code may become, whatever its schedule says."""

import re

import pytest

from codegen.families import FAMILIES
from codegen.families.loops import loop_choices
from codegen.schedule import schedule_text, schedule_values
from fusion_ir import build as B
from fusion_ir.dtype import DTYPES
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from tests.support.devices import CPU_DEVICE
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
