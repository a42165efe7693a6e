"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

# Not a number: databases from before the first release have numbers and are refused.
revision = "invitations_read"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "nonces",
        sa.Column("key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("nonce", sa.LargeBinary(length=16), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key", "nonce", name=op.f("pk_nonces")),
    )
    with op.batch_alter_table("nonces", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_nonces_time_ms"), ["time_ms"], unique=False)

    op.create_table(
        "public_sets",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("columns", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_public_sets")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("terms", sa.LargeBinary(), nullable=False),
        sa.Column("planned_members", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("epsilon", sa.Float(), nullable=True),
        sa.Column("delta", sa.Float(), nullable=True),
        sa.Column("planned_runs", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("name", name=op.f("uq_sessions_name")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.Column("trusted", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
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
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("used_by", sa.LargeBinary(length=32), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.Column("read_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"],
            ["sessions.id"],
            name=op.f("fk_invitations_session_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
    )
    op.create_table(
        "members",
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("enrolled_at", sa.Float(), nullable=False),
        sa.Column("refusal_code", sa.String(length=100), nullable=True),
        sa.Column("refusal_detail", sa.Text(), nullable=True),
        sa.Column("refused_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_members_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "key", name=op.f("pk_members")),
        sa.UniqueConstraint("session_id", "name", name=op.f("uq_members_session_id_name")),
    )
    op.create_table(
        "models",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("card", sa.Text(), nullable=True),
        sa.Column("artifact", sa.LargeBinary(), nullable=True),
        sa.Column("certificate", sa.LargeBinary(), nullable=True),
        sa.Column("archive", sa.LargeBinary(), nullable=True),
        sa.Column(
            "serve_uncertified", sa.Boolean(), server_default=sa.text("false"), nullable=False
        ),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_models_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
    )
    with op.batch_alter_table("models", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_models_session_id"), ["session_id"], unique=False)

    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("session_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("base_model", sa.String(length=64), nullable=True),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("code", sa.String(length=100), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("deadline_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("epoch_closed", sa.Boolean(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("sums", sa.Integer(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=True),
        sa.Column("verdict", sa.LargeBinary(), nullable=True),
        sa.Column("model_id", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_runs_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_runs_session_id_status"), ["session_id", "status"], unique=False
        )

    op.create_table(
        "token_models",
        sa.Column("token_id", sa.String(length=36), nullable=False),
        sa.Column("model", sa.String(length=100), nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name=op.f("fk_token_models_token_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("token_id", "model", name=op.f("pk_token_models")),
    )
    op.create_table(
        "aliases",
        sa.Column("alias", sa.String(length=100), nullable=False),
        sa.Column("model_id", sa.String(length=64), nullable=False),
        sa.Column("set_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_aliases_model_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("alias", name=op.f("pk_aliases")),
    )
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
    op.create_table(
        "run_members",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("key", sa.LargeBinary(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("first_epoch", sa.Integer(), nullable=True),
        sa.Column("refused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("returned", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_members_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_run_members")),
    )
    op.create_table(
        "run_messages",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_messages_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_messages")),
    )
    with op.batch_alter_table("run_messages", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_run_messages_run_id_epoch_slot"),
            ["run_id", "epoch", "slot"],
            unique=False,
        )

    op.create_table(
        "run_metrics",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_metrics_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_metrics")),
    )
    with op.batch_alter_table("run_metrics", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_run_metrics_run_id"), ["run_id"], unique=False)

    op.create_table(
        "slots",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("task", sa.LargeBinary(), nullable=False),
        sa.Column("commitments", sa.LargeBinary(length=32), nullable=False),
        sa.Column("frozen", sa.Boolean(), nullable=False),
        sa.Column("abandoning", sa.Boolean(), nullable=False),
        sa.Column("repairing", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_slots_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "epoch", "slot", name=op.f("pk_slots")),
    )
    op.create_table(
        "slot_totals",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("piece", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "epoch", "slot"],
            ["slots.run_id", "slots.epoch", "slots.slot"],
            name=op.f("fk_slot_totals_run_id_epoch_slot"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("run_id", "epoch", "slot", "piece", name=op.f("pk_slot_totals")),
    )
    op.create_table(
        "sealed_states",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("header", sa.LargeBinary(), nullable=False),
        sa.Column("box", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_sealed_states_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_sealed_states")),
    )
    op.create_table(
        "totals",
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("task", sa.LargeBinary(), nullable=False),
        sa.Column("certificate", sa.LargeBinary(), nullable=False),
        sa.Column("total", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_totals_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_totals")),
    )
