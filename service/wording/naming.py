"""Tensors of a plan by the names that the sender of its graph knows them by: "q", where the plan says in0."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.records import Ref, Step, Written
from tuning_db.reading.graphs import StoredGraph

MOST_CHARACTERS = 24  # of a name in a table
MOST_NAMES = 6  # of those that stand in one cell
_PLACES = ("in", "tmp", "out")


@dataclass(frozen=True)
class Naming:
    """Names of a graph's inputs, outputs and nodes, in order; none where nobody knows them, "" of a node without one.
    owners: for a node without one, the first node with one on the way from it to the outputs. temporaries: what each
    of a plan's holds at one of its steps, by number, as far as the plan says so."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    owners: Mapping[int, int] = field(default_factory=dict[int, int])
    temporaries: Mapping[int, Written] = field(default_factory=dict[int, Written])

    @staticmethod
    def of_graph(named: NamedGraph) -> "Naming":
        names = named.node_names
        return Naming(named.input_names, named.output_names, names, _owners(named.graph, names) if names else {})

    @staticmethod
    def of_stored(stored: StoredGraph | None) -> "Naming":
        """Names by whoever sent the graph last; none where it is no longer stored."""
        return UNNAMED if stored is None else Naming.of_graph(stored.named())

    def of(self, ref: Ref) -> str:
        """The name of an input or output, or of the node that a temporary is: "tmp0(for mu)" where it is a part of one.
        Shortened in the middle where it is long. A tensor without a name has the plan's: "in0"."""
        if ref.place == "tmp":
            return self._holding(ref, self.temporaries.get(ref.index))
        names = {"in": self.inputs, "out": self.outputs}.get(ref.place, ())
        return short(names[ref.index] if ref.index < len(names) else "") or str(ref)

    def node(self, position: int) -> str:
        """The name of a node by its position in the graph's canonical text, shortened as others; "%12" for what its
        sender gave none."""
        return short(self.nodes[position] if position < len(self.nodes) else "") or f"%{position}"

    def at_steps(self, steps: Sequence[Step]) -> Iterator["Naming"]:
        """The names at each step of a plan: a temporary is what the last step wrote there that has one of its own."""
        held: dict[int, Written] = {}
        for step in steps:
            for ref, written in zip(step.writes, step.written or (None,) * len(step.writes), strict=True):
                if ref.place == "tmp" and written is not None:
                    held[ref.index] = written
                elif ref.place == "tmp":
                    held.pop(ref.index, None)
            yield replace(self, temporaries=dict(held))

    def _holding(self, ref: Ref, written: Written | None) -> str:
        if written is None:
            return str(ref)
        name = self.equal_to(written)
        if name:
            return name
        aims = self.aims(written)
        return f"{ref}(for {', '.join(aims)})" if aims else str(ref)

    def equal_to(self, written: Written) -> str:
        """The name of a tensor of the graph that a temporary is, "" where it is none with a name."""
        return next((self.node(n) for n in written.nodes if self.has_name(n)), "") if written.whole else ""

    def aims(self, written: Written) -> list[str]:
        """Names of the tensors that a temporary was made for."""
        named = [n for n in written.nodes if self.has_name(n)]
        return [*map(self.node, dict.fromkeys(named or [self.owners[n] for n in written.nodes if n in self.owners]))]

    def has_name(self, position: int) -> bool:
        """Whether the sender gave the node a name."""
        return position < len(self.nodes) and bool(self.nodes[position])

    def list_of(self, refs: Sequence[Ref]) -> str:
        """ "q k tmp0…2": inputs, temporaries, outputs; those without a name of their own, and temporaries, in runs; of
        many the first ones and how many more."""
        words: list[str] = []
        run: list[Ref] = []
        for ref in (*sorted(refs, key=lambda r: (_PLACES.index(r.place), r.index)), None):
            if run and (
                ref is None or ref.place != run[-1].place or ref.index != run[-1].index + 1 or self._named(ref)
            ):
                words.append(f"{run[0]}{f'…{run[-1].index}' if len(run) > 1 else ''}")
                run = []
            if ref is None:
                break
            if self._named(ref):
                words.append(self.of(ref))
            else:
                run.append(ref)
        more = f" and {len(words) - MOST_NAMES} more" if len(words) > MOST_NAMES + 1 else ""
        return " ".join(words[:MOST_NAMES] if more else words) + more

    def _named(self, ref: Ref) -> bool:
        return self.of(ref) != str(ref)


def _owners(graph: Graph, names: Sequence[str]) -> dict[int, int]:
    """See `Naming.owners`."""
    owners: dict[int, int] = {}
    numbers = {node: i for i, node in enumerate(graph.nodes)}
    for node, position in reversed(numbers.items()):
        users = [numbers[user] for user in graph.users[node]]
        found = [user if names[user] else owners[user] for user in users if names[user] or user in owners]
        if found:
            owners[position] = min(found)
    return owners


def short(name: str) -> str:
    """A name that fits into a table: the middle of a long one left out."""
    return name if len(name) <= MOST_CHARACTERS else f"{name[: MOST_CHARACTERS - 8]}…{name[-7:]}"


UNNAMED = Naming()
