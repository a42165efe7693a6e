"""What members show of their own models, and that they have withdrawn it."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "open_samples",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("samples", sa.Integer(), nullable=True),
        sa.Column("octets", sa.Integer(), nullable=True),
        sa.Column("shown_at", sa.Float(), nullable=True),
        sa.Column("withdrawn_at", sa.Float(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_open_samples_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_open_samples")),
    )


def downgrade() -> None:
    op.drop_table("open_samples")
