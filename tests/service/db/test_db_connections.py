"""Connections to PostgreSQL: a read is one round trip, and survives a server that closed the connection meanwhile."""

import pytest
from sqlalchemy import event, text

from tests.service.db.samples import Samples
from tuning_db.engine import Database
from tuning_db.store import Store


def _others(url: str) -> int:
    """Ends all other connections to the database; how many there were."""
    database = Database(url)
    with database.write() as connection:
        statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        ended = connection.execute(text(f"{statement} AND backend_type = 'client backend'")).all()
    database.close()
    return len(ended)


@pytest.mark.parametrize("idle", [1, 5])
def test_reads_and_writes_survive_the_end_of_their_connections(postgres_url: str, samples: Samples, idle: int) -> None:
    with Store(postgres_url) as store:
        key = samples.put(store)
        connections = [store._database._reader.connect() for _ in range(idle)]
        for connection in connections:
            connection.close()
        for _ in range(2):
            assert _others(postgres_url) >= idle
            found = store.plans.resolve(samples.request())
            assert found is not None
            assert found.plan_key == key
        _others(postgres_url)
        assert samples.put(store, 1)
        assert store.queue.operations() == []


def test_a_hit_is_one_statement(postgres_url: str, samples: Samples) -> None:
    """To a database that is far away, every statement is a round trip, and so is asking whether it is there."""
    with Store(postgres_url) as store:
        samples.put(store)
        assert store.plans.resolve(samples.request()) is not None, "from now on its parts are known"
        reader = store._database._reader
        sent: list[str] = []
        event.listen(reader, "before_cursor_execute", lambda *given: sent.append(given[2]))
        ping = reader.dialect.do_ping
        reader.dialect.do_ping = lambda connection: sent.append("ping") or ping(connection)  # type: ignore[method-assign]
        assert store.plans.resolve(samples.request()) is not None
        assert len(sent) == 1, sent
