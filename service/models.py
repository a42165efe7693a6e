"""Finished models: stored once, found by id or alias, removed at once when they are deleted.

An id is a hash of a model's card, and through it of its bytes: an id always means the same model.
An alias is a name that an admin points at a model, and later perhaps at a better one. It never has
the form of an id, so a name is either an alias or an id.

A requester without access to a model gets the same answer as if the model did not exist.
"""

import re
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, select, update

from kernels.errors import KernelsError
from kernels.model.artifact import Artifact
from kernels.model.card import ID_DIGITS, Card
from privacy.errors import PrivacyError
from privacy.members.endorsement import ModelCertificate
from service.database.tables import aliases, models, open_samples
from service.database.upsert import upsert
from service.errors import (
    AliasInvalid,
    MembersOnly,
    ModelDamaged,
    NotCertified,
    NotFound,
    ServiceError,
)
from service.http.access import ModelAccess

_ID = re.compile(f"[0-9a-f]{{{ID_DIGITS}}}")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# Every prediction runs one of these queries: building them once halves their cost.
_BY_ID = select(models.c.id).where(models.c.id == bindparam("name"))
_BY_ALIAS = select(aliases.c.model_id).where(aliases.c.alias == bindparam("name"))


@dataclass(frozen=True)
class ListedModel:
    """One model in the list of models."""

    id: str
    session_id: str
    run_id: str
    created_at: float
    aliases: tuple[str, ...]
    certified: bool
    """Whether a quorum of its members has signed it."""
    members_only: bool
    """Whether only members have it."""


def store(
    connection: Connection,
    *,
    session_id: str,
    run_id: str,
    artifact: Artifact,
    certificate: bytes | None = None,
    now: float,
    serve_uncertified: bool = False,
) -> str:
    """Store a run's model and return its id; storing the same model again changes nothing."""
    connection.execute(
        upsert(connection, models)
        .values(
            id=artifact.id,
            session_id=session_id,
            run_id=run_id,
            card=artifact.card.to_json(),
            artifact=artifact.to_bytes(),
            certificate=certificate,
            created_at=now,
            serve_uncertified=serve_uncertified,
        )
        .on_conflict_do_nothing()
    )
    return artifact.id


def certificate(connection: Connection, model_id: str) -> bytes | None:
    """Return a model's certificate, if a quorum of its members has signed it."""
    query = select(models.c.certificate).where(models.c.id == model_id)
    found = connection.execute(query).scalar()
    return None if found is None else bytes(found)


def archive(connection: Connection, model_id: str) -> bytes:
    """Return a model that is for members only, as one of them has sealed it."""
    query = select(models.c.archive).where(models.c.id == model_id)
    found = connection.execute(query).scalar()
    if found is None:
        raise _unknown(model_id)
    return bytes(found)


def is_members_only(connection: Connection, model_id: str) -> bool:
    """Whether only members have a model."""
    query = select(models.c.archive.is_not(None)).where(models.c.id == model_id)
    return bool(connection.execute(query).scalar())


def check_certified(connection: Connection, model_id: str) -> bool:
    """Refuse a model without a certificate, unless an admin has allowed to use it.

    Return whether it has one.
    """
    query = select(models.c.certificate.is_not(None).label("signed"), models.c.serve_uncertified)
    row = connection.execute(query.where(models.c.id == model_id)).one_or_none()
    if row is not None and not row.signed and not row.serve_uncertified:
        raise NotCertified(
            f"No quorum of hospitals has signed the model {model_id}, so it is not used. Train it "
            "again with all members present until its end, or allow it all the same: PATCH "
            "/models/{id} with serve_uncertified = true."
        )
    return row is not None and bool(row.signed)


def is_served(connection: Connection, model_id: str) -> bool:
    """Whether a model that the coordinator has is used: a quorum has signed it, or an admin may."""
    try:
        check_certified(connection, model_id)
    except NotCertified:
        return False
    return True


def allow_uncertified(connection: Connection, model_id: str, *, allowed: bool) -> None:
    """Allow to serve a model that no quorum has signed, or no longer."""
    change = update(models).where(models.c.id == model_id).values(serve_uncertified=allowed)
    if not connection.execute(change).rowcount:
        raise _unknown(model_id)


def store_sealed(
    connection: Connection,
    *,
    session_id: str,
    run_id: str,
    model_id: str,
    certificate: bytes,
    archive: bytes,
    now: float,
) -> None:
    """Store a run's model that is for members only: its certificate, and what they can open."""
    connection.execute(
        upsert(connection, models)
        .values(
            id=model_id,
            session_id=session_id,
            run_id=run_id,
            certificate=certificate,
            archive=archive,
            created_at=now,
        )
        .on_conflict_do_nothing()
    )


def listed(connection: Connection) -> list[ListedModel]:
    """List all models, the newest first, with the aliases that point at each."""
    names: dict[str, list[str]] = {}
    for row in connection.execute(select(aliases).order_by(aliases.c.alias)):
        names.setdefault(row.model_id, []).append(row.alias)
    columns = (
        models.c.id,
        models.c.session_id,
        models.c.run_id,
        models.c.created_at,
        models.c.certificate.is_not(None).label("certified"),
        models.c.archive.is_not(None).label("members_only"),
    )
    query = select(*columns).order_by(models.c.created_at.desc(), models.c.id)
    found = connection.execute(query).mappings()
    return [ListedModel(**row, aliases=tuple(names.get(row["id"], ()))) for row in found]


def resolve(connection: Connection, name: str, access: ModelAccess) -> str:
    """Return the id of the model that an id or alias refers to now, if `access` allows it.

    A token that lists a model under one name may use it under another: what counts is the model.
    """
    found = _find(connection, name)
    if found is None:
        raise _unknown(name)
    if not (access.everything or name in access.names):
        names = connection.execute(select(aliases.c.alias).where(aliases.c.model_id == found))
        owner = select(models.c.session_id).where(models.c.id == found)
        session_id = connection.execute(owner).scalar_one_or_none()
        if not access.allows(found, *names.scalars(), session_id=session_id):
            raise _unknown(name)
    return found


def card(connection: Connection, model_id: str) -> str:
    """Return a model's card, as its canonical JSON."""
    found = connection.execute(select(models.c.card).where(models.c.id == model_id)).scalar()
    if found is None:
        raise _absent(connection, model_id)
    return str(found)


def artifact(connection: Connection, model_id: str) -> bytes:
    """Return a model's bytes."""
    found = connection.execute(select(models.c.artifact).where(models.c.id == model_id)).scalar()
    if found is None:
        raise _absent(connection, model_id)
    return bytes(found)


def load(connection: Connection, model_id: str) -> Artifact:
    """Read a model, check it against its id and its certificate: a damaged one must not predict."""
    text, data = card(connection, model_id), artifact(connection, model_id)
    signed = certificate(connection, model_id)
    try:
        if signed is not None:
            _check_signed(ModelCertificate.decode(signed), data)
        return Artifact.from_bytes(data, Card.from_json(text), expected_id=model_id)
    except (KernelsError, PrivacyError) as error:
        raise ModelDamaged(
            f"The model {model_id} is damaged in the coordinator's database. Restore the database "
            "from a backup, or delete the model."
        ) from error


def point(connection: Connection, alias: str, model_id: str, *, now: float) -> None:
    """Point an alias at a model, replacing what it pointed at before."""
    if not _ALIAS.fullmatch(alias) or _ID.fullmatch(alias):
        raise AliasInvalid(
            "An alias must have 1 to 100 letters, digits, dots, dashes or underscores, start with "
            f"a letter or digit, and not have the form of a model id; {alias!r:.120} does not."
        )
    # On PostgreSQL the lock prevents the model from being deleted in between.
    there = select(models.c.id).where(models.c.id == model_id).with_for_update(key_share=True)
    if connection.execute(there).first() is None:
        raise _unknown(model_id)
    connection.execute(
        upsert(connection, aliases)
        .values(alias=alias, model_id=model_id, set_at=now)
        .on_conflict_do_update(index_elements=["alias"], set_={"model_id": model_id, "set_at": now})
    )


def remove_alias(connection: Connection, alias: str) -> None:
    """Remove an alias."""
    if not connection.execute(delete(aliases).where(aliases.c.alias == alias)).rowcount:
        raise NotFound(f"There is no alias {alias!r:.120}. `GET /models` lists all aliases.")


def remove(connection: Connection, model_id: str) -> None:
    """Delete a model, its aliases and members' samples for it; records of withdrawals stay."""
    made_it = select(models.c.run_id).where(models.c.id == model_id).scalar_subquery()
    shown = (open_samples.c.run_id == made_it) & open_samples.c.withdrawn_at.is_(None)
    connection.execute(delete(open_samples).where(shown))
    if not connection.execute(delete(models).where(models.c.id == model_id)).rowcount:
        raise _unknown(model_id)


def _find(connection: Connection, name: str) -> str | None:
    if _ID.fullmatch(name):
        query = _BY_ID
    elif _ALIAS.fullmatch(name):
        query = _BY_ALIAS
    else:
        return None
    found: str | None = connection.execute(query, {"name": name}).scalar()
    return found


def _check_signed(certificate: ModelCertificate, data: bytes) -> None:
    """Refuse a certificate of another model, one with a wrong signature, and one of too few."""
    certificate.check_covers(data)
    certificate.vouched_by(certificate.signers, max_colluders=certificate.statement.max_colluders)


def _absent(connection: Connection, model_id: str) -> ServiceError:
    if is_members_only(connection, model_id):
        return MembersOnly(
            f"The model {model_id} is for the hospitals of its session only (`model` is members): "
            "the coordinator never had it and cannot predict. Ask a hospital, which predicts with "
            "`veilgp predict`."
        )
    return _unknown(model_id)


def _unknown(name: str) -> NotFound:
    return NotFound(f"There is no model {name!r:.120}, or you have no access to it.")
