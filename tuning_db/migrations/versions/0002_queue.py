"""The durable queue of operations."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_DOUBLE: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "operations",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("dedupe_key", sa.Text()),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("lease_until", _DOUBLE, nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.Column("result", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.Column("started", _DOUBLE),
        sa.Column("finished", _DOUBLE),
        sa.PrimaryKeyConstraint("id", name="pk_operations"),
    )
    op.create_index("ix_operations_queue", "operations", ["state", "priority", "created"])
    is_open = sa.text("state IN ('queued', 'running')")
    op.create_index(
        "ix_operations_dedupe_key",
        "operations",
        ["dedupe_key"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
