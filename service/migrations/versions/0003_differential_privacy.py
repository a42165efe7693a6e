"""Members that a private run does without, budgets of sessions, and what was spent of them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("run_members", schema=None) as batch_op:
        for name in ("refused", "returned"):
            batch_op.add_column(
                sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())
            )


def downgrade() -> None:
    with op.batch_alter_table("run_members", schema=None) as batch_op:
        for name in ("refused", "returned"):
            batch_op.drop_column(name)
