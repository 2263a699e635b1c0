"""Long chains of ops, before, behind and within products, reductions and scans: each family refuses them or emits a
kernel, with no error of Python's own."""

from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.kernel import EmitError
from codegen.lowering.puller import MAX_DEPTH
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, f16, f32
from fusion_ir.ops import make, make_input
from fusion_ir.records import Device
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE

SIDE = 1024
BELOW = 150  # frames of whoever calls: a server's thread has some dozens
Link = Callable[[Node, int], Node]

LINKS: dict[str, Link] = {
    "pointwise": lambda x, i: make(("neg", "sin")[i % 2], [x]),
    "casts": lambda x, i: build.cast(build.neg(x), (f32, f16)[i % 2]),
    "selects": lambda x, _: build.where(build.gt(x, 0.5), x, build.neg(x)),
    "views": lambda x, _: build.neg(build.transpose(x)),
}


def chains(length: int, link: Link) -> dict[str, Callable[[Node], Node]]:
    """Where in a graph a chain of so many links may stand."""

    def chain(x: Node) -> Node:
        for i in range(length):
            x = link(x, i)
        return x

    def softmax(x: Node) -> Node:
        return build.softmax(x, 1)

    return {
        "alone": chain,
        "before a reduction": lambda x: build.max_(chain(x), 1),
        "around a softmax": lambda x: chain(softmax(chain(x))),
        "behind a product": lambda x: chain(build.matmul(x, x)),
        "left of a product": lambda x: build.matmul(chain(x), build.cast(x, chain(x).dtype)),
        "right of a product": lambda x: build.matmul(build.cast(x, chain(x).dtype), chain(x)),
        "before a column": lambda x: build.matmul(chain(x), build.slice_(chain(x), [0, 0], [SIDE, 1])),
        "within attention": lambda x: build.matmul(softmax(chain(build.matmul(x, build.transpose(x)))), chain(x)),
        "before a scan": lambda x: build.cumsum(chain(x), 1),
        "turned": lambda x: build.transpose(chain(x)),
    }


def families_that_fail(graph: Graph, device: Device) -> list[str]:
    """Families that raise anything but EmitError for the graph, each with its error."""
    failed: list[str] = []
    for name, family in FAMILIES.items():
        try:
            if family.accepts(graph, device) is None:
                for schedule in family.space(graph, device)[:1]:
                    family.emit(graph, schedule, device)
        except EmitError:
            pass  # which it may
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__} {error}")
    return failed


def deeper(frames: int, call: Callable[[], list[str]]) -> list[str]:
    """The result of `call`, called `frames` stack frames further down."""
    return deeper(frames - 1, call) if frames else call()


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("device", [CPU_DEVICE, CUDA_DEVICE], ids=["cpu", "cuda"])
@pytest.mark.parametrize("links", LINKS)
def test_every_family_refuses_or_lowers_long_chains(links: str, device: Device) -> None:
    dtypes: tuple[DType, ...] = (f32, f16) if device is CUDA_DEVICE and links == "pointwise" else (f32,)
    for length in (MAX_DEPTH - 10, MAX_DEPTH + 90, 4 * MAX_DEPTH):
        for dtype in dtypes:
            spec = InputSpec(shape_of((SIDE, SIDE)), dtype, (SIDE, 1))
            for place, compute in chains(length, LINKS[links]).items():
                out = compute(make_input(0, spec))
                graph = Graph((spec,), (OutputSpec(out, dense_strides(out.sizes)),))
                failed = deeper(BELOW, lambda graph=graph: families_that_fail(graph, device))
                assert not failed, (length, dtype, place)


def test_the_limit_is_what_it_says() -> None:
    spec = InputSpec(shape_of((SIDE, SIDE)), f32, (SIDE, 1))
    told: dict[int, str] = {}
    for length in (50, MAX_DEPTH + 90):
        x = make_input(0, spec)
        out = chains(length, lambda x, _: build.neg(x))["behind a product"](x)
        graph = Graph((spec,), (OutputSpec(out, dense_strides(out.sizes)),))
        refused = FAMILIES["matmul"].accepts(graph, CPU_DEVICE)
        told[length] = refused.reason if refused else ""
    assert told == {50: "", MAX_DEPTH + 90: f"more than {MAX_DEPTH} nodes in a row in one kernel"}
