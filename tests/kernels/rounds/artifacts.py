"""A finished model of two targets as an artifact, shared by the tests of artifacts and the SDK."""

from datetime import UTC, datetime
from functools import cache

from client_sdk.simulation import simulate
from kernels.ensembles.distilled import Method
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.model.methods import FEDBNR
from kernels.rounds.columns import moments
from kernels.rounds.compared import ep_mcmc, fedbe, fedpa, fedyogi, one_shot
from kernels.rounds.ensemble import beta
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from tests.dealing import DEALING
from tests.kernels.rounds import tables
from tests.kernels.rounds.ensemble.test_predictive import SPEC as PREDICTIVE
from tests.kernels.rounds.network_rows import DISTILLING, SAMPLING, TRAINING

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
"""Of one model with a student of every method."""
WITH_STUDENTS = (FEDBNR, *(method.value for method in Method))
"""The methods of that model."""
_TRAINED = (
    fedpa.Spec(**TRAINING, rounds=2),
    ep_mcmc.Spec(**SAMPLING, draws=4),
    fedyogi.Spec(**TRAINING, rounds=2),
    fedbe.Spec(**TRAINING, **DISTILLING, draws=2),
    one_shot.Spec(**TRAINING, **DISTILLING),
)
NETWORKS = Program(
    tables.SCHEMA,
    tables.KERNEL,
    (
        moments.Spec(),
        linear.Spec(),
        *_TRAINED,
        recalibration.Spec(min_rows=1),
        evaluation.Spec(),
    ),
    max_rows=1000,
    held_out=0.4,
)
"""Of one model with the layer and the networks of every method."""
ALONE = Program(
    tables.SCHEMA,
    tables.KERNEL,
    (moments.Spec(), *_TRAINED, evaluation.Spec(recalibrated=False)),
    max_rows=1000,
    held_out=0.4,
)
"""Of one model with networks and no layer."""
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
