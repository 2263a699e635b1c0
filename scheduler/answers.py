"""Which families accept a segment. Each is asked when that is first needed: some lower the segment to find out."""

from collections.abc import Collection, Iterator, Mapping

from codegen.kernel import Family, Reject
from fusion_ir.graph import Graph
from fusion_ir.records import Device


class Answers(Collection[str]):
    """The accepting families' names, in the order of `families`. To go through them asks one after another; `in` asks
    that one alone."""

    def __init__(self, families: Mapping[str, Family], graph: Graph, device: Device) -> None:
        self._families = families
        self._graph = graph
        self._device = device
        self._answers: dict[str, Reject | None] = {}

    def answer(self, name: str) -> Reject | None:
        """None where the family accepts the segment."""
        if name not in self._answers:
            self._answers[name] = self._families[name].accepts(self._graph, self._device)
        return self._answers[name]

    def refusal(self) -> Reject | None:
        """What every family says against the segment; None where some family accepts it, of which one is asked."""
        if next(iter(self), None) is not None:
            return None
        told = ((name, self.answer(name)) for name in self._families)
        return Reject("; ".join(f"{name}: {reject.reason}" for name, reject in told if reject is not None))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._families and self.answer(name) is None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._families if self.answer(name) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
