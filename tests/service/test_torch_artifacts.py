"""Plans in the artifacts that PyTorch saves: used without a server, where they are what a server said."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client import signatures
from fuseplan_client.server import Answer, Limits, PlanClient
from fuseplan_client.server.transport import base_url
from fuseplan_client.server.trust import Trust
from fuseplan_client.torch import artifacts
from fuseplan_client.torch.artifacts import LoadedPlan, forget_plan, loaded_plan, record
from fuseplan_client.torch.asking import Asker, Question
from torch.compiler import _cache
from torch.compiler._cache import CacheArtifactManager

from service.signing.key import open_key
from tests.support.served_app import Served, served
from tests.support.service_app import wire
from tests.support.service_process import ROOT
from tests.support.stored_plans import BINARY, chain, store_plan
from tests.support.whole import WHOLE
from tuning_db.reading.graphs import Names

ARCH = "x86-64"
REQUEST = {"graph": wire(), "seconds": 10.0}
PROGRAM = """
import sys
from pathlib import Path
import torch
from fuseplan_client.torch.backend import Backend

def function(x, w):
    return torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, x.shape[-1:], w)) + x

backend = Backend(seconds=2)
file, loads = Path(sys.argv[1]), sys.argv[2] == "load"
if loads:
    info = torch.compiler.load_cache_artifacts(file.read_bytes())
    assert any(key.startswith("plan ") for key in info.fuseplan_artifacts)
compiled = torch.compile(function, backend=backend, dynamic=False)
torch.manual_seed(0)
args = torch.randn(256, 512), torch.randn(512)
expected = function(*args)
for _ in range(60):
    torch.testing.assert_close(compiled(*args), expected)
    assert backend.wait(120)
(slot,) = (s for g in backend.groups for s in g.slots.values())
assert not slot.is_open and not slot.is_judging, slot
if not loads:
    file.write_bytes(torch.compiler.save_cache_artifacts()[0])
kept = torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]
print(slot.state, slot.verdicts[-1].plan_us is not None, "graph from the artifacts" if kept else "")
"""


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="takes half a minute: `make soak` runs it")
def test_plans_that_one_process_saved_another_uses_without_a_server(tmp_path: Path) -> None:
    def run(which: str, **environment: str) -> str:
        paths = os.pathsep.join((str(ROOT / "client"), str(ROOT)))
        folders = {f"XDG_{k}_HOME": str(tmp_path / which / k) for k in ("DATA", "CACHE", "CONFIG")}
        folders["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / which / "inductor")
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "artifacts"), which]
        done = subprocess.run(
            command,
            env=os.environ | folders | {"PYTHONPATH": paths} | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "graph from" not in run("save")
    found = run("load", FUSEPLAN_SERVER="http://127.0.0.1:9")
    assert "True" in found, "a plan was there, and judged"
    assert "graph from the artifacts" in found


def plan_for(requests: Sequence[Any], arch: str, keys: Sequence[str] | None) -> LoadedPlan | None:
    """The plan as a client of a server on this machine with these keys takes it."""
    return loaded_plan(requests, arch, Trust(base_url("http://127.0.0.1"), keys, None))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as found:
        store_plan(found.store, chain(), Names(("x",), ("y",)))
        yield found


@pytest.fixture
def saved(service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answer]:
    """The answer of which artifacts were saved, and loaded."""
    client = PlanClient(service.url, cache=tmp_path / "c", server_keys=[service.public_key])
    answer = client.resolve(REQUEST)
    assert isinstance(answer, Answer)
    monkeypatch.setattr(artifacts, "_loaded", {})
    monkeypatch.setattr(artifacts, "_received", {})
    with CacheArtifactManager.with_fresh_cache():
        binaries = {sha256: client.binary(sha256) for sha256 in answer.binaries}
        record(REQUEST, answer, binaries, ARCH, client.signed_executor(ARCH))
        content, _ = torch.compiler.save_cache_artifacts()
        info = torch.compiler.load_cache_artifacts(content)
        assert len(info.fuseplan_artifacts) == 2 + len(binaries)
        yield answer


def test_a_saved_plan_is_what_the_server_said(saved: Answer, service: Served) -> None:
    for keys in ([service.public_key], []):
        found = plan_for([{**REQUEST, "target": "gpu"}, {**REQUEST, "seconds": 3}], ARCH, keys)
        assert found is not None
        assert (found.answer.plan_key, found.answer.names) == (saved.plan_key, saved.names)
        assert list(found.binaries.values()) == [BINARY]
        assert hashlib.sha256(found.executor[1]).hexdigest() == found.executor[0]
        assert found.answer.kept


def test_a_later_answer_takes_the_place_of_an_earlier_one(saved: Answer, service: Served, tmp_path: Path) -> None:
    client = PlanClient(service.url, cache=tmp_path / "d", server_keys=[service.public_key])
    artifacts._loaded.clear()
    with CacheArtifactManager.with_fresh_cache():
        for seconds in (1, 2):
            request = {**REQUEST, "seconds": seconds}
            answer = client.resolve(request)
            assert isinstance(answer, Answer)
            record(request, answer, {s: client.binary(s) for s in answer.binaries}, ARCH, client.signed_executor(ARCH))
        content, _ = torch.compiler.save_cache_artifacts()
    torch.compiler.load_cache_artifacts(content)
    (plan,) = (v for k, v in artifacts._loaded.items() if k.startswith("plan"))
    assert json.loads(json.loads(plan.partition(b"\n")[0])["request"])["seconds"] == 2
    assert plan_for([REQUEST], ARCH, [service.public_key]) is not None


def test_other_requests_have_none(saved: Answer) -> None:
    assert plan_for([{**REQUEST, "target": "gpu"}, {**REQUEST, "device_key": "other"}], ARCH, []) is None
    assert plan_for([REQUEST], "aarch64", []) is None
    assert plan_for([], ARCH, []) is None


def test_a_plan_that_was_of_no_use_is_forgotten(saved: Answer) -> None:
    forget_plan("0" * 64)
    assert plan_for([REQUEST], ARCH, []) is not None
    forget_plan(saved.plan_key)
    assert plan_for([REQUEST], ARCH, []) is None


def of(kind: str) -> str:
    (key,) = (k for k in artifacts._loaded if k.startswith(kind))
    return key


def changed_head(kind: str, **changes: Any) -> None:
    head, _, body = artifacts._loaded[of(kind)].partition(b"\n")
    artifacts._loaded[of(kind)] = json.dumps(json.loads(head) | changes).encode() + b"\n" + body


def changed_byte(kind: str, place: int = -5) -> None:
    found = bytearray(artifacts._loaded[of(kind)])
    found[place] ^= 1
    artifacts._loaded[of(kind)] = bytes(found)


def from_another_request() -> None:
    key = of("plan")
    artifacts._loaded[f"plan {artifacts.request_digest({**REQUEST, 'target': 'cpu:9'})}"] = artifacts._loaded.pop(key)


def emptied(kind: str) -> None:
    artifacts._loaded[of(kind)] = b""


# Whatever keys are trusted.
DAMAGED: dict[str, Callable[[], Any]] = {
    "plan emptied": lambda: emptied("plan"),
    "plan cut off": lambda: artifacts._loaded.update({of("plan"): artifacts._loaded[of("plan")][:-40]}),
    "executor missing": lambda: artifacts._loaded.pop(of("executor")),
    "executor emptied": lambda: emptied("executor"),
    "binary missing": lambda: artifacts._loaded.pop(of("binary")),
    "binary changed": lambda: changed_byte("binary"),
    "of another request": from_another_request,
    "request is no JSON": lambda: changed_head("plan", request="{"),
    "request is no object": lambda: changed_head("plan", request="3"),
    "head is a list": lambda: artifacts._loaded.update({of("plan"): b"[]\n" + artifacts._loaded[of("plan")]}),
    "head of another type": lambda: changed_head("plan", signature=3),
}
# Where there are keys.
TAMPERED: dict[str, Callable[[], Any]] = {
    "executor changed": lambda: changed_byte("executor"),
    "executor not signed": lambda: changed_head("executor", signature=""),
    "plan not signed": lambda: changed_head("plan", signature=""),
    "signed for other seconds": lambda: changed_head(
        "plan", request=json.dumps({**REQUEST, "seconds": 77}, sort_keys=True, separators=(",", ":"))
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("signed", [False, True])
def test_what_is_damaged_is_not_used(name: str, signed: bool, saved: Answer, service: Served) -> None:
    DAMAGED[name]()
    requests = [{**REQUEST, "target": "cpu:9"}, REQUEST]
    assert plan_for(requests, ARCH, [service.public_key] if signed else []) is None


def test_every_save_has_all_plans(saved: Answer, service: Served) -> None:
    """Plans that were loaded, and that an earlier save had, too."""
    for _ in range(2):
        content, _ = torch.compiler.save_cache_artifacts()
        artifacts._loaded.clear()
        torch.compiler.load_cache_artifacts(content)
        assert plan_for([REQUEST], ARCH, [service.public_key]) is not None
        artifacts._received.clear()


def test_a_plan_that_comes_while_others_are_saved_spoils_nothing(
    saved: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = _cache.CacheArtifact.serialize

    def slowly(writer: Any, artifact: Any) -> None:
        write(writer, artifact)
        artifacts._received["binary another"] = b"x"

    monkeypatch.setattr(_cache.CacheArtifact, "serialize", staticmethod(slowly))
    content, _ = torch.compiler.save_cache_artifacts()
    monkeypatch.undo()
    info = torch.compiler.load_cache_artifacts(content)
    assert info is not None and "binary another" not in info.fuseplan_artifacts


def test_a_plan_that_was_of_no_use_is_not_saved(saved: Answer) -> None:
    forget_plan(saved.plan_key)
    content, _ = torch.compiler.save_cache_artifacts()
    assert not [
        key for key in torch.compiler.load_cache_artifacts(content).fuseplan_artifacts if key.startswith("plan")
    ]


def asked(tmp_path: Path, server: str = "http://127.0.0.1:9", seconds: float = 10.0, **options: Any) -> list[str]:
    """Words on a question to a server that is not there."""
    told: list[str] = []
    asker = Asker(server, limits=Limits(attempt_s=0.2, connect_s=0.1, attempts=1), cache=tmp_path / "other", **options)
    asker._run_by = lambda executor: None  # type: ignore[method-assign]  BINARY is none
    question = Question(
        lambda: [REQUEST], lambda *_: told.append("ready"), lambda _: told.append("failed"), seconds=(1.0, seconds)
    )
    asker.ask(question)
    for _ in range(100):
        if asker.wait(0.1) or "failed" in told:
            break
    return told


def test_no_server_is_asked_but_for_a_longer_search(saved: Answer, tmp_path: Path) -> None:
    assert REQUEST["seconds"] == 10.0
    assert asked(tmp_path) == ["ready"]
    assert asked(tmp_path, seconds=60.0)[:2] == ["ready", "failed"]


def test_what_has_to_be_signed_is(saved: Answer, service: Served, tmp_path: Path) -> None:
    """Plans have to be where answers have to be: where it is said, and for servers that are elsewhere."""
    assert asked(tmp_path, signed=True)[0] == "failed"
    assert asked(tmp_path, server="http://192.0.2.1:9")[0] == "failed"
    assert asked(tmp_path, server="http://192.0.2.1:9", signed=False)[0] == "ready"
    assert asked(tmp_path, server="http://192.0.2.1:9", server_keys=[service.public_key])[0] == "ready"


@pytest.mark.parametrize("head", [b'{"request": "\\ud800"}', b"[" * 200_000, b'{"request": "' + b"[" * 200_000 + b'"}'])
def test_whatever_is_there_a_server_is_asked(head: bytes, saved: Answer, tmp_path: Path) -> None:
    artifacts._loaded[of("plan")] = head + b"\n" + saved.body
    assert asked(tmp_path)[0] == "failed"


@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_not_signed_by_a_key_is_not_used(name: str, saved: Answer, service: Served) -> None:
    TAMPERED[name]()
    assert plan_for([REQUEST], ARCH, [service.public_key]) is None


def test_what_another_key_signed_is_not_used(saved: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = open_key(tmp_path / "key").public
    assert plan_for([REQUEST], ARCH, [other]) is None
    monkeypatch.setenv(signatures.VARIABLE, other)
    assert plan_for([REQUEST], ARCH, None) is None
