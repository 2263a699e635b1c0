"""A few hundred hostile bodies against a server: no 5xx, every body answered, memory bounded.
`benchmarks.service.hostile` has thousands, and times."""

import http.client
import json
from pathlib import Path

import pytest

from benchmarks.service.hostile import attack
from benchmarks.service.hostile_bodies import GROWERS, bodies
from service.errors import ApiError
from tests.support.service_app import readers, wire
from tests.support.service_process import server
from tests.support.whole import WHOLE, seed

BODIES = 250 if WHOLE else 80
MEMORY_MIB = 2500  # two readers of 1 GiB, and what the server itself holds


@pytest.mark.soak
def test_hostile_bodies_over_http(tmp_path: Path) -> None:
    with server(tmp_path, workers=0) as (process, port):
        seen = attack(port, BODIES, seed=3 if WHOLE else seed(), pid=process.pid, scale=0.02)
        assert seen.faults == []
        assert sum(seen.statuses.values()) == BODIES
        assert max(seen.memory_mib) < MEMORY_MIB
        assert seen.livez_ms
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/metrics")
        assert b'status="5' not in connection.getresponse().read()
        connection.close()


def test_every_way_of_growing_is_met() -> None:
    assert {h.how.partition(",")[0] for h in bodies(400, scale=0.001)} == set(GROWERS)


CHEAP = {
    "a quadratic look for definitions": lambda: '{"source": "x%s"}' % (r"\n" * 65_000),
    "19,998 composites": lambda: json.dumps({"graph": wire(ops=("log_softmax",) * 19_998)}),
    "keys": lambda: "{" + ",".join(f'"k{i}":1' for i in range(1_200_000)) + "}",
    "the same key": lambda: "{" + ",".join('"k":1' for _ in range(2_000_000)) + "}",
    "lines": lambda: '{"source": "fuseplan.graph 1%s"}' % (r"\n" * 5_000_000),
    "lines of a dump": lambda: '{"source": "x = @param:x -> float_type, {2}, {1}%s"}' % (r"\n" * 5_000_000),
    "one long line": lambda: '{"source": "fuseplan.graph 1\\n%s"}' % ("[" * 8_000_000),
}


@pytest.mark.sweep(0.4)
@pytest.mark.parametrize("name", CHEAP)
def test_what_took_seconds_is_refused_before_it_does(name: str) -> None:
    """By a limit that is checked while it is read, not by the end of the process that reads it."""
    error = readers().submit(CHEAP[name]().encode()).exception(120)
    assert isinstance(error, ApiError)
    assert error.slug in ("bad-json", "bad-graph"), error.detail
