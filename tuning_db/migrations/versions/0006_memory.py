"""Limits of memory, as part of what is asked."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("requests", sa.Column("memory_bytes", sa.BigInteger()))
