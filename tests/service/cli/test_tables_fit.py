"""Every table of the command line at 80 and at 60 columns: no key, number or unit is cut."""

import io
import re
from collections.abc import Callable, Sequence

import pytest
from rich.console import Console, RenderableType

from codegen.hardware.gpus import GPUS, specified
from fusion_ir.records import (
    Alternative,
    Ceilings,
    Contraction,
    Cost,
    FamilyCost,
    Measurement,
    Plan,
    Reason,
    Refusal,
    Status,
    TensorAccess,
)
from service.api.batch_models import BatchResult, BatchSummary, ItemCounts
from service.cli import tune_many
from service.cli.commands import batch, devices, explain, plans, trials
from service.cli.contraction_view import contraction_view
from service.cli.plan_view import plan_view
from service.dashboard import plan_view as pages
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from tests.service.cli.conftest import Cli
from tests.support.stored_plans import DEVICE, chain, plan_of
from tuning_db.measurements import Trial
from tuning_db.plan_lists import PlanSummary

NAMES = Naming(("scores", "attention_mask_of_the_first_layer"), ("weights",))
SCHEDULE = "normalization{lanes=64,fetch=1024,store=stream,tile=1024,block=0,interleave=1,tasks=1,dear=4,ahead=1}"
CPU = DEVICE.model_copy(
    update={
        "name": "AMD EPYC (family 25, model 17)",
        "ceilings": Ceilings(copy_gbps=((0, 51.3),), read_gbps=((0, 35.6),), launch_us=0.0805, fma_gflops=236.0),
        "memory_bytes": 25_233_000_000,
        "cache_bytes": 2**25,
    }
)
PLAN_KEY = "581663bc7fa0" + "0" * 52
Golden = Callable[[str, str], None]
WIDTHS = pytest.mark.parametrize("width", [80, 60])


def printed(width: int, *renderables: RenderableType) -> str:
    """Text of `renderables` on a terminal of `width` columns; fails where a line is wider."""
    text = io.StringIO()
    Console(file=text, width=width).print(*renderables, sep="\n")
    lines = [line.rstrip() for line in text.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return "\n".join(lines) + "\n"


def measured_plan(**changed: object) -> Plan:
    plan = plan_of(chain())
    step = plan.steps[0].model_copy(
        update={
            "family": "normalization", "schedule": SCHEDULE, "time_us": 1240.0, "bound_us": 302.0, "bytes": 2**24,
            "bound_by": "memory",
            "accesses": (TensorAccess(argument=0, kind="vector", width=8, bytes=16),),
        }
    )  # fmt: skip
    # The second one took less than its bound says that anything takes.
    steps = (step, step.model_copy(update={"time_us": 250.0}), step.model_copy(update={"time_us": 299.0}))
    update: dict[str, object] = {
        "device": CPU, "steps": steps, "time_us": 1789.0, "unfused_us": 5490.0, "copy_us": 327.0, "warm_us": 1250.0,
        "lower_bound_us": 906.0, "bound_by": "bf16 products", "spread": 0.02, "max_rel_error": 1.5e-5,
        "search": plan.search.model_copy(update={"measured": 20, "failed": 8, "dropped": 12, "seconds": 17.12}),
    }  # fmt: skip
    return plan.model_copy(update=update | changed)


def predicted(plan: Plan) -> Plan:
    steps = [step.model_copy(update={"time_us": None, "predicted_us": step.time_us}) for step in plan.steps]
    search = plan.search.model_copy(update={"measured": 0, "failed": 0, "dropped": 0})
    untimed = dict.fromkeys(("time_us", "unfused_us", "warm_us", "spread", "max_rel_error"), None)
    return plan.model_copy(update={**untimed, "predicted_us": 1789.0, "steps": tuple(steps), "search": search})


def emulated(plan: Plan) -> Plan:
    """The plan for an emulator: without times, predictions, bounds and ceilings."""
    plan = predicted(plan)
    steps = [step.model_copy(update={"predicted_us": None, "bound_us": 0.0}) for step in plan.steps]
    device = plan.device.model_copy(update={"target": "emulator", "name": "emulated sm_80", "ceilings": None})
    nothing: dict[str, object] = {"predicted_us": None, "copy_us": None, "lower_bound_us": 0.0, "search_gap": None}
    return plan.model_copy(update={**nothing, "steps": tuple(steps), "device": device})


PLANS = {"measured": lambda plan: plan, "predicted": predicted, "emulated": emulated}


@WIDTHS
@pytest.mark.parametrize("kind", PLANS)
def test_a_plan(golden: Golden, kind: str, width: int) -> None:
    plan = PLANS[kind](measured_plan())
    shown = printed(width, plan_view(plan, "measured" if kind == "measured" else "predicted", NAMES))
    golden(f"plan_{kind}_{width}.txt", shown)
    assert "0 ns" not in shown
    assert "…" not in re.sub(r"attention_mask_o…t_layer", "", " ".join(shown.split())), "that one shortens a name"


def hasty_plan(**changed: object) -> Plan:
    """A plan of a short search on a busy machine: timed as a whole in a lucky moment, its kernels not timed."""
    plan = measured_plan()
    (first, *_) = predicted(plan).steps
    why = "the budget ended before each of its kernels was timed"
    search = plan.search.model_copy(update={"measured": 0, "failed": 0, "dropped": 0, "cut_short": why})
    update = {
        "steps": (first.model_copy(update={"predicted_us": 3030.0}),), "search": search,
        "time_us": 1240.0, "warm_us": 1610.0, "spread": 0.61, "lower_bound_us": 1240.0, "copy_us": 1300.0,
    }  # fmt: skip
    return plan.model_copy(update=update | changed)


@WIDTHS
def test_a_noisy_plan_of_kernels_that_were_not_timed(golden: Golden, width: int) -> None:
    """The verdict comes first: nothing is said of a bound that a lucky time reached, or of a copy that it beat."""
    shown = printed(width, plan_view(hasty_plan(), "measured", NAMES))
    golden(f"plan_hasty_{width}.txt", shown)
    words = " ".join(shown.split())
    assert words.index("too noisy to say how far it is from the best") < words.index("of bound")
    assert "can beat" not in words


def test_which_kernels_of_a_measured_plan_are_predicted() -> None:
    plan = measured_plan()
    timed, *others = plan.steps
    steps = (timed, *(step.model_copy(update={"time_us": None, "predicted_us": 250.0}) for step in others))
    for shown, heading in (
        (plan, "3 kernels measured on"),
        (plan.model_copy(update={"steps": steps}), "3 kernels measured as a whole; 2 of 3 kernels predicted on"),
        (predicted(plan), "3 kernels predicted on"),
    ):
        state = "predicted" if shown.time_us is None else "measured"
        assert heading in " ".join(printed(200, plan_view(shown, state)).split())


@pytest.mark.parametrize("kind", PLANS)
@pytest.mark.parametrize("width", range(50, 160, 7))
def test_a_plan_at_other_widths(kind: str, width: int) -> None:
    text = printed(width, plan_view(PLANS[kind](measured_plan()), "predicted"))
    assert "0 ns" not in text
    if kind == "measured":
        for number in ("1.24 ms", "250 µs", "16.0 MiB", "24 %", "doubtful", "100 %", "1.79 ms", "5.49 ms", "327 µs"):
            assert number in text, number


@pytest.mark.parametrize("kind", PLANS)
def test_a_terminal_and_a_page_say_the_same(kind: str) -> None:
    plan = PLANS[kind](measured_plan())
    shown = printed(110, plan_view(plan, "measured" if kind == "measured" else "predicted"))
    page = pages.plan_view(plan, NodeWords(), kind, 0, {}.get)
    rows = [line for line in shown.splitlines() if line.endswith(("%", "–", "doubtful")) and "normalization" in line]
    assert [row.rpartition("   ")[2] for row in rows] == [step.share.short for step in page.steps]
    assert [step.time in row for row, step in zip(rows, page.steps, strict=True)] == [True] * 3
    assert page.searched.partition(";")[0] in " ".join(shown.split())
    assert page.beside_copy in " ".join(shown.split())
    assert (page.beside_copy == "") == (plan.copy_us is None)


@WIDTHS
def test_why_a_plan_is_so(golden: Golden, width: int) -> None:
    refusal = Refusal(families=("pointwise", "reduction"), text="has 3 products, of which one follows from no other")
    reasons = (
        Reason(kind="rejected", text="no family takes both", nodes=(1, 2), edges=((0, 1),), refusals=(refusal,)),
        Reason(kind="note", text="warm 1.25 ms"),
    )
    plan = measured_plan(reasons=reasons)
    shown = printed(width, *explain._why(plan, NodeWords(chain(4, ("exp", "neg")), NAMES), whole_graph=False))
    golden(f"explain_{width}.txt", shown)
    assert "ahead=1}" in shown


@WIDTHS
def test_what_families_cost(golden: Golden, width: int) -> None:
    costs = (
        FamilyCost(family="normalization", schedule=SCHEDULE, cost=Cost(us=1240.0, measured=True), chosen=True),
        FamilyCost(
            family="pointwise", schedule="pointwise{lanes=8}", cost=Cost(us=5490.0, measured=False), chosen=False
        ),
    )
    alternatives = (
        Alternative(nodes=(1,), costs=costs, refusals=(), apart=None),
        Alternative(nodes=(1, 2), costs=costs[:1], refusals=(), apart=Cost(us=6730.0, measured=False)),
    )
    table = contraction_view(Contraction(nodes=(1,), alternatives=alternatives), NodeWords(chain(4, ("exp", "neg"))))
    golden(f"contraction_{width}.txt", printed(width, table))


def summary(number: int, **changed: object) -> PlanSummary:
    fields: dict[str, object] = {
        "plan_key": f"{number}{PLAN_KEY[1:]}", "graph_key": "g", "device_key": CPU.class_key, "target": "cpu",
        "device": CPU.name, "numerics": "reassociate", "time_us": 1160.0, "spread": 0.01, "unfused_us": 5490.0,
        "lower_bound_us": 302.0, "copy_us": 327.0, "search_gap": 1.2, "steps": 112, "families": (), "dtypes": (),
        "created": 0.0, "state": "measured", "cut_short": None, "hits": 12_345, "last_hit": None,
    }  # fmt: skip
    return PlanSummary(**fields | changed)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("width", [110, 80, 60])
def test_the_list_of_plans(golden: Golden, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans.time, "time", lambda: 12 * 86400.0)
    rows = [
        summary(1),
        summary(2, cut_short="out of time"),
        summary(3, spread=0.4),
        summary(4, lower_bound_us=1300.0),
        summary(5, target="emulator", device="emulated sm_90a", time_us=None, unfused_us=None,
                lower_bound_us=0.0, state="predicted"),
        summary(6, state=None),
        summary(7, target="h200", device="NVIDIA H200", time_us=None, unfused_us=None, state="predicted"),
    ]  # fmt: skip
    golden(f"plans_{width}.txt", printed(width, plans._table(rows, [*[None] * 6, 604.0])))


@WIDTHS
def test_devices(golden: Golden, width: int) -> None:
    here = devices._table([("cpu", CPU), ("cuda:0", CPU.model_copy(update={"ceilings": None}))])
    absent = devices._table([(name, specified(name, "")) for name in GPUS])
    golden(f"devices_{width}.txt", printed(width, here, absent))


@WIDTHS
def test_trials(golden: Golden, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials.time, "time", lambda: 16 * 60.0)
    found = [
        Measurement(
            segment_key="s", device_key="d", family="normalization", schedule=SCHEDULE, status=status,
            samples_us=samples, detail=detail, race="r",
        )
        for status, samples, detail in (
            (Status.ok, (1240.0, 1241.0, 1260.0), "cold, 16 input sets in turn; warm 1209 us"),
            (Status.compile_failed, (), "error: " + "x" * 200),
        )
    ]  # fmt: skip
    rows = [Trial(m, "0.1.0", 0.0) for m in found]
    golden(
        f"trials_{width}.txt",
        printed(width, trials._table(trials.Tried("", None, rows), everything=True, details=False)),
    )


def batch_of(key: str) -> BatchSummary:
    return BatchSummary(
        id=key, state="running", done=False, items=40,
        counts=ItemCounts(queued=0, running=2, done=12, failed=1, cancelled=0),
        created_at="2026-11-20T06:00:00+00:00", cancelled_at=None, finished_at=None,
    )  # fmt: skip


@pytest.mark.parametrize("width", [110, 80, 60])
def test_batches(golden: Golden, width: int) -> None:
    golden(f"batches_{width}.txt", printed(width, batch._table([batch_of("ab" * 16)])))


@WIDTHS
def test_settings_and_findings(golden: Golden, width: int, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FUSEPLAN_DB", "sqlite:////var/lib/fuseplan/plans.db")
    monkeypatch.setenv("FUSEPLAN_CACHE", "/var/cache/fuseplan")
    monkeypatch.setenv("FUSEPLAN_SIGNING_KEY", "/var/lib/fuseplan/signing.key")
    monkeypatch.setenv("FUSEPLAN_CONFIG", "/dev/null")
    shown = cli("config", "show").out
    golden(f"config_{width}.txt", shown)
    assert max(map(len, shown.splitlines())) <= width
    for line in cli("doctor").out.splitlines():
        assert len(line) <= width
        assert "…" not in line


def test_where_nobody_says_how_wide_a_pipe_is_it_has_80_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEPLAN_CONFIG", "/dev/null")
    for columns, width in (("", 80), ("120", 120), ("no number", 80), ("0", 80)):
        monkeypatch.setenv("COLUMNS", columns)
        assert width - 3 <= max(map(len, cli("config", "show").out.splitlines())) <= width, columns


def test_a_name_that_does_not_fit_has_a_line_of_its_own_at_a_terminal() -> None:
    columns = tune_many.COLUMNS.format("measured", "miss", "12.5 µs", "8.00×", "1.04×")
    assert len(columns) + 2 == tune_many.COLUMNS_WIDTH
    lines: Sequence[str] = tune_many._line("a" * 50, 33, columns, is_narrow=True).split("\n")
    assert [len(line) <= 80 for line in lines] == [True, True]
    assert lines[0] == "a" * 50
    assert tune_many._line("a" * 50, 33, columns, is_narrow=False).count("\n") == 0, "a pipe has a line for each graph"


STATES = ("measured", "noisy", "cut short", "predicted", "superseded", "stale", "doubtful", "running", "cancelled")


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("width", range(30, 201))
def test_no_key_and_no_state_is_broken_at_any_width(width: int) -> None:
    """A state that stands in a line is whole: no line has only a part of one."""
    rows = [
        summary(1),
        summary(2, cut_short="out of time"),
        summary(3, spread=0.4),
        summary(4, lower_bound_us=1300.0, time_us=1160.0),
        summary(5, target="emulator", device="emulated sm_90a", time_us=None, state="predicted"),
        summary(6, state=None),
    ]  # fmt: skip
    results = [
        BatchResult(
            custom_id=f"graph-{i}", state="measured", cache="hit", plan_key=f"{i}{PLAN_KEY[1:]}", graph_key=PLAN_KEY
        )
        for i in range(3)
    ]
    tables = {
        "plans": (plans._table(rows, [None] * 6), [row.plan_key[:12] for row in rows]),
        "results": (batch._rows(results, errors=False), [row.plan_key[:12] for row in results]),
        "plan": (plan_view(measured_plan(), "measured", NAMES), []),
        "devices": (devices._table([("cpu", CPU)]), []),
    }
    if width >= len("ab" * 16) + 2:
        tables["batches"] = (batch._table([batch_of("ab" * 16)]), ["ab" * 16])
    for name, (table, keys) in tables.items():
        lines = printed(width, table).splitlines()
        words = [word for line in lines for word in re.findall(r"[\w-]+", line)]
        for key in keys:
            assert key in words, (name, key)
        whole = {word for state in STATES for word in state.split()}
        for word in words:
            parts = [state for state in whole if state != word and len(word) > 3 and state.startswith(word)]
            assert not parts, (name, word, parts)
