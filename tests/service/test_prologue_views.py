"""Views of a plan's prologue: at a terminal, as JSON and on a page."""

import io

from rich.console import Console

from fusion_ir.records import Plan
from service.cli.commands.explain import _as_json, _why
from service.cli.plan_view import as_json, plan_view
from service.dashboard import plan_view as views
from service.wording.formatting import ONCE, duration, prologue
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from tests.unit.scheduler.test_prologue import chain_plan

PLAN = chain_plan()


def shown(*parts: object) -> str:
    text = io.StringIO()
    Console(file=text, width=240).print(*parts)
    return text.getvalue()


def test_in_words() -> None:
    assert PLAN.prologue_us == PLAN.steps[0].time_us
    assert prologue(PLAN) == f"prologue {duration(PLAN.prologue_us)}, {ONCE}, keeps 256 KiB"
    predicted = PLAN.model_copy(update={"time_us": None})
    assert prologue(predicted).startswith("prologue ~")


def test_at_a_terminal() -> None:
    text = shown(plan_view(PLAN, "measured"))
    assert text.count(ONCE) == len(PLAN.prologue) + 1, "each of its steps, and below"
    assert prologue(PLAN) in text
    assert shown(*_why(PLAN, NodeWords(), whole_graph=False)).count(ONCE) == len(PLAN.prologue)
    plain = PLAN.model_copy(update={"steps": PLAN.steps[1:]})
    assert ONCE not in shown(plan_view(plain, "measured"), *_why(plain, NodeWords(), whole_graph=False))


def test_as_json() -> None:
    for fields in (as_json(PLAN, "cpu", "measured", "hit"), _as_json(PLAN, "measured", NodeWords())):
        assert [s["prologue"] for s in fields["steps"]] == [True, False, False]
        assert (fields["prologue_us"], fields["kept_bytes"]) == (PLAN.prologue_us, PLAN.kept_bytes)


def page(plan: Plan) -> views.PlanView:
    return views.plan_view(plan, NodeWords(None, Naming(("x", "w1", "w2"), ("y",))), "measured", 0, {}.get)


def test_on_a_page() -> None:
    view = page(PLAN)
    assert [s.once for s in view.steps] == [ONCE, "", ""]
    assert view.prologue == prologue(PLAN)
    assert [t.constant for t in view.inputs] == ["", "a@1", "b@1"]
    assert page(PLAN.model_copy(update={"steps": PLAN.steps[1:]})).prologue == ""
