"""Refusals: what clients say of plans that were of no use to them."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_DOUBLE: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "refusals",
        sa.Column("plan_key", sa.String(64), nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("took_us", _DOUBLE),
        sa.Column("instead_us", _DOUBLE),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("plan_key", "id", name="pk_refusals"),
        sa.ForeignKeyConstraint(["plan_key"], ["plans.plan_key"], name="fk_refusals_plan_key", ondelete="CASCADE"),
    )
