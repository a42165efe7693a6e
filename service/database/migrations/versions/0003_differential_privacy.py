"""Members that a private run does without, budgets of sessions, and what was spent of them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.add_column(sa.Column("epsilon", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("delta", sa.Float(), nullable=True))
        batch_op.add_column(sa.Column("planned_runs", sa.Integer(), nullable=True))
    op.create_table(
        "charges",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("release", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_charges_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_charges")),
        sa.UniqueConstraint(
            "session_id",
            "run_id",
            "epoch",
            "slot",
            name=op.f("uq_charges_session_id_run_id_epoch_slot"),
        ),
    )
    with op.batch_alter_table("run_members", schema=None) as batch_op:
        for name in ("refused", "returned"):
            batch_op.add_column(
                sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())
            )


def downgrade() -> None:
    with op.batch_alter_table("run_members", schema=None) as batch_op:
        for name in ("refused", "returned"):
            batch_op.drop_column(name)
    op.drop_table("charges")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        for name in ("planned_runs", "delta", "epsilon"):
            batch_op.drop_column(name)
