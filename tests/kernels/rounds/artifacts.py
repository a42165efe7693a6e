"""A finished model of two targets as an artifact, shared by the tests of artifacts and the SDK."""

from datetime import UTC, datetime
from functools import cache

from client_sdk.simulation import simulate
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.rounds.columns import moments
from kernels.rounds.ensemble import beta
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from tests.dealing import DEALING
from tests.kernels.rounds import tables
from tests.kernels.rounds.ensemble.test_predictive import SPEC as PREDICTIVE

CREATED = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
PROGRAM = Program(
    tables.SCHEMA,
    tables.KERNEL,
    (moments.Spec(), linear.Spec(), recalibration.Spec(min_rows=1), evaluation.Spec()),
    max_rows=1000,
    held_out=0.4,
)
PLAIN = Program(
    tables.SCHEMA, tables.KERNEL, (moments.Spec(), linear.Spec()), max_rows=1000, held_out=0.0
)
STUDENTS = Program(
    tables.SCHEMA,
    tables.KERNEL,
    (
        moments.Spec(),
        PREDICTIVE,
        beta.Spec(),
        linear.Spec(),
        recalibration.Spec(min_rows=1),
        evaluation.Spec(),
    ),
    max_rows=1000,
    held_out=0.4,
)
"""Of one model with every method."""
PRIVACY = Privacy.of(tables.SCHEMA, min_cohort=3, max_colluders=1)


@cache
def artifact(program: Program = PROGRAM, *, clients: int = 3, rows: int = 250) -> Artifact:
    """Return the artifact of a program over generated hospitals."""
    outcome = simulate(program, tables.tables(clients, rows=rows), DEALING, secure=False)
    return Artifact.of(
        outcome.model,
        program=program,
        members=clients,
        sums=outcome.sums,
        privacy=PRIVACY,
        created=CREATED,
    )
