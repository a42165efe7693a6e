"""Leases of replicas; and on PostgreSQL numbers of messages that do not end at 2³¹."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_COUNTED = ("run_messages", "run_metrics")


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("owner", sa.String(length=36), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_leases_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_leases")),
    )
    op.execute("INSERT INTO leases (run_id, owner, until) SELECT id, '', 0 FROM runs")
    if op.get_bind().dialect.name == "postgresql":
        for table in _COUNTED:
            op.alter_column(table, "id", type_=sa.BigInteger())
            op.execute(f"ALTER SEQUENCE {table}_id_seq AS bigint")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table in _COUNTED:
            op.alter_column(table, "id", type_=sa.Integer())
            op.execute(f"ALTER SEQUENCE {table}_id_seq AS integer")
    op.drop_table("leases")
