"""The memory limit of a request, a part of its key."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("requests", sa.Column("memory_bytes", sa.BigInteger()))
