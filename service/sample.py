"""`veilgp serve --sample`: sample data for every operation that can be tried in the console.

    Sample              five members, a finished training run, its model with every prediction
                        method under the alias `sample`, and the same model dated a day earlier
    Sample, running     a run that waits for its members
    Sample, failed      a run that has ended and can be started again
    Sample, new         an open invitation, a member that waits for approval; no run
    Sample, deletable   an empty session

The rows are synthetic and the same each time, and so are all names and ids except those of the
models. The members' keys are random and their private halves are discarded: no request can be
signed for these hospitals.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, insert, select, update

from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.model.results import released
from kernels.rounds import position as positions
from kernels.rounds.broadcast import checked
from kernels.rounds.position import Metrics, Position
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Site
from privacy.encoding import Encoding
from privacy.identity import Identity, Member, Roster
from privacy.members.endorsement import (
    Endorsement,
    ModelCertificate,
    ModelStatement,
    model_commitment,
    parent_digest,
)
from service import models
from service.database.tables import invitations, members, runs
from service.database.tables import sessions as session_table
from service.database.tables import tokens as token_table
from service.errors import NotFound
from service.http import tokens
from service.http.access import APPROVED, PENDING, ModelAccess
from service.http.tokens import Role
from service.runs import saving, starting
from service.runs.machine.plan import Status
from service.sessions import public_sets, sessions
from service.sessions.sessions import NewSession, Session

SESSION, RUNNING, FAILED, NEW, DELETABLE = (
    f"5a3b1e00-0000-4000-8000-00000000000{n}" for n in range(1, 6)
)
"""Ids of the sessions."""
RUN, OPEN_RUN, FAILED_RUN = (f"5a3b1e00-0000-4000-8000-0000000000a{n}" for n in range(1, 4))
INVITATION = "5a3b1e00-0000-4000-8000-0000000000b1"
CALLER = "5a3b1e00-0000-4000-8000-0000000000c1"
ALIAS, OTHER_ALIAS, OLD_ALIAS = "sample", "sample-other", "sample-old"
MODEL, OLD_MODEL = (f"5a3b1e0000004000800000000000000{n}" * 2 for n in (1, 2))
"""Placeholders for the models' ids, which are hashes and not known in advance."""
PUBLIC_SET = "sample"
HOSPITALS = "Amrum", "Borkum", "Föhr", "Juist", "Sylt"
PENDING_HOSPITAL = "Pellworm"

STATED: Mapping[str, Any] = {
    "schema": {
        "features": [
            {"kind": "numeric", "name": "age", "unit": "a", "lower": 0, "upper": 120},
            {
                "kind": "numeric",
                "name": "lactate",
                "unit": "mmol/L",
                "lower": 0,
                "upper": 30,
                "may_be_missing": True,
            },
            {"kind": "categorical", "name": "ward", "levels": ["medical", "surgical"]},
        ],
        "targets": [{"name": "stay", "unit": "d", "lower": 0, "upper": 100}],
    },
    "kernel": {"hidden": [16], "samples": 32, "seed": 1},
    "stages": [
        {"algorithm": "moments"},
        {"algorithm": "exact", "parameters": {"steps": 12, "penalties": [3.0]}},
        {"algorithm": "linear"},
        {"algorithm": "recalibration"},
        {"algorithm": "evaluation"},
    ],
    "max_rows": 10000,
    "held_out": 0.2,
    "members": 5,
    "privacy": {"differential_privacy": False},
    "model": "served",
}
"""All sessions' definition except their names; the trained one has the stages `_STUDENTS` too."""

_STUDENTS: Sequence[Mapping[str, Any]] = [
    {
        "algorithm": "predictive",
        "parameters": {
            "hidden": [24],
            "cycles": 3,
            "cycle_epochs": 6,
            "step_size": 0.1,
            "extra_rows": 140,
            "distillation_epochs": 50,
            "distillation_rate": 0.02,
        },
    },
    {"algorithm": "beta"},
]
"""Small, so that `veilgp serve --sample` starts quickly."""

PUBLIC_COLUMNS: Mapping[str, Sequence[Any]] = {
    "age": [41, 58, 77],
    "lactate": [1.1, None, 3.2],
    "ward": ["medical", "surgical", "medical"],
    "stay": [3.5, 6.0, 11.5],
}

PATIENTS: Sequence[Mapping[str, Any]] = [
    {"age": 61, "lactate": None, "ward": "medical"},
    {"age": 78, "lactate": 2.4, "ward": "surgical"},
]
"""Rows for prediction requests."""

_DEALING = Dealing(bytes(32))
"""The tables are synthetic: there is nothing to hide."""
_ROWS = 600
"""Rows of each hospital: together enough for callers to get variances."""
_DAY_S = 86_400.0
_SALT = b"the sample's own salt".ljust(32, b".")
_YEAR_S = 366 * 86_400.0


def seed(connection: Connection, *, now: float) -> None:
    """Add the sample data to a database, unless it is already there."""
    there = select(session_table.c.id).where(session_table.c.id == SESSION)
    if connection.execute(there).first() is not None:
        return
    identities = tuple(sorted((Identity.generate() for _ in HOSPITALS), key=lambda own: own.key))
    trained = _session(connection, SESSION, "Sample", now, keys=identities, stages=_with_students())
    _train(connection, trained, identities, now)
    _session(connection, RUNNING, "Sample, running", now)
    _start(connection, RUNNING, OPEN_RUN, now)
    _session(connection, FAILED, "Sample, failed", now)
    _start(connection, FAILED, FAILED_RUN, now)
    detail = "Sylt had not answered by the deadline."
    saving.give_up(connection, FAILED_RUN, code="run.deadline", detail=detail, now=now)
    _session(connection, NEW, "Sample, new", now, approved=())
    _add_member(connection, NEW, PENDING_HOSPITAL, PENDING, now)
    connection.execute(
        insert(invitations).values(
            id=INVITATION,
            session_id=NEW,
            name="Norderney",
            secret_hash=tokens.hash_secret(tokens.make_secret()),
            expires_at=now + _YEAR_S,
        )
    )
    _session(connection, DELETABLE, "Sample, deletable", now, approved=())
    public_sets.put(connection, PUBLIC_SET, PUBLIC_COLUMNS, now=now)
    # The hash of a discarded secret: the caller can be revoked, but its token cannot be used.
    connection.execute(
        insert(token_table).values(
            id=CALLER,
            role=Role.CALLER,
            name="Sample",
            hash=tokens.hash_secret(tokens.make_secret()),
            created_at=now,
        )
    )


def model_ids(connection: Connection) -> Mapping[str, str]:
    """Return the ids of the sample's models that exist, by their placeholders."""
    found = {}
    for stand_in, alias in ((MODEL, ALIAS), (OLD_MODEL, OLD_ALIAS)):
        with suppress(NotFound):
            found[stand_in] = models.resolve(connection, alias, ModelAccess(everything=True))
    return found


def _session(
    connection: Connection,
    identifier: str,
    name: str,
    now: float,
    approved: Sequence[str] = HOSPITALS,
    keys: Sequence[Identity] = (),
    **changed: Any,
) -> Session:
    new = NewSession.model_validate({"name": name, **STATED, **changed})
    session = sessions.create(connection, new, now=now, identifier=UUID(identifier))
    for rank, hospital in enumerate(approved):
        key = keys[rank].key if keys else None
        _add_member(connection, identifier, hospital, APPROVED, now, key)
    return session


def _with_students() -> list[Mapping[str, Any]]:
    """Return the stages with ensembles after the linear layer, over synthetic public rows."""
    rows = {name: cells[:60] for name, cells in _table(len(HOSPITALS)).items() if name != "stay"}
    public = {"public": list(map(list, rows.items()))}
    predictive, beta = _STUDENTS
    ensemble = {**predictive, "parameters": {**predictive["parameters"], **public}}
    *training, recalibration, evaluation = STATED["stages"]
    return [*training, ensemble, beta, recalibration, evaluation]


def _add_member(
    connection: Connection,
    session_id: str,
    name: str,
    status: str,
    now: float,
    key: bytes | None = None,
) -> None:
    key = key or Identity.generate().key
    connection.execute(
        insert(members).values(
            session_id=session_id, key=key, name=name, status=status, enrolled_at=now
        )
    )


def _start(connection: Connection, session_id: str, run_id: str, now: float) -> None:
    starting.start(
        connection,
        session_id=session_id,
        kind=Kind.TRAIN,
        model=None,
        deadline_s=_YEAR_S,
        now=now,
        run_id=run_id,
    )


def _train(
    connection: Connection, session: Session, identities: Sequence[Identity], now: float
) -> None:
    """Store a finished run and its models, as if its members had trained them."""
    program = Program.from_json(session.program)
    _start(connection, session.id, RUN, now)
    position, told = _trained(program)
    privacy = Privacy.of(
        program.schema,
        min_cohort=session.terms.min_cohort,
        max_colluders=session.terms.max_colluders,
    )
    for made_at, aliases in ((now - _DAY_S, [OLD_ALIAS]), (now, [ALIAS, OTHER_ALIAS])):
        artifact = Artifact.of(
            position.state.model,
            program=program,
            members=len(HOSPITALS),
            sums=position.sum_index,
            privacy=privacy,
            created=datetime.fromtimestamp(made_at, UTC),
            salt=_SALT.hex(),
        )
        model_id = models.store(
            connection,
            session_id=session.id,
            run_id=RUN,
            artifact=artifact,
            certificate=_certificate(session, artifact, identities),
            now=made_at,
        )
        for alias in aliases:
            models.point(connection, alias, model_id, now=now)
    connection.execute(
        update(runs)
        .where(runs.c.id == RUN)
        .values(
            status=Status.DONE.value,
            ended_at=now,
            state=None,
            stage=position.stage,
            sums=position.sum_index,
            model_id=model_id,
        )
    )
    saving.add_metrics(connection, RUN, told)


def _certificate(session: Session, artifact: Artifact, identities: Sequence[Identity]) -> bytes:
    """Return the signatures of the sample's hospitals, which exist here only."""
    keys = tuple(identity.key for identity in identities)
    names = zip(HOSPITALS, keys, strict=True)
    statement = ModelStatement(
        session=session.terms.session,
        run=UUID(RUN).bytes,
        epoch_id=bytes(32),
        members=len(keys),
        max_colluders=session.terms.max_colluders,
        program=bytes.fromhex(artifact.card.program_digest),
        roster=Roster(tuple(Member(name, key) for name, key in names)).digest(),
        parent=parent_digest(None),
        model=model_commitment(_SALT, artifact.data),
        state=bytes(32),
        context=bytes(32),
    )
    results = released(artifact.model)
    signed = [
        Endorsement.signed(own, rank=rank, statement=statement, salt=_SALT, results=results)
        for rank, own in enumerate(identities)
    ]
    return ModelCertificate.of(signed, keys).encode()


def _trained(program: Program) -> tuple[Position, list[Metrics]]:
    """Run a program over synthetic tables: the encoded integers are added without masks."""
    sites = [
        Site.of_table(program.schema, _table(number), held_out=program.held_out, dealing=_DEALING)
        for number in range(len(HOSPITALS))
    ]
    position, metrics = positions.start(program, None), list[Metrics]()
    while not position.finished:
        algorithm, state = position.algorithm, position.state
        encoding = Encoding.finest(algorithm.layout(state), max_clients=len(sites))
        seen = checked(position.state, program, position.stage)
        total = np.zeros(encoding.layout.length, dtype="<u8")
        for site in sites:
            total += encoding.encode(algorithm.contribute(seen, site))
        position, told = positions.after(position, encoding.decode(total, contributors=len(sites)))
        metrics += told
    return position, metrics


def _table(number: int) -> Mapping[str, Sequence[Any]]:
    """Return one hospital's synthetic patients: older and sicker ones stay longer."""
    draw = np.random.default_rng(number)
    age = draw.uniform(18, 95, _ROWS)
    lactate = draw.gamma(3.0, 0.7, _ROWS).clip(0, 30)
    surgical = draw.random(_ROWS) < 0.4
    stay = 1 + 0.08 * age + 1.5 * lactate + 3 * surgical + draw.normal(0, 1.5, _ROWS)
    missing = draw.random(_ROWS) < 0.1
    return {
        "age": age.tolist(),
        "lactate": [None if gone else cell for cell, gone in zip(lactate, missing, strict=True)],
        "ward": ["surgical" if each else "medical" for each in surgical],
        "stay": stay.clip(0, 100).tolist(),
    }
