"""A graph together with the names that its sender knows its tensors by. Names never reach a plan or a kernel."""

from collections.abc import Collection
from dataclasses import dataclass

from fusion_ir.graph import Graph


@dataclass(frozen=True, slots=True)
class NamedGraph:
    """Names in the order of the graph's inputs and outputs. No two inputs have one name, and no two outputs.

    `notes` says, in sentences for the sender, what a reader took for granted that the text did not say.
    """

    graph: Graph
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, names, count in (
            ("input", self.input_names, len(self.graph.inputs)),
            ("output", self.output_names, len(self.graph.outputs)),
        ):
            if len(names) != count:
                raise ValueError(f"{count} {what}s but {len(names)} names")
            if len(set(names)) != count:
                repeated = next(n for i, n in enumerate(names) if n in names[:i])
                raise ValueError(f"two {what}s are named {repeated!r}")

    @staticmethod
    def unnamed(graph: Graph) -> "NamedGraph":
        """The graph with its tensors called in0, in1, ... and out0, out1, ..."""
        inputs = tuple(f"in{i}" for i in range(len(graph.inputs)))
        return NamedGraph(graph, inputs, tuple(f"out{i}" for i in range(len(graph.outputs))))


def unique_name(name: str, taken: Collection[str]) -> str:
    """`name` where it is free, else name_N with the first free N above the number of names taken."""
    number = len(taken) + 1
    unique = name
    while unique in taken:
        unique = f"{name}_{number}"
        number += 1
    return unique
