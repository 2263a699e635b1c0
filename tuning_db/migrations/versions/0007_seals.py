"""A secret by which object caches tell what was compiled for this database."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "seals",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_seals"),
    )
