"""Unmasked samples of members' own models: one file per member, for each run that requests them.

    requested by the run's program → uploaded; only the same bytes again → withdrawn, permanently

The members of a run's ensemble are read from here at every prediction: those that are approved and
have not withdrawn. A withdrawal applies to all runs of a session so far, whether or not anything
was uploaded: unfinished and repeated uploads are refused afterwards. The bytes are deleted with it.
"""

import hashlib
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, func, insert, select, update

from kernels.rounds.ensemble.open_ensemble import OpenSamples, open_stage
from kernels.rounds.program import Program
from service.database.tables import members, models, open_samples, run_members, runs
from service.errors import NotFound, SamplesDiffer, SamplesNotAsked, SamplesWithdrawn
from service.http.access import APPROVED
from service.runs.machine.plan import Status

# Every prediction of an open ensemble runs this query: building it once halves its cost.
_PRESENT = (
    select(open_samples.c.key, open_samples.c.sha256)
    .join(models, models.c.run_id == open_samples.c.run_id)
    .join(
        members,
        (members.c.session_id == models.c.session_id) & (members.c.key == open_samples.c.key),
    )
    .where(
        models.c.id == bindparam("model_id"),
        open_samples.c.withdrawn_at.is_(None),
        members.c.status == APPROVED,
    )
    .order_by(open_samples.c.key)
)

Present = tuple[tuple[bytes, str], ...]
"""Key and SHA-256 of each member whose samples are in an ensemble."""


@dataclass(frozen=True)
class ShownSamples:
    """The samples that a member of a run has uploaded or withdrawn."""

    name: str
    samples: int | None
    octets: int | None
    sha256: str | None
    shown_at: float | None
    withdrawn_at: float | None


def expected(connection: Connection, session_id: str, run_id: str, key: bytes) -> Program:
    """Return the program that requests a member's samples, or refuse if it may not upload any."""
    row = connection.execute(
        select(runs.c.program, runs.c.status, runs.c.model_id)
        .join(run_members)
        .where(runs.c.id == run_id, runs.c.session_id == session_id, run_members.c.key == key)
    ).one_or_none()
    if row is None:
        raise NotFound("The session has no run with this id in which your hospital took part.")
    program = Program.from_json(row.program)
    if open_stage(program) is None or row.status != Status.DONE or row.model_id is None:
        raise SamplesNotAsked(
            "The run does not request samples, or has not produced its model yet."
        )
    if connection.execute(select(models.c.id).where(models.c.id == row.model_id)).first() is None:
        raise SamplesNotAsked("The run's model was deleted, so it has no ensemble any more.")
    found = _own(connection, run_id, key)
    if found is not None and found.withdrawn_at is not None:
        raise SamplesWithdrawn(
            "Your hospital has withdrawn from the open ensemble of this run; this cannot be undone."
        )
    return program


def show(
    connection: Connection,
    run_id: str,
    key: bytes,
    samples: OpenSamples,
    data: bytes,
    *,
    now: float,
) -> None:
    """Store a member's samples, read from `data`; the same bytes may be sent again.

    Call `expected` first, in the same transaction: the member may have withdrawn meanwhile.
    """
    digest, found = hashlib.sha256(data).hexdigest(), _own(connection, run_id, key)
    if found is None:
        connection.execute(
            insert(open_samples).values(
                run_id=run_id,
                key=key,
                sha256=digest,
                samples=len(samples.samples),
                octets=len(data),
                shown_at=now,
                body=data,
            )
        )
    elif found.sha256 != digest:
        raise SamplesDiffer(
            "Your hospital has already uploaded different samples for this run. Samples are "
            "determined by its table and the run, so one of the two uploads is wrong. If it is the "
            "first, withdraw it."
        )


def withdraw(connection: Connection, session_id: str, key: bytes, *, now: float) -> None:
    """Withdraw a member from every run of a session so far."""
    found = connection.execute(
        select(runs.c.id)
        .join(run_members)
        .where(runs.c.session_id == session_id, run_members.c.key == key)
    ).scalars()
    taken_part = list(found)
    for run_id in taken_part:
        if _own(connection, run_id, key) is None:
            connection.execute(insert(open_samples).values(run_id=run_id, key=key))
    own = (open_samples.c.key == key) & open_samples.c.run_id.in_(taken_part)
    connection.execute(update(open_samples).where(own).values(body=None))
    still = own & open_samples.c.withdrawn_at.is_(None)
    connection.execute(update(open_samples).where(still).values(withdrawn_at=now))


def present(connection: Connection, model_id: str) -> Present:
    """Return the members whose samples are in a model's ensemble now, in the order of keys."""
    found = connection.execute(_PRESENT, {"model_id": model_id})
    return tuple((bytes(row.key), str(row.sha256)) for row in found)


@dataclass(frozen=True)
class LoadedSamples:
    """The samples of an ensemble, and the size of the run's cohort."""

    session_id: str
    program: Program
    cohort: int
    samples: tuple[OpenSamples, ...]


def load(connection: Connection, model_id: str, who: Present) -> LoadedSamples:
    """Read the samples of these members."""
    run = connection.execute(
        select(runs.c.id, runs.c.session_id, runs.c.program)
        .join(models, models.c.run_id == runs.c.id)
        .where(models.c.id == model_id)
    ).one()
    program, read = Program.from_json(run.program), []
    for key, _ in who:
        own = (open_samples.c.run_id == run.id) & (open_samples.c.key == key)
        body = connection.execute(select(open_samples.c.body).where(own)).scalar_one()
        read.append(OpenSamples.from_bytes(bytes(body), program))
    return LoadedSamples(run.session_id, program, cohort(connection, run.id), tuple(read))


def cohort(connection: Connection, run_id: str) -> int:
    """Return the number of members of a run."""
    query = select(func.count()).where(run_members.c.run_id == run_id)
    count: int = connection.execute(query).scalar_one()
    return count


def listed(connection: Connection, run_id: str) -> list[ShownSamples]:
    """Return the samples that members of a run have uploaded or withdrawn, by name."""
    query = (
        select(
            run_members.c.name,
            open_samples.c.samples,
            open_samples.c.octets,
            open_samples.c.sha256,
            open_samples.c.shown_at,
            open_samples.c.withdrawn_at,
        )
        .join(
            run_members,
            (run_members.c.run_id == open_samples.c.run_id)
            & (run_members.c.key == open_samples.c.key),
        )
        .where(open_samples.c.run_id == run_id)
        .order_by(run_members.c.name)
    )
    return [ShownSamples(**row) for row in connection.execute(query).mappings()]


def _own(connection: Connection, run_id: str, key: bytes) -> "_Own | None":
    own = (open_samples.c.run_id == run_id) & (open_samples.c.key == key)
    query = select(open_samples.c.sha256, open_samples.c.withdrawn_at).where(own)
    found = connection.execute(query).one_or_none()
    return None if found is None else _Own(*found)


@dataclass(frozen=True)
class _Own:
    sha256: str | None
    withdrawn_at: float | None
