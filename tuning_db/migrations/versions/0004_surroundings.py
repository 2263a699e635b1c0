"""Columns of measurements for the circumstances that could explain a time, and for the origin of the row."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_DOUBLE: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.add_column("measurements", sa.Column("warm_us", _DOUBLE))
    op.add_column("measurements", sa.Column("input_sets", sa.BigInteger()))
    for name in ("report", "surroundings", "toolchain", "driver", "origin"):
        op.add_column("measurements", sa.Column(name, sa.Text(), nullable=False, server_default=""))
