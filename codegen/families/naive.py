"""Family `naive`: every op on every target, one element of an output per thread, so that every graph has a plan.

Each element pulls its value through the segment's cone; reductions are loops around what varies inside them. Nothing is
shared between elements, so a segment may hold one costly op at most.
"""

from dataclasses import dataclass

from codegen.families.kernel_function import kernel_function
from codegen.kernel import Access, EmitError, Kernel, Launch, Reject
from codegen.lowering.code_length import MOST_OF_ELEMENT, too_much
from codegen.lowering.index import Axes, flatten, var
from codegen.lowering.pull_rules import COMPARING, puller
from codegen.lowering.reduction_axes import ReductionAxes
from codegen.lowering.value import TooManyValues, Values
from codegen.printer.elements import Elements
from codegen.printer.expressions import CTYPE, Expressions, spell
from codegen.printer.lines import Lines
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.dtype import accumulate_dtype
from fusion_ir.ops import OPS, OpKind
from fusion_ir.records import Device

COSTLY = {OpKind.REDUCTION, OpKind.SCAN, OpKind.SCATTER, OpKind.CONTRACT}
MAX_NODES = 150
MAX_VALUES = 2000
MOST_CODE = 2 * MOST_OF_ELEMENT  # of what is printed: views have some values computed at several places


@dataclass(frozen=True)
class NaiveSchedule(Schedule):
    """threads: of a block (cuda); not used on the CPU."""

    FAMILY = "naive"
    threads: int


class Naive:
    """See the module."""

    name = "naive"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        nodes = [n for n in segment.nodes if n.op in OPS]
        costly = [n.op for n in nodes if OPS[n.op].kind in COSTLY]
        if len(costly) > 1:
            return Reject(f"{costly[0]} and {costly[1]} in one element's cone would be computed over and over")
        if any(n.op == "cumsum" for n in nodes) and not all(o.node.op == "cumsum" for o in segment.outputs):
            return Reject("cumsum is computed only as the last op")
        if len(nodes) > MAX_NODES:
            return Reject(f"{len(nodes)} nodes are too many to compute for every element")
        return too_much(segment)

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        return (str(NaiveSchedule(1 if device.target == "cpu" else 256)),)

    def choices(self, segment: Graph, device: Device) -> Choices:
        return {}

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        s = parse_schedule(schedule, NaiveSchedule)
        printer = _Printer(segment)
        try:
            counts = [printer.output(i, o) for i, o in enumerate(segment.outputs) if o.node.elements]
        except TooManyValues as error:
            raise EmitError(str(error)) from error
        if printer.elements.length > MOST_CODE:
            raise EmitError(
                f"its code would be as long as {printer.elements.length:.0f} additions (at most {MOST_CODE:.0f})"
            )
        target = "cpu" if device.target == "cpu" else "cuda"
        prologue = [] if device.target == "cpu" else [f"constexpr int TX = 1, TY = {s.threads};"]
        body = "\n".join(printer.lines.text)
        grid = min(max((-(-n // s.threads) for n in counts), default=1), (1 << 31) - 1)
        reach = max(printer.names.reach, *(n + grid * s.threads for n in counts), 0)
        entry, source = kernel_function(segment, body, target, prologue=prologue, threads=s.threads, reach=reach)
        launch = Launch(grid=(grid, 1, 1), block=(1, s.threads, 1), tasks=device.units)
        if device.target == "cpu":
            launch = Launch(tasks=device.units)
        names = [f"in{i}" for i in range(len(segment.inputs))] + [f"out{i}" for i in range(len(segment.outputs))]
        accesses = tuple(Access(name, "lanes", 1) for name in names)
        return Kernel(entry, source, target, self.name, str(s), launch, accesses)


class _Printer:
    def __init__(self, segment: Graph) -> None:
        self.lines, self.names = Lines(), Expressions()
        self.elements = Elements(self.lines, self.names)
        self.segment = segment
        self.axes = Axes()

    def output(self, i: int, spec: OutputSpec) -> int:
        """Prints one output and returns the number of its iterations."""
        axes = [self.axes.new(size) for size in spec.node.sizes]
        scan = spec.node.attr("axis", int) if spec.node.op == "cumsum" else None
        grid = [a for d, a in enumerate(axes) if d != scan and a.extent > 1]
        count = 1
        for a in grid:
            count *= a.extent
        pulling = puller(self.segment, Values(MAX_VALUES), ReductionAxes(self.axes), refine=False, rules=COMPARING)
        index = tuple(map(var, axes))
        offset = flatten(index, spec.strides)
        self.names.value_names = {}
        with self.lines.braces(f"GRID_ROWS(e{i}, {count})"):
            for digit in self.names.digits(f"e{i}", grid):
                self.lines.add(digit)
            self.lines.scopes.append(set())
            if scan is None:
                v = pulling.pull(spec.node, index)
                self.elements.define(v)
                self.lines.add(f"store<1, 1>(out{i} + {self.names.expr(offset)}, {self.elements.operand(v)});")
            else:
                x = pulling.arg(spec.node.args[0], index, accumulate_dtype(spec.node.args[0].dtype))
                self.lines.add(f"Vec<{CTYPE[x.dtype.name]}, 1> total;")
                with self.lines.braces(f"LOOP({self.names.axis(axes[scan])}, {spec.node.sizes[scan]})"):
                    self.lines.scopes.append(set())
                    self.elements.define(x)
                    step = spell("add", ["total", self.elements.operand(x)], x.dtype)
                    self.lines.add(f"total = {self.names.axis(axes[scan])} ? {step} : {self.elements.operand(x)};")
                    rounded = "total" if x.dtype == spec.node.dtype else spell("cast", ["total"], spec.node.dtype)
                    self.lines.add(f"store<1, 1>(out{i} + {self.names.expr(offset)}, {rounded});")
                    self.lines.scopes.pop()
            self.lines.scopes.pop()
        return count
