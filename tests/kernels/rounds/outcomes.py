"""Small tables with targets of every kind, and models over them, for tests of rounds."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from client_sdk.simulation import simulate
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.program import Program
from kernels.rounds.site.site import Site
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Classes, Count, TimeToEvent
from tests.dealing import DEALING
from tests.kernels.rounds import tables

BINARY = Binary("readmitted", ("yes", "no"), event="yes")
CLASSES = Classes("diagnosis", ("stroke", "sepsis", "other"))
COUNT = Count("visits", "visits", upper=200, exposure="years")
TIMES = TimeToEvent("days", "d", event="died", edges=(10.0, 30.0, 60.0, 90.0), horizon=50.0)
OUTCOMES = BINARY, CLASSES, COUNT, TIMES
MIXED = replace(tables.SCHEMA, targets=(BINARY, tables.SCHEMA.targets[0], *OUTCOMES[1:]))
"""A real number among outcomes of every kind."""
ALONE = replace(tables.SCHEMA, targets=OUTCOMES)
"""No target is a real number."""
KERNEL = replace(tables.KERNEL, samples=5)
SMOOTH = KernelSpec(
    architecture=Architecture.MATERN52, inputs=5, samples=5, lengthscale=2.0, linear_part=True
)
DEEP = KernelSpec(architecture=Architecture.DEEP, inputs=5, samples=5, hidden=(6,), latent=4)
LINEAR = KernelSpec(architecture=Architecture.LINEAR, inputs=5)


def table(rows: int, *, seed: int = 0, **changes: object) -> tables.Table:
    """Return patients of one hospital with every outcome; changes: other columns."""
    whole, random = dict(tables.table(rows, seed=seed)), np.random.default_rng(1000 + seed)
    age, stay = whole["age"].astype(np.float64), whole["stay"].astype(np.float64)
    risk = 1 / (1 + np.exp(-(age - 60) / 10))
    chances = np.stack([risk, 1 - risk, 0.5 + 0 * risk], 1)
    drawn = (chances / chances.sum(1, keepdims=True)).cumsum(1) > random.random((rows, 1))
    years = random.uniform(0.5, 4, rows)
    rate = years * np.exp(0.3 * stay - 0.5)
    death, end = random.exponential(60 / (0.3 + risk)), random.uniform(5, 120, rows)
    return {
        **whole,
        "readmitted": np.where(random.random(rows) < risk, "yes", "no"),
        "diagnosis": np.array(CLASSES.levels)[drawn.argmax(1)],
        "visits": random.negative_binomial(3, 3 / (3 + rate)).clip(0, 200),
        "years": years,
        "days": np.minimum(death, end),
        "died": (death <= end).astype(int),
        **{name: np.asarray(column) for name, column in changes.items()},
    }


def site(rows: int = 40, *, seed: int = 0, schema: Schema = MIXED, held_out: float = 0.25) -> Site:
    """Return one hospital's site."""
    return of_table(table(rows, seed=seed), schema, held_out=held_out)


def of_table(whole: tables.Table, schema: Schema, *, held_out: float = 0.0) -> Site:
    """Return the site of a table."""
    return Site.of_table(schema, whole, held_out=held_out, dealing=DEALING)


def fitted(
    sites: Sequence[Site],
    *stages: object,
    kernel: KernelSpec = KERNEL,
    columns: moments.Spec | None = None,
) -> Model:
    """Return the model after standardisation and the given stages, over plain sums."""
    columns = columns or moments.Spec(min_sites=1)
    whole = Program(sites[0].schema, kernel, (columns, *stages), max_rows=2000, held_out=0.25)
    return simulate(whole, sites, DEALING, secure=False).model
