"""Numbers in what is said to people: with units as `fusion_ir/units.py` has them, and no spread of one sample."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.workbench.outcome import timed
from fusion_ir.records import Measurement, Moment, Status, Surroundings
from service.cli.commands import trials
from service.cli.plan_view import plan_view
from service.cli.trial_details import details_of
from service.dashboard import plan_view as pages
from service.dashboard import trials_view
from service.wording.formatting import spread
from tests.service.cli.test_tables_fit import printed
from tests.support.stored_plans import chain, plan_of
from tuning_db.measurements import Trial

ROOT = Path(__file__).parents[2]
PACKAGES = ("fusion_ir", "codegen", "scheduler", "tuning_db", "service")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_writes_microseconds_by_itself(package: str) -> None:
    found = [f"{path}:{line}" for path in (ROOT / package).rglob("*.py") for line in _microseconds(path)]
    assert found == [], "see fusion_ir/units.py"


def _microseconds(path: Path) -> Iterator[int]:
    """Lines of f-strings with a value and "us" behind it."""
    for text in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.JoinedStr)):
        for before, after in zip(text.values, text.values[1:], strict=False):
            follows = isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant)
            if follows and re.match(r" ?(us|µs)\b", str(ast.literal_eval(after))):
                yield text.lineno


def trial(*samples: float) -> Trial:
    moment = Moment()
    seen = Surroundings(start=moment, end=moment, seconds=1.0, cpus=(0,), switches=3_456_789, steal_ms=1_234_567.5)
    measured = Measurement(
        segment_key="s", device_key="d", family="pointwise", schedule="pointwise{lanes=8}", status=Status.ok,
        samples_us=samples, race="r", surroundings=seen,
    )  # fmt: skip
    return Trial(measured, "0.1.0", 0.0)


def test_a_warm_time_has_the_unit_of_its_size() -> None:
    found = timed({"samples_us": [11_000.0], "note": "", "sets": 2, "warm_us": 10_840.0}, 0.0, None)
    assert found.detail == "cold, 2 input sets in turn; warm 10.8 ms"


def test_large_counts_have_no_exponent() -> None:
    words = details_of(trial(1.0))
    assert "3,456,789 switches" in words
    assert "1,234,568 ms stolen" in words


def test_one_sample_has_no_spread() -> None:
    assert (spread(None), spread(0.0), spread(0.026)) == ("", "", "± 2.6 %")
    one, several = (
        printed(100, trials._table(trials.Tried("", None, [t]), True, False))
        for t in (trial(1.5), trial(1.5, 1.6, 1.7))
    )
    assert "%" not in one
    assert "%" in several
    assert (trials._row(trial(1.5))["spread"], trials._row(trial(1.5, 1.5))["spread"]) == (None, 0.0)
    assert trials_view._row(trial(1.5), False, 0.0, "").spread == "–"
    plan = plan_of(chain()).model_copy(update={"spread": 0.0})
    assert "±" not in printed(100, plan_view(plan, "measured"))
    assert pages._spread(plan) == ""
