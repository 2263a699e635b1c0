"""The crew of worker processes of `make bench-gpu`: errors, deaths and hangs are outcomes of tasks. Without PyTorch,
which each worker would load."""

import os
import time
from collections.abc import Callable
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from benchmarks.gpu.workers import Crew, Done


def worker() -> Callable[[Any], Any]:
    return work


def work(task: Any) -> Any:
    if task == "raise":
        raise ValueError("no such thing")
    if task == "die":
        os._exit(7)
    if task == "hang":
        time.sleep(60)
    if isinstance(task, Path):
        Finalize(None, task.with_suffix(".ended").touch, exitpriority=0)
        task.touch()
        time.sleep(60)
    return task


def all_of(crew: Crew) -> dict[Any, Done]:
    done: dict[Any, Done] = {}
    while crew.pending:
        done |= {d.task: d for d in crew.outcomes(30)}
    return done


def test_what_goes_wrong_in_a_worker_is_the_outcome_of_its_task() -> None:
    with Crew(1, worker) as crew:
        for task in ("die", "raise", "pass"):
            crew.submit(task)
        done = all_of(crew)
    assert done["die"].problem == "its worker died, exit code 7"
    assert done["raise"].problem == "ValueError: no such thing"
    assert (done["pass"].answer, done["pass"].problem) == ("pass", "")


def test_a_worker_that_hangs_is_replaced_and_none_outlives_the_crew() -> None:
    with Crew(1, worker, most_seconds=0.5) as crew:
        crew.submit("hang")
        while not (done := crew.outcomes(0.2)):
            pass
        assert "took longer" in done[0].problem
    with Crew(1, worker) as crew:
        crew.submit("hang")
        process = crew._workers[0].process  # pyright: ignore[reportPrivateUsage]
    assert not process.is_alive()


def test_a_worker_that_is_ended_at_work_cleans_up(tmp_path: Path) -> None:
    begun = tmp_path / "worker.begun"
    with Crew(1, worker) as crew:
        crew.submit(begun)
        while not begun.exists():
            assert not crew.outcomes(0.05)
    assert begun.with_suffix(".ended").exists()
