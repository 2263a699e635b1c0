"""Tables of what every search tried: segments, the graphs that they are part of, and the race of each measurement."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "segments",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_segments"),
    )
    op.create_table(
        "graph_segments",
        sa.Column("graph_key", sa.String(64), nullable=False),
        sa.Column("segment_key", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["segment_key"], ["segments.key"], name="fk_graph_segments_segment_key"),
        sa.PrimaryKeyConstraint("graph_key", "segment_key", name="pk_graph_segments"),
    )
    op.add_column("measurements", sa.Column("race", sa.String(32), nullable=False, server_default=""))
