"""nvFuser's %kernel_math dumps, as people paste them into issues: lists of inputs and outputs, then statements.

    Inputs:
      T0_g___bfloat[bS0{1}, iS1{64}]
    Outputs:
      T2_g_float[bS4{1}, iS5{64}]
    %kernel_math {
    T1_l_float[bS2{1}, iS3{64}]
       = __bfloat2float(T0_g___bfloat[bS0{1}, iS1{64}]);
    T2_g_float[bS4{1}, iS5{64}]
       = cosf(T1_l_float[bS2{1}, iS3{64}]);
    }

The form is lossy. Attributes that the axes determine are recovered, every shape, dtype and axis that is written is held
against the op's result, and a line that stays ambiguous is refused. Two things the text never says are taken for
granted, unless a side file states them, and noted: inputs are dense, and pads fill in 0. Symbolic extents come from the
side file. A dump that is cut off is refused, except for an excerpt: one that ends behind a whole statement before any
of its outputs is computed. Its outputs are the tensors that nothing reads, or those that the side file names.
"""

from collections.abc import Callable, Sequence

from fusion_ir.building.recognise_contractions import read_graph
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.layout import check_strides, normal_strides
from fusion_ir.core.limits import LIMITS, check_body, check_count
from fusion_ir.core.named import NamedGraph
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.json.strict_json import excerpt_key
from fusion_ir.formats.kernel_math.calls import Operands, Tensor
from fusion_ir.formats.kernel_math.scalars import SCALAR_NAME, Scalars
from fusion_ir.formats.kernel_math.statements import Statements
from fusion_ir.formats.kernel_math.tensors import TENSOR, Mention, read_mention
from fusion_ir.formats.kernel_math.tokens import Cursor
from fusion_ir.formats.nvfuser.tensors import strides_of
from fusion_ir.formats.side_file import NOTHING, SideFile, stated_beside
from fusion_ir.ops import make_input

_STATEMENTS = LIMITS.nodes + LIMITS.inputs + LIMITS.outputs


def read_kernel_math(text: str, beside: SideFile = NOTHING) -> NamedGraph:
    """The graph of a dump; lines of a log before and behind it are skipped. Raises FormatError with line and column."""
    check_body(text)
    dump = _Dump(Cursor(text), beside)
    dump.lists()
    dump.body()
    return dump.finish()


class _Dump:
    """A dump as far as it has been read."""

    def __init__(self, cursor: Cursor, beside: SideFile) -> None:
        numbers = {name: value for name, value in beside.values.items() if SCALAR_NAME.match(name)}
        self.cursor = cursor
        self.beside = beside
        self.operands = Operands(Scalars({**beside.extents, **numbers}))
        self.statements = Statements(cursor, self.operands, beside.values)
        self.inputs: dict[str, InputSpec] = {}
        self.listed: dict[str, Mention] = {}  # the outputs
        self.computed: dict[str, Tensor] = {}
        self.axes: dict[int, str] = {}  # which tensor an axis number belongs to
        self.closed = False

    def lists(self) -> None:
        """`Inputs:` and `Outputs:`, a tensor on each line, up to the opening brace."""
        cursor = self.cursor
        cursor.expect("Inputs")
        cursor.expect(":")
        while not (cursor.at("Outputs") and cursor.at(":", 1)):
            self._item(self._input, "an input such as T0_g_float[iS0{64}], or 'Outputs:'")
        cursor.take()
        cursor.take()
        while cursor.peek().kind != "header":
            self._item(self._output, "an output such as T2_g_float[iS4{64}], or '%kernel_math {'")
        cursor.take()
        cursor.expect("{")

    def _item(self, declare: Callable[[], None], expected: str) -> None:
        """One line of a list: a tensor, or a scalar, whose value the side file gives where something needs it."""
        token = self.cursor.peek()
        if TENSOR.match(token.text):
            declare()
        elif SCALAR_NAME.match(token.text):
            self.cursor.take()
        else:
            raise self.cursor.error(expected)
        if self.cursor.skip(",") and self.cursor.take().kind != "word":  # older dumps repeat the dtype
            raise FormatError(self.cursor.last.place, "expected a dtype behind the comma")

    def _input(self) -> None:
        """Reads an input: dense, unless the side file states strides; an expanded broadcast axis has stride 0."""
        place, name = self.cursor.peek().place, self.cursor.peek().text.partition("_")[0]
        check_count(place, "inputs", len(self.inputs) + 1, LIMITS.inputs)
        given = self.beside.shapes.get(name)
        mention = read_mention(self.cursor, self.operands.scalars, given)
        sizes = mention.sizes
        if given is not None and given != sizes:
            raise FormatError(place, f"{name} has shape {list(sizes)}, but {list(given)} is stated beside the text")
        strides = self.beside.strides.get(name)
        if strides is None:
            strides = strides_of(place, name, sizes, [None if a.kind == "b" else True for a in mention.kept], None)
        check_strides(place, sizes, strides, written=False)
        spec = InputSpec(shape_of(sizes), mention.dtype, normal_strides(sizes, strides))
        self._define(Tensor(make_input(len(self.inputs), spec), mention))
        self.inputs[name] = spec

    def _output(self) -> None:
        mention = read_mention(self.cursor, self.operands.scalars)
        check_count(mention.place, "outputs", len(self.listed) + 1, LIMITS.outputs)
        if mention.name in self.listed:
            raise FormatError(mention.place, f"output {mention.name} is listed twice")
        self.listed[mention.name] = mention

    def _define(self, tensor: Tensor, operand_axes: Sequence[int] = ()) -> None:
        """Binds a name. Raises FormatError for a name or an axis that another tensor has already."""
        mention = tensor.mention
        if mention.name in self.operands.tensors:
            first = self.operands.tensors[mention.name].mention.place
            raise FormatError(mention.place, f"{mention.name} is defined twice, first in {first}")
        listed = self.listed.get(mention.name)
        if listed is not None and not listed.same(mention):
            raise FormatError(mention.place, f"{mention} is written here, but {listed} in the list of outputs")
        for axis in mention.axes:
            owner = self.axes.setdefault(axis.number, mention.name)
            if owner != mention.name and axis.number not in operand_axes:
                raise FormatError(mention.place, f"axis {axis} of {mention.name} is an axis of {owner}")
        self.operands.tensors[mention.name] = tensor

    def body(self) -> None:
        """The statements up to the closing brace, or to the end of a text that is cut off."""
        count = 0
        while not self.cursor.at("}") and self.cursor.peek().kind != "end":
            count += 1
            check_count(self.cursor.peek().place, "statements", count, _STATEMENTS)
            for tensor in self.statements.statement():
                # Set.Permute may keep the axes of its operand; every other op makes new ones.
                self._define(tensor, tensor.inherited)
                self.computed[tensor.mention.name] = tensor
        self.closed = self.cursor.skip("}")

    def finish(self) -> NamedGraph:
        self._check_side_file()
        names = self._outputs()
        tensors = [self.operands.tensors[name] for name in names]
        outputs = tuple(OutputSpec(t.node, dense_strides(t.node.sizes)) for t in tensors)
        graph = Graph(tuple(self.inputs.values()), outputs)
        check_count("", "nodes", len(graph.nodes), LIMITS.nodes)
        named = ((name, tensor.node) for name, tensor in self.operands.tensors.items())
        return read_graph(graph, tuple(self.inputs), names, named, self._notes(names))

    def _outputs(self) -> tuple[str, ...]:
        """Names of the outputs: those that the side file names, else those listed, or of an excerpt the tensors that
        nothing reads. Raises FormatError where one is not computed, or there are none."""
        for name in self.beside.outputs:
            if name not in self.operands.tensors:
                raise FormatError("shapes/outputs", f"{excerpt(name)} is no tensor of the dump")
        if self.beside.outputs:
            return self.beside.outputs
        place = self.cursor.last.place
        if not self.closed:
            missing = [name for name in self.listed if name not in self.operands.tensors]
            unread = tuple(name for name in self.computed if name not in self.operands.read)
            if unread and len(missing) == len(self.listed):
                return unread
            lack = f", and output {missing[0]} is not computed" if missing else ""
            advice = f"close it, or {stated_beside('what to put out', {'outputs': [(*unread, 'T1')[0]]})}"
            raise FormatError(place, f"the dump ends behind this without its closing '}}'{lack}: {advice}")
        for name, mention in self.listed.items():
            if name not in self.operands.tensors:
                raise FormatError(mention.place, f"output {name} is never computed; the dump is closed in {place}")
        if not self.listed:
            raise FormatError(place, "the dump has no outputs")
        return tuple(self.listed)

    def _check_side_file(self) -> None:
        """Raises FormatError for a name in the side file that the dump does not use."""
        used = self.operands.scalars.used
        pads = [
            t.mention.name for t in self.computed.values() if t.padding is not None and t.padding.name == t.mention.name
        ]
        known = {"extents": used, "values": {*used, *pads}, "inputs": self.inputs}
        given = {
            "extents": self.beside.extents,
            "values": self.beside.values,
            "inputs": [*self.beside.shapes, *self.beside.strides, *self.beside.dtypes],
        }
        for member, names in given.items():
            for name in names:
                if name not in known[member]:
                    raise FormatError(f"shapes/{member}/{excerpt_key(name)}", "is not used by the dump")

    def _notes(self, outputs: Sequence[str]) -> list[str]:
        """Notes on the assumptions made where the dump is silent: dense inputs, pads of 0, outputs of an excerpt."""
        notes: list[str] = []
        dense = [name for name, spec in self.inputs.items() if name not in self.beside.strides and len(spec.shape) > 1]
        if dense:
            notes.append(f"the dump does not say how inputs lie in memory: {_some(dense)} taken as dense")
        padded = {p.name for n in outputs if (p := self.operands.tensors[n].padding) is not None}
        guessed = sorted((self.statements.filled | padded) - {*self.beside.values})
        if guessed:
            notes.append(f"the dump does not say what a pad fills in: 0 is taken for {_some(guessed)}")
        if not self.closed:
            listed = f" before its outputs {_some([*self.listed])}" if self.listed else ""
            notes.append(f"the dump is an excerpt that ends{listed}: {_some(outputs)} put out instead")
        return notes


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
