"""Graphs, devices, requests, plans, binaries, sources, measurements."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_DOUBLE: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "graphs",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.Column("nodes", sa.BigInteger(), nullable=False),
        sa.Column("ops", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_graphs"),
    )
    op.create_table(
        "devices",
        sa.Column("class_key", sa.String(64), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("first_seen", _DOUBLE, nullable=False),
        sa.Column("last_seen", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("class_key", name="pk_devices"),
    )
    op.create_table(
        "plans",
        sa.Column("plan_key", sa.String(64), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("graph_key", sa.String(64), nullable=False),
        sa.Column("device_key", sa.String(64), nullable=False),
        sa.Column("numerics", sa.Text(), nullable=False),
        sa.Column("time_us", _DOUBLE),
        sa.Column("spread", _DOUBLE),
        sa.Column("unfused_us", _DOUBLE),
        sa.Column("lower_bound_us", _DOUBLE, nullable=False),
        sa.Column("copy_us", _DOUBLE),
        sa.Column("search_gap", _DOUBLE),
        sa.Column("steps", sa.BigInteger(), nullable=False),
        sa.Column("families", sa.Text(), nullable=False),
        sa.Column("dtypes", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("plan_key", name="pk_plans"),
        sa.ForeignKeyConstraint(["graph_key"], ["graphs.key"], name="fk_plans_graph_key"),
        sa.ForeignKeyConstraint(["device_key"], ["devices.class_key"], name="fk_plans_device_key"),
    )
    op.create_index("ix_plans_graph_key", "plans", ["graph_key"])
    op.create_index("ix_plans_device_key", "plans", ["device_key"])
    op.create_index("ix_plans_created_plan_key", "plans", ["created", "plan_key"])
    op.create_table(
        "requests",
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("graph_key", sa.String(64), nullable=False),
        sa.Column("device_key", sa.String(64), nullable=False),
        sa.Column("numerics", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("generator", sa.Text(), nullable=False),
        sa.Column("wire_version", sa.BigInteger(), nullable=False),
        sa.Column("plan_key", sa.String(64), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("conditions", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("hits", sa.BigInteger(), nullable=False),
        sa.Column("last_hit", _DOUBLE),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_requests"),
        sa.ForeignKeyConstraint(["graph_key"], ["graphs.key"], name="fk_requests_graph_key"),
        sa.ForeignKeyConstraint(["device_key"], ["devices.class_key"], name="fk_requests_device_key"),
        sa.ForeignKeyConstraint(["plan_key"], ["plans.plan_key"], name="fk_requests_plan_key"),
    )
    op.create_index("ix_requests_graph_key", "requests", ["graph_key"])
    op.create_index("ix_requests_plan_key", "requests", ["plan_key"])
    op.create_table(
        "binaries",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_binaries"),
    )
    op.create_table(
        "sources",
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_sources"),
    )
    for table, content in (("plan_binaries", "binaries"), ("plan_sources", "sources")):
        op.create_table(
            table,
            sa.Column("plan_key", sa.String(64), nullable=False),
            sa.Column("sha256", sa.String(64), nullable=False),
            sa.PrimaryKeyConstraint("plan_key", "sha256", name=f"pk_{table}"),
            sa.ForeignKeyConstraint(["plan_key"], ["plans.plan_key"], name=f"fk_{table}_plan_key", ondelete="CASCADE"),
            sa.ForeignKeyConstraint(["sha256"], [f"{content}.sha256"], name=f"fk_{table}_sha256"),
        )
        op.create_index(f"ix_{table}_sha256", table, ["sha256"])
    op.create_table(
        "measurements",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("segment_key", sa.String(64), nullable=False),
        sa.Column("device_key", sa.String(64), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("schedule", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("samples_us", sa.Text(), nullable=False),
        sa.Column("median_us", _DOUBLE),
        sa.Column("max_rel_error", _DOUBLE),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("compile_seconds", _DOUBLE, nullable=False),
        sa.Column("binary", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("created", _DOUBLE, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
    )
    op.create_index("ix_measurements_segment_key_device_key", "measurements", ["segment_key", "device_key", "id"])
