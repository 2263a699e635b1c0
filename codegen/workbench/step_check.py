"""A plan judged step by step: for graphs whose outputs say nothing, since their steps make any error larger.

The results of each launch are compared with the interpreter's on the values that the launch was given, so that errors
of earlier steps do not count. The place of each tensor of the graph is followed, too, step by step: a launch that is
given another tensor than its segment reads is found, whatever the values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusion_ir.accuracy.comparison import Reference, compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.records import Plan, Ref, Step, TensorSpec

Array = np.ndarray[Any, Any]
MOST_BYTES = 1 << 30  # of all tensors that steps write, since all are kept


@dataclass(frozen=True, slots=True)
class Meaning:
    """The computation that a step stands for: `graph`, from the tensors `reads` (its inputs, in order) to the tensors
    `writes` (its outputs). Each tensor is named by its node; inputs of the plan are nodes of op `input`."""

    graph: Graph
    reads: tuple[Node, ...]
    writes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Meanings:
    """The meanings of a plan's steps, in order, and the tensors that are its outputs, by position; outputs left out are
    aliases."""

    steps: tuple[Meaning, ...]
    outputs: Mapping[int, Node]


Run = Callable[[Plan, Sequence[Array]], list[Array]]  # outputs of a plan, dense


def judge_steps(plan: Plan, meanings: Meanings, inputs: Sequence[Array], run: Run) -> tuple[str, list[Array]]:
    """The problem of a plan on these inputs as a message, "" for none, and its outputs. Runs the plan as it is, and
    once more with every tensor kept that its steps write: each step has to agree with the interpreter, and both runs
    with each other to the bit."""
    written = sum(o.node.bytes for m in meanings.steps for o in m.graph.outputs)
    if written > MOST_BYTES:
        return f"its steps write {written:,} bytes, {MOST_BYTES:,} at most are judged one by one", []
    try:
        kept = _keeping(plan, meanings)
    except _Misplaced as e:
        return str(e), []
    whole, left = run(plan, inputs), iter(run(kept, inputs))
    values: dict[Node, Array] = {}
    for i, (step, meaning) in enumerate(zip(plan.steps, meanings.steps, strict=True)):
        read = [inputs[n.attr("position", int)] if n.op == "input" else values[n] for n in meaning.reads]
        made = [next(left) for _ in meaning.writes]
        outcome = compare(made, reference(meaning.graph, read))
        if not outcome.ok:
            return f"step {i}, {step.family} {step.schedule}, of what it was given: {outcome.detail}", whole
        values |= zip(meaning.writes, made, strict=True)
    of_steps = [values[meanings.outputs[i]] if i in meanings.outputs else whole[i] for i in range(len(whole))]
    same = compare(whole, Reference(of_steps, [None] * len(whole)))
    return "" if same.ok else f"other outputs than its steps have one by one: {same.detail}", whole


class _Misplaced(Exception):
    """A step reads another tensor than its segment does."""


def _keeping(plan: Plan, meanings: Meanings) -> Plan:
    """The plan's launches on tensors that no later step overwrites: the outputs are the tensors that each step writes,
    in order. Raises _Misplaced."""
    holds = {
        Ref(place="in", index=n.attr("position", int)): n for m in meanings.steps for n in m.reads if n.op == "input"
    }
    now = {ref: ref for ref in holds}  # where what a buffer or an output holds at that step lies instead
    outputs, steps = list[TensorSpec](), list[Step]()
    for i, (step, meaning) in enumerate(zip(plan.steps, meanings.steps, strict=True)):
        for ref, node in zip(step.reads, meaning.reads, strict=True):
            if holds.get(ref) is not node:
                raise _Misplaced(f"step {i} reads {ref}, which holds {holds.get(ref, 'nothing')}, for {node}")
        reads = tuple(now[r] for r in step.reads)
        for ref, written, output in zip(step.writes, meaning.writes, meaning.graph.outputs, strict=True):
            holds[ref], now[ref] = written, Ref(place="out", index=len(outputs))
            node = output.node
            outputs.append(
                TensorSpec(shape=node.sizes, dtype=node.dtype.name, strides=output.strides, alignment_bytes=64)
            )
        writes = tuple(now[r] for r in step.writes)
        steps.append(step.model_copy(update={"reads": reads, "writes": writes, "prologue": False}))
    buffers = tuple(b.model_copy(update={"kept": False}) for b in plan.buffers)
    changed = {"outputs": tuple(outputs), "steps": tuple(steps), "buffers": buffers, "aliases": ()}
    return plan.model_copy(update=changed)
