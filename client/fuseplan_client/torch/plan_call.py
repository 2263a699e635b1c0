"""A plan in the place of a group of PyTorch's ops: one function, written for the group, that checks the tensors, makes
the outputs and runs the plan."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._dynamo import guards

from fuseplan_client.cpu.program import CpuProgram
from fuseplan_client.cuda.program import CudaProgram
from fuseplan_client.plan import Plan
from fuseplan_client.tensors import version
from fuseplan_client.torch.export import Exported, Output, Read
from fuseplan_client.torch.updates import Update

TORCH_TYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
    "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}  # fmt: skip

Call = Callable[[Sequence[Any]], Any]
Program = CpuProgram | CudaProgram


class UnfitPlan(ValueError):
    """A plan is not of the graph that was asked about; says where they differ."""


class Unfit(Exception):
    """The inputs of a call are not laid out as the plan was made for; says which."""


class HalfDone(RuntimeError):
    """A plan failed after it may have updated inputs in place: they are neither as they were nor as they should be."""


@dataclass(frozen=True)
class Names:
    """The names of a plan's inputs and outputs, in its order."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def updated_buffers(exported: Exported, updates: Sequence[Update]) -> Mapping[int, int]:
    """The group's input that is updated by each output of the body, where that is what the group gives, not a view."""
    found: dict[int, int] = {}
    for update in updates:
        output = exported.outputs[update.output]
        if output.source != "computed" or output.view is not None or output.index in found:
            raise UnfitPlan(
                f"output {update.output} is no tensor of its own, expected what input {update.input} becomes"
            )
        found[output.index] = update.input
    return found


def increment_version(tensor: torch.Tensor) -> None:
    """Counts a write to a tensor, as PyTorch's ops do; tensors of inference mode have no count."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


class _Places:
    """Positions of the body's inputs and outputs among the plan's, which may be fewer and in another order."""

    def __init__(self, exported: Exported, plan: Plan, names: Names) -> None:
        reads = {row["name"]: read for row, read in zip(exported.body["inputs"], exported.reads, strict=True)}
        buffers = {row["name"]: i for i, row in enumerate(exported.body["outputs"])}
        if set(names.outputs) != set(buffers) or not set(names.inputs) <= set(reads):
            raise UnfitPlan(f"a plan of {names.inputs} -> {names.outputs}, expected {[*reads]} -> {[*buffers]}")
        self.inputs: list[Read] = [reads[name] for name in names.inputs]
        self.outputs: list[int] = [buffers[name] for name in names.outputs]
        for name, read, spec in zip(names.inputs, self.inputs, plan.inputs, strict=True):
            _same(name, (read.sizes, read.dtype), (spec.shape, TORCH_TYPES[spec.dtype]))
        for name, at, spec in zip(names.outputs, self.outputs, plan.outputs, strict=True):
            buffer = exported.buffers[at]
            _same(name, (buffer.sizes, buffer.dtype), (spec.shape, TORCH_TYPES[spec.dtype]))


def _same(name: str, asked: object, got: object) -> None:
    if asked != got:
        raise UnfitPlan(f"{name} is {got} in the plan, expected {asked}")


class CallWriter:
    """Writes the function's text: straight lines, since a loop over tensors takes longer than what it does.

    The function takes the group's inputs and gives what the group gives: a tuple, or the one tensor. It makes the
    updates: an output that the plan may have in place is written there at once, any other is copied. It raises Unfit
    where tensors are laid out otherwise than `examples`, before anything is computed. Any number of threads may call
    it.
    """

    def __init__(
        self, exported: Exported, examples: Sequence[Any], program: Program, names: Names, updates: Sequence[Update]
    ) -> None:
        """Raises UnfitPlan where the plan is not of the exported graph."""
        places = _Places(exported, program.plan, names)
        self.exported, self.examples, self.program, self.places = exported, examples, program, places
        self.updated = updated_buffers(exported, updates)  # the group's input, by buffer
        self.placed = {  # the plan's input, by buffer, in whose memory the plan writes
            j: i
            for k, i in program.plan.in_place
            if self.updated.get(j := places.outputs[k]) == places.inputs[i].position
        }
        outputs = program.plan.outputs
        self.alignments = {i: outputs[k].alignment_bytes for k, i in program.plan.in_place if i in self.placed.values()}
        self.lines: list[str] = []
        self.known: dict[str, Any] = {
            "table_of": program.table, "prepare": program.prepare, "Unfit": Unfit, "check": guards.assert_size_stride,
            "version": version, "increment_version": increment_version, "program": program,
        }  # fmt: skip

    @abstractmethod
    def number(self, i: int, position: int) -> list[str]:
        """Lines that put the address of a float among the arguments into the table, as the plan's input i."""

    @abstractmethod
    def empty(self, sizes: str, strides: str, dtype: str) -> str:
        """A tensor on the device, of which the names of these are known."""

    @abstractmethod
    def run(self, constants: str, held: str) -> list[str]:
        """Lines that run the plan on the table, before that the prologue for these constants, where it has one."""

    def function(self) -> Call:
        """The function."""
        self.lines = [
            "def call(args):",
            "    table = table_of()",
            "    at = table.addresses",
            "    try:",
            "        pass",
        ]
        self._inputs()
        self.lines += ["    except AssertionError as wrong:", "        raise Unfit(str(wrong)) from None"]
        self._outputs()
        plan = self.program.plan
        constants = [self.places.inputs[i].position for i in plan.constants]
        known = "".join(f"(at[{i}], version(args[{p}])), " for i, p in zip(plan.constants, constants, strict=True))
        held = "".join(f"args[{p}], " for p in constants)
        self.lines += [f"    {line}" for line in self.run(f"({known})", f"({held})")]
        self._results()
        text = "\n".join(self.lines)
        exec(compile(text, "<fuseplan call>", "exec"), self.known)
        return self.known["call"]

    def _inputs(self) -> None:
        """Looks at every tensor that is read, and writes its address to the table."""
        together: dict[int, list[str]] = {}  # addresses, by what they have to be multiples of
        for i, read in enumerate(self.places.inputs):
            spec = self.program.plan.inputs[i]
            if read.number:
                self.lines += [f"        {line}" for line in self.number(i, read.position)]
                continue
            example = self.examples[read.position]
            self.known |= {
                f"size{i}": tuple(example.shape),
                f"stride{i}": tuple(example.stride()),
                f"type{i}": example.dtype,
            }
            self.lines += [
                f"        t = args[{read.position}]",
                f"        if t.dtype is not type{i}:",
                f"            raise Unfit('input {read.position} is of another dtype')",
                "        if t.is_neg():",
                f"            raise Unfit('input {read.position} is negated when it is read')",
                f"        check(t, size{i}, stride{i})",
                f"        at[{i}] = a{i} = t.data_ptr()",
            ]
            if 0 not in read.sizes:
                alignment = max(spec.alignment_bytes, self.alignments.get(i, 1))
                together.setdefault(alignment, []).append(f"a{i}")
        if together:  # fake tensors and such have no memory
            self.lines += [
                f"        if not ({' and '.join(a for found in together.values() for a in found)}):",
                "            raise Unfit('an input has no memory')",
            ]
        for alignment, addresses in together.items():
            if alignment > 1:
                self.lines += [
                    f"        if ({' | '.join(addresses)}) & {alignment - 1}:",
                    "            raise Unfit('an input does not lie as its plan relies on')",
                ]

    def _outputs(self) -> None:
        """Makes the tensors that the plan writes."""
        plan = self.program.plan
        aliases = dict(plan.aliases)
        first = len(plan.inputs)
        for k, j in enumerate(self.places.outputs):
            if j in self.placed:
                self.lines.append(f"    at[{first + k}] = a{self.placed[j]}")
                continue
            buffer = self.exported.buffers[j]
            self.known |= {f"osize{j}": buffer.sizes, f"ostride{j}": buffer.strides, f"otype{j}": buffer.dtype}
            self.lines.append(f"    o{j} = {self.empty(f'osize{j}', f'ostride{j}', f'otype{j}')}")
            if k not in aliases:
                self.lines.append(f"    at[{first + k}] = o{j}.data_ptr()")

    def _results(self) -> None:
        """The results of the group. An output that the plan leaves to be another tensor is a copy of that: in PyTorch
        it has memory of its own."""
        for k, ref in self.program.plan.aliases:
            source = f"args[{self.places.inputs[ref.index].position}]" if ref.place == "in" else ""
            if ref.place == "in" and self.places.inputs[ref.index].sizes != tuple(
                self.examples[self.places.inputs[ref.index].position].shape
            ):
                read = self.places.inputs[ref.index]
                self.known |= {f"asize{k}": read.sizes, f"astride{k}": read.strides}
                source = f"{source}.as_strided(asize{k}, astride{k})"
            self.lines.append(
                f"    o{self.places.outputs[k]}.copy_({source or self._buffer(self.places.outputs[ref.index])})"
            )
        for j, position in self.updated.items():
            done = f"increment_version(args[{position}])" if j in self.placed else f"args[{position}].copy_(o{j})"
            self.lines.append(f"    {done}")
        parts = [self._result(i, output) for i, output in enumerate(self.exported.outputs)]
        self.lines.append(
            f"    return ({''.join(f'{p}, ' for p in parts)})" if self.exported.sequence else f"    return {parts[0]}"
        )

    def _buffer(self, j: int) -> str:
        """The tensor that has an output of the body."""
        return f"args[{self.updated[j]}]" if j in self.placed else f"o{j}"

    def _result(self, i: int, output: Output) -> str:
        if output.source == "value":
            self.known[f"value{i}"] = output.value
            return f"value{i}"
        found = self._buffer(output.index) if output.source == "computed" else f"args[{output.index}]"
        if output.view is None:
            return found
        self.known |= {f"vsize{i}": output.view.sizes, f"vstride{i}": output.view.strides}
        offset = (
            f"{output.view.offset}"
            if output.source == "computed"
            else f"{found}.storage_offset() + {output.view.offset}"
        )
        return f"{found}.as_strided(vsize{i}, vstride{i}, {offset})"
