"""A loop program: values and writes placed in one tree of loops. The emitters print it; goldens print it as text."""

from dataclasses import dataclass, field

from codegen.lowering.index import Axis
from codegen.lowering.value import Value
from codegen.lowering.write import Write


@dataclass(frozen=True)
class Key:
    """A place for code: inside the serial loops `path`, in own loops over `dims`, then over `lane` (None: scalars)."""

    path: tuple[Axis, ...]
    lane: Axis | None = None
    dims: tuple[Axis, ...] = ()


@dataclass
class Block:
    """What is computed and written at one key; values in order of creation."""

    values: dict[Value, None] = field(default_factory=dict[Value, None])
    # With the axes that repeat the write.
    writes: list[tuple[Write, tuple[Axis, ...]]] = field(default_factory=list[tuple[Write, tuple[Axis, ...]]])

    def ordered(self) -> list[Value]:
        return sorted(self.values, key=lambda v: v.uid)


@dataclass
class Program:
    """One kernel before printing.

    widths: lane axis -> vector width in elements. tiles: lane axis of a tile -> (axis over the tiles, whole extent).
    order: serial axes, outermost first. kept: values read in other blocks than their own, with the block that keeps
    them, as scalars or arrays over dims and lane vectors.
    """

    widths: dict[Axis, int]
    tiles: dict[Axis, tuple[Axis, int]]
    order: list[Axis]
    blocks: dict[Key, Block]
    kept: dict[Value, Key]

    def vectors(self, lane: Axis) -> int:
        """Vectors along a lane axis, the masked one included."""
        return -(-lane.extent // self.widths[lane])

    def last_tile(self, lane: Axis) -> tuple[Axis, int] | None:
        """(axis over the tiles, whole extent) if the last tile along `lane` is not a whole one."""
        tile = self.tiles.get(lane)
        return tile if tile and tile[1] % lane.extent else None

    def prefixes(self) -> set[tuple[Axis, ...]]:
        """Every loop nest that has code inside, outermost axis first."""
        return {k.path[:i] for k in self.blocks for i in range(len(k.path) + 1)}

    def at(self, path: tuple[Axis, ...]) -> list[Key]:
        """Keys directly inside `path`: scalars first, then by number of own loops; later ones may read earlier ones."""
        keys = [k for k in self.blocks if k.path == path]
        return sorted(
            keys, key=lambda k: (k.lane is not None, len(k.dims), [a.uid for a in (*k.dims, *filter(None, [k.lane]))])
        )

    def children(self, path: tuple[Axis, ...]) -> list[Axis]:
        """Axes of the loops directly inside `path`."""
        inside = self.prefixes()
        return [a for a in self.order if (*path, a) in inside]

    def __str__(self) -> str:
        lines: list[str] = []
        self._print(lines, ())
        return "\n".join(lines) + "\n"

    def _print(self, lines: list[str], path: tuple[Axis, ...]) -> None:
        indent = "  " * len(path)
        for key in self.at(path):
            head = [f"for {a} < {a.extent}" for a in key.dims]
            if key.lane:
                last = self.last_tile(key.lane)
                limit = f" up to {last[1]} in all" if last else ""
                head.append(f"lanes {key.lane} < {key.lane.extent} by {self.widths[key.lane]}{limit}")
            lines.append(f"{indent}{', '.join(head) or 'once'}:")
            block = self.blocks[key]
            for v in block.ordered():
                keep = "keep " if self.kept.get(v) == key else ""
                args = ", ".join(f"v{a.uid}" if a.op != "const" else repr(a.scalar) for a in v.args)
                attr = ", ".join(str(x) for x in v.attr)
                lines.append(f"{indent}  {keep}v{v.uid}: {v.dtype} = {v.op}({', '.join(filter(None, [args, attr]))})")
            for w, repeats in block.writes:
                over = f" for {', '.join(f'{a} < {a.extent}' for a in repeats)}" if repeats else ""
                value = f"v{w.value.uid}" if w.value.op != "const" else repr(w.value.scalar)
                lines.append(f"{indent}  out{w.out}[{w.offset}] = {value}{over}")
        for a in self.children(path):
            lines.append(f"{indent}loop {a} < {a.extent}:")
            self._print(lines, (*path, a))
