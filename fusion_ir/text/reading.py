"""The inverse of `print_graph`: one pass over the lines, a cursor within each, no recursion."""

import json
import re

from fusion_ir.core.aliases import COMPOSITES, OP_ALIASES, attribute_hint, dtype_hint, op_hint
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.layout import check_alignment, check_donation, check_strides
from fusion_ir.core.limits import LIMITS, check_body, check_count, check_lines, check_name, check_sizes, check_text
from fusion_ir.core.named import NamedGraph, names_of_nodes
from fusion_ir.core.node import Attr, Node
from fusion_ir.core.operand_descriptions import describe_operands
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.ops import OPS, make, make_input
from fusion_ir.ops.row import AttrKind

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+) | (?P<comment>\#.*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<scalar>[a-z][a-z0-9]*:0x[0-9a-f]+)
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<integer>-?[0-9]+) | (?P<node>%[0-9]+)
      | (?P<mark>[\[\](){}=:,])""",
    re.VERBOSE,
)
_NUMBERED = re.compile(r"(in|out)(0|[1-9][0-9]{0,8})\Z")


def parse_graph(text: str) -> NamedGraph:
    """The graph that `print_graph` printed; names that are missing become in0, out0, ... Raises FormatError.

    Also reads what a person wrote: node numbers need only be different and defined before use. Where they are not the
    canonical ones, nodes are called what they are there: "%7", unless they have names.
    """
    check_body(text)
    check_lines(text)
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), 1):
        reader.line(_Cursor(line, number))
    return reader.finish()


class _Cursor:
    """The tokens of one line; every complaint knows line and column."""

    def __init__(self, line: str, number: int) -> None:
        self.number = number
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(line):
            match = _TOKEN.match(line, at)
            if match is None:
                raise FormatError(f"{number}:{at + 1}", f"unexpected character {line[at]!r}")
            kind = str(match.lastgroup)
            if kind not in ("space", "comment"):
                self.tokens.append((kind, match.group(), at + 1))
            at = match.end()
        self.tokens.append(("end", "end of line", len(line) + 1))
        self.at = 0

    @property
    def place(self) -> str:
        return f"{self.number}:{self.tokens[self.at][2]}"

    @property
    def kind(self) -> str:
        return self.tokens[self.at][0]

    @property
    def found(self) -> str:
        return self.tokens[self.at][1]

    def error(self, expected: str) -> FormatError:
        return FormatError(self.place, f"expected {expected}, got {excerpt(self.found)}")

    def skip(self, mark: str) -> bool:
        """Steps over `mark` (or word) if it comes next."""
        if self.found != mark or self.kind not in ("mark", "word"):
            return False
        self.at += 1
        return True

    def expect(self, mark: str) -> None:
        if not self.skip(mark):
            raise self.error(repr(mark))

    def take(self, kind: str, expected: str) -> str:
        if self.kind != kind:
            raise self.error(expected)
        self.at += 1
        return self.tokens[self.at - 1][1]

    def integer(self) -> int:
        place, digits = self.place, self.take("integer", "an integer")
        if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
            raise FormatError(place, f"{excerpt(digits)} is no 64-bit integer")
        return int(digits)

    def integers(self) -> tuple[int, ...]:
        self.expect("[")
        values: list[int] = []
        while not self.skip("]"):
            if values:
                self.expect(",")
            values.append(self.integer())
        return tuple(values)

    def string(self) -> str:
        place, quoted = self.place, self.take("string", "a quoted string")
        try:
            value = str(json.loads(quoted))
        except ValueError as error:
            raise FormatError(place, f"bad string: {error}") from None
        check_text(place, value)
        return value

    def dtype(self) -> DType:
        if self.found not in DTYPES:
            expected = self.error(f"a dtype ({', '.join(DTYPES)})")
            raise FormatError(expected.place, f"{expected.reason}{dtype_hint(self.found, DTYPES)}")
        self.at += 1
        return DTYPES[self.tokens[self.at - 1][1]]

    def type(self) -> tuple[DType, tuple[int, ...]]:
        dtype, place = self.dtype(), self.place
        extents = self.integers()
        check_sizes(place, extents)
        return dtype, extents

    def end(self) -> None:
        if self.kind != "end":
            raise self.error("the end of the line")


class _Reader:
    """Header, then inputs, then nodes, then outputs."""

    def __init__(self) -> None:
        self.started = False
        self.inputs: list[InputSpec] = []
        self.input_names: list[str] = []
        self.nodes: dict[str, Node] = {}
        self.places: dict[str, str] = {}  # of nodes
        self.names: dict[str, str] = {}  # of nodes that have one
        self.outputs: list[OutputSpec] = []
        self.output_names: list[str] = []

    def line(self, cursor: _Cursor) -> None:
        if cursor.kind == "end":
            return
        if not self.started:
            if not cursor.skip("fuseplan.graph") or cursor.integer() != 1:
                raise FormatError(f"{cursor.number}:1", "expected the header 'fuseplan.graph 1'")
            cursor.end()
            self.started = True
        elif cursor.kind == "node":
            self.node(cursor)
        elif numbered := _NUMBERED.match(cursor.found):
            (self.input if numbered[1] == "in" else self.output)(cursor, int(numbered[2]))
        else:
            raise cursor.error("an input, a node or an output")

    def name(self, cursor: _Cursor, known: list[str], kind: str, number: int) -> None:
        """Steps over `in3 "name":` and adds the name."""
        if number != len(known):
            raise cursor.error(f"{kind}{len(known)}")
        cursor.at += 1
        place, name = cursor.place, f"{kind}{number}"
        if cursor.kind == "word":
            name = cursor.take("word", "a name")
        elif cursor.kind == "string":
            name = cursor.string()
        cursor.expect(":")
        check_name(place, name)
        known.append(name)

    def input(self, cursor: _Cursor, number: int) -> None:
        if self.nodes or self.outputs:
            raise FormatError(cursor.place, "inputs come before nodes and outputs")
        check_count(cursor.place, "inputs", number + 1, LIMITS.inputs)
        self.name(cursor, self.input_names, "in", number)
        dtype, extents = cursor.type()
        strides, alignment, constant = dense_strides(extents), 16, None
        if cursor.skip("strides"):
            place = cursor.place
            strides = cursor.integers()
            check_strides(place, extents, strides, written=False)
        if cursor.skip("align"):
            place = cursor.place
            alignment = cursor.integer()
            check_alignment(place, alignment, dtype)
        if cursor.skip("constant"):
            place = cursor.place
            constant = cursor.string()
            check_name(place, constant)
        cursor.end()
        self.inputs.append(InputSpec(shape_of(extents), dtype, strides, alignment, constant))

    def node(self, cursor: _Cursor) -> None:
        if self.outputs:
            raise FormatError(cursor.place, "nodes come before outputs")
        check_count(cursor.place, "nodes", len(self.nodes) + 1, LIMITS.nodes)
        number = cursor.found
        if number in self.nodes:
            raise FormatError(cursor.place, f"{number} is defined twice")
        cursor.at += 1
        if cursor.kind in ("word", "string"):
            place = cursor.place
            name = cursor.string() if cursor.kind == "string" else cursor.take("word", "a name")
            check_name(place, name)
            self.names[number] = name
        cursor.expect("=")
        place = cursor.place
        op = cursor.take("word", "an op")
        numbered = _NUMBERED.match(op)
        node = self.read_input(place, int(numbered[2])) if numbered else self.call(cursor, place, op)
        cursor.expect(":")
        place = cursor.place
        dtype, extents = cursor.type()
        if (dtype, extents) != (node.dtype, node.sizes):
            actual, written = f"{node.dtype}{list(node.sizes)}", f"{dtype}{list(extents)}"
            raise FormatError(place, f"{op} gives {actual}, but {written} is written")
        cursor.end()
        self.nodes[number] = node
        self.places[number] = place

    def read_input(self, place: str, position: int) -> Node:
        if position >= len(self.inputs):
            raise FormatError(place, f"input in{position} is not declared; there are {len(self.inputs)}")
        return make_input(position, self.inputs[position])

    def call(self, cursor: _Cursor, place: str, op: str) -> Node:
        """`op(%0, %1) {axis=3}`."""
        if op not in OPS:
            raise FormatError(place, f"unknown op {excerpt(op)}{_instead(op)}")
        args: list[Node] = []
        numbers: list[str] = []
        cursor.expect("(")
        while not cursor.skip(")"):
            if args:
                cursor.expect(",")
            numbers.append(cursor.found)
            args.append(self.operand(cursor))
        attrs: dict[str, Attr] = {}
        if cursor.skip("{"):
            while not cursor.skip("}"):
                if attrs:
                    cursor.expect(",")
                at, name = cursor.place, cursor.take("word", "an attribute")
                if name in attrs or name not in OPS[op].attrs:
                    known = sorted(OPS[op].attrs)
                    unknown = f"unknown, expected {known}{attribute_hint(name, known)}"
                    problem = "is given twice" if name in attrs else unknown
                    raise FormatError(at, f"attribute {excerpt(name)} of {op}: {problem}")
                cursor.expect("=")
                attrs[name] = _attribute(cursor, OPS[op].attrs[name])
        try:
            node = make(op, args, attrs)
        except ValueError as error:
            named = ((number, self.nodes[number], self.places[number]) for number in numbers)
            raise FormatError(place, f"{error}{describe_operands(named)}") from None
        check_sizes(place, node.sizes)
        return node

    def operand(self, cursor: _Cursor) -> Node:
        place, number = cursor.place, cursor.take("node", "a node such as %0")
        if number not in self.nodes:
            raise FormatError(place, f"{excerpt(number)} is not defined before this line")
        return self.nodes[number]

    def output(self, cursor: _Cursor, number: int) -> None:
        check_count(cursor.place, "outputs", number + 1, LIMITS.outputs)
        self.name(cursor, self.output_names, "out", number)
        tensor, node = cursor.found, self.operand(cursor)
        strides, donates = dense_strides(node.sizes), None
        if cursor.skip("strides"):
            place = cursor.place
            strides = cursor.integers()
            check_strides(place, node.sizes, strides, written=True)
        if cursor.skip("donates"):
            numbered = _NUMBERED.match(cursor.found)
            if not numbered or numbered[1] != "in" or int(numbered[2]) >= len(self.inputs):
                raise cursor.error(f"an input below in{len(self.inputs)}")
            donates = int(numbered[2])
            output = OutputSpec(node, strides, donates)
            check_donation(cursor.place, output, self.inputs, self.outputs, (tensor, cursor.found))
            cursor.at += 1
        cursor.end()
        self.outputs.append(OutputSpec(node, strides, donates))

    def finish(self) -> NamedGraph:
        if not self.started:
            raise FormatError("1:1", "expected the header 'fuseplan.graph 1', got an empty text")
        if not self.outputs:
            raise FormatError("", "the graph has no outputs")
        graph = Graph(tuple(self.inputs), tuple(self.outputs))
        names = self.node_names(graph)
        try:
            return NamedGraph(graph, tuple(self.input_names), tuple(self.output_names), (), names)
        except ValueError as error:
            raise FormatError("", str(error)) from None

    def node_names(self, graph: Graph) -> tuple[str, ...]:
        """Names, or else the numbers in the text, where there are names or where these are other numbers than ours."""
        numbers = {node: f"%{i}" for i, node in enumerate(graph.nodes)}
        are_ours = all(numbers.get(node, number) == number for number, node in self.nodes.items())
        given = ((self.names.get(n) or ("" if are_ours else n), node) for n, node in self.nodes.items())
        return names_of_nodes(graph, given)


def _instead(op: str) -> str:
    """Advice on an op that the text does not know: that JSON takes composites apart, or the name that is meant."""
    meant = OP_ALIASES.get(op, op)
    if meant in COMPOSITES:
        return f": this text has the ops of the language alone, and {meant} is made of several; JSON takes it apart"
    return op_hint(op, OPS)


def _attribute(cursor: _Cursor, kind: AttrKind) -> Attr:
    place = cursor.place
    match kind:
        case "int" | "axis":
            return cursor.integer()
        case "ints" | "axes":
            return cursor.integers()
        case "shape":
            extents = cursor.integers()
            check_sizes(place, extents)
            return shape_of(extents)
        case "bool":
            word = cursor.take("word", "true or false")
            if word not in ("true", "false"):
                raise FormatError(place, f"expected true or false, got {excerpt(word)}")
            return word == "true"
        case "str":
            return cursor.string()
        case "dtype":
            return cursor.dtype()
        case "scalar":
            try:
                return Scalar.parse(cursor.take("scalar", "a constant such as f32:0x3f800000"))
            except ValueError as error:
                raise FormatError(place, str(error)) from None
