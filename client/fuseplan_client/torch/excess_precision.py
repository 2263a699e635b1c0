"""Floats of bf16 between two pointwise ops as f32, where one op alone reads them.

PyTorch's kernels compute on bf16 in f32 and round what they give. Where a kernel goes on with it, that rounding only
costs time and accuracy: `round(round(x - y) * z)` becomes `round((x - y) * z)`, as in what Inductor generates, and as C
has it where expressions may be evaluated in a wider type (FLT_EVAL_METHOD). Values that several ops read, or that are
given out, are rounded as ever, and so is what is reduced and read again, as by a softmax: they may be stored, and a
stored f32 takes twice the bytes. So are those that some comparison depends on, or a rounding to integers: these may
turn out otherwise by a rounding. f16 is left alone: what is beyond its range becomes infinite where it is rounded.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

Row = dict[str, Any]

# Ops whose results follow their operands: a rounding more or less moves them by a rounding.
CONTINUOUS = frozenset(
    """abs acos acosh add asin asinh atan atan2 atanh clamp cos cosh div erf erfc exp exp2 expm1 lerp log log10 log1p
    log2 maximum minimum mul neg pow reciprocal relu rsqrt sigmoid sin sinh sqrt square sub tan tanh where""".split()
)
# Ops whose results may change altogether by a rounding of an operand.
ABRUPT = frozenset(
    """argmax argmin ceil eq floor floordiv fmod ge gt isfinite isinf isnan isneginf isposinf le lt ne remainder round
    sign signbit trunc""".split()
)


def is_pointwise(target: Any) -> bool:
    """Whether an op of aten's is pointwise, and no cast: `prims.convert_element_type` has the same tag."""
    if getattr(target, "namespace", "") != "aten":
        return False
    name = target.overloadpacket.__name__
    return torch.Tag.pointwise in target.tags or (name.startswith("_foreach_") and name != "_foreach_copy")


def widened(
    nodes: Sequence[Row], outputs: Collection[str], dtypes: Mapping[str, torch.dtype], results: Collection[str]
) -> list[Row]:
    """The nodes of a graph with values of bf16 left as f32 where they may be.

    nodes: in order, those that outputs need. outputs: names of nodes. dtypes: of nodes and inputs. results: names of
    what pointwise ops of PyTorch's gave, which others round where they read it.
    """
    return _Widening(nodes, outputs, dtypes, results).rows()


class _Widening:
    def __init__(
        self,
        nodes: Sequence[Row],
        outputs: Collection[str],
        dtypes: Mapping[str, torch.dtype],
        results: Collection[str],
    ) -> None:
        self.nodes, self.outputs, self.dtypes, self.results = nodes, frozenset(outputs), dtypes, frozenset(results)
        self.readers: dict[str, list[Row]] = defaultdict(list)
        for row in nodes:
            for name in dict.fromkeys(row["args"]):
                self.readers[name].append(row)
        self.decisive = self._decisive()
        self.wide: dict[str, str] = {}  # of values that are not rounded, the name in f32
        self.casts: dict[str, str] = {}  # the f32 of values in bf16
        self.written: list[Row] = []

    def rows(self) -> list[Row]:
        """The nodes anew."""
        for row in self.nodes:
            self._write(row)
        return self.written

    def _decisive(self) -> set[str]:
        """Values that a result depends on which may change altogether."""
        found: set[str] = set()
        for row in reversed(self.nodes):
            to_integers = row["op"] == "cast" and not self.dtypes[row["name"]].is_floating_point
            if row["name"] in found or row["op"] in ABRUPT or to_integers:
                found.update(row["args"])
        return found

    def _write(self, row: Row) -> None:
        name, stays = row["name"], self._stays_wide(row)
        if _is_cast(row, "f32") and row["args"][0] in self.wide:
            self.wide[name] = self.wide[row["args"][0]]
        elif stays and row["op"] == "cast":
            self.wide[name] = self._current(row["args"][0])
        elif stays or any(a in self.wide and self.dtypes[a] == torch.bfloat16 for a in row["args"]):
            found = self._add(row["op"], [self._in_f32(a) for a in row["args"]], row["attrs"])
            if stays:
                self.wide[name] = found
            else:
                self.written.append({"name": name, "op": "cast", "args": [found], "attrs": {"dtype": "bf16"}})
        else:
            self.written.append({**row, "args": [self._current(a) for a in row["args"]]})

    def _stays_wide(self, row: Row) -> bool:
        """Whether a value needs no rounding: computed in f32, and read by one op that is computed in f32."""
        name = row["name"]
        if name not in self.results or name in self.outputs or name in self.decisive:
            return False
        if self.dtypes[name] != torch.bfloat16 or len(self.readers[name]) != 1:
            return False
        if not (row["op"] in CONTINUOUS or (row["op"] == "cast" and self._is_f32(row["args"][0]))):
            return False
        reader = self.readers[name][0]
        if _is_cast(reader, "f32"):
            inner = self.readers[reader["name"]]
            fused = len(inner) == 1 or all(r["op"] in CONTINUOUS for r in inner)
            return fused and reader["name"] not in self.outputs
        return reader["op"] in CONTINUOUS and self.dtypes[reader["name"]] == torch.bfloat16

    def _is_f32(self, name: str) -> bool:
        return self.dtypes[name] == torch.float32

    def _current(self, name: str) -> str:
        return self.wide.get(name, name) if self._is_f32(name) else name

    def _in_f32(self, name: str) -> str:
        """An operand in f32; a condition as it is."""
        if self.dtypes[name] != torch.bfloat16:
            return self._current(name)
        if name not in self.wide and name not in self.casts:
            self.casts[name] = self._add("cast", [name], {"dtype": "f32"})
        return self.wide.get(name) or self.casts[name]

    def _add(self, op: str, args: Sequence[str], attrs: Mapping[str, Any]) -> str:
        name = f"w{len(self.written)}"
        self.written.append({"name": name, "op": op, "args": list(args), "attrs": dict(attrs)})
        return name


def _is_cast(row: Row, dtype: str) -> bool:
    return row["op"] == "cast" and row["attrs"]["dtype"] == dtype
