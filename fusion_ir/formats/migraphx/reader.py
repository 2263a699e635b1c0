"""MIGraphX program dumps, whole or as an excerpt, before or after lowering for a GPU.

    @18 = hip::hip_copy_literal[id=main:@literal:73] -> half_type, {768, 2304}, {2304, 1}
    @21 = gpu::gemm[alpha=1,beta=1,compute_fp32=1](@20,@18,@17,@19) -> half_type, {348, 2304}, {2304, 1}
    @23 = transpose[permutation={1, 0}](@21) -> half_type, {2304, 348}, {1, 2304}

Every result states its type, extents and strides; they are held against what the op gives. The rules:

- Arguments are operands, and behind them, for `gpu::` ops and copies, the buffer that the result is written to: an
  allocation, a piece of one (`load`), a parameter such as `main:#output_0`, or a name that the text does not define.
  Buffers are no data and no inputs. `gpu::gemm(a, b, [c], buffer)` is alpha a b + beta c.
- `@param` is an input of the printed layout. `@literal` and `hip::hip_copy_literal` are constants where the text holds
  their values, else weights: `constant` inputs, whose name and version is the id.
- A name that is used and not defined is an input, where its uses determine extents and dtype (`migraphx_missing`): for
  a product A is (batch, M) of the result with K of B. What they leave open must be stated beside the text. Its layout
  is the one that views of it show, else row-major.
- Values have no layout here: the strides of views are computed from their operand's and compared, those of other
  results are recorded. An output has the strides that its line states.
- Outputs are what `@return` names; without it the results that nobody uses.
- `pointwise(...), [module]` is its module's body over the operands, where the body is printed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from fusion_ir import building as build
from fusion_ir.building.recognise_contractions import read_graph
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.layout import check_strides, normal_strides
from fusion_ir.core.limits import LIMITS, check_body, check_count, check_name, check_sizes
from fusion_ir.core.named import NamedGraph, unique_name
from fusion_ir.core.node import Node
from fusion_ir.core.node_quota import keep
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType
from fusion_ir.errors import FormatError, counted, excerpt
from fusion_ir.formats.json.strict_json import excerpt_key
from fusion_ir.formats.migraphx.apply import Value, apply, stated_type
from fusion_ir.formats.migraphx.lines import Instruction, Module, Word, read_modules
from fusion_ir.formats.migraphx.operands import (
    data_arguments,
    find_operands,
    is_buffer,
    is_literal,
    is_parameter,
    parameters_of,
    written_argument,
)
from fusion_ir.formats.migraphx.types import literal, spell
from fusion_ir.formats.side_file import NOTHING, SideFile, stated_beside
from fusion_ir.ops import make_input


def read_migraphx(text: str, beside: SideFile = NOTHING) -> NamedGraph:
    """The graph of a dump's main module.

    `beside` states extents, strides and dtypes of names that the text uses, does not define, and leaves open, and the
    outputs of an excerpt without `@return`. Raises FormatError with line and column.
    """
    check_body(text)
    return _Program(read_modules(text), beside).finish()


class _Program:
    """A dump as far as it has been evaluated."""

    def __init__(self, modules: Sequence[Module], beside: SideFile) -> None:
        if not modules:
            raise FormatError("1:1", "the text has no instruction")
        self.modules = {m.name: m for m in modules}
        self.main = self.modules.get("main", modules[0])
        self.beside = beside
        self.names = find_operands(self.main, self.modules, beside)
        self.values: dict[str, Value] = {}
        self.inputs: dict[str, InputSpec] = {}
        self.weights: dict[str, Value] = {}
        self.returned: Instruction | None = None
        self.evaluated = 0

    def finish(self) -> NamedGraph:
        for instruction in self.main.instructions:
            self.evaluate(instruction)
        self.check_beside()
        outputs: dict[str, OutputSpec] = {}
        for word in self.results():
            check_count(word.place, "outputs", len(outputs) + 1, LIMITS.outputs)
            value = self.value(word)
            check_strides(word.place, value.node.sizes, value.strides, written=True)
            strides = normal_strides(value.node.sizes, value.strides)
            outputs[unique_name(word.text, outputs)] = OutputSpec(value.node, strides)
        graph = Graph(tuple(self.inputs.values()), tuple(outputs.values()))
        check_count("", "nodes", len(graph.nodes), LIMITS.nodes)
        tensors = ((name, value.node) for name, value in self.values.items())
        return read_graph(graph, tuple(self.inputs), tuple(outputs), tensors)

    def check_beside(self) -> None:
        """Holds what is stated beside the text against the inputs. Raises FormatError."""
        for what, given in (("shape", self.beside.shapes), ("strides", self.beside.strides)):
            for name, stated in given.items():
                place = f"shapes/inputs/{excerpt_key(name)}/{what}"
                if name not in self.inputs:
                    raise FormatError(place, f"no input has this name, the inputs are {[*self.inputs]}")
                spec = self.inputs[name]
                found = spec.sizes if what == "shape" else spec.strides
                alike = len(stated) == len(found)
                if alike and what == "strides":
                    stated = normal_strides(spec.sizes, stated)
                if not alike or stated != found:
                    raise FormatError(place, f"{list(stated)} is given, but the text says {list(found)}")

    def results(self) -> tuple[Word, ...]:
        """The names of the outputs. Raises FormatError where there are none."""
        if self.returned is not None:
            found, place = self.returned.arguments, self.returned.op.place
            if self.beside.outputs:
                raise FormatError("shapes/outputs", f"outputs are given, but line {place.partition(':')[0]} returns")
        elif self.beside.outputs:
            for name in self.beside.outputs:
                if name not in self.values:
                    raise FormatError("shapes/outputs", f"{excerpt(name)} is no value of the program")
            return tuple(Word(name, "shapes/outputs") for name in self.beside.outputs)
        else:
            found = tuple(i.name for i in self.main.instructions
                          if i.name.text not in self.names.readers and self.is_computed(i))  # fmt: skip
            place = self.main.instructions[-1].name.place if self.main.instructions else self.main.place
        if not found:
            raise FormatError(place, "the program has no outputs: nothing is returned or left unread")
        return found

    def is_computed(self, instruction: Instruction) -> bool:
        """Whether the result is computed here, and not only written over."""
        given = is_parameter(instruction) or is_literal(instruction) or is_buffer(instruction)
        return not given and instruction.name.text not in self.buffers

    def evaluate(self, instruction: Instruction) -> None:
        """Reads one instruction of the main module."""
        self.count(instruction)
        if self.returned is not None:
            line = self.returned.name.place.partition(":")[0]
            raise FormatError(instruction.name.place, f"expected nothing behind the @return of line {line}")
        if instruction.op.text == "@return":
            self.returned = instruction
            return
        check_name(instruction.name.place, instruction.name.text)
        if is_buffer(instruction):
            return
        if is_parameter(instruction):
            self.parameter(instruction)
        elif is_literal(instruction):
            if instruction.name.text in self.names.readers:
                self.values[instruction.name.text] = self.constant(instruction, instruction.name.text)
        elif instruction.op.text == "pointwise":
            self.values[instruction.name.text] = self.inline(instruction)
        else:
            operands = [self.value(word) for word in data_arguments(instruction)]
            self.values[instruction.name.text] = apply(instruction, operands)
            keep(instruction.name.place, self.values[instruction.name.text].node)

    def count(self, instruction: Instruction) -> None:
        """Bodies of modules count as often as they are used."""
        self.evaluated += 1
        check_count(instruction.name.place, "instructions", self.evaluated, LIMITS.nodes)

    def parameter(self, instruction: Instruction) -> None:
        """An input, unless it is only written to."""
        name, written = instruction.name.text, instruction.op.text.removeprefix("@param:")
        if name != written:
            raise FormatError(instruction.op.place, f"expected the parameter {excerpt(name)}, got {excerpt(written)}")
        if name in self.buffers or (name not in self.names.readers and "#output_" in name):
            return
        type_, dtype = stated_type(instruction)
        self.values[name] = self.add_input(instruction.name, name, type_.sizes, dtype, type_.strides)

    @cached_property
    def buffers(self) -> set[str]:
        """Names that are written to and never read."""
        written = {w.text for i in self.main.instructions if (w := written_argument(i)) is not None}
        return written - self.names.readers.keys()

    def constant(self, instruction: Instruction, name: str) -> Value:
        """A constant where the text holds its values, else a weight, one for every id."""
        type_, dtype = stated_type(instruction)
        if instruction.op.text == "@literal":
            if instruction.literal is None:
                raise FormatError(instruction.op.place, "expected the literal's values, or { ... }, behind @literal")
            node = literal(instruction.literal, dtype, type_.sizes)
            if node is not None:
                return Value(node, type_.strides, instruction.name.place)
        else:
            word = instruction.attributes.get("id")
            if word is None:
                raise FormatError(instruction.op.place, f"{instruction.op.text}: attribute id is missing")
            name = word.text
        if name not in self.weights:
            check_name(instruction.name.place, name)
            self.weights[name] = self.add_input(instruction.name, name, type_.sizes, dtype, type_.strides, name)
        value = self.weights[name]
        before = spell(value.node.dtype, value.node.sizes, value.strides)
        if spell(dtype, type_.sizes, type_.strides) != before:
            raise FormatError(type_.place, f"the literal {excerpt(name)} is {before} elsewhere, "
                              f"here {spell(dtype, type_.sizes, type_.strides)}")  # fmt: skip
        return value

    def add_input(
        self,
        word: Word,
        name: str,
        sizes: tuple[int, ...],
        dtype: DType,
        strides: tuple[int, ...],
        constant: str | None = None,
    ) -> Value:
        check_count(word.place, "inputs", len(self.inputs) + 1, LIMITS.inputs)
        spec = InputSpec(shape_of(sizes), dtype, normal_strides(sizes, strides), constant=constant)
        node = make_input(len(self.inputs), spec)
        self.inputs[unique_name(name, self.inputs)] = spec
        return Value(node, strides, word.place)

    def value(self, word: Word) -> Value:
        """The value of an argument; an input where the text does not define it. Raises FormatError."""
        name = word.text
        if name in self.values:
            return self.values[name]
        definition = self.names.definitions.get(name)
        if definition is None:
            self.values[name] = value = self.missing(word)
            return value
        line = definition.name.place.partition(":")[0]
        if is_buffer(definition):
            op = definition.op.text
            raise FormatError(
                word.place, f"{name} is a buffer ({op}, line {line}): the text does not say what it holds"
            )
        raise FormatError(word.place, f"{name} is used before it is defined, at line {line}")

    def missing(self, word: Word) -> Value:
        """The input for a name that the text does not define. Raises FormatError where its uses leave it open."""
        known = self.names.known[word.text]
        check_name(word.place, word.text)
        if known.sizes is None or known.dtype is None:
            parts = [n for n, p in (("extents", known.sizes), ("element type", known.dtype)) if p is None]
            advice = "include the line that defines it"
            if known.sizes is None and known.dtype is not None:
                advice += f", or {stated_beside('its sizes', {'inputs': {word.text: {'shape': [64, 64]}}})}"
            raise FormatError(word.place, f"{word.text} is not defined in the text, and the lines that use it do not "
                              f"determine its {' and '.join(parts)}: {advice}")  # fmt: skip
        check_sizes(word.place, known.sizes)
        strides = known.strides or dense_strides(known.sizes)
        check_strides(word.place, known.sizes, strides, written=False)
        return replace(self.add_input(word, word.text, known.sizes, known.dtype, strides), place="")

    def inline(self, instruction: Instruction) -> Value:
        """pointwise(operands), [module]: the module's body over whole operands. Raises FormatError."""
        if len(instruction.modules) != 1 or instruction.modules[0].text not in self.modules:
            place = instruction.modules[0].place if instruction.modules else instruction.op.place
            names = [m.text for m in instruction.modules]
            raise FormatError(place, f"expected one module whose body is printed, {[*self.modules]}, got {names}")
        body = self.modules[instruction.modules[0].text]
        type_, dtype = stated_type(instruction)
        parameters = parameters_of(body)
        if len(parameters) != len(instruction.arguments):
            given = counted(len(instruction.arguments), "operand")
            counts = f"{counted(len(parameters), 'parameter')}, got {given}"
            raise FormatError(instruction.op.place, f"pointwise: module {body.name} has {counts}")
        values: dict[str, Value] = {}
        for parameter, word in zip(parameters, instruction.arguments, strict=True):
            operand = self.value(word)
            _, expected = stated_type(parameter)
            if operand.node.sizes != type_.sizes or operand.node.dtype != expected:
                actual = spell(operand.node.dtype, operand.node.sizes)
                raise FormatError(word.place, f"{word.text} is {actual}, expected {spell(expected, type_.sizes)}")
            values[parameter.name.text] = operand
        result = self.body(body, values, type_.sizes)
        if result.dtype != dtype:
            raise FormatError(type_.place, f"module {body.name} gives {spell(result.dtype, type_.sizes)}, "
                              f"the text says {spell(dtype, type_.sizes)}")  # fmt: skip
        return Value(result, type_.strides, instruction.name.place)

    def body(self, module: Module, values: dict[str, Value], sizes: tuple[int, ...]) -> Node:
        """The node that the module returns, over operands of extents `sizes`. Raises FormatError."""

        def value(word: Word) -> Value:
            if word.text not in values:
                raise FormatError(word.place, f"{word.text} is not defined before this line of module {module.name}")
            return values[word.text]

        given = set(values)
        for instruction in module.instructions:
            self.count(instruction)
            name = instruction.name
            if is_parameter(instruction) and name.text in given:
                given.discard(name.text)
                continue
            if name.text in values:
                raise FormatError(name.place, f"{excerpt(name.text)} is defined twice in module {module.name}")
            if instruction.op.text == "@return":
                if len(instruction.arguments) != 1:
                    raise FormatError(name.place, f"expected one result, got {len(instruction.arguments)}")
                return value(instruction.arguments[0]).node
            if is_literal(instruction):
                values[name.text] = Value(self.scalar(instruction, sizes), dense_strides(sizes), name.place)
            else:
                operands = [value(word) for word in data_arguments(instruction)]
                values[name.text] = apply(instruction, operands, inside=sizes)
                keep(name.place, values[name.text].node)
        raise FormatError(module.place, f"module {module.name} has no @return")

    def scalar(self, instruction: Instruction, sizes: tuple[int, ...]) -> Node:
        """A literal of one element, repeated to `sizes`. Raises FormatError."""
        node = self.constant(instruction, instruction.name.text).node
        if node.elements != 1:
            raise FormatError(instruction.name.place, f"expected a literal of one element, got {node.elements}")
        if node.op == "full":
            return build.full(sizes, node.attr("value", Scalar).value, node.dtype)
        return build.broadcast_to(build.reshape(node, []), sizes)
