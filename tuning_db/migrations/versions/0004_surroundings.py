"""What could explain a measured time, and where a row came from."""

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
