"""Batches: requests that were submitted together, an item each, and the operations that serve them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_DOUBLE: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("payload", sa.String(64), nullable=False),
        sa.Column("items", sa.BigInteger(), nullable=False),
        sa.Column("ended", sa.BigInteger(), nullable=False),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.Column("cancelled", _DOUBLE),
        sa.Column("finished", _DOUBLE),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
    )
    op.create_index("ix_batches_idempotency_key", "batches", ["idempotency_key"], unique=True)
    op.create_index("ix_batches_created_id", "batches", ["created", "id"])
    op.create_table(
        "batch_items",
        sa.Column("batch_id", sa.String(32), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=False),
        sa.Column("graph_key", sa.String(64)),
        sa.Column("operation_id", sa.String(32)),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("result", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.Column("event", sa.BigInteger()),
        sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name="fk_batch_items_batch_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("batch_id", "number", name="pk_batch_items"),
    )
    op.create_index("ix_batch_items_operation_id", "batch_items", ["operation_id"])
    op.create_index("ix_batch_items_custom_id", "batch_items", ["batch_id", "custom_id"], unique=True)
    op.create_index("ix_batch_items_event", "batch_items", ["batch_id", "event"], unique=True)
