"""(x A) C of three operands that all change at every run is computed as x (A C) where that takes far less, however it
is spelled; with a narrow waist it is left as it is."""

from collections.abc import Callable

import pytest

from codegen.hardware.gpus import specified
from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f32
from fusion_ir.records import Device
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from tests.support.devices import CPU_DEVICE
from tests.support.products import dense_graph, spec

ROWS, RANK, MIDDLE = 2048, 16, 1536
Spelling = Callable[[Node, Node, Node], Node]


def _wide(x: Node) -> Node:
    return build.cast(x, f32)


def _cast_between(x: Node, a: Node, c: Node) -> Node:
    inner = build.cast(build.matmul(_wide(x), _wide(a)), x.dtype)
    return build.cast(build.matmul(_wide(inner), _wide(c)), x.dtype)


def _in_heads(x: Node, a: Node, c: Node) -> Node:
    inner = build.reshape(build.matmul(x, a), (ROWS, 12, MIDDLE // 12))
    return build.einsum(inner, build.reshape(c, (12, MIDDLE // 12, RANK)), [0, 1, 2], [1, 2, 3], [0, 3])


def _transposed(x: Node, a: Node, c: Node) -> Node:
    return build.transpose(build.matmul(build.transpose(c), build.matmul(build.transpose(a), build.transpose(x))))


SPELLINGS: dict[str, Spelling] = {
    "plain": lambda x, a, c: build.matmul(build.matmul(x, a), c),
    "operands cast first": lambda x, a, c: build.matmul(build.matmul(_wide(x), _wide(a)), _wide(c)),
    "cast between": _cast_between,
    "scaled between": lambda x, a, c: build.matmul(build.mul(build.matmul(x, a), 0.5), c),
    "residual": lambda x, a, c: build.add(x, build.matmul(build.matmul(x, a), c)),
    "relu": lambda x, a, c: build.relu(build.matmul(build.matmul(x, a), c)),
    "in heads": _in_heads,
    "transposed": _transposed,
    "three axes": lambda x, a, c: build.matmul(build.matmul(build.reshape(x, (4, ROWS // 4, RANK)), a), c),
}


def _operations(spelling: Spelling, dtype: DType, device: Device, rank: int = RANK, middle: int = MIDDLE) -> float:
    """Arithmetic operations of the predicted plan, summed over its steps."""
    graph = dense_graph(
        [spec(sizes, None, dtype) for sizes in ((ROWS, rank), (rank, middle), (middle, rank))], spelling
    )
    return sum(s.operations for s in tune(graph, device, Budget(0), Forgetful(), None).steps)


@pytest.mark.parametrize("device", [CPU_DEVICE, specified("h200", "13.0")], ids=lambda d: d.target)
@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.sweep(0.4)
def test_what_changes_at_every_run_is_multiplied_in_the_cheapest_order(name: str, dtype: DType, device: Device) -> None:
    as_given = 2 * 2 * ROWS * RANK * MIDDLE
    assert 20 * _operations(SPELLINGS[name], dtype, device) < as_given


def test_a_narrow_waist_stays() -> None:
    rank, middle = 512, 8
    as_given = 2 * 2 * ROWS * rank * middle
    assert _operations(SPELLINGS["plain"], f32, CPU_DEVICE, rank, middle) < 1.1 * as_given
