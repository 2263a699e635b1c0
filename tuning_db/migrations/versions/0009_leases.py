"""The class of devices that an operation is for, and when it may be taken up again after its worker was lost."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_DOUBLE: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.add_column("operations", sa.Column("device_key", sa.Text()))
    op.add_column("operations", sa.Column("not_before", _DOUBLE, nullable=False, server_default="0"))
