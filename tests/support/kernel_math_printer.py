"""Prints nvFuser definitions as the %kernel_math dumps that nvFuser would show of them, for a handful of ops."""

from dataclasses import dataclass
from typing import cast

from fusion_ir.formats.nvfuser.python_text import Argument, Member, Name, PythonCall, read_calls

_DTYPES = {"BFloat16": "__bfloat", "Half": "__half", "Float": "float", "Double": "double", "Int": "int64_t"}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_NAMED = {"cos": "cosf", "sin": "sinf", "exp": "expf"}


@dataclass(frozen=True)
class Axis:
    kind: str
    extent: int
    expanded: bool = False


class Printer:
    """Statements as they are printed; axes are numbered in the order in which nvFuser makes them."""

    def __init__(self, newer: bool) -> None:
        self.newer = newer  # flags of broadcasts, extents of expanded axes and the summed axis of a product are printed
        self.numbers = 0
        self.tensors = 1000
        self.written: dict[str, str] = {}
        self.axes: dict[str, list[Axis]] = {}
        self.dtypes: dict[str, str] = {}
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.lines: list[str] = []

    def fresh(self) -> str:
        self.tensors += 1
        return f"T{self.tensors}"

    def define(
        self, name: str, dtype: str, axes: list[Axis], order: list[int] | None = None, memory: str = "l", tail: str = ""
    ) -> str:
        """Makes the tensor's axes, in `order` of their numbers, and returns how it is written."""
        first, self.numbers = self.numbers, self.numbers + len(axes)
        order = list(range(len(axes))) if order is None else order
        items = [f"{a.kind}S{first + n}{{{self.extent(a)}}}" for a, n in zip(axes, order, strict=True)]
        self.axes[name], self.dtypes[name] = axes, dtype
        self.written[name] = f"{name}_{memory}_{dtype}[{', '.join([*items, *([tail] if tail else [])])}]"
        return self.written[name]

    def extent(self, axis: Axis) -> str:
        return f"1 ex {axis.extent}" if axis.expanded and self.newer else str(axis.extent)

    def view(self, name: str, source: str, axes: list[Axis], call: str, order: list[int] | None = None) -> None:
        self.lines += [self.define(name, self.dtypes[source], axes, order), f"   = {call}"]

    def call(self, call: PythonCall) -> None:
        name = call.targets[0] if call.targets else ""
        given = dict(call.keywords)
        match call.path.removeprefix("ops."):
            case "define_tensor":
                axes = [Axis("b" if n == 1 else "i", n) for n in _ints(given["shape"])]
                self.inputs.append(self.define(name, _dtype(given["dtype"]), axes, memory="g"))
            case "add_output":
                self.outputs.append(self.written[_name(call.args[0])])
            case "reshape":
                source = _name(call.args[0])
                axes = [Axis("b" if n == 1 else "i", n) for n in _ints(given["new_shape"])]
                self.view(name, source, axes, f"{'reshape' if self.newer else 'view'}( {self.written[source]} )")
            case "permute":
                source, dims = _name(call.args[0]), _ints(given["dims"])
                axes = [self.axes[source][d] for d in dims]
                self.view(name, source, axes, f"Set.Permute( {self.written[source]}, cache_op=Streaming )", dims)
            case "broadcast_in_dim":
                self.broadcast(name, _name(call.args[0]), _ints(given["shape"]), _ints(given["broadcast_dims"]))
            case "cast":
                self.cast(name, _name(call.args[0]), _dtype(given["dtype"]))
            case "slice":
                self.slice(name, _name(call.args[0]), _ints(given["start_indices"]), _ints(given["end_indices"]))
            case "cat":
                items = cast("list[Argument]", call.args[0].value)
                self.cat(name, [_name(i) for i in items])
            case "matmul":
                self.matmul(name, *(_name(a) for a in call.args))
            case "neg":
                source = _name(call.args[0])
                self.view(name, source, self.axes[source], f"-{self.written[source]};")
            case op if op in _INFIX:
                a, b = (_name(x) for x in call.args)
                axes = [p if p.extent == q.extent and p.kind == "i" else q for p, q in self.pairs(a, b)]
                self.view(name, a, axes, f"{self.written[a]}\n   {_INFIX[op]} {self.written[b]};")
            case op:
                source = _name(call.args[0])
                self.view(name, source, self.axes[source], f"{_NAMED[op]}({self.written[source]});")

    def pairs(self, a: str, b: str) -> list[tuple[Axis, Axis]]:
        return [(p, q) if q.extent >= p.extent else (q, p) for p, q in zip(self.axes[a], self.axes[b], strict=True)]

    def broadcast(self, name: str, source: str, sizes: list[int], dims: list[int]) -> None:
        """Prints a broadcast as `broadcast` with the new axes, then as `expand` where extents differ."""
        old = dict(zip(dims, self.axes[source], strict=True))
        axes = [old.get(i, Axis("b", 1)) for i in range(len(sizes))]
        wide = [a if a.extent == n else Axis("b", n, expanded=True) for a, n in zip(axes, sizes, strict=True)]
        flags = ", ".join("false" if i in old else "true" for i in range(len(sizes)))
        target = name if wide == axes else self.fresh()
        tail = f", flags = {{{flags}}}" if self.newer else ""
        self.view(target, source, axes, f"broadcast( {self.written[source]}{tail} )")
        if wide != axes:
            self.lines.append(self.define(name, self.dtypes[source], wide) + f" = expand( {self.written[target]} )")

    def cast(self, name: str, source: str, dtype: str) -> None:
        before = self.dtypes[source]
        sixteen = {"__bfloat": "bfloat", "__half": "half"}
        if before in sixteen or dtype in sixteen:
            word = f"__{sixteen.get(before, before)}2{sixteen.get(dtype, dtype)}"
        else:
            word = f"__to_{dtype}" if self.newer else f"({dtype})"
        self.lines += [
            self.define(name, dtype, list(self.axes[source])),
            f"   = {word}({self.written[source]});",
        ]

    def slice(self, name: str, source: str, start: list[int], stop: list[int]) -> None:
        rows = " ".join(f"{{{a}, {b}, 1}}" for a, b in zip(start, stop, strict=True))
        axes = [Axis(a.kind, q - p) for a, p, q in zip(self.axes[source], start, stop, strict=True)]
        self.view(name, source, axes, f"slice( {self.written[source]}, {{ {rows} }} )")

    def cat(self, name: str, sources: list[str]) -> None:
        """Along the last axis: every operand is padded to the whole first."""
        whole, at, padded = sum(self.axes[s][-1].extent for s in sources), 0, []
        for source in sources:
            axes = self.axes[source]
            size = axes[-1].extent
            widths = [0, 0] * (len(axes) - 1) + [at, whole - at - size]
            padded.append(self.fresh())
            call = f"pad( {self.written[source]}, {{{', '.join(map(str, widths))}}} )"
            self.view(padded[-1], source, [*axes[:-1], Axis("i", whole)], call)
            at += size
        operands = ", ".join(self.written[p] for p in padded)
        axes = self.axes[padded[0]]
        self.view(name, sources[0], axes, f"cat( {operands}, {len(axes) - 1} )")

    def matmul(self, name: str, a: str, b: str) -> None:
        """Prints a matmul of operands with equal batch axes."""
        axes = [*self.axes[a][:-1], self.axes[b][-1]]
        k = self.axes[a][-1]
        self.numbers += 1
        tail = f"rS{self.numbers + len(axes) + 50_000}{{{k.extent}}}" if self.newer and k.extent > 1 else ""
        self.lines += [
            self.define(name, self.dtypes[a], axes, tail=tail),
            f"   = matmul({self.written[a]},\n            {self.written[b]})",
        ]


def print_dump(definition: str, newer: bool = False) -> str:
    """The dump of a definition in the older spelling (see `fusion_ir.formats.nvfuser.reader`)."""
    printer = Printer(newer)
    for call in read_calls(definition):
        printer.call(call)
    # Outputs are known by their place in memory; nvFuser writes them so wherever they are mentioned.
    text = "\n".join(
        [
            *("Inputs:", *(f"  {i}" for i in printer.inputs)),
            *("Outputs:", *(f"  {o}" for o in printer.outputs), ""),
            *("%kernel_math {", *printer.lines, "} // %kernel_math ", "", ""),
        ]
    )
    for written in printer.outputs:
        text = text.replace(written, written.replace("_l_", "_g_", 1))
    return text


def _name(argument: Argument) -> str:
    assert isinstance(argument.value, Name)
    return argument.value.name


def _dtype(argument: Argument) -> str:
    assert isinstance(argument.value, Member)
    return _DTYPES[argument.value.name]


def _ints(argument: Argument) -> list[int]:
    return [int(cast(int, item.value)) for item in cast("list[Argument]", argument.value)]
