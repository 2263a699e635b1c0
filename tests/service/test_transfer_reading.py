"""Files that are no export: refused with the line, what was expected and what was found, before anything is used."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from fusion_ir.errors import FormatError
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import CompileReport, Measurement, Moment, Status, Surroundings
from fusion_ir.text.printing import print_graph
from service.transfer import export as exporting
from service.transfer import reading
from service.transfer.export import ExportError
from service.transfer.reading import read_export
from tests.support.exports import Lines, changed, exported, of_kind
from tests.support.stored_plans import DEVICE, chain, plan_of, store_plan
from tuning_db.store import Store

GRAPH = chain()
KEY = graph_key(GRAPH)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as opened:
        yield opened


@pytest.fixture
def data(store: Store) -> bytes:
    """An export of one plan with one step and two measurements."""
    plan_key = store_plan(store, GRAPH)
    with pytest.raises(ExportError, match="step 0"):
        exported(store, [plan_key])
    store.segments.put(KEY, print_graph(GRAPH))
    moment = Moment(clock_mhz=(2000.5,), throttled=("power cap",))
    row = Measurement(
        segment_key=KEY,
        device_key=DEVICE.class_key,
        family="pointwise",
        schedule="pointwise{lanes=8}",
        status=Status.ok,
        samples_us=(1.5, 0.1 + 0.2),
        report=CompileReport(code_bytes=7),
        surroundings=Surroundings(start=moment, end=moment, seconds=0.1, cpus=(0, 1), ceilings=DEVICE.ceilings),
        toolchain="g++ 12",
    )
    store.trials.record(
        [row, row.model_copy(update={"status": Status.crashed, "samples_us": (), "detail": "signal\n11"})], "0.1"
    )
    return _repaired(store, plan_key)


def _repaired(store: Store, plan_key: str) -> bytes:
    """The export of the sample plan, its step being the whole graph."""
    plan = plan_of(GRAPH)
    step = plan.steps[0].model_copy(update={"segment_key": KEY})
    plan = plan.model_copy(update={"steps": (step,)})
    file = BytesIO()
    exporting.export(store, [(plan_key, plan)], file)
    return file.getvalue()


def test_everything_comes_back(store: Store, data: bytes) -> None:
    content = read_export(BytesIO(data))
    assert content.devices == {DEVICE.class_key: DEVICE}
    assert content.segments.keys() == content.graphs.keys() == {KEY}
    assert content.segments_of == {KEY: (KEY,)}
    assert content.names(KEY) == store.graphs.graph(KEY).names  # type: ignore[union-attr]
    assert content.trials == store.trials.trials(KEY)
    ((number, line),) = content.plans
    assert (number, line.key, line.asked, line.steps[0].segment) == (5, plan_of(GRAPH).plan_key, ("reassociate",), KEY)


def _set(kind: str, path: str, value: object) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        target: Any = of_kind(lines, kind)[0]
        *way, last = path.split("/")
        for name in way:
            target = target[int(name) if name.isdigit() else name]
        target[last] = value

    return change


def _swap(lines: Lines) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _twice(lines: Lines) -> None:
    lines.append(lines[0])


OTHER = "0" * 64
WRONG: dict[str, tuple[Callable[[Lines], None], str]] = {
    "format": (_set("fuseplan.export", "format", 2), r"^1: /format: .*1, got 2"),
    "kind": (_set("graph", "kind", "graf"), r"^4: /kind: .*graf"),
    "order": (_swap, r"^4: /kind: expected 'graph' or what follows it, got 'segment'|^3: "),
    "two headers": (_twice, r"^8: /kind: expected"),
    "no header": (lambda lines: lines.pop(0) and None, r"^1: /kind: expected 'fuseplan.export'"),
    "unknown field": (_set("plan", "binary", "f00"), r"^5: /binary: Extra inputs"),
    "source": (_set("plan", "steps/0/source", "f00"), r"^5: /steps/0/source: Extra inputs"),
    "key": (_set("graph", "key", "ABC"), r"^4: /key: .*pattern.*'ABC'"),
    "graph key": (_set("graph", "key", OTHER), rf"^4: /key: expected {KEY}, as its content has, got 0"),
    "segment key": (_set("segment", "key", OTHER), rf"^3: /key: expected {KEY}, as its content has, got 0"),
    "class key": (_set("device", "key", "cpu-" + "0" * 16), rf"^2: /key: expected {DEVICE.class_key}, .* got cpu-0"),
    "device": (_set("device", "device/units", 64), r"^2: /key: expected cpu-"),
    "graph text": (_set("graph", "text", "fuseplan.graph 2\n"), r"^4: /text: 1:"),
    "text of a person": (_set("graph", "text", print_graph(GRAPH) + "# a comment\n"), r"^4: /text: .*canonical"),
    "other text": (_set("segment", "text", print_graph(chain(9))), rf"^3: /key: expected {graph_key(chain(9))}"),
    "names": (_set("graph", "inputs", ["a", "b"]), r"^4: /inputs, /outputs, /nodes: 1 inputs but 2 names"),
    "segments of a graph": (_set("graph", "segments", [OTHER]), r"^4: /segments/0: expected a key of an earlier line"),
    "graph of a plan": (_set("plan", "graph", OTHER), r"^5: /graph: expected a key of an earlier line, got 0"),
    "device of a plan": (_set("plan", "device", "cuda-" + "0" * 16), r"^5: /device: expected a key"),
    "segment of a step": (_set("plan", "steps/0/segment", OTHER), r"^5: /steps/0/segment: expected a key"),
    "place": (_set("plan", "steps/0/reads/0/place", "stack"), r"^5: /steps/0/reads/0/place: .*'stack'"),
    "negative place": (_set("plan", "steps/0/reads/0/index", -1), r"^5: /steps/0/reads/0/index: .*got -1"),
    "number as text": (_set("plan", "steps/0/reads/0/index", "0"), r"^5: /steps/0/reads/0/index: .*integer, got '0'"),
    "numerics": (_set("plan", "asked", []), r"^5: /asked: "),
    "segment of a row": (_set("measurement", "measurement/segment_key", OTHER), r"^6: /measurement/segment_key: "),
    "device of a row": (_set("measurement", "measurement/device_key", "cpu-x"), r"^6: /measurement/device_key: "),
    "status": (_set("measurement", "measurement/status", "fine"), r"^6: /measurement/status: .*'fine'"),
    "ok without samples": (_set("measurement", "measurement/samples_us", []), r"^6: /measurement/samples_us: expected"),
    "failed with samples": (_set("measurement", "measurement/status", "crashed"), r"^6: /measurement/samples_us: "),
    "negative time": (_set("measurement", "measurement/samples_us", [1.0, -1.0]), r"^6: /measurement/samples_us: "),
    "many samples": (_set("measurement", "measurement/samples_us", [1.0] * 10_001), r"^6: .* at most 10,000"),
    "long race": (_set("measurement", "measurement/race", "r" * 33), r"^6: /measurement/race: expected at most 32"),
    "origin": (_set("measurement", "measurement/origin", "imported"), r"^6: /measurement/origin: expected none"),
    "time of another age": (_set("measurement", "created", -1.0), r"^6: /created: "),
}  # fmt: skip


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_field_is_named(data: bytes, name: str) -> None:
    change, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        read_export(BytesIO(changed(data, change)))


def test_a_file_that_is_cut_off(data: bytes) -> None:
    """At any line's end, within any line."""
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    assert len(ends) == 8
    for end in ends[:-1]:
        with pytest.raises(FormatError, match="the file is cut off: its last one says"):
            read_export(BytesIO(data[:end]))
        with pytest.raises(FormatError, match="cut off within this line"):
            read_export(BytesIO(data[: end + 40]))
    with pytest.raises(FormatError, match=r"^no file of .*: it is empty"):
        read_export(BytesIO(b""))
    with pytest.raises(FormatError, match=r"^9: expected nothing after the last line"):
        read_export(BytesIO(data + b"x"))


def test_lines_that_are_missing_or_changed_though_whole(data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    with pytest.raises(FormatError, match=r"^7: expected 7 lines with sha256 [0-9a-f]+, got 6 with"):
        read_export(BytesIO(b"".join(lines[:5] + lines[6:])))
    with pytest.raises(FormatError, match=r"^8: expected 7 lines"):
        read_export(BytesIO(data.replace(b"lanes=8", b"lanes=4")))


class Endless:
    """A file that never ends: of one line, or of many."""

    def __init__(self, line: bytes) -> None:
        self.line, self.given = line, 0

    def readline(self, size: int) -> bytes:
        self.given += 1
        assert self.given < 1000, "nobody stopped"
        return (self.line * (size // len(self.line) + 1))[:size] if b"\n" not in self.line else self.line


def test_a_huge_file_is_not_read_to_its_end(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError, match=r"^1: expected a line of at most"):
        read_export(cast(Any, Endless(b'{"kind": "fuseplan.export",')))
    for line in (b'{"kind":', b"a line\n"):
        with pytest.raises(FormatError, match=r"^no file of .*: it "):
            read_export(cast(Any, Endless(line)))
    first, device, *_ = data.splitlines(keepends=True)
    monkeypatch.setattr(reading, "FILE_BYTES", 20 * len(device))
    with pytest.raises(FormatError, match=r"^\d\d: expected a file of at most"):
        read_export(cast(Any, _After(first, Endless(device))))


class _After:
    """A first line, and then the other file."""

    def __init__(self, first: bytes, rest: Endless) -> None:
        self.first, self.rest = [first], rest

    def readline(self, size: int) -> bytes:
        return self.first.pop() if self.first else self.rest.readline(size)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"kind": "plan", "key": ' + b"9" * 10_000 + b"}",
        b'{"kind": "measurement", "created": NaN}',
        b'{"kind": "plan"',
        b"\xff\xfe",
        b"null",
        b"",
        b"\x7fELF\x02\x01",
    ],
)
def test_what_is_no_json_line(data: bytes, line: bytes) -> None:
    header = data.splitlines(keepends=True)[0]
    with pytest.raises(FormatError, match=r"^2: "):
        read_export(BytesIO(header + line + b"\n"))


def test_an_export_keeps_to_the_limit_of_imports(store: Store, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "FILE_BYTES", len(data))
    with pytest.raises(ExportError, match="export fewer plans"):
        _repaired(store, plan_of(GRAPH).plan_key)
