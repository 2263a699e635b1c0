"""The parts of a plan that a runner needs, read from its JSON. Other fields are passed over."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

WIRE_VERSION = 1
PLACES = ("in", "out", "tmp")
TARGETS = ("cuda", "cpu")
ITEM_BYTES = {
    "f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1,
    "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "bool": 1,
}  # fmt: skip

ALIGNMENT = 256  # of temporaries

Three = tuple[int, int, int]
ONE: Three = (1, 1, 1)


class PlanError(ValueError):
    """The JSON is no plan that this version can run; says what was expected."""


@dataclass(frozen=True)
class Tensor:
    """Shape, dtype and strides (elements) of an input or output, and the alignment in bytes that the plan relies on.
    constant: the version that an input was named with, where it is a weight."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    alignment_bytes: int
    constant: str | None = None

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
class Buffer:
    """A temporary. kept: the plan's prologue writes it, for the other steps to read at every run."""

    bytes: int
    kept: bool = False


@dataclass(frozen=True)
class Step:
    """One launch, or one call of a library, whose description is then the binary. args: reads, of which there are
    `reads`, writes, scratch. prologue: the step runs once for each version of the constants, before all steps that are
    not of the prologue. tasks: of a step on a CPU, how often its entry is called."""

    binary: str
    entry: str
    args: tuple[Ref, ...]
    grid: Three
    block: Three
    shared_bytes: int
    libraries: tuple[str, ...]
    tensor_maps: tuple[TensorMap, ...]
    reads: int = 0
    prologue: bool = False
    tasks: int = 1


@dataclass(frozen=True)
class Plan:
    """A plan for devices of one architecture. target: "cuda" or "cpu". aliases: outputs that no step writes, and the
    input or output that each of them is. features: flags that a CPU must have. threads: that its times were measured
    with. in_place: outputs, and the input whose memory each of them may have."""

    target: str
    arch: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    aliases: tuple[tuple[int, Ref], ...]
    features: tuple[str, ...] = ()
    threads: int = 1
    in_place: tuple[tuple[int, int], ...] = ()

    @property
    def once(self) -> int:
        """The number of steps of the prologue, which come first."""
        return sum(step.prologue for step in self.steps)

    @cached_property
    def constants(self) -> tuple[int, ...]:
        """Inputs that the prologue reads."""
        read = {r.index for s in self.steps[: self.once] for r in s.args[: s.reads] if r.place == "in"}
        return tuple(sorted(read))


def read_plan(body: Mapping[str, Any]) -> Plan:
    """A plan from its JSON, parsed. Raises PlanError."""
    try:
        if body["wire_version"] != WIRE_VERSION:
            raise PlanError(f"expected a plan of wire version {WIRE_VERSION}, got {body['wire_version']}")
        target = body["device"]["target"]
        if target not in TARGETS:
            raise PlanError(f"expected a plan for a device of target {' or '.join(TARGETS)}, got {target!r}")
        plan = Plan(
            target,
            str(body["device"]["arch"]),
            tuple(_tensor(t) for t in body["inputs"]),
            tuple(_tensor(t) for t in body["outputs"]),
            tuple(Buffer(int(b["bytes"]), bool(b.get("kept", False))) for b in body["buffers"]),
            tuple(_step(s) for s in body["steps"]),
            tuple((int(i), _ref(r)) for i, r in body.get("aliases", ())),
            tuple(str(flag) for flag in body["device"].get("features", ())),
            int(body["device"].get("units", 1)) if target == "cpu" else 1,
            tuple((int(i), int(j)) for i, j in body.get("in_place", ())),
        )
    except (KeyError, TypeError, IndexError) as e:
        raise PlanError(f"the plan lacks {e}" if isinstance(e, KeyError) else f"the plan is malformed: {e}") from e
    _check(plan)
    return plan


def _tensor(t: Mapping[str, Any]) -> Tensor:
    if t["dtype"] not in ITEM_BYTES:
        raise PlanError(f"expected one of {', '.join(ITEM_BYTES)}, got dtype {t['dtype']!r}")
    shape, strides = tuple(t["shape"]), tuple(t["strides"])
    return Tensor(shape, t["dtype"], strides, int(t["alignment_bytes"]), t.get("constant"))


def _ref(r: Mapping[str, Any]) -> Ref:
    return Ref(r["place"], int(r["index"]))


def _step(s: Mapping[str, Any]) -> Step:
    scratch = s.get("scratch")
    refs = (*s["reads"], *s["writes"], *((scratch,) if scratch else ()))
    return Step(
        s["binary"],
        s["entry"],
        tuple(_ref(r) for r in refs),
        _three(s.get("grid", ONE)),
        _three(s.get("block", ONE)),
        int(s.get("shared_bytes", 0)),
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
        len(s["reads"]),
        bool(s.get("prologue", False)),
        int(s.get("tasks", 1)),
    )


def _three(values: Any) -> Three:
    x, y, z = values
    return int(x), int(y), int(z)


def _check(plan: Plan) -> None:
    """Raises PlanError where a step names a place that does not exist, no step writes an output, or the prologue could
    make calls differ."""
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
    for i, j in plan.in_place:
        if not (0 <= i < len(plan.outputs) and 0 <= j < len(plan.inputs) and plan.inputs[j].constant is None):
            raise PlanError(f"out{i} cannot be in place of in{j}")
    if problem := _problem_of_prologue(plan):
        raise PlanError(problem)


def _problem_of_prologue(plan: Plan) -> str:
    """Why a call without the prologue could differ from one with it, "" for nothing."""
    kept = {i for i, buffer in enumerate(plan.buffers) if buffer.kept}
    written = set[int]()  # of these, by the prologue
    for i, step in enumerate(plan.steps):
        if step.prologue != (i < plan.once):
            return f"step {i} is of the prologue, behind one that is not"
        for ref in step.args[: step.reads] if step.prologue else ():
            if ref.place == "out" or (ref.place == "in" and plan.inputs[ref.index].constant is None):
                return f"step {i} is of the prologue and reads {ref.place}{ref.index}, which is no constant"
        for ref in step.args[step.reads :]:
            if step.prologue and ref.place != "tmp":
                return f"step {i} is of the prologue and writes {ref.place}{ref.index}"
            if ref.place == "tmp" and ref.index in kept and (not step.prologue or ref.index in written):
                return f"step {i} writes tmp{ref.index}, which is kept for another tensor"
            written |= {ref.index} if ref.place == "tmp" else set()
    lost = kept - written if plan.once else kept
    return f"tmp{min(lost)} is kept, and no step of the prologue writes it" if lost else ""
