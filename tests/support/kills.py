"""Searches that are killed at random moments, parent or child, until each has its plan; and what was found after it."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from sqlalchemy import create_engine, text

from codegen.devices.detection import detect
from codegen.devices.quarantine import Quarantines
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.programs import order_of
from codegen.workbench.workbench import Workbench
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Plan
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.text.printing import print_graph
from service.jobs import PLAN, PlanJob, PlanResult
from service.settings import Settings, environment, load
from tests.support.logged_process import MARK
from tests.support.processes import descendants, gone, within
from tests.support.stored_plans import chain
from tuning_db.operations import MAX_ATTEMPTS
from tuning_db.reading.graphs import Names
from tuning_db.store import Store

ROOT = Path(__file__).resolve().parents[2]
SEARCH_SECONDS = 3.0  # of the first job; twice as long after each that timed no kernel, as on a busy machine
LEASE_SECONDS = 2.0
ORPHAN_SECONDS = 2.0
MOST_LOST = MAX_ATTEMPTS - 1  # workers of one operation: with one more it is rightly given up
LONGEST_SECONDS = 60.0  # beyond its search, for a process that is left alone to come to its end
OPS = ("exp", "neg", "sin", "tanh", "abs", "cos", "sigmoid", "relu", "square", "floor")


@dataclass
class Tally:
    """Counts of what happened. `problems`: events that must not happen, a line each."""

    kills: Counter[str] = field(default_factory=Counter[str])
    jobs: Counter[str] = field(default_factory=Counter[str])
    acknowledged: int = 0
    rows: int = 0
    problems: list[str] = field(default_factory=list[str])


class Killer:
    """Runs jobs on one database and one cache, and kills their processes. `url`: of an empty database."""

    def __init__(self, folder: Path, url: str, seed: int) -> None:
        given = {"db": url, "cache": str(folder / "cache"), "lease_seconds": LEASE_SECONDS, "log_level": "warning"}
        self.settings: Settings = load(given, env={"HOME": str(folder)})
        self.folder, self.log, self.rng = folder, folder / "acknowledged", random.Random(seed)
        self.log.touch()
        self.tally, self.seconds = Tally(), SEARCH_SECONDS

    def run(self, kills: int) -> Tally:
        """Jobs until so many processes were killed, of each kind in turn, and rows acknowledged. Then compares both."""
        number = 0
        with Store(self.settings.db) as store:
            while self.tally.kills.total() < kills or not self._acknowledged():
                graph, before = self._graph(number), self._acknowledged()
                most = max(1, min(self.rng.randint(1, 6), kills - self.tally.kills.total()))
                (self._queued if number % 2 else self._typed)(store, graph, most)
                if self._acknowledged() == before:
                    self.seconds *= 2
                number += 1
            self._compare(store)
        return self.tally

    def _acknowledged(self) -> int:
        """Bytes of the log."""
        return self.log.stat().st_size

    def _graph(self, number: int) -> Graph:
        """Another one for each job, so that none begins with what another measured."""
        return chain(1000 + number, [self.rng.choice(OPS) for _ in range(self.rng.randint(2, 5))])

    def _queued(self, store: Store, graph: Graph, kills: int) -> None:
        """A job in the queue, whose workers are killed."""
        key = graph_key(graph)
        store.graphs.put(key, print_graph(graph), Names(("x",), ("y",)))
        job = PlanJob(graph_key=key, target="cpu", seconds=self.seconds, numerics="reassociate")
        operation = store.queue.submit(PLAN, job.model_dump_json())
        while kills and (found := store.queue.operation(operation.id)) and found.is_open and found.attempt < MOST_LOST:
            with self._process("worker") as worker:
                kills -= self._kill(worker)
        with self._process("worker"):
            ended = within(
                LONGEST_SECONDS + self.seconds, lambda: not (o := store.queue.operation(operation.id)) or not o.is_open
            )
        found = store.queue.operation(operation.id)
        if not ended or found is None or found.result is None:
            self.tally.problems.append(f"an operation ended without a plan: {found}")
            return
        self.tally.jobs["worker"] += 1
        self._check(store, graph, PlanResult.model_validate_json(found.result).plan_key)

    def _typed(self, store: Store, graph: Graph, kills: int) -> None:
        """`fuseplan tune`, killed and typed again."""
        path = self.folder / "graph.txt"
        path.write_text(print_graph(graph))
        command = ("tune", str(path), "--json", "--seconds", str(self.seconds))
        while kills:
            with self._process(*command) as process:
                kills -= self._kill(process)
                if process.poll() is None:  # a child was killed
                    process.wait(LONGEST_SECONDS + self.seconds)
        with self._process(*command) as process:
            code = process.wait(LONGEST_SECONDS + self.seconds)
        plans = [p for p in store.plans.plans(limit=1000).items if p.graph_key == graph_key(graph)]
        if code or not plans:
            self.tally.problems.append(f"fuseplan tune ended with {code} and {len(plans)} plans")
            return
        self.tally.jobs["fuseplan tune"] += 1
        self._check(store, graph, plans[0].plan_key)

    @contextmanager
    def _process(self, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A process of ours; at the end of the block it is killed, and nothing of it may be left."""
        command = [sys.executable, "-m", "tests.support.logged_process", str(self.log), *arguments]
        env = {**os.environ, **environment(self.settings), "PYTHONPATH": str(ROOT)}
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                command, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        try:
            yield process
        finally:
            family = descendants(process.pid)
            process.kill()
            process.wait()
            if not within(ORPHAN_SECONDS, lambda: all(map(gone, family))):
                self.tally.problems.append(f"children outlived their parent: {[p for p in family if not gone(p)]}")

    def _kill(self, process: "subprocess.Popen[bytes]") -> int:
        """Kills the process or one of its children at a random moment; 1 if it was there still."""
        time.sleep(self.rng.uniform(0.0, 0.5 + self.seconds))
        if process.poll() is not None:
            return 0
        children = descendants(process.pid)
        victim = self.rng.choice(children) if children and self.rng.random() < 0.7 else process.pid
        what = "parent" if victim == process.pid else _name(victim)
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return 0
        self.tally.kills[what] += 1
        if victim != process.pid:
            time.sleep(self.rng.uniform(0.0, 1.0))
        return 1

    def _check(self, store: Store, graph: Graph, plan_key: str) -> None:
        """The plan's outputs are right, by binaries of the database, and the device is in service."""
        body = store.plans.plan(plan_key)
        if body is None:
            self.tally.problems.append(f"plan {plan_key} is not stored")
            return
        plan = Plan.model_validate_json(body)
        cache = ObjectCache(self.settings.cache)
        for step in plan.steps:
            binary = store.plans.binary(step.binary)
            if binary is None:
                self.tally.problems.append(f"binary {step.binary} is not stored")
                return
            cache.put(binary)
        inputs: Sequence[np.ndarray] = sample_inputs(graph, 1)
        with Workbench(detect("cpu", cache, ceilings=False), cache) as bench:
            outcome = compare(bench.run(plan, inputs), reference(graph, inputs, order=order_of(plan)))
        if not outcome.ok:
            self.tally.problems.append(f"plan {plan_key} computes something else: {outcome.detail}")
        self.tally.problems += [f"quarantined: {fact.reason}" for fact in Quarantines(cache).all()]

    def _compare(self, store: Store) -> None:
        """Every acknowledged row is there, once; what is there beyond was committed in the moment of a kill."""
        engine = create_engine(self.settings.db.replace("postgresql://", "postgresql+psycopg://"))
        with engine.connect() as connection:
            details = [str(row[0]) for row in connection.execute(text("SELECT detail FROM measurements"))]
        engine.dispose()
        stored = Counter(detail.rpartition(MARK)[2] for detail in details)
        logged = [line.removeprefix(MARK) for line in self.log.read_text().splitlines()]
        self.tally.acknowledged, self.tally.rows = len(logged), stored.total()
        lost = [mark for mark in logged if mark not in stored]
        doubled = [mark for mark, count in stored.items() if count > 1]
        if lost or doubled or len(set(logged)) != len(logged):
            self.tally.problems.append(f"{len(lost)} acknowledged rows are lost, {len(doubled)} are there twice")


def _name(pid: int) -> str:
    """Name of a process: its program, or the module that it runs by -m; "child" where it is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return "child"
    if "-m" in words:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return Path(words[0]).name or "child"
