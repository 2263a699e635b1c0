"""What a runner needs to know of a plan, read from its JSON. Fields that it does not need are passed over."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WIRE_VERSION = 1
PLACES = ("in", "out", "tmp")
ITEM_BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1,
    "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1,
}  # fmt: skip

Three = tuple[int, int, int]


class PlanError(ValueError):
    """The JSON is no plan that this version can run; says what was expected."""


@dataclass(frozen=True)
class Tensor:
    """Shape, dtype and strides (elements) of an input or output, and the alignment in bytes that the plan relies on."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    alignment_bytes: int

    @property
    def span(self) -> int:
        """Elements from the first to behind the last."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Ref:
    """Where a step finds a tensor: input, output or temporary `index`."""

    place: str
    index: int


@dataclass(frozen=True)
class TensorMap:
    """A tensor map that a kernel takes behind its tensors: see the driver's cuTensorMapEncodeTiled. Innermost axis
    first."""

    argument: int
    offset_bytes: int
    dtype: str
    sizes: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class Step:
    """One launch, or one call of a library, whose description is its binary then. args: reads, writes, scratch."""

    binary: str
    entry: str
    args: tuple[Ref, ...]
    grid: Three
    block: Three
    shared_bytes: int
    libraries: tuple[str, ...]
    tensor_maps: tuple[TensorMap, ...]


@dataclass(frozen=True)
class Plan:
    """A plan for one architecture of CUDA devices. buffers: bytes of the temporaries. aliases: outputs that no step
    writes, and the input or output that each of them is."""

    arch: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    buffers: tuple[int, ...]
    steps: tuple[Step, ...]
    aliases: tuple[tuple[int, Ref], ...]


def read_plan(body: Mapping[str, Any]) -> Plan:
    """A plan from its JSON, parsed. Raises PlanError."""
    try:
        if body["wire_version"] != WIRE_VERSION:
            raise PlanError(f"expected a plan of wire version {WIRE_VERSION}, got {body['wire_version']}")
        target = body["device"]["target"]
        if target != "cuda":
            raise PlanError(f'expected a plan for a device of target "cuda", got {target!r}')
        plan = Plan(
            str(body["device"]["arch"]),
            tuple(_tensor(t) for t in body["inputs"]),
            tuple(_tensor(t) for t in body["outputs"]),
            tuple(int(b["bytes"]) for b in body["buffers"]),
            tuple(_step(s) for s in body["steps"]),
            tuple((int(i), _ref(r)) for i, r in body.get("aliases", ())),
        )
    except (KeyError, TypeError, IndexError) as e:
        raise PlanError(f"the plan lacks {e}" if isinstance(e, KeyError) else f"the plan is malformed: {e}") from e
    _check(plan)
    return plan


def _tensor(t: Mapping[str, Any]) -> Tensor:
    if t["dtype"] not in ITEM_BYTES:
        raise PlanError(f"expected one of {', '.join(ITEM_BYTES)}, got dtype {t['dtype']!r}")
    return Tensor(tuple(t["shape"]), t["dtype"], tuple(t["strides"]), int(t["alignment_bytes"]))


def _ref(r: Mapping[str, Any]) -> Ref:
    return Ref(r["place"], int(r["index"]))


def _step(s: Mapping[str, Any]) -> Step:
    scratch = s.get("scratch")
    refs = (*s["reads"], *s["writes"], *((scratch,) if scratch else ()))
    return Step(
        s["binary"],
        s["entry"],
        tuple(_ref(r) for r in refs),
        _three(s["grid"]),
        _three(s["block"]),
        int(s["shared_bytes"]),
        tuple(s.get("libraries", ())),
        tuple(
            TensorMap(
                int(m["argument"]),
                int(m["offset_bytes"]),
                m["dtype"],
                tuple(m["sizes"]),
                tuple(m["strides_bytes"]),
                tuple(m["box"]),
                int(m["swizzle"]),
            )
            for m in s.get("tensor_maps", ())
        ),
    )


def _three(values: Any) -> Three:
    x, y, z = values
    return int(x), int(y), int(z)


def _check(plan: Plan) -> None:
    """Every place that is mentioned is there."""
    counts = {"in": len(plan.inputs), "out": len(plan.outputs), "tmp": len(plan.buffers)}
    mentioned = [r for s in plan.steps for r in s.args] + [r for _, r in plan.aliases]
    for ref in mentioned:
        if not 0 <= ref.index < counts.get(ref.place, 0):
            raise PlanError(f"a step uses {ref.place}{ref.index}, of {counts.get(ref.place, 0)} there are")
    aliased = {i for i, _ in plan.aliases}
    written = {r.index for s in plan.steps for r in s.args if r.place == "out"}
    missing = sorted(set(range(len(plan.outputs))) - aliased - written)
    if missing:
        raise PlanError(f"no step writes out{missing[0]}")
