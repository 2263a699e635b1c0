"""The wire format: a graph as JSON, as clients send it. schema/graph.schema.json is its JSON Schema.

    {"format": "fuseplan.graph", "version": 1,
     "inputs": [{"name": "x", "shape": [64, 32], "dtype": "bf16"}],
     "nodes": [{"name": "y", "op": "softmax", "args": ["x"], "attrs": {"axis": -1}}],
     "outputs": [{"node": "y"}]}

Nodes come in any order and refer to each other by name. The models are closed and strict: no unknown field, no "1" or
true for 1. What an op takes is `wire_ops`' concern, not theirs.
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from fusion_ir.building.recognise_contractions import read_graph
from fusion_ir.core.aliases import DTYPE_ALIASES
from fusion_ir.core.extent import Extent, dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.layout import check_alignment, check_donation, check_strides, normal_strides
from fusion_ir.core.limits import LIMITS, check_body, check_count, check_name, check_sizes
from fusion_ir.core.named import NamedGraph, unique_name
from fusion_ir.core.node import Attr, Node
from fusion_ir.core.node_quota import keep, limited
from fusion_ir.core.operand_descriptions import describe_operands
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.errors import FormatError, excerpt, nearest
from fusion_ir.formats.json.faults import NO_SYMBOLS, first_error
from fusion_ir.formats.json.strict_json import decode, load_json
from fusion_ir.formats.json.wire_ops import build_node
from fusion_ir.ops import make_input

# Kernels gain nothing from more, and graphs that differ only beyond it should share a plan.
MOST_ALIGNMENT_BYTES = 32

Name = Annotated[str, Field(min_length=1, max_length=LIMITS.name_chars)]
Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Ints = Annotated[list[Int64], Field(fail_fast=True, max_length=64)]


def _our_dtype(value: object) -> object:
    """Our name for what others call `float32`; anything else as it is."""
    return DTYPE_ALIASES.get(value, value) if isinstance(value, str) else value


DTypeName = Annotated[
    Literal["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i8", "i16", "i32", "i64", "u8", "bool"],
    BeforeValidator(_our_dtype),
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class WireInput(_Model):
    """A tensor that the graph reads. `constant`: the version of a weight, whose value may be folded ahead of time."""

    name: Name
    shape: Ints = Field(description="extents, 0 or more")
    dtype: DTypeName
    strides: Ints | None = Field(None, description="in elements; row-major without gaps if left out")
    alignment: int = Field(16, description="of the first element, in bytes: a power of two")
    constant: Name | None = None


class WireNode(_Model):
    """One op. A node with several results, such as var_mean, is read as "name.0", "name.1"."""

    name: Name
    op: Annotated[str, Field(max_length=64)]
    args: Annotated[list[Name], Field(fail_fast=True, max_length=LIMITS.operands)] = Field(default_factory=list)
    attrs: dict[str, Any] = Field(default_factory=dict)


class WireOutput(_Model):
    """A tensor that the caller wants. `donates` names the input whose buffer it may take over."""

    node: Name
    name: Name | None = None
    strides: Ints | None = Field(None, description="in elements; row-major without gaps if left out")
    donates: Name | None = None


class WireGraph(_Model):
    """A fusion graph. Names are the sender's own; no plan or kernel holds them."""

    format: Literal["fuseplan.graph"]
    version: Literal[1]
    inputs: Annotated[list[WireInput], Field(fail_fast=True, max_length=LIMITS.inputs)]
    nodes: Annotated[list[WireNode], Field(fail_fast=True, max_length=LIMITS.nodes)]
    outputs: Annotated[list[WireOutput], Field(fail_fast=True, min_length=1, max_length=LIMITS.outputs)]


def read_json(body: str | bytes) -> NamedGraph:
    """The graph that a JSON text holds. Raises FormatError with line and column, or a JSON pointer."""
    check_body(body)
    return from_wire(load_json(decode(body) if isinstance(body, bytes) else body))


def from_wire(value: object) -> NamedGraph:
    """The graph of a JSON value (dicts, lists, strings, numbers). Raises FormatError with a JSON pointer into it."""
    try:
        wire = WireGraph.model_validate(value)
    except ValidationError as error:
        raise first_error(error, WireGraph, value) from None
    with limited():
        return _Reader(wire).read()


def to_wire(named: NamedGraph) -> dict[str, Any]:
    """The graph as a JSON value, taken apart into the ops of the language: `from_wire` gives back an equal graph with
    equal names of nodes. Nodes without a name, or with that of another tensor, are called as in its text, %1, ..."""
    given = named.node_names or ("",) * len(named.graph.nodes)
    prefix = "%"
    while any(name.startswith(prefix) for name in (*named.input_names, *given)):
        prefix += "_"
    taken = {*named.input_names, ""}
    names: dict[Node, str] = {}
    nodes: list[dict[str, Any]] = []
    for node, name in zip(named.graph.nodes, given, strict=True):
        if node.op == "input":
            names[node] = named.input_names[node.attr("position", int)]
            continue
        names[node] = f"{prefix}{len(names)}" if name in taken else name
        taken.add(names[node])
        attrs = {name: _wire_attr(value) for name, value in node.attrs}
        nodes.append({"name": names[node], "op": node.op, "args": [names[a] for a in node.args], "attrs": attrs})
    inputs: list[dict[str, Any]] = []
    for name, spec in zip(named.input_names, named.graph.inputs, strict=True):
        row: dict[str, Any] = {"name": name, "shape": list(spec.sizes), "dtype": spec.dtype.name}
        row |= {} if spec.strides == dense_strides(spec.sizes) else {"strides": list(spec.strides)}
        row |= {"alignment": spec.alignment_bytes}
        inputs.append(row | ({} if spec.constant is None else {"constant": spec.constant}))
    outputs: list[dict[str, Any]] = []
    for name, output in zip(named.output_names, named.graph.outputs, strict=True):
        row = {"node": names[output.node], "name": name}
        row |= {} if output.strides == dense_strides(output.node.sizes) else {"strides": list(output.strides)}
        outputs.append(row | ({} if output.donates is None else {"donates": named.input_names[output.donates]}))
    return {"format": "fuseplan.graph", "version": 1, "inputs": inputs, "nodes": nodes, "outputs": outputs}


def _wire_attr(value: Attr) -> object:
    if isinstance(value, tuple):
        return [v.value if isinstance(v, Extent) else v for v in value]
    return repr(value) if isinstance(value, Scalar | DType) else value


class _Reader:
    """From a validated body to a graph: inputs, then nodes in dependency order, then outputs."""

    def __init__(self, wire: WireGraph) -> None:
        self.wire = wire
        self.specs: list[InputSpec] = []
        self.positions: dict[str, int] = {}
        self.tensors: dict[str, Node] = {}
        self.writers: dict[str, int] = {}
        self.places: dict[str, str] = {}  # of tensors, for what a message says of them

    def read(self) -> NamedGraph:
        for i, row in enumerate(self.wire.inputs):
            self.input(f"/inputs/{i}", row)
        for i, row in enumerate(self.wire.nodes):
            if row.name in self.positions or row.name in self.writers:
                raise FormatError(f"/nodes/{i}/name", f"two tensors are named {excerpt(row.name)}")
            check_name(f"/nodes/{i}/name", row.name)
            self.writers[row.name] = i
        for i in self.order():
            self.node(f"/nodes/{i}", self.wire.nodes[i])
        names: list[str] = []
        outputs: list[OutputSpec] = []
        explicit = {row.name for row in self.wire.outputs if row.name is not None}
        for i, row in enumerate(self.wire.outputs):
            if row.name is not None and row.name in names:
                raise FormatError(f"/outputs/{i}/name", f"two outputs are named {excerpt(row.name)}")
            if row.name is not None:
                check_name(f"/outputs/{i}/name", row.name)
            names.append(row.name or unique_name(row.node, explicit.union(names)))
            outputs.append(self.output(f"/outputs/{i}", row, outputs))
        graph = Graph(tuple(self.specs), tuple(outputs))
        check_count("/nodes", "nodes after composite ops were taken apart", len(graph.nodes), LIMITS.nodes)
        return read_graph(graph, tuple(self.positions), names, self.tensors.items())

    def input(self, place: str, row: WireInput) -> None:
        if row.name in self.positions:
            raise FormatError(f"{place}/name", f"two tensors are named {excerpt(row.name)}")
        check_name(f"{place}/name", row.name)
        if row.constant is not None:
            check_name(f"{place}/constant", row.constant)
        try:
            check_sizes(f"{place}/shape", row.shape)
        except FormatError as error:
            symbols = NO_SYMBOLS if min(row.shape, default=0) < 0 else ""
            raise FormatError(error.place, f"{error.reason}{symbols}") from None
        dtype = DTYPES[row.dtype]
        check_alignment(f"{place}/alignment", row.alignment, dtype)
        strides = dense_strides(row.shape)
        if row.strides is not None:
            check_strides(f"{place}/strides", row.shape, row.strides, written=False)
            strides = normal_strides(row.shape, row.strides)
        alignment_bytes = min(row.alignment, MOST_ALIGNMENT_BYTES)
        spec = InputSpec(shape_of(row.shape), dtype, strides, alignment_bytes, row.constant)
        self.positions[row.name] = len(self.specs)
        self.tensors[row.name] = make_input(len(self.specs), spec)
        self.places[row.name] = place
        self.specs.append(spec)

    def order(self) -> list[int]:
        """Indices of nodes, operands before users, else in the order written. Raises FormatError for a cycle."""
        nodes = self.wire.nodes
        order: list[int] = []
        state = bytearray(len(nodes))  # 0 not seen, 1 waiting for operands, 2 done
        for root in range(len(nodes)):
            stack = [root]
            while stack:
                i = stack[-1]
                waiting = [] if state[i] else [w for w in self.operands(i) if state[w] != 2]
                if not waiting:
                    stack.pop()
                    if state[i] != 2:
                        state[i] = 2
                        order.append(i)
                    continue
                state[i] = 1
                for w in waiting:
                    if state[w] == 1:
                        begin = len(stack) - 1 - stack[::-1].index(w)
                        raise self.cycle([j for j in stack[begin:] if state[j] == 1])
                stack.extend(waiting)
        return order

    def operands(self, i: int) -> list[int]:
        """Indices of the nodes that node `i` reads."""
        found: list[int] = []
        for position, name in enumerate(self.wire.nodes[i].args):
            if name in self.positions:
                continue
            writer = self.writers.get(name)
            if writer is None:
                writer = self.writers.get(name.rpartition(".")[0])
            if writer is None:
                raise FormatError(f"/nodes/{i}/args/{position}", self.missing(name))
            found.append(writer)
        return found

    def missing(self, name: str) -> str:
        return f"no input or node is named {excerpt(name)}{nearest(name, [*self.positions, *self.writers])}"

    def cycle(self, indices: Sequence[int]) -> FormatError:
        names = [excerpt(self.wire.nodes[i].name) for i in indices]
        shown = [*names[:8], "..."] if len(names) > 8 else names
        return FormatError(f"/nodes/{indices[0]}", f"nodes depend on themselves: {' reads '.join([*shown, names[0]])}")

    def node(self, place: str, row: WireNode) -> None:
        args = [self.tensor(f"{place}/args/{i}", name) for i, name in enumerate(row.args)]
        named = partial(self.describe_operands, row.args)
        results = build_node(place, row.op, args, row.attrs, named)
        names = [row.name] if len(results) == 1 else [f"{row.name}.{i}" for i in range(len(results))]
        for name, result in zip(names, results, strict=True):
            if name in self.tensors:
                raise FormatError(f"{place}/name", f"two tensors are named {excerpt(name)}")
            check_sizes(place, result.sizes)
            keep("/nodes", result)
            self.tensors[name] = result
            self.places[name] = place

    def describe_operands(self, names: Sequence[str]) -> str:
        """The tensors that a node reads, as a message describes them."""
        return describe_operands((name, self.tensors[name], self.places[name]) for name in names)

    def tensor(self, place: str, name: str) -> Node:
        node = self.tensors.get(name)
        if node is None:
            several = f"{name}.0" in self.tensors
            reason = f"{excerpt(name)} has several results: read {name}.0, {name}.1" if several else self.missing(name)
            raise FormatError(place, reason)
        return node

    def output(self, place: str, row: WireOutput, others: Sequence[OutputSpec]) -> OutputSpec:
        node = self.tensor(f"{place}/node", row.node)
        strides = dense_strides(node.sizes)
        if row.strides is not None:
            check_strides(f"{place}/strides", node.sizes, row.strides, written=True)
            strides = normal_strides(node.sizes, row.strides)
        donates = None
        if row.donates is not None:
            donates = self.positions.get(row.donates)
            if donates is None:
                raise FormatError(f"{place}/donates", f"no input is named {excerpt(row.donates)}")
        output = OutputSpec(node, strides, donates)
        names = None if row.donates is None else (excerpt(row.node), excerpt(row.donates))
        check_donation(f"{place}/donates", output, self.specs, others, names)
        return output
