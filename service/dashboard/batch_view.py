"""Batches as pages show them: how far each is, and what follows one."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.wording import formatting
from tuning_db.batches import Batch

SHORT = 8  # digits of a batch's id that commands take


@dataclass(frozen=True)
class BatchRow:
    """One batch. counts: "3 of 5 done, 1 failed"; command: that follows it."""

    id: str
    short: str
    state: str
    counts: str
    age: str
    created: str
    command: str


def batch_rows(batches: Sequence[Batch], now: float, origin: str) -> list[BatchRow]:
    """In the order given; now: in seconds since 1970; origin: the server's own address, as its reader has it."""
    return [
        BatchRow(
            batch.id,
            batch.id[:SHORT],
            batch.state,
            counts(batch),
            formatting.age(batch.created, now),
            formatting.date(batch.created),
            f"fuseplan batch watch {batch.id[:SHORT]} --server {origin}",
        )
        for batch in batches
    ]


def counts(batch: Batch) -> str:
    """ "3 of 5 done, 1 failed, 1 running"."""
    others = ("failed", "cancelled", "running")
    words = [f"{batch.counts.get(state, 0):,} {state}" for state in others if batch.counts.get(state, 0)]
    return ", ".join([f"{batch.counts.get('done', 0):,} of {batch.items:,} done", *words])
