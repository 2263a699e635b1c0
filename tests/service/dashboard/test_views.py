"""Words of pages about plans whose numbers are not what a reader would take them for."""

import re
from pathlib import Path

import pytest

import service.dashboard
from fusion_ir.records import Plan, Reason
from scheduler.plans.step_sum import FAR
from service.dashboard.list_view import ListRow, list_row
from service.dashboard.plan_view import PlanView, plan_view
from service.wording.formatting import NONE
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from service.wording.shares import BEATEN
from service.wording.states import STATES
from tests.support.service_app import running
from tests.support.stored_plans import DEVICE, chain, plan_of, put_plan
from tests.support.strict_page import page
from tuning_db.reading.graphs import Names
from tuning_db.states import PLAN_STATES

NAMES = Names(("x",), ("y",))
SPECIFIED = DEVICE.model_copy(update={"origin": "specified", "name": "Test H200"})
EMULATOR = DEVICE.model_copy(update={"target": "emulator", "name": "emulated sm_80", "ceilings": None})


def plan(**update: object) -> Plan:
    return plan_of(chain()).model_copy(update=update)


def untimed(**update: object) -> Plan:
    """A plan for a device that times nothing: predictions alone."""
    made = plan(time_us=None, unfused_us=None, spread=None, search_gap=None, max_rel_error=None, **update)
    steps = [s.model_copy(update={"time_us": None, "predicted_us": made.predicted_us}) for s in made.steps]
    return made.model_copy(update={"steps": tuple(steps)})


def emulated(**update: object) -> Plan:
    made = untimed(device=EMULATOR, lower_bound_us=0.0, copy_us=None)
    steps = [s.model_copy(update={"bound_us": 0.0}) for s in made.steps]
    return made.model_copy(update={"steps": tuple(steps), **update})


def view(made: Plan, state: str = "measured") -> PlanView:
    return plan_view(made, NodeWords(chain(), Naming(("x",), ("y",))), state, 0, {}.get)


def row(made: Plan, state: str = "measured") -> ListRow:
    return list_row(
        plan_key="k", graph_key="g", inputs=("x",), outputs=("y",), state=state, cut_short=None,
        target=made.device.target, device=made.device.name, numerics=made.numerics, steps=1, time_us=made.time_us,
        predicted_us=made.predicted_us, spread=made.spread, unfused_us=made.unfused_us,
        lower_bound_us=made.lower_bound_us, hits=0, created=0.0, now=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(("bound_us", "said"), [(9.0, "90 %"), (10.0, "100 %"), (10.29, "100 %"), (10.4, BEATEN)])
def test_no_share_of_a_bound_is_above_100_percent(bound_us: float, said: str) -> None:
    made = plan(time_us=10.0, lower_bound_us=bound_us)
    made = made.model_copy(
        update={"steps": tuple(s.model_copy(update={"time_us": 10.0, "bound_us": bound_us}) for s in made.steps)}
    )
    shown = view(made)
    assert (shown.share.text, shown.steps[0].share.text, row(made).share.text) == (said,) * 3
    assert max(shown.share.width, shown.steps[0].share.width, row(made).share.width) <= 100


def test_beside_a_bound_that_was_beaten_nothing_says_that_it_cannot_be() -> None:
    shown = view(plan(time_us=10.0, lower_bound_us=10.7))
    words = " ".join([shown.bound, *(bar.help for bar in shown.bars)])
    assert "can beat" not in words
    assert "can be faster" not in words
    assert "Not credible" in words
    assert shown.gap == NONE, "it was computed with that bound"
    assert "can beat 10.0 µs" in view(plan()).bound


def test_pages_say_that_a_bound_is_not_credible(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        key = put_plan(service.store, chain(), NAMES, plan(lower_bound_us=13.4, spread=0.82))
        for path in ("/", f"/plans/{key}"):
            text = page(service, path).text
            assert BEATEN in text
            assert "107 %" not in text
            assert "noisy" in text


def test_a_plan_that_is_faster_than_a_copy_says_how_that_can_be() -> None:
    for time_us, said in ((9.0, True), (12.5, False)):
        [copy] = [bar for bar in view(plan(time_us=time_us)).bars if bar.kind == "copy"]
        assert ("this plan is faster" in copy.help) == said


def test_what_a_device_that_is_not_there_reaches_is_assumed(tmp_path: Path) -> None:
    for device, word, not_ in ((SPECIFIED, "assumed", "measured"), (DEVICE, "measured", "assumed")):
        (tmp_path / word).mkdir()
        with running(tmp_path / word) as service:
            made = untimed(device=device, predicted_us=20.0)
            key = put_plan(service.store, chain(), NAMES, made, state="predicted", device=device)
            text = page(service, f"/plans/{key}").text
            facts = text.partition("Copy bandwidth")[2].partition("Plan key")[0]
            assert facts.count(word) == 2
            assert not_ not in facts


def test_a_predicted_plan_has_its_time_and_share_on_the_list() -> None:
    made = untimed(device=SPECIFIED, predicted_us=20.0)
    shown = row(made, "predicted")
    assert (shown.time, shown.share.text, shown.share.width) == ("~20.0 µs", "~50 %", 50.0)
    assert (view(made, "predicted").share.text, view(made, "predicted").steps[0].share.text) == ("~50 %", "~50 %")


def test_the_list_page_reads_predictions_from_plans(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        made = untimed(device=SPECIFIED, predicted_us=20.0)
        put_plan(service.store, chain(), NAMES, made, state="predicted", device=SPECIFIED)
        for _ in range(2):
            text = page(service, "/").text
            assert "~20.0 µs" in text
            assert "~50 %" in text


def test_a_plan_for_the_emulator_says_that_nothing_was_timed(tmp_path: Path) -> None:
    shown = view(emulated(max_rel_error=3e-7), "predicted")
    assert "Nothing was timed" in shown.untimed
    assert "no ceilings" in shown.untimed
    assert (shown.state, shown.time, shown.share.text, shown.steps[0].bound) == ("emulated", NONE, NONE, NONE)
    assert (shown.error, shown.error_help) == ("3.0e-07", "relative, of each kernel by itself in the emulator")
    assert not shown.bars
    assert "not kept" in view(emulated(), "predicted").error_help
    assert view(plan()).untimed == ""
    with running(tmp_path) as service:
        key = put_plan(service.store, chain(), NAMES, emulated(), state="predicted", device=EMULATOR)
        text = page(service, f"/plans/{key}").text
        assert "0 ns" not in text
        assert "Nothing was timed" in text
        assert "emulated" in page(service, "/").text


@pytest.mark.parametrize("ratio", [1.3 * FAR, 0.7 / FAR])
def test_steps_that_take_another_time_than_the_whole_are_told(ratio: float) -> None:
    steps_us = sum(s.time_us or 0 for s in plan().steps)
    shown = view(plan(time_us=ratio * steps_us, reasons=(Reason(kind="note", text="others had the CPUs"),)))
    assert "12.5 µs" in shown.apart, "what the steps come to"
    assert shown.time in shown.apart
    assert shown.has_notes
    assert [bar.value for bar in shown.bars if bar.kind == "steps"] == ["12.5 µs"]
    near = view(plan(time_us=0.99 * FAR * steps_us))
    assert (near.apart, [bar for bar in near.bars if bar.kind == "steps"]) == ("", [])


@pytest.mark.parametrize(("predicted_us", "is_far"), [(12.0, False), (30.3, True), (8.0, True)])
def test_a_plan_far_from_what_its_kernels_are_predicted_to_take_is_told(predicted_us: float, is_far: bool) -> None:
    steps = [s.model_copy(update={"time_us": None, "predicted_us": predicted_us}) for s in plan().steps]
    shown = view(plan(steps=tuple(steps)))
    assert shown.as_a_whole == "as a whole; kernel predicted"
    assert ("by predictions" in shown.apart, "12.5 µs" in shown.apart) == (is_far, is_far)
    assert view(plan()).as_a_whole == view(untimed(predicted_us=20.0), "predicted").as_a_whole == ""


def test_a_plan_that_is_slower_from_the_cache_says_so() -> None:
    for warm_us, is_slower in ((9.0, False), (12.6, False), (16.1, True)):
        [warm] = [bar for bar in view(plan(warm_us=warm_us)).bars if bar.label == "Again and again"]
        assert warm.help.endswith("slower than from memory") == is_slower


def test_a_page_says_first_that_a_time_is_too_noisy_to_compare(tmp_path: Path) -> None:
    steps = [s.model_copy(update={"time_us": None, "predicted_us": 30.3}) for s in plan().steps]
    with running(tmp_path) as service:
        key = put_plan(service.store, chain(), NAMES, plan(spread=0.61, steps=tuple(steps)))
        text = page(service, f"/plans/{key}").text
    assert text.index("Too noisy to say how far it is from the best") < text.index("How long")
    assert "no kernel here can beat" not in text
    assert "as a whole; kernel predicted" in text


def test_noise_is_a_state_of_its_own() -> None:
    for spread, state in ((0.0, "measured"), (0.0999, "measured"), (0.1, "noisy"), (0.82, "noisy"), (None, "measured")):
        made = plan(spread=spread)
        assert (view(made).state, row(made).state) == (state, state), spread
        assert row(made).state_help == view(made).state_help == STATES[state]
    assert "noisy" in view(plan(spread=0.82)).spread
    assert row(plan(spread=0.82), "stale").state == "stale"


def luminance(colour: str) -> float:
    """Relative, as the Web Content Accessibility Guidelines 2.2 define it, of "#rrggbb"."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_state_can_be_read_and_told_from_others_in_both_schemes() -> None:
    style = (Path(service.dashboard.__file__).parent / "static" / "style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\n *\}", style, re.DOTALL)
    light, dark = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks)
    for scheme in (light, light | dark):
        pairs = [(scheme[name], scheme[f"{name}-soft"]) for name in ("accent", "good", "warn", "bad", "noisy")]
        pairs += [(scheme[f"seg-{i}"], scheme["panel"]) for i in range(8)]
        pairs += [(scheme[name], scheme["panel"]) for name in ("noisy", "quiet", "text")]
        for text, ground in pairs:
            dim, bright = sorted((luminance(text), luminance(ground)))
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (text, ground)
        assert len({scheme[name] for name in ("accent", "good", "warn", "bad", "noisy")}) == 5
    assert set(PLAN_STATES) < set(STATES)
    for state in STATES:
        assert state == "superseded" or f".state.{state}" in style
