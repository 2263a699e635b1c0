"""A graph to check candidates on: inputs, what must come out, and the comparison. Knows no device."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from fusion_ir.comparison import Reference, compare
from fusion_ir.graph import Graph
from fusion_ir.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import sums_in_any_order
from fusion_ir.records import Status
from fusion_ir.sample import sample_inputs
from fusion_ir.tolerance import reference

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of inputs and what must come out of it."""

    inputs: list[Array]
    reference: Reference


@dataclass(frozen=True, slots=True)
class Case:
    """A graph with its trials: random data, and small integers too where the graph sums."""

    graph: Graph
    trials: tuple[Trial, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return self.graph.read_bytes + self.graph.written_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a check: what is wrong ("": nothing), and the largest relative error seen."""

    problem: str
    max_rel_error: float | None


def make_case(graph: Graph, seed: int) -> Case:
    """Samples inputs and interprets the graph."""
    kinds = [False, True] if any(map(_sums, graph.nodes)) else [False]
    inputs = [sample_inputs(graph, seed, integers=integers) for integers in kinds]
    return Case(graph, tuple(Trial(arrays, reference(graph, arrays)) for arrays in inputs))


def _sums(node: Node) -> bool:
    """Whether sums may run in any order: checked once more with small integers, where every order is exact (and where
    values meet their equals, for whoever takes the first of them)."""
    return kind_of(node) in (OpKind.REDUCTION, OpKind.SCAN) or (
        kind_of(node) is OpKind.CONTRACT and (sums_in_any_order(node) or not node.dtype.is_float)
    )


def is_judged(case: Case, trial: int, reordered: bool) -> bool:
    """Whether outputs must be those of the graph's own order of operations on this trial. reordered: of a plan whose
    rewrites compute in another one. Small integers, of which every sum is exact, forgive nothing; where a sum is
    rounded to 16 bits and summed again, (x y) z and x (y z) round other values, and neither is exact then."""
    return not (reordered and trial and _rounds_between_sums(case.graph))


def _rounds_between_sums(graph: Graph) -> bool:
    """Whether some sum is computed from the result of another one that was rounded to a float of 16 bits or less."""
    summed, rounded = set[Node](), set[Node]()
    for node in graph.nodes:
        sums = _sums(node)
        if sums and any(a in rounded for a in node.args):
            return True
        if sums or any(a in summed for a in node.args):
            summed.add(node)
        if node in summed and (any(a in rounded for a in node.args) or (node.dtype.is_float and node.dtype.bytes <= 2)):
            rounded.add(node)
    return False


def judge(case: Case, trial: int, got: Sequence[Array]) -> Verdict:
    """Compares outputs (arrays of the outputs' shapes, any strides) with the reference."""
    for i, (array, output) in enumerate(zip(got, case.graph.outputs, strict=True)):
        if output.node.dtype.kind == "bool" and array.size and int(array.view(np.uint8).max()) > 1:
            return Verdict(f"out{i} holds a byte that is neither 0 nor 1: not written, or no bool", None)
    outcome = compare(list(got), case.trials[trial].reference)
    error = outcome.max_rel_error if isfinite(outcome.max_rel_error) else None
    return Verdict("" if outcome.ok else outcome.detail or "wrong result", error)


def verdict_message(index: int, verdict: Verdict) -> dict[str, Any]:
    """What the parent is told about one candidate."""
    status = Status.wrong_result if verdict.problem else Status.ok
    return {
        "checked": index,
        "status": status.value,
        "detail": verdict.problem,
        "max_rel_error": verdict.max_rel_error,
    }


def strided(
    raw: np.ndarray[Any, np.dtype[np.uint8]], dtype: np.dtype[Any], sizes: Sequence[int], strides: Sequence[int]
) -> Array:
    """The tensor that lies in `raw`: strides in elements. Writable if `raw` is."""
    flat = raw.view(f"u{dtype.itemsize}")  # as_strided does not know the f8 types: it sees their bits
    return np.lib.stride_tricks.as_strided(flat, tuple(sizes), tuple(s * dtype.itemsize for s in strides)).view(dtype)
