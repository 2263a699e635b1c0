"""Arguments of a kernel in words: a tensor by its name, a temporary by what it holds, with dtype and shape."""

from dataclasses import dataclass
from functools import cached_property

from fusion_ir.core.named import NamedGraph
from fusion_ir.records import Plan, Ref
from fusion_ir.text.printing import type_text
from service.wording.formatting import size
from service.wording.naming import UNNAMED, Naming


@dataclass(frozen=True)
class Arguments:
    """Arguments of a plan's kernels. named: the graph, None where it is not stored any more."""

    plan: Plan
    named: NamedGraph | None

    @cached_property
    def _at_steps(self) -> list[Naming]:
        """Names before the first step, and after each."""
        naming = UNNAMED if self.named is None else Naming.of_graph(self.named)
        return [naming, *naming.at_steps(self.plan.steps)]

    def of(self, number: int) -> list[tuple[str, str]]:
        """Parameter and tensor of one kernel, in its order: ("in0", "q, the plan's in0, bf16[2, 128]"),
        ("out0", "tmp0 = act, f32[2, 64]"), ("scratch", "tmp1, 2.00 KiB")."""
        step = self.plan.steps[number]
        before, after = self._at_steps[number : number + 2]  # it may write another tensor where one stood that it reads
        found = [(f"in{i}", self._tensor(ref, before)) for i, ref in enumerate(step.reads)]
        found += [(f"out{i}", self._tensor(ref, after)) for i, ref in enumerate(step.writes)]
        return found + ([("scratch", f"{step.scratch}, {self._bytes(step.scratch)}")] if step.scratch else [])

    def _tensor(self, ref: Ref, naming: Naming) -> str:
        if ref.place == "tmp":
            return self._temporary(ref, naming)
        spec = (self.plan.inputs if ref.place == "in" else self.plan.outputs)[ref.index]
        name = naming.of(ref)
        whose = str(ref) if name == str(ref) else f"{name}, the plan's {ref}"
        return f"{whose}, {spec.dtype}[{', '.join(map(str, spec.shape))}]"

    def _temporary(self, ref: Ref, naming: Naming) -> str:
        """ "tmp0 = act, f32[2, 64]" where it is a tensor of the graph; "tmp0 for act, 512 B" where it is a part of one,
        or made on the way there."""
        written = naming.temporaries.get(ref.index)
        if written is None:
            return f"{ref}, {self._bytes(ref)}"
        name = naming.equal_to(written)
        aims = [] if name else naming.aims(written)
        words = f"{ref} = {name}" if name else f"{ref} for {', '.join(aims)}" if aims else f"{ref}"
        if not written.whole or self.named is None:
            return f"{words}, {self._bytes(ref)}"
        node = self.named.graph.nodes[next(filter(naming.has_name, written.nodes), written.nodes[0])]
        return f"{words}, {type_text(node.dtype, node.sizes)}"

    def _bytes(self, ref: Ref) -> str:
        return size(self.plan.buffers[ref.index].bytes)
