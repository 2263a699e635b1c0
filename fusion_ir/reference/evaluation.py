"""Evaluating a graph piece by piece, as `fusion_ir.reference.chunking` cuts it: intermediate values stay in cache.

Pieces of one time are computed side by side (`fusion_ir.arithmetic.threads`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Protocol

import numpy as np

from fusion_ir.arithmetic.threads import side_by_side
from fusion_ir.core.node import Node
from fusion_ir.reference.chunking import Chunking, along, shaped
from fusion_ir.reference.node_value import evaluate_node

WHOLE = -1  # the "piece" that whole nodes are computed in


class Later(Protocol):
    """The value of a whole node, computed where it is read: of a large value only the part that is read, in cache."""

    def piece(self, axis: int, low: int, high: int) -> np.ndarray:
        """Elements low ... high - 1 of the first axis whose extent is not 1. Called by several threads."""
        ...

    def whole(self) -> np.ndarray:
        """The whole value."""
        ...


def _array(value: "np.ndarray | Later") -> "np.ndarray | Later":
    """The value as an array: NumPy turns arrays without axes into scalars."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def _put(value: np.ndarray, into: np.ndarray) -> None:
    """Copies an array; records field by field, as NumPy copies whole records four times as slowly."""
    for name in value.dtype.names or ():
        into[name] = value[name]
    if not value.dtype.names:
        into[...] = value


# Called by several threads, with different pieces:
# (node, the node as large as the piece, its operands, number of the piece) -> value of that piece.
Step = Callable[[Node, Node, tuple[np.ndarray, ...], int], "np.ndarray | Later"]


def plain(node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray:
    """The step that computes what the language says."""
    return evaluate_node(as_large, operands)


class EvaluationSchedule:
    """The schedule of an evaluation: the nodes computed at each time, whole and in pieces, and how often each value is
    read.

    readers: for each value held whole, the number of whole nodes, of times at which pieces read it, and of outputs.
    local_readers: per time, for each value in pieces, the number of nodes in pieces of that time, and one for itself.
    """

    def __init__(self, cutting: Chunking) -> None:
        axes, times = cutting.axes, cutting.times
        self.cutting = cutting
        self._as_large: dict[tuple[Node, int], Node] = {}
        last = max(times.values(), default=0) + 1
        nodes = [n for n in cutting.graph.nodes if n.op != "input"]
        self.whole = [[n for n in nodes if n not in axes and times[n] == t] for t in range(last)]
        self.pieces = [[n for n in nodes if n in axes and times[n] == t] for t in range(last)]
        self.readers: Counter[Node] = Counter(o.node for o in cutting.graph.outputs)
        self.readers.update(arg for part in self.whole for n in part for arg in dict.fromkeys(n.args))
        self.read_by_pieces: list[list[Node]] = []
        self.local_readers: list[Counter[Node]] = []
        for time, part in enumerate(self.pieces):
            inside: Counter[Node] = Counter(part)
            outside: dict[Node, None] = {}
            for n in part:
                for arg in dict.fromkeys(n.args):
                    inside[arg] += 1
                    if arg not in axes or times[arg] < time:
                        outside[arg] = None
            self.local_readers.append(inside)
            self.read_by_pieces.append(list(outside))
            self.readers.update(list(outside))
        self.kept = {n for n in axes if n in self.readers}

    def as_large(self, node: Node, extent: int) -> Node:
        """`node` with `extent` on the axis that is cut."""
        key = node, extent
        if key not in self._as_large:
            self._as_large[key] = shaped(node, self.cutting.axes[node], extent)
        return self._as_large[key]


class Evaluation:
    """One pass over a graph. Its clock (`Chunking.times`) moves forward only, and values that nobody reads later are
    dropped.

    `inputs` must fit the graph. dtype: gives the NumPy dtype of the array that the step makes for a node.
    """

    def __init__(
        self,
        schedule: EvaluationSchedule,
        inputs: Sequence[np.ndarray],
        step: Step = plain,
        dtype: Callable[[Node], np.dtype] = lambda node: node.dtype.numpy,
    ) -> None:
        self.cutting = schedule.cutting
        self.time = -1
        self._schedule = schedule
        self._step, self._dtype = step, dtype
        self._readers = self._schedule.readers.copy()
        self._values: dict[Node, np.ndarray | Later] = {
            n: inputs[n.attr("position", int)] for n in self.cutting.graph.nodes if n.op == "input"
        }

    def outputs(self) -> list[np.ndarray]:
        """All outputs, of any strides, possibly views of inputs. Ends the pass."""
        self.advance(len(self._schedule.whole))
        return [self._whole(o.node) for o in self.cutting.graph.outputs]

    def advance(self, time: int) -> None:
        """Computes all that comes before the pieces of `time`. The clock stands at `time` then."""
        while self.time < time:
            if self.time >= 0:
                self._all_pieces()
            self.time += 1
            if self.time < len(self._schedule.whole):
                self._all_whole()
                self._make_for_pieces()

    def piece(self, number: int) -> dict[Node, np.ndarray]:
        """One piece at the present time: the values that whole nodes, later pieces or whoever evaluates read."""
        low, high = self.cutting.bounds[number]
        readers = self._schedule.local_readers[self.time].copy()
        local: dict[Node, np.ndarray] = {}
        kept: dict[Node, np.ndarray] = {}
        for node in self._schedule.pieces[self.time]:
            operands = tuple(
                local[arg] if arg in local else self._operand(arg, source, low, high)
                for arg, source in zip(node.args, self.cutting.sources[node], strict=True)
            )
            made = _array(self._step(node, self._schedule.as_large(node, high - low), operands, number))
            value = made if isinstance(made, np.ndarray) else made.whole()
            local[node] = value
            if node in self._schedule.kept:
                kept[node] = value
            for arg in dict.fromkeys((*node.args, node)):
                readers[arg] -= 1
                if readers[arg] <= 0:
                    local.pop(arg, None)
        return kept

    def _operand(self, arg: Node, source: int | None, low: int, high: int) -> np.ndarray:
        value = self._values[arg]
        if not isinstance(value, np.ndarray):
            assert source is not None, "it was made for the pieces"
            return value.piece(source, low, high)
        return value if source is None else value[along(source, low, high)]

    def _whole(self, node: Node) -> np.ndarray:
        value = self._values[node]
        if not isinstance(value, np.ndarray):
            value = self._values[node] = value.whole()
        return value

    def _all_pieces(self) -> None:
        """Puts the pieces of the present time together, and ends it."""
        whole: dict[Node, np.ndarray] = {}
        for node in (n for n in self._schedule.pieces[self.time] if n in self._schedule.kept):
            self._values[node] = whole[node] = np.empty(node.sizes, self._dtype(node))

        def place(number: int) -> None:
            low, high = self.cutting.bounds[number]
            for node, value in self.piece(number).items():
                _put(value, whole[node][self.cutting.index(node, low, high)])

        side_by_side(place, range(len(self.cutting.bounds)))
        for arg in self._schedule.read_by_pieces[self.time]:
            self._release(arg)

    def _all_whole(self) -> None:
        for node in self._schedule.whole[self.time]:
            operands = tuple(self._whole(a) for a in node.args)
            self._values[node] = _array(self._step(node, node, operands, WHOLE))
            for arg in dict.fromkeys(node.args):
                self._release(arg)

    def _make_for_pieces(self) -> None:
        """Computes the values left for later that pieces are about to read, except those that pieces read once, as one
        stretch of memory."""
        for node in self._schedule.pieces[self.time]:
            for arg, source in zip(node.args, self.cutting.sources[node], strict=True):
                rows = source is not None and prod(arg.sizes[:source]) == 1
                if arg in self._values and not (rows and self._schedule.local_readers[self.time][arg] == 1):
                    self._whole(arg)

    def _release(self, node: Node) -> None:
        """One reader of a whole value is done with it."""
        self._readers[node] -= 1
        if not self._readers[node]:
            del self._values[node]
