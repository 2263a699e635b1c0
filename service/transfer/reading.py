"""Reading an export, strictly: nothing of a file is used unless all of it is as it must be."""

import hashlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from pydantic import ValidationError

from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.json.strict_json import pointer
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Device, Measurement, Status
from fusion_ir.text.printing import parse_graph, print_graph
from service.transfer.lines import (
    FILE_BYTES,
    KINDS,
    LINE,
    LINE_BYTES,
    DeviceLine,
    End,
    GraphLine,
    Header,
    Line,
    MeasurementLine,
    PlanLine,
    SegmentLine,
)
from service.transfer.other_files import SNIFFED_BYTES, is_of_an_export, no_export
from tuning_db.measurements import Trial
from tuning_db.reading.graphs import Names

MOST_SAMPLES = 10_000
MOST_CHARS = 20_000  # of a measurement's texts


@dataclass
class ExportContent:
    """Content of an export by key, all keys computed here. plans: with the numbers of their lines."""

    devices: dict[str, Device] = field(default_factory=dict[str, Device])
    segments: dict[str, Graph] = field(default_factory=dict[str, Graph])
    graphs: dict[str, NamedGraph] = field(default_factory=dict[str, NamedGraph])
    segments_of: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    plans: list[tuple[int, PlanLine]] = field(default_factory=list[tuple[int, PlanLine]])
    trials: list[Trial] = field(default_factory=list[Trial])

    def names(self, key: str) -> Names:
        """Names of a graph's tensors."""
        return Names.of_graph(self.graphs[key])


def read_export(file: BinaryIO) -> ExportContent:
    """The file's content. Raises FormatError, whose place is the number of a line; its reason names the field."""
    content = ExportContent()
    kind = 0
    for number, line in _lines(file):
        at = KINDS.index(type(line))
        if at < kind or (number == 1) != isinstance(line, Header):
            expected = KINDS[kind].model_fields["kind"].default if number > 1 else Header.model_fields["kind"].default
            raise FormatError(f"{number}", f"/kind: expected {expected!r} or what follows it, got {line.kind!r}")
        kind = at
        try:
            _take(content, line, number)
        except FormatError as error:
            raise FormatError(f"{number}", f"{error.place}: {error.reason}") from None
    return content


def _lines(file: BinaryIO) -> Iterator[tuple[int, Line]]:
    """Lines with their numbers, but for the last one, which has to match them. Raises FormatError."""
    digest, read, number = hashlib.sha256(), 0, 0
    while raw := file.readline(LINE_BYTES + 1):
        number, read = number + 1, read + len(raw)
        if number == 1 and not is_of_an_export(raw):
            while len(raw) < SNIFFED_BYTES and (more := file.readline(SNIFFED_BYTES)):
                raw += more
            raise no_export(raw)
        if len(raw) > LINE_BYTES:
            raise FormatError(f"{number}", f"expected a line of at most {LINE_BYTES:,} bytes, got more")
        if read > FILE_BYTES:
            raise FormatError(f"{number}", f"expected a file of at most {FILE_BYTES:,} bytes, got more")
        if not raw.endswith(b"\n"):
            raise FormatError(f"{number}", "the file is cut off within this line")
        line = _line(raw, number)
        if isinstance(line, End):
            if (line.lines, line.sha256) != (number - 1, digest.hexdigest()):
                expected = f"{line.lines} lines with sha256 {line.sha256}"
                raise FormatError(f"{number}", f"expected {expected}, got {number - 1} with {digest.hexdigest()}")
            if file.read(1):
                raise FormatError(f"{number + 1}", "expected nothing after the last line")
            return
        digest.update(raw)
        yield number, line
    if not number:
        raise no_export(b"")
    expected = "another line, the file is cut off: its last one says how many there are"
    raise FormatError(f"{number + 1}", f"expected {expected}, got the end of the file")


def _line(raw: bytes, number: int) -> Line:
    try:
        return LINE.validate_json(raw, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = pointer(first["loc"][1:])  # the kind comes first
        text = "not JSON: " if first["type"] == "json_invalid" else f"{place or '/kind'}: "
        got = "" if first["type"] == "json_invalid" else f", got {excerpt(first['input'])}"
        raise FormatError(f"{number}", f"{text}{first['msg']}{got}") from None


def _take(content: ExportContent, line: Line, number: int) -> None:
    match line:
        case DeviceLine():
            _same("/key", line.device.class_key, line.key)
            content.devices[line.key] = line.device
        case SegmentLine():
            content.segments[line.key] = _graph(line.text, line.key).graph
        case GraphLine():
            graph = _graph(line.text, line.key).graph
            for i, key in enumerate(line.segments):
                _known(f"/segments/{i}", key, content.segments)
            try:
                content.graphs[line.key] = NamedGraph(graph, line.inputs, line.outputs, (), line.nodes)
            except ValueError as error:
                raise FormatError("/inputs, /outputs, /nodes", str(error)) from None
            content.segments_of[line.key] = line.segments
        case PlanLine():
            _known("/graph", line.graph, content.graphs)
            _known("/device", line.device, content.devices)
            for i, step in enumerate(line.steps):
                _known(f"/steps/{i}/segment", step.segment, content.segments)
            content.plans.append((number, line))
        case MeasurementLine():
            _known("/measurement/segment_key", line.measurement.segment_key, content.segments)
            _known("/measurement/device_key", line.measurement.device_key, content.devices)
            _check(line.measurement)
            content.trials.append(Trial(line.measurement, line.version, line.created))
        case Header() | End():
            pass


def _graph(text: str, key: str) -> NamedGraph:
    """The graph whose canonical text this is."""
    try:
        named = parse_graph(text)
    except FormatError as error:
        raise FormatError("/text", str(error)) from None
    canonical = print_graph(named.graph)
    if canonical != text:
        lines = zip(canonical.split("\n"), text.split("\n"), strict=False)
        n, (wanted, got) = next(((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1]), (0, ("", "")))
        raise FormatError("/text", f"line {n}: expected the canonical {excerpt(wanted)}, got {excerpt(got)}")
    _same("/key", graph_key(named.graph), key)
    return named


def _check(m: Measurement) -> None:
    """Checks limits of a measurement that its record's types do not. Raises FormatError."""
    place = "/measurement"
    if m.origin:
        raise FormatError(f"{place}/origin", f"expected none, which the importer notes, got {m.origin!r}")
    if (m.status is Status.ok) != bool(m.samples_us):
        raise FormatError(f"{place}/samples_us", f"expected samples of what is ok alone, got {len(m.samples_us)}")
    if len(m.samples_us) > MOST_SAMPLES or not all(s >= 0 for s in m.samples_us):
        raise FormatError(f"{place}/samples_us", f"expected at most {MOST_SAMPLES:,} times of 0 or more")
    for name, most in (("family", 100), ("schedule", 1000), ("detail", MOST_CHARS), ("binary", 64), ("race", 32),
                       ("toolchain", 1000), ("driver", 1000)):  # fmt: skip
        if len(getattr(m, name)) > most:
            raise FormatError(f"{place}/{name}", f"expected at most {most:,} characters, got {len(getattr(m, name)):,}")
    if m.surroundings and len(m.surroundings.model_dump_json()) > MOST_CHARS:
        raise FormatError(f"{place}/surroundings", f"expected at most {MOST_CHARS:,} characters")
    if m.input_sets is not None and not 0 < m.input_sets < 1 << 31:
        raise FormatError(f"{place}/input_sets", f"expected 1 or more, got {m.input_sets}")
    if m.compile_seconds < 0 or (m.warm_us or 0) < 0:
        raise FormatError(place, "expected times of 0 or more")


def _same(place: str, expected: str, got: str) -> None:
    if expected != got:
        raise FormatError(place, f"expected {expected}, as its content has, got {got}")


def _known(place: str, key: str, known: Container[str]) -> None:
    if key not in known:
        raise FormatError(place, f"expected a key of an earlier line, got {key}")
