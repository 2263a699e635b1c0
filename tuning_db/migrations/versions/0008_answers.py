"""Time and memory of an answer; the search for it, which may have been cut short; searches that failed."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from tuning_db.checks import checksum, digest

revision = "0008"
down_revision = "0007"

_DOUBLE: sa.Double[float] = sa.Double()
_NUMERICS = ("exact", "reassociate", "approximate")  # as this revision found them
_INTERRUPTED = "the search was interrupted"  # the reason in plans of before there was a mark


def upgrade() -> None:
    op.add_column("requests", sa.Column("takes_us", _DOUBLE))
    op.add_column("requests", sa.Column("looseness", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("requests", sa.Column("temporary_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("requests", sa.Column("searched", sa.Text(), nullable=False, server_default=""))
    op.add_column("requests", sa.Column("had_s", _DOUBLE))
    op.add_column("requests", sa.Column("cut_short", sa.Text()))
    op.create_table(
        "failures",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("conditions", sa.Text(), nullable=False),
        sa.Column("had_s", _DOUBLE, nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_failures"),
    )
    connection = op.get_bind()
    body = sa.text("SELECT body FROM plans WHERE plan_key = :key")
    change = sa.text(
        "UPDATE requests SET state = :state, takes_us = :takes_us, looseness = :looseness, "
        "temporary_bytes = :temporary_bytes, searched = :searched, had_s = :had_s, cut_short = :cut_short, "
        "checksum = :checksum WHERE key = :key"
    )
    rows = connection.execute(sa.text("SELECT key, plan_key, state, conditions, checksum FROM requests")).all()
    for key, plan_key, state, conditions, check in rows:
        content: Any = connection.execute(body, {"key": plan_key}).scalar()
        if checksum(key, plan_key, state, conditions) != check or digest(content) != plan_key:
            continue  # damaged: its checksum stays one of before, so that it is found out when it is read
        plan = json.loads(content)
        values = _of_plan(plan) | {"searched": "" if state == "stale" else conditions}
        # What an interrupt had left without any time was called stale, so that it was searched for again.
        values["state"] = "predicted" if state == "stale" and plan["time_us"] is None else state
        names = ("takes_us", "looseness", "temporary_bytes", "searched", "had_s", "cut_short")
        checked = (values["state"], conditions, *(values[name] for name in names))
        values["checksum"] = checksum(key, plan_key, *checked)
        connection.execute(change, {"key": key, **values})


def _of_plan(plan: dict[str, Any]) -> dict[str, Any]:
    took = plan["time_us"] if plan["time_us"] is not None else plan.get("predicted_us")
    interrupted = any(reason.get("text") == _INTERRUPTED for reason in plan["reasons"])
    return {
        "takes_us": None if took is None else float(took),
        "looseness": _NUMERICS.index(plan["numerics"]),
        "temporary_bytes": sum(buffer["bytes"] for buffer in plan["buffers"]),
        "had_s": float(plan["search"]["seconds"]) if interrupted else None,
        "cut_short": _INTERRUPTED if interrupted else None,
    }
