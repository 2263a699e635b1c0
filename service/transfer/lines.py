"""Lines of an export: JSON objects of these kinds, in this order, each behind the lines that it refers to.

{"kind": "fuseplan.export", "format": 1, ...}     {"kind": "graph", ...}          {"kind": "measurement", ...}
{"kind": "device", ...}                           {"kind": "plan", ...}           {"kind": "end", ...}
{"kind": "segment", ...}
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from fusion_ir.core.limits import LIMITS
from fusion_ir.records import Device, Measurement, Numerics, Record, Ref

FORMAT = 1
FILE_BYTES = 256 << 20
LINE_BYTES = 2 * LIMITS.body_bytes + (1 << 20)  # a graph's text, its line ends escaped

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ClassKey = Annotated[str, Field(pattern=r"^(cpu|cuda|emulator)-[0-9a-f]{16}$")]
Text = Annotated[str, Field(max_length=LIMITS.body_bytes)]
Word = Annotated[str, Field(min_length=1, max_length=1000)]
Name = Annotated[str, Field(min_length=1, max_length=LIMITS.name_chars)]
NodeName = Annotated[str, Field(max_length=LIMITS.name_chars)]  # "" of a node that has none
Tensors = Annotated[tuple[Ref, ...], Field(max_length=LIMITS.nodes)]


class Header(Record):
    """The first line. version: of the Fuseplan that wrote the file."""

    kind: Literal["fuseplan.export"] = "fuseplan.export"
    format: Literal[1] = FORMAT
    version: Word


class DeviceLine(Record):
    """A device that a plan was made for or something was measured on, with its ceilings as they are known now."""

    kind: Literal["device"] = "device"
    key: ClassKey
    device: Device


class SegmentLine(Record):
    """A segment: its canonical text, which the key is the sha256 of."""

    kind: Literal["segment"] = "segment"
    key: Key
    text: Text


class GraphLine(Record):
    """A graph: its canonical text, which the key is the sha256 of, the names of its tensors, and the segments that
    something was tried on. nodes: their names, as `NamedGraph.node_names`; left out where there are none."""

    kind: Literal["graph"] = "graph"
    key: Key
    text: Text
    inputs: Annotated[tuple[Name, ...], Field(max_length=LIMITS.inputs)]
    outputs: Annotated[tuple[Name, ...], Field(max_length=LIMITS.outputs)]
    nodes: Annotated[tuple[NodeName, ...], Field(max_length=LIMITS.nodes, exclude_if=lambda names: not names)] = ()
    segments: tuple[Key, ...]


class StepLine(Record):
    """One step: the segment that it computes, by which schedule of which family, and the tensors that it connects.

    reads, writes: in the order of the segment's inputs and outputs. "tmp" numbers tensors, not buffers: each is written
    once, and which of them share memory is decided anew.
    """

    segment: Key
    family: Word
    schedule: Word
    reads: Tensors
    writes: Tensors


class PlanLine(Record):
    """The decisions of a plan. key: of the plan that they are from. asked: the classes of numerics that it was the
    answer for. memory_bytes: the largest limit of memory that it was the answer for, None where there was none.
    judged_by_steps: its outputs as a whole say nothing (`Plan.judged_by_steps`)."""

    kind: Literal["plan"] = "plan"
    key: Key
    graph: Key
    device: ClassKey
    asked: Annotated[tuple[Numerics, ...], Field(min_length=1, max_length=8)]
    rewrites: Annotated[tuple[Word, ...], Field(max_length=1000)]
    steps: Annotated[tuple[StepLine, ...], Field(max_length=LIMITS.nodes)]
    aliases: Annotated[tuple[tuple[int, Ref], ...], Field(max_length=LIMITS.outputs)]
    version: Word
    memory_bytes: Annotated[int | None, Field(ge=1, le=2**63 - 1, exclude_if=lambda limit: limit is None)] = None
    judged_by_steps: Annotated[bool, Field(exclude_if=lambda by_steps: not by_steps)] = False


class MeasurementLine(Record):
    """A candidate tried: by which version, and when (seconds since 1970)."""

    kind: Literal["measurement"] = "measurement"
    version: Annotated[str, Field(max_length=1000)]
    created: Annotated[float, Field(ge=0, le=1e11)]
    measurement: Measurement


class End(Record):
    """The last line: how many there are before it, and their sha256, line ends included."""

    kind: Literal["end"] = "end"
    lines: int
    sha256: Key


Line = Annotated[
    Header | DeviceLine | SegmentLine | GraphLine | PlanLine | MeasurementLine | End, Field(discriminator="kind")
]
LINE: TypeAdapter[Line] = TypeAdapter(Line)
KINDS: tuple[type[Record], ...] = (Header, DeviceLine, SegmentLine, GraphLine, PlanLine, MeasurementLine, End)
