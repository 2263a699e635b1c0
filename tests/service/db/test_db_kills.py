"""Processes killed at random moments lose nothing that was acknowledged, and their jobs end with right plans.

2 kills in every run, on SQLite or on PostgreSQL by its seed; `make soak` sets FUSEPLAN_KILLS to 200. With
FUSEPLAN_KILLS_PAGE, a page with the counts is written there. Needs a C++ compiler.
"""

import os
import platform
import time
from pathlib import Path

import pytest

from tests.support.kills import Killer, Tally
from tests.support.whole import in_turn

KILLS = int(os.environ.get("FUSEPLAN_KILLS", "2"))
PAGE = os.environ.get("FUSEPLAN_KILLS_PAGE")
SEED = 200


@pytest.mark.turn("kills")
@pytest.mark.soak
@pytest.mark.timeout(300 + 20 * KILLS)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"] if PAGE else in_turn(["sqlite", "postgresql"], 1))
def test_nothing_acknowledged_is_lost_and_every_job_gives_a_plan(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """On PostgreSQL a fifth of the kills of a long run."""
    is_sqlite, start = database == "sqlite", time.monotonic()
    url = request.getfixturevalue("sqlite_url" if is_sqlite else "postgres_url")
    kills = KILLS if is_sqlite else max(min(4, KILLS), KILLS // 5)
    tally = Killer(tmp_path, url, SEED + (not is_sqlite)).run(kills)
    if PAGE and is_sqlite:
        Path(PAGE).write_text(page(tally, time.monotonic() - start))
    assert tally.problems == [], (tmp_path / "output").read_text()[-2000:]
    assert tally.kills.total() >= kills
    assert tally.acknowledged > 0


def page(tally: Tally, seconds: float) -> str:
    """The counts, for people."""
    kills = ", ".join(f"{what} {count}" for what, count in tally.kills.most_common())
    jobs = ", ".join(f"{count} by {what}" for what, count in sorted(tally.jobs.items()))
    return f"""# kill -9, {tally.kills.total()} times

{time.strftime("%Y-%m-%d")}, Python {platform.python_version()}, SQLite, {seconds / 60:.0f} minutes, seed {SEED}

`FUSEPLAN_KILLS=200 FUSEPLAN_KILLS_PAGE=benchmarks/results/kills.md python -m pytest tests/service/db/test_db_kills.py`:
searches in processes of their own (a worker with its queue, and `fuseplan tune`), each killed one to six times, itself
or a child, at random moments, and started again.

| | |
|---|---|
| killed | {kills} |
| jobs that ended with a plan whose outputs are the interpreter's | {jobs} |
| rows acknowledged, by a log that each process writes after its commits | {tally.acknowledged} |
| rows stored | {tally.rows} |
| problems (rows lost or doubled, jobs without a plan, children left, devices quarantined) | {len(tally.problems)} |
"""
