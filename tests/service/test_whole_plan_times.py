"""Words about plans whose kernels, or whose alternatives, were not timed."""

import pytest

from fusion_ir.records import Cost, Plan, Reason
from service.cli.commands.explain import _why  # pyright: ignore[reportPrivateUsage]
from service.dashboard.reasons_view import reason_groups
from service.wording.naming import UNNAMED
from service.wording.nodes import NodeWords
from service.wording.whole_plan_times import untried
from tests.service.cli.test_tables_fit import printed
from tests.support.stored_plans import chain, plan_of

PREDICTED = Reason(
    kind="predicted_worse", text="together 848 µs (predicted), apart 214 µs + 285 µs; not tried",
    together=Cost(us=848.0, measured=False), apart=Cost(us=499.0, measured=False),
)  # fmt: skip
MEASURED = PREDICTED.model_copy(
    update={"together": Cost(us=848.0, measured=True), "apart": Cost(us=499.0, measured=True)}
)
SAID = "not tried: the search was cut short; predictions may be off by a factor of two"


def plan(*reasons: Reason, cut_short: str | None = "the budget ended", spread: float = 0.02, us: float = 499.0) -> Plan:
    """Measured at 984 us as a whole; its kernel is predicted to take `us`."""
    made = plan_of(chain(), reasons=reasons)
    (step,) = made.steps
    update = {
        "time_us": 984.0, "spread": spread, "steps": (step.model_copy(update={"time_us": None, "predicted_us": us}),),
        "search": made.search.model_copy(update={"cut_short": cut_short}),
    }  # fmt: skip
    return made.model_copy(update=update)


def test_reasons_of_predictions_say_that_the_search_was_cut_short() -> None:
    """On a terminal and on a page, by how much predictions are off here among it."""
    made = plan(PREDICTED)
    shown = " ".join(printed(110, *_why(made, NodeWords(chain(), UNNAMED), whole_graph=False)).split())
    said = f"{SAID} (this plan took 1.97× as long as its own kernels are predicted to take)"
    assert f"What is predicted to be slower {said}; go on with --continue together 848 µs" in shown
    assert [group.doubt for group in reason_groups(made)] == [f"{said}; a request with more seconds goes on"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (plan(PREDICTED, us=900.0), f"{SAID}; go on"),
        (plan(PREDICTED, spread=0.61), f"{SAID}; go on"),
        (plan(PREDICTED, cut_short=None), ""),
        (plan(MEASURED), ""),
        (plan(PREDICTED.model_copy(update={"kind": "note"})), ""),
        (plan(PREDICTED).model_copy(update={"time_us": None}), ""),
    ],
)
def test_where_nothing_is_in_doubt_nothing_is_said(made: Plan, said: str) -> None:
    assert untried(made, made.reasons, "go on") == said
