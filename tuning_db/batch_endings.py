"""Ending the items of batches: in the transaction that ends their operation, so that neither is lost without the other.

Rows are locked in one order everywhere, operations before batches and each by id: no two transactions wait for each
other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from sqlalchemy import Connection, Update, bindparam, case, select, update

from tuning_db.models import BatchItemRow, BatchRow


@dataclass(frozen=True, slots=True)
class Ending:
    """How an operation, or an item of a batch, ended. `result` where it is done, `error` where it failed."""

    state: Literal["done", "failed", "cancelled"]
    result: str | None = None
    error: str | None = None


_ITEMS = BatchItemRow.__table__.c
_END: Update = (
    update(BatchItemRow.__table__)  # type: ignore[arg-type]
    .where(_ITEMS.batch_id == bindparam("of"), _ITEMS.number == bindparam("item"))
    .values(state=bindparam("state"), result=bindparam("result"), error=bindparam("error"), event=bindparam("event"))
)


def settle(connection: Connection, endings: Mapping[str, Ending], now: float) -> None:
    """Ends every item that waits for one of these operations, by id, as that operation ended.

    The caller holds the rows of the operations.
    """
    if not endings:
        return
    item = BatchItemRow
    waiting = (
        select(item.batch_id, item.number, item.operation_id)
        .where(item.operation_id.in_(endings), item.state == "queued")
        .order_by(item.batch_id, item.number)
    )
    rows = connection.execute(waiting).all()
    for batch_id, items in groupby(rows, key=lambda row: row.batch_id):
        end_items(connection, batch_id, [(row.number, endings[row.operation_id]) for row in items], now)


def end_items(connection: Connection, batch_id: str, endings: Sequence[tuple[int, Ending]], now: float) -> None:
    """Ends queued items of one batch, by number: they get the batch's next event ids, in this order."""
    if not endings:
        return
    ended = BatchRow.ended + len(endings)
    counted = {"ended": ended, "finished": case((ended >= BatchRow.items, now), else_=BatchRow.finished)}
    batch = update(BatchRow).where(BatchRow.id == batch_id).values(counted).returning(BatchRow.ended)
    first = connection.execute(batch).scalar_one() - len(endings) + 1
    rows = [
        {"of": batch_id, "item": number, "state": e.state, "result": e.result, "error": e.error, "event": first + n}
        for n, (number, e) in enumerate(endings)
    ]
    connection.execute(_END, rows)
