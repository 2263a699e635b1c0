"""`fuseplan plans forget`: a failed search is made again, whoever asks next."""

import json
from pathlib import Path

import pytest

from fusion_ir.keys.graph_key import graph_key
from service.cli.commands import forget
from service.version import VERSION
from tests.service.cli.conftest import Cli
from tests.support.stored_plans import DEVICE, chain
from tuning_db.requests import Conditions, RequestKey
from tuning_db.store import Store


def test_a_failure_is_forgotten_for_the_request_alone(
    cli: Cli, graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forget, "detect", lambda target, cache: DEVICE)
    now, key = Conditions.of_device(DEVICE, VERSION), graph_key(chain())
    requests = [RequestKey(key, DEVICE.class_key, n, memory_bytes=m) for n, m in (("reassociate", None), ("exact", 8))]
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        for request in requests:
            store.failures.put(request, now, 1000.0, "no kernel passed its check")
        ended = cli("plans", "forget", graph_file)
        assert (ended.code, "searches again" in ended.out + ended.err) == (0, True)
        assert [store.failures.failure(r, now, 1.0) is None for r in requests] == [True, False]
        shown = json.loads(cli("plans", "forget", graph_file, "--numerics", "exact", "--memory", "8", "--json").out)
        assert shown == {"graph_key": key, "device_key": DEVICE.class_key, "forgotten": True}
        assert store.failures.failure(requests[1], now, 1.0) is None
    ended = cli("plans", "forget", graph_file)
    assert (ended.code, "No failed search" in ended.out + ended.err) == (0, True)


def test_what_is_no_graph(cli: Cli, tmp_path: Path) -> None:
    assert cli("plans", "forget", tmp_path / "nothing").code == 2
