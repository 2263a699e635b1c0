"""nvFuser's Python definitions: older spelling (T0, S1, broadcast_in_dim) and newer (tv0, c1, broadcast, expand).

    def nvfuser_fusion_id0(fd : FusionDefinition) -> None :
        T0 = fd.define_tensor(shape=[1024, 64], contiguity=[True, True], dtype=DataType.BFloat16, stride_order=[1, 0])
        T1 = fd.ops.cast(T0, dtype=DataType.Float)
        S2 = fd.define_scalar(2.0, dtype=DataType.Double)
        T3 = fd.ops.mul(T1, S2)
        fd.add_output(T3)

The text is data: `python_text` finds the definition in it and holds it against a white list, and nothing is executed.
Tensors keep the names that they have there. A symbolic extent (-1) is known only to the sender, who states it beside
the text in `sizes`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

from fusion_ir.building.recognise_contractions import read_graph
from fusion_ir.core.aliases import op_hint
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.layout import check_donation, normal_strides
from fusion_ir.core.limits import LIMITS, check_body, check_count, check_name, check_sizes
from fusion_ir.core.named import NamedGraph, unique_name
from fusion_ir.core.node import Node
from fusion_ir.core.node_quota import keep
from fusion_ir.core.operand_descriptions import describe_operands
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType
from fusion_ir.errors import FormatError, counted, excerpt, nearest
from fusion_ir.formats.json.strict_json import excerpt_key
from fusion_ir.formats.numbers import Number, cast_number, number
from fusion_ir.formats.nvfuser.ops import NVFUSER_OPS
from fusion_ir.formats.nvfuser.python_text import Argument, Name, PythonCall, read_calls
from fusion_ir.formats.nvfuser.tensors import (
    Given,
    define_tensor,
    leaves_strides_open,
    memory_order,
    open_shapes,
    strides_of,
)
from fusion_ir.formats.nvfuser.values import Tensor, Value, bind, convert, describe, integers, resolve
from fusion_ir.formats.side_file import SHAPES, stated_beside
from fusion_ir.formats.signature import Parameter, parameters
from fusion_ir.ops import make_input


def read_nvfuser(
    text: str,
    sizes: Mapping[str, Sequence[int]] | None = None,
    strides: Mapping[str, Sequence[int]] | None = None,
    values: Mapping[str, float | int | bool] | None = None,
) -> NamedGraph:
    """The graph of an nvFuser Python definition.

    `sizes` gives extents, and `strides` the strides in elements, of input tensors by name, for those whose text leaves
    them open: extents of -1, axes with contiguity False. `values` gives the scalars for which the text has no value.
    Raises FormatError with line and column.
    """
    check_body(text)
    calls = read_calls(text, NVFUSER_OPS)
    check_count("", "statements", len(calls), LIMITS.nodes + LIMITS.inputs + LIMITS.outputs)
    definition = _Definition(calls, sizes or {}, strides or {}, values or {})
    for call in calls:
        definition.statement(call)
    return definition.finish()


class _Definition:
    """A definition as far as it has been read."""

    def __init__(
        self, calls: Sequence[PythonCall], sizes: Given, strides: Given, scalars: Mapping[str, float | int | bool]
    ) -> None:
        self.calls = calls
        self.sizes = sizes
        self.strides = strides
        self.scalars = scalars
        self.stated: set[str] = set()  # those of `scalars` that the text asked for
        self.values: dict[str, Value] = {}
        self.bound: list[tuple[str, Node]] = []  # names of tensors, also of those that got another one since
        self.places: dict[str, str] = {}  # where names got their values
        self.taken_dense: list[str] = []  # inputs whose strides the text leaves open without saying so
        self.inputs: dict[str, InputSpec] = {}
        self.outputs: dict[str, OutputSpec] = {}

    def statement(self, call: PythonCall) -> None:
        """Reads one call and binds its results to the names it is assigned to."""
        match call.path:
            case "define_tensor":
                results: Sequence[Value] = [self.define_tensor(call)]
            case "define_scalar" | "define_constant":
                results = [self.define_scalar(call)]
            case "define_vector":
                results = [self.define_vector(call)]
            case "add_output":
                self.add_output(call)
                results = []
            case path if path.startswith("ops."):
                results = self.operation(call, path.removeprefix("ops."))
            case path:
                known = [f"fd.{name}" for name in ("define_tensor", "define_scalar", "define_vector", "add_output")]
                hint = f"; did you mean 'fd.ops.{path}'?" if path in NVFUSER_OPS else nearest(f"fd.{path}", known)
                wanted = hint or f", expected fd.ops.NAME or one of {', '.join(known)}"
                raise FormatError(call.place, f"unknown call {excerpt(f'fd.{path}')}{wanted}")
        if len(results) != len(call.targets):
            counts = f"{counted(len(results), 'result')}, assigned to {counted(len(call.targets), 'name')}"
            raise FormatError(call.place, f"fd.{call.path} has {counts}")
        for name, value in zip(call.targets, results, strict=True):
            check_name(call.place, name)
            self.values[name] = value
            self.places[name] = call.place
            if isinstance(value, Tensor) and not name.startswith("%"):
                self.bound.append((name, value.node))

    def operation(self, call: PythonCall, op: str) -> list[Value]:
        function = NVFUSER_OPS.get(op)
        if function is None:
            raise FormatError(call.place, f"unknown op {excerpt(op)}{op_hint(op, NVFUSER_OPS)}")
        values = {p.name: convert(self.values, argument, p) for p, argument in bind(call, parameters(function))}
        try:
            result = function(**values)
        except (ValueError, OverflowError) as error:
            reason = str(error) if str(error).startswith(op) else f"{op}: {error}"
            raise FormatError(call.place, f"{reason}{describe_operands(self.operands(call))}") from None
        results = cast(
            "tuple[Node | Number | int | list[int], ...]", result if isinstance(result, tuple) else (result,)
        )
        found: list[Value] = []
        for item in results:
            if not isinstance(item, Node):
                found.append([*item] if isinstance(item, list) else item)
                continue
            check_sizes(call.place, item.sizes)
            keep(call.place, item)
            order = cast("tuple[int, ...]", values["stride_order"]) if op == "stride_order" else None
            found.append(Tensor(item, order))
        return found

    def operands(self, call: PythonCall) -> Iterator[tuple[str, Node, str]]:
        """The tensors among a call's arguments, by name, and where each was defined."""
        waiting: list[Argument] = [*reversed(call.keywords.values()), *reversed(call.args)]
        while waiting:
            found = waiting.pop().value
            if isinstance(found, list):
                waiting += reversed(found)
            elif isinstance(found, Name) and isinstance(tensor := self.values.get(found.name), Tensor):
                known = not found.name.startswith("%")
                yield found.name if known else "the operand", tensor.node, self.places[found.name]

    def define_tensor(self, call: PythonCall) -> Value:
        name = call.targets[0] if len(call.targets) == 1 else ""
        check_name(call.place, name)
        check_count(call.place, "inputs", len(self.inputs) + 1, LIMITS.inputs)
        if name in self.inputs:
            raise FormatError(call.place, f"two inputs are named {excerpt(name)}")
        spec = define_tensor(call, name, self.values, self.sizes, self.strides, partial(open_shapes, self.calls))
        self.inputs[name] = spec
        if name not in self.strides and leaves_strides_open(call, spec):
            self.taken_dense.append(name)
        return Tensor(make_input(len(self.inputs) - 1, spec))

    def define_scalar(self, call: PythonCall) -> Value:
        """A Python number, in the dtype given; without one, what stands beside the text by its name."""
        expected = (Parameter("value", "scalar number", False, True), Parameter("dtype", "dtype", False, True))
        values = {p.name: convert(self.values, argument, p) for p, argument in bind(call, expected)}
        value, dtype = values.get("value"), values.get("dtype")
        name = call.targets[0] if len(call.targets) == 1 else ""
        if not isinstance(value, Number):
            if name not in self.scalars:
                advice = stated_beside("it", {"values": {name: 0.5}})
                raise FormatError(call.place, f"{excerpt(name)} has no value in the text: {advice}")
            self.stated.add(name)
            value = number(self.scalars[name])
        if not isinstance(dtype, DType):
            return value
        try:
            if dtype.is_integer:
                return Number(Scalar.of(value.value, dtype).value, dtype)
            return cast_number(value, dtype)
        except (ValueError, OverflowError):
            raise FormatError(call.place, f"{excerpt(value.value)} is not a value of {dtype}") from None

    def define_vector(self, call: PythonCall) -> Value:
        expected = (Parameter("value", "ints", True, False), Parameter("dtype", "dtype", False, True))
        (_, argument), *_ = bind(call, expected)
        return list(integers(self.values, argument, "value"))

    def add_output(self, call: PythonCall) -> None:
        """An output; with `alias_input` one that is written over an input."""
        expected = (
            Parameter("output", "tensor", True, False),
            Parameter("alias_input", "tensor", False, True),
            Parameter("stride_order", "ints", False, True),
        )
        given = {p.name: a for p, a in bind(call, expected) if resolve(self.values, a) is not None}
        argument = given.get("output", call.args[0] if call.args else call.keywords.get("output"))
        tensor = None if argument is None else resolve(self.values, argument)
        if argument is None or not isinstance(tensor, Tensor):
            raise FormatError(call.place, f"expected a tensor to put out, got {describe(tensor)}")
        check_count(call.place, "outputs", len(self.outputs) + 1, LIMITS.outputs)
        order = tensor.stride_order
        if "stride_order" in given:
            order = integers(self.values, given["stride_order"], "stride_order")
        extents = tensor.node.sizes
        axes = None if order is None else memory_order(call.place, order, len(extents))
        strides = strides_of(call.place, "the output", extents, [True] * len(extents), axes)
        donates = None
        if "alias_input" in given:
            target = resolve(self.values, given["alias_input"])
            if not isinstance(target, Tensor) or target.node.op != "input":
                place = given["alias_input"].place
                raise FormatError(place, f"argument alias_input: expected an input, got {describe(target)}")
            donates = target.node.attr("position", int)
        output = OutputSpec(tensor.node, normal_strides(extents, strides), donates)
        name = argument.value.name if isinstance(argument.value, Name) else "out"
        names = None if donates is None else (name, list(self.inputs)[donates])
        check_donation(call.place, output, list(self.inputs.values()), list(self.outputs.values()), names)
        self.outputs[unique_name(name, self.outputs)] = output

    def finish(self) -> NamedGraph:
        for what, given in (("sizes", self.sizes), ("strides", self.strides)):
            for name in given:
                if name not in self.inputs:
                    raise FormatError(
                        what, f"{excerpt(name)} is no input of the definition, which has {[*self.inputs]}"
                    )
        for name in self.scalars:
            if name not in self.stated:
                place = f"{SHAPES}/values/{excerpt_key(name)}"
                raise FormatError(place, f"{excerpt(name)} is no scalar that the definition leaves open")
        if not self.outputs:
            raise FormatError("", "the definition has no outputs: fd.add_output is never called")
        graph = Graph(tuple(self.inputs.values()), tuple(self.outputs.values()))
        check_count("", "nodes", len(graph.nodes), LIMITS.nodes)
        return read_graph(graph, tuple(self.inputs), tuple(self.outputs), self.bound, tuple(self.notes()))

    def notes(self) -> Iterator[str]:
        """A note on the inputs that were taken as dense, where the text says nothing of their layout."""
        if self.taken_dense:
            names = ", ".join(self.taken_dense[:8]) + (", ..." if len(self.taken_dense) > 8 else "")
            yield f"without contiguity nvFuser takes a tensor of any strides: {names} taken as dense"
