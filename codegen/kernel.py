"""Kernels as code generation hands them on (source, launch, memory accesses), and the interface of their families."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from codegen.schedule import Choices, schedule_text, schedule_values
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, TargetKind, TensorMapSpec


@dataclass(frozen=True)
class Launch:
    """How to launch a kernel. cuda: grid, block, dynamic shared memory, blocks of a cluster, and tensor maps to pass
    behind all other parameters. cpu: `tasks`, the number of pieces that outer loops are cut into. scratch_bytes: memory
    that the kernel may write as it likes, a parameter behind the tensors; 0: it has no such parameter."""

    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    cluster: int = 1
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    tasks: int = 1
    scratch_bytes: int = 0


@dataclass(frozen=True)
class Access:
    """How a kernel touches one tensor: elements per access, and along what.

    tensor: "in0", "out1", ... kind: "vector" (consecutive elements), "splat" (one for all lanes), "strided", "tile" (a
    short run repeated), "repeat" (each element several times), "lanes" (an address per lane, or for each few lanes). A
    tensor has an Access for each width in the machine code, also for the rest behind whole vectors. cuda: no wider than
    addresses are aligned. cpu: whole registers, aligned or not, see `codegen.printer.machine_moves`; compilers may join
    neighbouring narrower moves.
    """

    tensor: str
    kind: Literal["vector", "splat", "strided", "tile", "repeat", "lanes"]
    width: int


@dataclass(frozen=True)
class Kernel:
    """One kernel: a function in C++ or CUDA over the vocabulary of codegen/include, without the include itself.

    Parameters are the segment's inputs in order, then its outputs in order, then the launch's tensor maps.
    cpu: `extern "C" void ENTRY(void* const* args, long task, long tasks)`.
    cuda: `extern "C" __global__ void ENTRY(const T0* in0, ..., U0* out0, ...)`.
    headers: files of codegen/include that its source needs beyond those of its target.
    in_place: outputs, by number, that may lie where the input lies that they donate: each of its elements is read
    before the output's is written there, and by nobody later.
    libraries: names from `codegen.hardware.libraries` that its binary is linked with and that must be loaded before it.
    With a library that is called (`CALLED` there) there is no kernel: `source` is the JSON of one call
    (fusion_ir.records.LibraryCall).
    """

    entry: str
    source: str
    target: TargetKind
    family: str
    schedule: str
    launch: Launch
    accesses: tuple[Access, ...] = ()
    headers: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    in_place: tuple[int, ...] = ()

    @property
    def identity(self) -> tuple[str, Launch]:
        """Equal for schedules that make no difference to what runs: entries are named by their source's digest."""
        return self.entry, self.launch


@dataclass(frozen=True)
class Reject:
    """Why a family does not take a segment or a schedule, for a person to read. is_told: whether plans tell of it; not
    where a segment has none of the ops that the family is for."""

    reason: str
    is_told: bool = True


class EmitError(Exception):
    """The family accepted the segment, but this schedule of it cannot be lowered; says why."""


def offers(family: "Family", segment: Graph, schedule: str, device: Device) -> bool:
    """Whether the schedule is one of the family's for this segment. Any other, of another version or made up, is not to
    be emitted."""
    choices, values = family.choices(segment, device), schedule_values(schedule)
    if values and choices.keys() == values.keys() and schedule == schedule_text(family.name, values):
        return all(value in map(str, choices[name]) for name, value in values.items())
    return schedule in family.space(segment, device)


class Family(Protocol):
    """A kernel family: a row of `codegen.families.FAMILIES`.

    A segment is a Graph: inputs are what it reads, outputs what it writes.
    """

    name: str

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        """None if some schedule can compute the segment."""
        ...

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        """Schedules worth trying first, as text that `emit` reads; the first is the default."""
        ...

    def choices(self, segment: Graph, device: Device) -> Choices:
        """The values that each field of a schedule may have, with those in `space` among them; some combinations cannot
        be lowered. Empty where `space` holds all schedules."""
        ...

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        """The kernel. Raises EmitError."""
        ...


class Lowering(Protocol):
    """A family that lowers segments to find out whether it accepts them."""

    def fits(self, segment: Graph, device: Device) -> Reject | None:
        """Why the family refuses the segment by its ops and shapes; None where only lowering it can tell."""
        ...


@runtime_checkable
class Unrolling(Protocol):
    """A family whose first schedules may write out many times as much code as others of `space`, or other families."""

    def least_unrolled(self, segment: Graph, device: Device) -> str:
        """The first schedule of `space` that writes out little code, which compiles the soonest."""
        ...
