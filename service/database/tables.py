"""The coordinator's tables; the migrations bring a database to this schema.

    sessions ─┬─ invitations
              ├─ members
              ├─ charges                    what its sums have spent of its privacy budget
              └─ runs ─┬─ leases            which replica computes its next step
                       ├─ run_members       the roster, fixed when the run starts
                       ├─ run_metrics       metrics of the run's steps
                       ├─ open_samples      unmasked samples of members' models, and withdrawals
                       ├─ run_messages      members' messages in the current epoch and slot
                       ├─ slots             the current sum: its task and its progress
                       │   └─ slot_totals   its running total, masked, in pieces
                       └─ totals            the newest closed sum, which members verify
    models ── aliases            tokens (admins and callers) ── token_models
    public_sets                  nonces of members' requests

Times are seconds since 1970 (float): compared by the database, shown as ISO 8601 in the API.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_ID = String(36)
# SQLite counts with its row id, which has the type INTEGER and 64 bits.
_COUNTER = BigInteger().with_variant(Integer, "sqlite")

WHOLE_EPOCH = -1
"""The slot of a message about the epoch as a whole."""

sessions = Table(
    "sessions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("program", Text, nullable=False),
    Column("terms", LargeBinary, nullable=False),
    Column("planned_members", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    # With differential privacy: the total budget, and the planned number of runs.
    Column("epsilon", Float),
    Column("delta", Float),
    Column("planned_runs", Integer),
)

charges = Table(
    "charges",
    metadata,
    Column("id", _COUNTER, primary_key=True, autoincrement=True),
    Column("session_id", ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("run_id", _ID, nullable=False),
    Column("at", Float, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("slot", Integer, nullable=False),
    Column("release", Text, nullable=False),
    UniqueConstraint("session_id", "run_id", "epoch", "slot"),
)

invitations = Table(
    "invitations",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("session_id", ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("name", String(200), nullable=False),
    Column("secret_hash", LargeBinary(32), nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("used_by", LargeBinary(32)),
    Column("revoked_at", Float),
    Column("read_at", Float),
)

members = Table(
    "members",
    metadata,
    Column("session_id", ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("key", LargeBinary(32), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("status", String(20), nullable=False),
    Column("enrolled_at", Float, nullable=False),
    Column("refusal_code", String(100)),
    Column("refusal_detail", Text),
    Column("refused_at", Float),
    UniqueConstraint("session_id", "name"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("session_id", ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("program", Text, nullable=False),
    Column("base_model", String(64)),
    Column("status", String(20), nullable=False),
    Column("code", String(100)),
    Column("detail", Text),
    Column("created_at", Float, nullable=False),
    Column("deadline_at", Float, nullable=False),
    Column("ended_at", Float),
    # Counts every change of the run, to detect whether a copy in memory is still current.
    Column("version", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("epoch_closed", Boolean, nullable=False),
    # When the current wait began, for instance for an epoch's boxes or a survivor's key.
    Column("since", Float, nullable=False),
    Column("stage", Integer, nullable=False),
    Column("sums", Integer, nullable=False),
    # State of the stage's algorithm; NULL once the run has ended, and always with blind sums.
    Column("state", LargeBinary),
    # The finished model's certificate while the run is open; empty if it stays without.
    Column("verdict", LargeBinary),
    Column("model_id", String(64)),
    Index(None, "session_id", "status"),
)

leases = Table(
    "leases",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("owner", _ID, nullable=False),
    Column("until", Float, nullable=False),
)

run_members = Table(
    "run_members",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("key", LargeBinary(32), primary_key=True),
    Column("name", String(200), nullable=False),
    # The first epoch in which the member advertised; later epochs of the session mark it as seen.
    Column("first_epoch", Integer),
    # With differential privacy: the member refused, or is back after it was left out of a sum.
    Column("refused", Boolean, nullable=False, server_default=false()),
    Column("returned", Boolean, nullable=False, server_default=false()),
)

run_metrics = Table(
    "run_metrics",
    metadata,
    Column("id", _COUNTER, primary_key=True, autoincrement=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "run_id"),
)

open_samples = Table(
    "open_samples",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("key", LargeBinary(32), primary_key=True),
    Column("sha256", String(64)),
    Column("samples", Integer),
    Column("octets", Integer),
    Column("shown_at", Float),
    # Once set, there is no body, and none is accepted.
    Column("withdrawn_at", Float),
    Column("body", LargeBinary),
)

run_messages = Table(
    "run_messages",
    metadata,
    Column("id", _COUNTER, primary_key=True, autoincrement=True),
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("epoch", Integer, nullable=False),
    # The slot's number, or WHOLE_EPOCH.
    Column("slot", Integer, nullable=False),
    Column("kind", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index(None, "run_id", "epoch", "slot"),
)

slots = Table(
    "slots",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("slot", Integer, primary_key=True),
    Column("task", LargeBinary, nullable=False),
    Column("commitments", LargeBinary(32), nullable=False),
    # The survivors are fixed; the slot is being abandoned; shares are requested.
    Column("frozen", Boolean, nullable=False),
    Column("abandoning", Boolean, nullable=False),
    Column("repairing", Boolean, nullable=False),
)

slot_totals = Table(
    "slot_totals",
    metadata,
    Column("run_id", _ID, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("slot", Integer, primary_key=True),
    Column("piece", Integer, primary_key=True),
    Column("body", LargeBinary, nullable=False),
    ForeignKeyConstraint(
        ["run_id", "epoch", "slot"],
        ["slots.run_id", "slots.epoch", "slots.slot"],
        ondelete="CASCADE",
    ),
)

sealed_states = Table(
    "sealed_states",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("header", LargeBinary, nullable=False),
    Column("box", LargeBinary, nullable=False),
)

totals = Table(
    "totals",
    metadata,
    Column("run_id", ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("slot", Integer, nullable=False),
    Column("task", LargeBinary, nullable=False),
    Column("certificate", LargeBinary, nullable=False),
    Column("total", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

models = Table(
    "models",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("session_id", ForeignKey("sessions.id", ondelete="CASCADE"), nullable=False),
    Column("run_id", _ID, nullable=False),
    # NULL if the model is for members only: the coordinator never has it.
    Column("card", Text),
    Column("artifact", LargeBinary),
    # A quorum's signatures (privacy/members/endorsement.py), if the model has them.
    Column("certificate", LargeBinary),
    # A model for members only, sealed to each of them (privacy/members/archive.py).
    Column("archive", LargeBinary),
    # An admin has allowed to serve it without a certificate.
    Column("serve_uncertified", Boolean, nullable=False, server_default=false()),
    Column("created_at", Float, nullable=False),
    Index(None, "session_id"),
)

aliases = Table(
    "aliases",
    metadata,
    Column("alias", String(100), primary_key=True),
    Column("model_id", ForeignKey("models.id", ondelete="CASCADE"), nullable=False),
    Column("set_at", Float, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("role", String(20), nullable=False),
    Column("name", String(200), nullable=False),
    Column("hash", LargeBinary(32), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    # Of a caller: whether it gets every row's own variance, and the model.
    Column("trusted", Boolean, nullable=False, server_default=false()),
)

token_models = Table(
    "token_models",
    metadata,
    Column("token_id", ForeignKey("tokens.id", ondelete="CASCADE"), primary_key=True),
    # A model's id or an alias, which is resolved when the token is used.
    Column("model", String(100), primary_key=True),
)

public_sets = Table(
    "public_sets",
    metadata,
    Column("name", String(100), primary_key=True),
    Column("columns", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

nonces = Table(
    "nonces",
    metadata,
    Column("key", LargeBinary(32), primary_key=True),
    Column("nonce", LargeBinary(16), primary_key=True),
    Column("time_ms", BigInteger, nullable=False),
    Index(None, "time_ms"),
)
