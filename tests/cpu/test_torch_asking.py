"""Plans from a server in the back end: a first one soon, then a better one, refusals, and kernels that do not come."""

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fusion_ir.formats.json.wire import from_wire
from fusion_ir.records import Plan
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from service.planning.executor import executor
from testing.plan_server import Asked, Piece, PlanServer, http, patient, plan_server, problem

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.torch import backend as back_end
from fuseplan_client.torch.asking import Refusal
from fuseplan_client.torch.backend import Backend

from testing.local_plans import LocalPlans

LIMITS = patient()
NO_MKL = problem(422, "no-device")
OPERATION = {"id": "op1", "state": "running", "done": False, "kind": "plan"}


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlans]:
    made = LocalPlans.made(tmp_path_factory.mktemp("asking") / "cache")
    yield made
    made.close()


class Planner:
    """Answers as a server does whose searches are over at once. With `seconds` of the first rung the plan is cut short;
    lost: kernels that it has not."""

    def __init__(self, plans: LocalPlans, lost: bool = False) -> None:
        self.plans, self.lost = plans, lost
        self.seconds: list[float] = []
        self.refusals: list[dict[str, Any]] = []
        self.refining = 0
        self.told = threading.Event()

    def __call__(self, asked: Asked) -> Sequence[Piece]:
        if asked.path == "/v1/plans:resolve":
            request = json.loads(asked.body)
            return [NO_MKL if request["target"].endswith(":mkl") else self._plan(request)]
        if asked.path.startswith("/v1/executor"):
            return [http(executor(self.plans.bench.cache)[1], media_type="application/octet-stream")]
        if asked.path.startswith("/v1/binaries/") and not self.lost:
            file = self.plans.bench.cache.path(asked.path.rpartition("/")[2])
            assert file is not None
            return [http(file.read_bytes(), media_type="application/octet-stream")]
        if asked.path.endswith("/refusals"):
            self.refusals.append(json.loads(asked.body))
            if self.refusals[-1]["text"] == "by far":
                self.told.set()
            return [http({}, 201)]
        return [http(b"", 404)]

    def _plan(self, request: dict[str, Any]) -> bytes:
        self.seconds.append(request["seconds"])
        named = from_wire(request["graph"])
        bench = self.plans.bench
        is_first = request["seconds"] == back_end.FIRST_SECONDS
        plan: Plan = tune(named.graph, bench.device, Budget(0.0), Forgetful(), bench)
        if not is_first:
            self.refining += 1  # the better one is there at the second look
        if not is_first and self.refining > 1:
            plan = plan.model_copy(update={"version": "better"})
        head = {
            "state": "measured", "cache": "hit", "plan_key": plan.plan_key, "graph_key": plan.graph_key,
            "device_key": plan.device.class_key, "cut_short": "the time was over" if is_first else None,
            "refining": not is_first and self.refining < 2,
        }  # fmt: skip
        names = {"inputs": named.input_names, "outputs": named.output_names, "nodes": []}
        start = json.dumps(head)[:-1].encode()
        return http(
            b"".join(
                (start, b',"plan":', plan.model_dump_json().encode(), b',"names":', json.dumps(names).encode(), b"}")
            )
        )


def settled(backend: Backend, compiled: Any, x: Any) -> None:
    """Calls until every plan is there and was judged."""
    with torch.no_grad():
        for _ in range(40):
            compiled(x)
            if backend.wait(10) and backend.is_settled:
                return


def compiled_by(server: PlanServer, folder: Path) -> tuple[Backend, Any]:
    torch._dynamo.reset()
    backend = Backend(server=server.url, seconds=60.0, client={"limits": LIMITS, "cache": folder})
    return backend, torch.compile(lambda x: (x.exp() * 2 + 1).tanh(), backend=backend, dynamic=False)


@pytest.mark.turn("asked by PyTorch")
def test_a_plan_of_ten_seconds_is_followed_by_a_better_one(plans: LocalPlans, tmp_path: Path) -> None:
    planner = Planner(plans)
    with plan_server(planner) as server:
        backend, compiled = compiled_by(server, tmp_path)
        settled(backend, compiled, torch.randn(300))
    assert planner.seconds == [10.0, 60.0, 60.0]
    (slot,) = (s for g in backend.groups for s in g.slots.values())
    assert slot.replaced_us is not None, "both were judged"
    assert not slot.is_open


@pytest.mark.turn("asked by PyTorch")
def test_a_plan_that_is_refused_is_told_to_its_server(plans: LocalPlans, tmp_path: Path) -> None:
    planner = Planner(plans)
    with plan_server(planner) as server:
        backend, compiled = compiled_by(server, tmp_path)
        settled(backend, compiled, torch.randn(300))
        backend.asker.refuse(Refusal("a" * 64, "slower", "by far", 20.0, 10.0))
        assert planner.told.wait(10)
    (told,) = (r for r in planner.refusals if r["text"] == "by far")  # plans that were slower by themselves aside
    assert (told["why"], told["took_us"], told["instead_us"]) == ("slower", 20.0, 10.0)


def test_kernels_that_do_not_come_leave_pytorchs_ops(plans: LocalPlans, tmp_path: Path) -> None:
    planner = Planner(plans, lost=True)
    with plan_server(planner) as server:
        backend, compiled = compiled_by(server, tmp_path)
        settled(backend, compiled, torch.randn(300))
        x = torch.randn(300)
        with torch.no_grad():
            assert torch.equal(compiled(x), (x.exp() * 2 + 1).tanh())
    (slot,) = (s for g in backend.groups for s in g.slots.values())
    assert slot.state == "waiting"
    assert "404" in slot.reason
