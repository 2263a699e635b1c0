"""A plan: self-contained instructions for computing one graph on one class of devices."""

from typing import Any, Literal, Self, get_args

from pydantic import Field, model_validator

from fusion_ir.keys.plan_key import plan_key
from fusion_ir.records.base import Record
from fusion_ir.records.device import Device
from fusion_ir.records.measurement import CompileReport
from fusion_ir.records.reason import Contraction, Reason
from fusion_ir.records.spent import Spent
from fusion_ir.records.split_half import Half, Written
from fusion_ir.records.tensor_map import TensorMapSpec

WIRE_VERSION = 1

# Classes of rewrites: no other values; other orders of operations that are equal in the real numbers; other values.
Numerics = Literal["exact", "reassociate", "approximate"]
NUMERICS: tuple[Numerics, ...] = get_args(Numerics)  # the strictest first

# Where a step finds a tensor: input i, output i, or temporary buffer i.
Place = Literal["in", "out", "tmp"]


def _optional() -> Any:
    """A field that is left out of the JSON where it is None: the keys of plans from before it stay what they were."""
    return Field(default=None, exclude_if=lambda value: value is None)


class TensorSpec(Record):
    """Shape, dtype and strides (elements) of an input or output, and the alignment in bytes that the plan relies on."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    alignment_bytes: int
    constant: str | None = None


class Ref(Record):
    """One tensor argument of a step."""

    place: Place
    index: int = Field(ge=0)

    def __str__(self) -> str:
        return f"{self.place}{self.index}"


class Buffer(Record):
    """A temporary of the plan. Buffers of tensors whose lifetimes do not meet are shared by the planner. kept: it holds
    one tensor, which the prologue writes and the other steps read at every run."""

    bytes: int = Field(ge=0)
    alignment_bytes: int = 64
    kept: bool = Field(default=False, exclude_if=lambda kept: not kept)


class TensorAccess(Record):
    """How a kernel accesses one of its step's `args`: elements and bytes at a time. kind: see
    `codegen.kernel.Access`."""

    argument: int = Field(ge=0)
    kind: str
    width: int
    bytes: int


class Step(Record):
    """One launch. `args`: tensors read, then tensors written, in the kernel's parameter order; reads come first, and
    the temporary that is its `scratch`, if it has one, last.

    cpu: entry is `void entry(void* const* args, long task, long tasks)`, called for task = 0 ... tasks-1 in any order,
    by threads with stacks of 4 MiB or more.
    cuda: `entry<<<grid, block, shared_bytes>>>(args..., tensor maps...)`; the entry says itself how many blocks form a
    cluster, which `cluster` repeats.
    libraries: shared libraries, by their names in this project, that must be loaded before the binary. Where it is
    "cublaslt", the binary is no machine code but the JSON of a `LibraryCall`, for whoever runs the step to make.
    predicted_us: time predicted where nothing was timed, and time_us is None. report: the compiler's, on this kernel.
    accesses: those of the kernel's own code; tensors fetched by a library or a tensor map are not among them.
    prologue: the step runs once for each version of the constants, before all steps that are not of the prologue: it
    reads constant inputs and temporaries that other such steps wrote, and writes temporaries.
    bound_by: what is at its limit in `bound_us`, see `Plan`.
    halves: those of `nodes` of which the step computes one half. other_ways: those of `nodes` that the step does not
    compute; it computes a tensor on another way to them, as an alternative has it. written: the contents of each of its
    `writes` that is a temporary, None where they are not known; () where none are, and in plans older than this field.
    """

    family: str
    schedule: str
    binary: str  # sha256
    entry: str
    reads: tuple[Ref, ...]
    writes: tuple[Ref, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    # Not in the text where they are as by default: plans that were made before there were such fields keep their keys.
    cluster: int = Field(default=1, ge=1, exclude_if=lambda blocks: blocks == 1)
    tensor_maps: tuple[TensorMapSpec, ...] = Field(default=(), exclude_if=lambda maps: not maps)
    tasks: int = 1
    libraries: tuple[str, ...] = ()
    time_us: float | None
    bound_us: float
    bytes: int  # distinct bytes read and written
    operations: float
    nodes: tuple[int, ...]  # positions in the graph's canonical text
    segment_key: str
    source: str = ""  # sha256 of the generated source
    predicted_us: float | None = _optional()
    report: CompileReport | None = _optional()
    scratch: Ref | None = _optional()
    accesses: tuple[TensorAccess, ...] = Field(default=(), exclude_if=lambda accesses: not accesses)
    prologue: bool = Field(default=False, exclude_if=lambda once: not once)
    bound_by: str | None = _optional()
    halves: tuple[Half, ...] = Field(default=(), exclude_if=lambda halves: not halves)
    other_ways: tuple[int, ...] = Field(default=(), exclude_if=lambda nodes: not nodes)
    written: tuple[Written | None, ...] = Field(default=(), exclude_if=lambda written: not written)

    @property
    def args(self) -> tuple[Ref, ...]:
        """Every argument, in order."""
        return (*self.reads, *self.writes, *((self.scratch,) if self.scratch else ()))


STARVED = 0.6  # of the CPU time that a search's own thread wanted


class Search(Record):
    """The search behind a plan: its time, its limits, and how many candidates it tried. memory_bytes: limit on a plan's
    temporaries, None for no limit.

    budget_s: seconds that the search was given. cut_short: why it ended before it had measured everything that it
    wanted to, None where it did not; such a plan is refined by the next request that has more time. idle_share: share
    of the seconds in which a core that was the search's own had nothing to do. None in plans older than these fields.
    cpu_share: share of the time in which the search's own thread wanted a CPU that it had one, beside other processes;
    None where the system does not say.
    dropped: kernels that compiled and were not worth timing by their compiler's report; older plans count them in
    `failed`.
    """

    seconds: float
    candidates: int
    measured: int
    failed: int = 0
    # The best cover was proved against every untried segment's bound; of more than 1,000 segments, to 0.2%.
    complete: bool
    seed: int = 0
    memory_bytes: int | None = _optional()
    budget_s: float | None = _optional()
    cut_short: str | None = _optional()
    idle_share: float | None = _optional()
    cpu_share: float | None = _optional()
    dropped: int = Field(default=0, exclude_if=lambda number: not number)
    spent: Spent | None = _optional()  # where nothing was timed, and in plans from before it was kept, None

    @property
    def was_starved(self) -> bool:
        """Whether it was cut short while others left it little of the CPUs: it found less than its seconds say."""
        return self.cut_short is not None and self.cpu_share is not None and self.cpu_share < STARVED


class Plan(Record):
    """A plan, see the module. `plan_key` is the sha256 of the body; names of tensors never enter.

    Steps of the prologue come first. Tensors that they write for other steps stay in their buffers from run to run:
    whoever runs the plan runs the prologue before the first run, and again when a constant that it reads is another, or
    has other values. Times are those of one run without it. prologue_us: time of the whole prologue, measured once.

    max_rel_error: of the outputs; in the emulator, where plans are not run whole, the largest error of a kernel, each
    by itself.

    time_us: of runs that find their inputs in memory, and in which each step finds in the caches what its producer left
    there. warm_us: of runs on one set of tensors again and again, where such runs take another time.

    bound_by: what is at its limit in `lower_bound_us`. "launch": that of one kernel. "memory", "cache": the bandwidth
    of main memory, or of a cache that holds all tensors. "arithmetic": f32 operations. "bf16 products" and the like:
    products of operands of that dtype, by the units that are made for them. None where there is no bound, and in plans
    older than this field.
    """

    wire_version: int = WIRE_VERSION
    graph_key: str
    device: Device
    numerics: Numerics  # the loosest class of its rewrites
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    # Outputs that are no step's write: out[i] is input j, or output j again, as it is.
    aliases: tuple[tuple[int, Ref], ...] = ()
    # Pairs (output, input): the caller may pass the input's memory for the output, which the graph lets it take over,
    # if it is aligned as the output's.
    in_place: tuple[tuple[int, int], ...] = Field(default=(), exclude_if=lambda pairs: not pairs)
    time_us: float | None
    spread: float | None  # half the interquartile range over the median
    unfused_us: float | None
    lower_bound_us: float
    search_gap: float | None  # time_us over the best cover's, if all that is untried ran at its bound; 1 or more
    copy_us: float | None  # compulsory bytes at the measured copy bandwidth
    max_rel_error: float | None
    rewrites: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    search: Search
    version: str  # of Fuseplan
    predicted_us: float | None = _optional()  # where time_us is None: nothing was timed
    contractions: tuple[Contraction, ...] = Field(default=(), exclude_if=lambda contractions: not contractions)
    prologue_us: float | None = _optional()
    warm_us: float | None = _optional()
    # Its rewrites round other values than the graph does: it is held to the accuracy of the graph's own roundings, not
    # to its values.
    rounds_elsewhere: bool = Field(default=False, exclude_if=lambda elsewhere: not elsewhere)
    # Steps of the graph make any error larger, so that its outputs as a whole say nothing: each step was held to what
    # it computes of what it was given.
    judged_by_steps: bool = Field(default=False, exclude_if=lambda by_steps: not by_steps)
    bound_by: str | None = _optional()

    @model_validator(mode="after")
    def _check_prologue(self) -> Self:
        if problem := _problem_of_prologue(self):
            raise ValueError(problem)
        return self

    @property
    def prologue(self) -> tuple[Step, ...]:
        """Steps that run once for each version of the constants."""
        return tuple(step for step in self.steps if step.prologue)

    @property
    def constants(self) -> tuple[int, ...]:
        """Inputs that the prologue reads, in order."""
        return tuple(sorted({r.index for step in self.prologue for r in step.reads if r.place == "in"}))

    @property
    def kept_bytes(self) -> int:
        """Bytes of the buffers that stay from run to run."""
        return sum(buffer.bytes for buffer in self.buffers if buffer.kept)

    @property
    def temporary_bytes(self) -> int:
        """Bytes of all buffers, those kept from run to run included: the number that a memory limit is held against."""
        return sum(buffer.bytes for buffer in self.buffers)

    @property
    def plan_key(self) -> str:
        """See `fusion_ir.keys.plan_key`."""
        return plan_key(self.model_dump_json().encode())


def _problem_of_prologue(plan: Plan) -> str:
    """Why a run of the plan without its prologue could differ from one with it, "" for nothing: the prologue reads
    constants and writes temporaries alone, nobody else writes what is kept of them, and the rest is not read."""
    count, kept = len(plan.prologue), {i for i, buffer in enumerate(plan.buffers) if buffer.kept}
    if not count and not kept:
        return ""
    constant = {i for i, spec in enumerate(plan.inputs) if spec.constant is not None}
    there, touched = set[int](), set[int]()  # buffers: of tensors that may be read; whatever was written to
    for i, step in enumerate(plan.steps):
        if step.prologue != (i < count):
            return f"step {i} is of the prologue, behind one that is not"
        if i == count:
            there &= kept
        for ref in step.reads:
            if step.prologue and (ref.place == "out" or (ref.place == "in" and ref.index not in constant)):
                return f"step {i} is of the prologue and reads {ref}, which is no constant"
            if ref.place == "tmp" and ref.index not in there:
                return f"step {i} reads {ref}, where nothing is that it may read"
        for ref in (*step.writes, *((step.scratch,) if step.scratch else ())):
            if step.prologue and ref.place != "tmp":
                return f"step {i} is of the prologue and writes {ref}"
            if ref.place == "tmp" and ref.index in kept and (not step.prologue or ref.index in touched):
                return f"step {i} writes {ref}, which is kept for another tensor"
            if ref.place == "tmp":
                touched.add(ref.index)
        there |= {ref.index for ref in step.writes if ref.place == "tmp"}
    lost = kept - {ref.index for step in plan.prologue for ref in step.writes}
    return f"tmp{min(lost)} is kept, and no step of the prologue writes it" if lost else ""
