"""Which schedules a family may be asked for: all that it names itself, and none that somebody made up."""

import pytest

from codegen.families import FAMILIES
from codegen.kernel import offers
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.ops import make_input
from fusion_ir.records import Device
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.kernels import dense, graph_of

WIDE, SQUARE, ROW = dense(64, 4096), dense(256, 256), dense(1, 256)
TALL, FLAT = dense(640, 5), dense(5, 2048)
X, A, B, R = make_input(0, WIDE), make_input(0, SQUARE), make_input(1, SQUARE), make_input(0, ROW)
SEGMENTS: dict[str, Graph] = {
    "pointwise": graph_of((WIDE,), build.exp(X)),
    "transpose": graph_of((SQUARE,), build.permute(A, (1, 0))),
    "reduction": graph_of((WIDE,), build.sum_(X, [1])),
    "softmax": graph_of((WIDE,), build.softmax(X)),
    "scan": graph_of((WIDE,), build.cumsum(X, 1)),
    "matmul": graph_of((SQUARE, SQUARE), build.matmul(A, B)),
    "few products": graph_of((TALL, FLAT), build.matmul(make_input(0, TALL), make_input(1, FLAT))),
    "gemv": graph_of((ROW, SQUARE), build.matmul(R, B)),
}


CASES = [(name, CPU_DEVICE) for name in SEGMENTS] + [(name, CUDA_DEVICE) for name in SEGMENTS if name != "softmax"]


@pytest.mark.parametrize(("name", "device"), CASES, ids=lambda x: x.target if isinstance(x, Device) else x)
def test_what_is_named_is_offered_and_nothing_else(name: str, device: Device) -> None:
    segment, asked = SEGMENTS[name], 0
    for family in FAMILIES.values():
        if family.accepts(segment, device) is not None:
            continue
        for schedule in family.space(segment, device):
            asked += 1
            assert offers(family, segment, schedule, device), schedule
            for other in (f"{schedule} ", schedule.replace("=", "=9", 1), schedule[:-1], f"other{schedule}", ""):
                assert other == schedule or not offers(family, segment, other, device), other
    assert asked
