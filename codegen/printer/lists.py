"""Lists of a scatter's slices (`codegen/include/scatter_cpu.h`): where a task makes them, and how it walks them."""

from codegen.lowering.index import Axis
from codegen.lowering.program import Path, SliceLists
from codegen.lowering.value import Value
from codegen.printer.draft import Draft
from codegen.printer.elements import Elements
from codegen.printer.expressions import Expressions


class Lists:
    """Prints declarations of lists, and loops through them."""

    def __init__(self, draft: Draft) -> None:
        self.draft, self.program, self.lines, self.names = draft, draft.program, draft.lines, draft.names
        self._slices = {v.walked[0]: v for v in self.program.walks(())}

    def declare(self, path: Path, count: int = 0) -> None:
        """Declares the lists that loops inside an outermost one walk through. path: loops joined as one of `count`
        iterations, which tasks share; 0: they share none. The lists are those of a task's own places where the
        outermost loop runs over these, else those of all places."""
        numbers: dict[int, list[Value]] = {}
        for v in self.program.walks(path[:1]):
            numbers.setdefault(_number(v), []).append(v)
        for number, slices in numbers.items():
            lists, outermost = self.program.lists[number], path[0].axis
            own = count and all(v.offset.terms == ((outermost, 1),) and not v.offset.c for v in slices)
            places = _share(count, outermost) if own else f"0, {lists.extent}"
            place = f"lists{number}_place"
            self._place(place, lists)
            kind = f"SliceLists<{lists.slice_number.extent}, {lists.extent}>"
            self.lines.add(f"const {kind} lists{number}({places}, {place});")

    def walk(self, path: Path) -> str | None:
        """The head of the last loop of `path`, where it walks through a list; None for other loops."""
        v = self._slices.get(path[-1].axis)
        if v is None:
            return None
        return f"WALK({self.names.axis(path[-1].axis)}, lists{_number(v)}, {self.names.expr(v.offset)})"

    def _place(self, name: str, lists: SliceLists) -> None:
        """Declares a function of a slice's number that gives its place."""
        names = Expressions()
        elements = Elements(self.lines, names)
        self.lines.add(f"const auto {name} = [&](idx_t {names.axis(lists.slice_number)}) -> int64_t {{")
        self.lines.indent += 1
        elements.define(lists.place)
        self.lines.add(f"return get({elements.operand(lists.place)}, 0);")
        self.lines.indent -= 1
        self.lines.add("};")


def _number(v: Value) -> int:
    number = v.attr[0]
    assert isinstance(number, int)
    return number


def _share(count: int, outermost: Axis) -> str:
    """The first place of a task, and the one behind its last, where it computes a share of `count` iterations."""
    inner = count // outermost.extent
    if inner == 1:
        return f"(idx_t)({count} * task / tasks), (idx_t)({count} * (task + 1) / tasks)"
    last = f"({count} * (task + 1) / tasks + {inner - 1}) / {inner}"
    return f"(idx_t)({count} * task / tasks / {inner}), (idx_t)({last})"
