"""A mark on failed operations that the metrics of some server have counted; older ones count as counted."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("operations", sa.Column("counted", sa.Boolean(), nullable=False, server_default=sa.false()))
    operations = sa.table("operations", sa.column("state", sa.Text()), sa.column("counted", sa.Boolean()))
    op.execute(operations.update().where(operations.c.state == "failed").values(counted=sa.true()))
