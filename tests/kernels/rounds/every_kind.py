"""Tables, programs and a finished model with one target of every kind, shared by many tests."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

import numpy as np

from client_sdk.simulation import simulate
from kernels.model.artifact import Artifact
from kernels.model.card_sections import Privacy
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear, outcomes
from kernels.rounds.program import Program
from kernels.tables.schema import Schema
from kernels.tables.targets import AnyTarget, Binary, Classes, Count, Target, TimeToEvent
from tests.dealing import DEALING
from tests.kernels.rounds import tables
from tests.kernels.rounds.tables import Table

CREATED = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
READMITTED = Binary("readmitted", ("yes", "no"), "yes")
STAY = Target("stay", "d")
DISCHARGED = Classes("discharged", ("home", "transfer", "hospice"))
VISITS = Count("visits", "visits", 50.0, "years")
DEATH = TimeToEvent("days", "d", "died", (10.0, 20.0, 40.0), 30.0)
SCHEMA = Schema(tables.SCHEMA.features, (READMITTED, STAY, DISCHARGED, VISITS, DEATH))
"""The event of `readmitted` is its first level, and the real target is not the first."""


def table(rows: int, *, seed: int = 0) -> Table:
    """Return patients of one hospital, with a target of every kind."""
    random, plain = np.random.default_rng(100 + seed), tables.table(rows, seed=seed)
    risk = (np.asarray(plain["age"], dtype=np.float64) - 55) / 15
    ward = plain["ward"] == "surgical"
    time, end = random.exponential(25 * np.exp(-0.5 * risk)), random.uniform(5, 60, rows)
    years = random.uniform(0.5, 3.0, rows)
    return {
        **plain,
        "readmitted": np.where(random.random(rows) < 1 / (1 + np.exp(-risk)), "yes", "no"),
        "discharged": np.array(DISCHARGED.levels)[random.integers(0, 2, rows) + ward],
        "visits": random.poisson(years * np.exp(0.4 * risk)).clip(0, 50),
        "years": years,
        "days": np.minimum(time, end),
        "died": np.where(time < end, "1", "0"),
    }


def hospitals(clients: int = 3, *, rows: int = 120) -> list[Table]:
    """Return one table per hospital."""
    return [table(rows, seed=client) for client in range(clients)]


def program(*targets: AnyTarget, held_out: float = 0.2, sums: int = 4) -> Program:
    """Return a program that fits these targets, by default one of every kind."""
    schema = SCHEMA if not targets else Schema(SCHEMA.features, targets)
    layers = [linear.Spec()] if schema.real else []
    layers += [outcomes.Spec(sums=sums)] if schema.outcomes else []
    stages = (moments.Spec(), *layers)
    return Program(schema, tables.KERNEL, stages, max_rows=1000, held_out=held_out)


def artifact(*targets: AnyTarget) -> Artifact:
    """Return the model of three hospitals for these targets, by default one of every kind."""
    return artifact_of(program(*targets))


def judged(*targets: AnyTarget) -> Artifact:
    """Return such a model with its recalibration and its scores on held-out rows."""
    own = program(*targets)
    stages = (*own.stages, recalibration.Spec(min_rows=1), evaluation.Spec())
    return artifact_of(replace(own, stages=stages))


@cache
def artifact_of(own: Program) -> Artifact:
    """Return the model of three hospitals that a program makes."""
    ended = simulate(own, hospitals(), DEALING, secure=False)
    privacy = Privacy.of(own.schema, min_cohort=3, max_colluders=1)
    return Artifact.of(
        ended.model, program=own, members=3, sums=ended.sums, privacy=privacy, created=CREATED
    )
