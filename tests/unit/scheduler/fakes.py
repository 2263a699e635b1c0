"""A device without a device: families that emit nothing real, a bench whose times are a function of the kernel, a
clock."""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.schedule import Choices, schedule_values
from codegen.toolchain.compiler import Binary
from codegen.workbench.step_check import Meanings
from fusion_ir.core.graph import Graph
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import OPS, OpKind
from fusion_ir.records import Ceilings, Device, Measurement, Plan, Status
from fusion_ir.reference.interpreter import interpret
from scheduler.cost.features import Tuned
from scheduler.cost.lower_bound import lower_bound_us
from scheduler.cost.traffic import traffic_of

CEILINGS = Ceilings(copy_gbps=((0, 50.0),), read_gbps=((0, 60.0),), launch_us=2.0, fma_gflops=100.0)
DEVICE = Device(
    target="cpu", name="fake", arch="x86-64", units=2, vector_bytes=32, cache_bytes=1 << 20, memory_bytes=1 << 34,
    toolchain="none", ceilings=CEILINGS,
)  # fmt: skip


class Clock:
    """Seconds that pass only when somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeFamily:
    """Accepts segments of its kinds of op with at most `most` of them that are no views. Refuses to emit what `cannot`
    names. idle: fields of schedules that make no difference."""

    name: str = "fused"
    most: int = 100
    kinds: frozenset[OpKind] = frozenset({OpKind.POINTWISE, OpKind.CONTRACT, OpKind.RANDOM})
    schedules: tuple[str, ...] = ("default", "wide", "narrow")
    cannot: frozenset[str] = frozenset()
    beyond: Choices = field(default_factory=dict[str, tuple[int | str, ...]])
    idle: frozenset[str] = frozenset()

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        work = [n for n in segment.nodes if n.op != "input" and OPS[n.op].kind is not OpKind.VIEW]
        if len(work) > self.most:
            return Reject(f"{len(work)} computations, at most {self.most}")
        strange = next((n.op for n in work if OPS[n.op].kind not in self.kinds), None)
        return Reject(f"{strange} is not for this family") if strange else None

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        return tuple(f"{self.name}{{{s}}}" for s in self.schedules)

    def choices(self, segment: Graph, device: Device) -> Choices:
        return self.beyond

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        unable = next((n.op for n in segment.nodes if n.op in self.cannot), None)
        if unable and len([n for n in segment.nodes if n.op != "input"]) > 1:
            raise EmitError(f"cannot lower {unable}")
        working = {k: v for k, v in schedule_values(schedule).items() if k not in self.idle}
        text = f"{graph_key(segment)} {working or schedule}"
        entry = "k_" + hashlib.sha256(text.encode()).hexdigest()[:16]
        return Kernel(entry, text, "cpu", self.name, schedule, Launch(tasks=3))


class FakeNaive(FakeFamily):
    """Accepts every single node."""

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        count = sum(n.op != "input" for n in segment.nodes)
        return None if count == 1 else Reject(f"{count} nodes; one at a time")


def families(**kwargs: object) -> dict[str, FakeFamily]:
    """A fusing family and one for single nodes."""
    return {f.name: f for f in (FakeFamily(**kwargs), FakeNaive("one", schedules=("only",)))}  # type: ignore[arg-type]


@dataclass
class Timing:
    """The result of `measure_plans` for one plan."""

    samples_us: tuple[float, ...]
    max_rel_error: float | None = 0.0
    status: Status = Status.ok
    detail: str = ""
    prologue_us: float | None = None
    warm_us: float | None = None
    disturbed: float | None = None


RACES = count()


@dataclass
class FakeBench:
    """Times are the segment's bound times a factor between 1 and `slowest`, by a hash of kernel and `seed`; a whole
    plan takes the sum. fails: entries (or words in a schedule) whose kernels crash. uncompilable: the same for
    `compile`. interrupt_at: kernels measured until KeyboardInterrupt."""

    clock: Clock = field(default_factory=Clock)
    seed: int = 0
    slowest: float = 3.0
    seconds_each: float = 1.0
    fails: frozenset[str] = frozenset()
    uncompilable: frozenset[str] = frozenset()
    interrupt_at: int | None = None
    times: dict[str, float] = field(default_factory=dict)
    segments: dict[str, Graph] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    at_once: int = 1
    expected: list[str] = field(default_factory=list)

    def allow(self, seconds: float) -> None:
        pass

    def idle_share(self, seconds: float) -> None:
        return None

    def cpu_share(self) -> None:
        return None

    def turn(self, segment_key: str) -> AbstractContextManager[None]:
        return nullcontext()

    def expect(self, kernels: Sequence[Kernel]) -> None:
        self.expected += [k.entry for k in kernels]

    def race_seconds(self, segment_key: str, count: int) -> float:
        return count * self.seconds_each if segment_key in self.segments else 0.0

    def first_race_seconds(self, segment: Graph, segment_keys: frozenset[str], count: int) -> float:
        return 0.0

    def time_us(self, segment: Graph, kernel: Kernel) -> float:
        return lower_bound_us(traffic_of(segment), DEVICE) * self.factor(kernel.entry)

    def factor(self, entry: str) -> float:
        return 1 + (self.slowest - 1) * hashlib.sha256(f"{self.seed} {entry}".encode()).digest()[0] / 255

    def measure(
        self,
        segment: Graph,
        segment_key: str,
        kernels: Sequence[Kernel],
        *,
        seed: int = 0,
    ) -> list[Measurement]:
        assert graph_key(segment) == segment_key, "segments are measured in canonical form"
        self.segments[segment_key] = segment
        rows: list[Measurement] = []
        race = f"race {next(RACES)}"
        for kernel in kernels:
            if self.interrupt_at is not None and len(self.calls) >= self.interrupt_at:
                raise KeyboardInterrupt
            self.calls.append(kernel.entry)
            self.clock.now += self.seconds_each
            self.times[kernel.entry] = self.time_us(segment, kernel)
            ok = not any(word in kernel.schedule or word == kernel.entry for word in self.fails)
            rows.append(
                Measurement(
                    segment_key=segment_key,
                    device_key=DEVICE.class_key,
                    family=kernel.family,
                    schedule=kernel.schedule,
                    status=Status.ok if ok else Status.crashed,
                    samples_us=(self.times[kernel.entry],) * 20 if ok else (),
                    detail="" if ok else "signal 11",
                    race=race,
                    toolchain=DEVICE.toolchain,
                    driver=DEVICE.driver,
                )
            )
        return rows

    def compile_for_plans(
        self,
        kernels: Sequence[Kernel],
        graph: Graph | None = None,
        *,
        seed: int = 0,
        together: bool = False,
        optional: bool = False,
        quickly: bool = False,
    ) -> list[Binary | Timing]:
        assert len({k.entry for k in kernels}) == len(kernels)
        return [
            Timing((), status=Status.compile_failed, detail="no")
            if any(word in k.schedule for word in self.uncompilable)
            else Binary(
                hashlib.sha256(f"{k.entry}{' quickly' * quickly}".encode()).hexdigest(),
                k.entry,
                hashlib.sha256(k.source.encode()).hexdigest(),
                quickly=quickly,
            )
            for k in kernels
        ]

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[Timing]:
        self.clock.now += seconds
        times = [sum(s.bound_us * self.factor(s.entry) for s in plan.steps if not s.prologue) for plan in plans]
        once = [sum(s.bound_us * self.factor(s.entry) for s in plan.prologue) for plan in plans]
        fails = [any(w in s.schedule or w == s.entry for s in plan.steps for w in self.fails) for plan in plans]
        return [
            Timing((), status=Status.crashed, detail="signal 11")
            if fail
            else Timing((time,) * 20, prologue_us=us or None)
            for time, us, fail in zip(times, once, fails, strict=True)
        ]

    def measure_by_steps(
        self, graph: Graph, plan: Plan, meanings: Meanings, *, seed: int = 0, seconds: float
    ) -> Timing:
        """Checks that each step's meaning is that of its segment; the timing that `measure_plans` gives the plan."""
        assert [graph_key(m.graph) for m in meanings.steps] == [s.segment_key for s in plan.steps]
        return self.measure_plans(graph, [plan], seed=seed, seconds=seconds)[0]


class Memory:
    """Costs in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Measurement]] = {}

    def known(self, segment_key: str) -> list[Measurement]:
        return self.rows.get(segment_key, [])

    def others(self, family: str) -> list[Tuned]:
        return []

    def timed(self, family: str) -> Sequence[tuple[Graph, float]]:
        return ()

    def record(self, segment: Graph, measurements: Sequence[Measurement]) -> None:
        for m in measurements:
            self.rows.setdefault(m.segment_key, []).append(m)


def run_plan(
    plan: Plan,
    segments: dict[str, Graph],
    inputs: Sequence[np.ndarray],
    held: Sequence[bytearray] | None = None,
    prologue: bool = True,
    made: Callable[[str, np.ndarray], np.ndarray] = lambda key, value: value,
) -> list[np.ndarray]:
    """Outputs of a plan whose kernels are interpreted: `segments` by key. Buffers hold bytes, and reuse overwrites
    them. held: buffers with what an earlier run left. prologue: whether its steps run, too. made: what a kernel of a
    key writes instead of the value."""
    buffers = [np.frombuffer(b, np.uint8) for b in held or [bytearray(b.bytes) for b in plan.buffers]]
    outputs: list[np.ndarray | None] = [None] * len(plan.outputs)
    for step in plan.steps if prologue else plan.steps[len(plan.prologue) :]:
        segment = segments[step.segment_key]
        reads: list[np.ndarray] = []
        for spec, ref in zip(segment.inputs, step.reads, strict=True):
            if ref.place == "in":
                reads.append(inputs[ref.index])
            elif ref.place == "out":
                value = outputs[ref.index]
                assert value is not None, f"{ref} is read before it is written"
                reads.append(value)
            else:
                size = int(np.prod(spec.sizes)) * spec.dtype.bytes
                reads.append(buffers[ref.index][:size].view(spec.dtype.numpy).reshape(spec.sizes).copy())
        for output, ref, right in zip(segment.outputs, step.writes, interpret(segment, reads), strict=True):
            assert ref.place != "in"
            value = made(step.segment_key, right)
            if ref.place == "out":
                before = outputs[ref.index]
                assert before is None or before.tobytes() == value.tobytes(), f"{ref} is written twice, differently"
                assert plan.outputs[ref.index].shape == output.node.sizes
                outputs[ref.index] = value
            else:
                data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
                buffers[ref.index][: len(data)] = data
    for slot, ref in plan.aliases:
        assert outputs[slot] is None
        outputs[slot] = inputs[ref.index] if ref.place == "in" else outputs[ref.index]
    assert all(o is not None for o in outputs)
    return [o for o in outputs if o is not None]


def random_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Dense arrays for every input; any value will do."""
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0, 2 if spec.dtype.kind == "bool" else 7, spec.sizes).astype(spec.dtype.numpy)
        if not spec.dtype.is_float
        else rng.standard_normal(spec.sizes).astype(spec.dtype.numpy)
        for spec in graph.inputs
    ]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays of one dtype and shape are equal bit for bit, NaN payloads aside."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    x, y = np.ascontiguousarray(a), np.ascontiguousarray(b)
    unsigned = f"u{a.dtype.itemsize}"
    with np.errstate(invalid="ignore"):
        return bool(np.all((x.view(unsigned) == y.view(unsigned)) | ((x != x) & (y != y))))
