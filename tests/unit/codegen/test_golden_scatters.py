"""Golden loop programs and texts of scatters."""

from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import lower
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import bf16, f32, i32, i64
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE


def embedding_gradient() -> Graph:
    """Rows of a gradient by the words that they are of; padding, word 3, gets none."""
    inputs = [spec((512, 768), bf16), spec((512,), i64)]
    return graph_of(inputs, lambda x, i: B.scatter_sum(x, 0, B.where(B.eq(i, 3), -1, i), 5000))


def messages() -> Graph:
    """Along edges, from nodes to nodes, each times a weight; added to what the nodes have."""
    inputs = [spec((1000, 64), f32), spec((9000,), i32), spec((9000,), i64), spec((9000,), f32)]

    def build(nodes: B.Operand, source: B.Operand, target: B.Operand, weight: B.Operand) -> B.Operand:
        sent = B.mul(B.index_select(nodes, 0, source), B.unsqueeze(weight, 1))
        return B.add(nodes, B.scatter_sum(sent, 0, target, 1000))

    return graph_of(inputs, build)


def counts() -> Graph:
    """How often each number is there: no lanes."""
    return graph_of([spec((9000,), i64)], lambda i: B.scatter_sum(B.full((9000,), 1, i64), 0, i, 100))


def columns() -> Graph:
    """Along the last axis."""
    return graph_of([spec((3, 50, 70), f32), spec((70,), i64)], lambda x, i: B.scatter_sum(x, 2, i, 20))


BUILDS = [embedding_gradient, messages, counts, columns]
SCHEDULE = "scatter{lanes=32,fetch=0,store=stream,tile=1024,block=0,interleave=0,tasks=1}"


@pytest.mark.parametrize("build", BUILDS)
def test_loop_program(build: Callable[[], Graph], golden: Callable[[str, str], None]) -> None:
    golden(f"{build.__name__}.loops", str(lower(build(), 32, 256, 1024, least_tasks=16, keep_bytes=64 << 10)))


@pytest.mark.parametrize("build", BUILDS)
def test_cpp(build: Callable[[], Graph], golden: Callable[[str, str], None]) -> None:
    golden(f"{build.__name__}.cpp", FAMILIES["scatter"].emit(build(), SCHEDULE, CPU_DEVICE).source)


@pytest.mark.parametrize("build", [messages, counts])
def test_cuda(build: Callable[[], Graph], golden: Callable[[str, str], None]) -> None:
    golden(f"{build.__name__}.cu", FAMILIES["naive"].emit(build(), "naive{threads=256}", CUDA_DEVICE).source)
