"""A coordinator with finished models, stored without running their runs."""

from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

from sqlalchemy import insert

from kernels.model.artifact import Artifact
from privacy.members.endorsement import NO_SALT, ModelCertificate
from service import models
from service.database import tables
from service.http import tokens
from service.http.tokens import Role
from tests.kernels.rounds import artifacts
from tests.service.coordinator import Coordinator, Hospital


def add_session(coordinator: Coordinator) -> str:
    """Return the id of a session that only models refer to."""
    session_id = str(uuid4())
    with coordinator.context.database.changing() as connection:
        connection.execute(
            insert(tables.sessions).values(
                id=session_id,
                name=session_id,
                program="",
                terms=b"",
                planned_members=3,
                created_at=0.0,
            )
        )
    return session_id


def add_model(
    coordinator: Coordinator,
    artifact: Artifact | None = None,
    session_id: str | None = None,
    *,
    certificate: bytes | None = None,
    serve_uncertified: bool = True,
) -> str:
    """Store a model and return its id; it is served, by default although nobody has signed it."""
    session_id = session_id or add_session(coordinator)
    with coordinator.context.database.changing() as connection:
        return models.store(
            connection,
            session_id=session_id,
            run_id=str(uuid4()),
            artifact=artifact or artifacts.artifact(),
            now=coordinator.clock(),
            certificate=certificate,
            serve_uncertified=serve_uncertified,
        )


def add_sealed(coordinator: Coordinator, session_id: str, certificate: ModelCertificate) -> str:
    """Store a model for members only, whose archive is not one, and return its id."""
    model_id = sha256(certificate.encode()).hexdigest()
    with coordinator.context.database.changing() as connection:
        models.store_sealed(
            connection,
            session_id=session_id,
            run_id=str(uuid4()),
            model_id=model_id,
            certificate=certificate.with_salt(NO_SALT).encode(),
            archive=b"sealed",
            now=coordinator.clock(),
        )
    return model_id


def later(artifact: Artifact, days: int = 1) -> Artifact:
    """Return the same model with a later date, and so with another id."""
    created = artifacts.CREATED + timedelta(days=days)
    card = replace(artifact.card, created=created.isoformat())
    return Artifact(artifact.model, artifact.data, card)


def add_caller(coordinator: Coordinator, *names: str, **more: Any) -> str:
    """Return the token of a caller that may use these models."""
    with coordinator.context.database.changing() as connection:
        issued = tokens.issue(
            connection, Role.CALLER, "caller", now=coordinator.clock(), models=names, **more
        )
    return issued.secret


def add_member(coordinator: Coordinator, session_id: str, status: str = "approved") -> Hospital:
    """Return a member of a session."""
    hospital = Hospital(coordinator)
    with coordinator.context.database.changing() as connection:
        connection.execute(
            insert(tables.members).values(
                session_id=session_id,
                key=hospital.identity.key,
                name=status,
                status=status,
                enrolled_at=0.0,
            )
        )
    return hospital
