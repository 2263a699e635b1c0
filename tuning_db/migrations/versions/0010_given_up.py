"""The key under which the failure of an operation that is given up is noted: its request, conditions and seconds."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_DOUBLE: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.add_column("operations", sa.Column("request_key", sa.Text()))
    op.add_column("operations", sa.Column("conditions", sa.Text()))
    op.add_column("operations", sa.Column("had_s", _DOUBLE))
