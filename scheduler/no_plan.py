"""Searches that end without a plan, and what they say: where kernels ran and disagree, which element is how far off."""

from collections.abc import Sequence

from fusion_ir.accuracy.comparison import Difference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.records import Device, Measurement, Status


class NoPlan(Exception):
    """No kernel that computes a part of the graph compiled and passed its check; the message says what failed, and
    how."""


class MemoryExceeded(NoPlan):
    """The device has less memory than inputs and outputs take, or no plan that was found keeps to the limit of
    temporaries; the message says what the least needs."""


class Disagreement(NoPlan):
    """No kernel that ran gives what the interpreter gives, not even with one for every op. The message names the node,
    the element, both values, and what the error bound and perturbed runs allow there (`difference`)."""

    def __init__(self, node: Node, detail: str) -> None:
        super().__init__(f"{node}: {detail}")
        self.node, self.difference = node, Difference.parse(detail)


def check_room(graph: Graph, device: Device) -> None:
    """Raises MemoryExceeded where the graph's inputs and outputs alone are larger than the device's memory."""
    written = sum(o.bytes for o in graph.outputs if o.donates is None)
    if graph.read_bytes + written > device.memory_bytes:
        raise MemoryExceeded(
            f"the graph's inputs take {graph.read_bytes:,} bytes and its outputs {written:,}; "
            f"{device.name} has {device.memory_bytes:,}"
        )


def unusable(node: Node, failures: Sequence[Measurement]) -> NoPlan:
    """The exception for a segment that ends in `node`, whose kernels all failed. failures: of those that were tried."""
    wrong = [m for m in failures if m.status is Status.wrong_result and Difference.parse(m.detail)]
    if wrong:
        m = wrong[0]
        return Disagreement(node, f"{m.detail}; by {m.family} {m.schedule}, of {len(failures)} that failed")
    alike: dict[str, list[str]] = {}  # what became of several in the same way is said once
    for m in failures:
        alike.setdefault(f"{m.status.value} {m.detail}", []).append(f"{m.family} {m.schedule}")
    failed = [f"{who[0]}{f' and {len(who) - 1} more' if len(who) > 1 else ''}: {what}" for what, who in alike.items()]
    return NoPlan(f"no kernel for {node} can be used: {'; '.join(failed)}")


def refused(graph: Graph, wrong: str, otherwise: str) -> NoPlan:
    """The exception for a graph whose whole plans all failed. wrong: the message about one with a wrong result, ""
    where there was none; otherwise: the exception's message then."""
    found = Difference.parse(wrong)
    return Disagreement(graph.outputs[found.output].node, wrong) if found else NoPlan(otherwise)
