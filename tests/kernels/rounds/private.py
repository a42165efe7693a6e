"""Tables, programs and noisy sums for tests of differential privacy: patients with many rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernels import storage
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.model import Model
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.algorithm import contributed
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.registry import restore
from kernels.rounds.site.site import Site
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Binary, Classes, Count, Target, TimeToEvent
from privacy import noise
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from tests.dealing import DEALING

_FEATURES = (
    Numeric("age", "a", 0, 120),
    Numeric("lactate", "mmol/l", 0, 1000, may_be_missing=True),
    Categorical("ward", ("medical", "surgical"), may_be_missing=True),
)
_TARGETS = (Target("stay", "d", -50, 400), Target("cost", "EUR", 0, 1e6))
PATIENTS = Schema(_FEATURES, _TARGETS, patient="who")
ROWS = Schema(_FEATURES, _TARGETS)
OUTCOMES = (
    Binary("readmitted", ("yes", "no"), event="yes"),
    Classes("diagnosis", ("stroke", "sepsis", "other")),
    Count("visits", "visits", upper=50, exposure="years"),
    Count("falls", "falls", upper=3),
    TimeToEvent("days", "d", event="died", horizon=90),
)
MIXED = replace(PATIENTS, targets=(_TARGETS[0], *OUTCOMES, _TARGETS[1]))
"""Targets of every kind, of patients with many rows."""
KERNEL = KernelSpec(
    inputs=6, samples=6, hidden=(5,), latent=3, shifter_inputs=3, shifter_hidden=4, seed=3
)
SMOOTH = KernelSpec(architecture=Architecture.RBF, inputs=6, samples=6, lengthscale=2.0, seed=3)
BESIDE = replace(SMOOTH, linear_part=True)
LINEAR = KernelSpec(architecture=Architecture.LINEAR, inputs=6)

Table = dict[str, Any]


def table(rows: int, *, seed: int, patients: int | None = None, outliers: float = 0.1) -> Table:
    """Return rows of so many patients, some of whom have most of them; some values at a bound."""
    random = np.random.default_rng(seed)
    age = random.uniform(18, 95, rows)
    lactate = random.lognormal(0.3, 0.6, rows)
    stay = 4 + 2 * np.sin(age / 12) + lactate + 0.5 * random.normal(size=rows)
    cost = 900 * stay.clip(0) + 2000
    for values, ends in (
        (age, (0, 120)),
        (lactate, (0, 1000)),
        (stay, (-50, 400)),
        (cost, (0, 1e6)),
    ):
        far = random.random(rows) < outliers
        values[far] = random.choice(ends, far.sum())
    lactate[random.random(rows) < 0.1] = np.nan
    ward = np.where(random.random(rows) < 0.3, "surgical", "medical").astype(object)
    ward[random.random(rows) < 0.1] = None
    who = (random.pareto(1.0, rows) % (patients or rows)).astype(int)
    return {
        "age": age,
        "lactate": lactate,
        "ward": list(ward),
        "stay": stay,
        "cost": cost,
        "who": [str(each) for each in who],
    }


def with_outcomes(whole: Table) -> Table:
    """Return a table with columns of all `OUTCOMES`; each row's follow from its own cells."""
    stay, age, cost = ([float(cell) for cell in whole[name]] for name in ("stay", "age", "cost"))
    far = [own in (-50.0, 400.0) for own in stay]
    return {
        **whole,
        "readmitted": ["yes" if own > 60 else "no" for own in age],
        "diagnosis": [("stroke", "sepsis", "other")[int(own) % 3] for own in age],
        "visits": [50 if at else int(abs(own)) % 7 for own, at in zip(stay, far, strict=True)],
        "years": [2.0**20 if at else 1 + own / 120 for own, at in zip(age, far, strict=True)],
        "falls": [3 if at else 0 for at in far],
        "days": [abs(own) for own in stay],
        "died": [int(own) % 2 for own in cost],
    }


def without(whole: Table, rows: Sequence[int]) -> Table:
    """Return a table without some rows."""
    gone = set(rows)
    return {
        name: [cell for i, cell in enumerate(column) if i not in gone]
        for name, column in whole.items()
    }


def program(
    *stages: object,
    schema: Schema = PATIENTS,
    kernel: KernelSpec = KERNEL,
    most: int = 3,
    multiplier: float = 1.0,
    max_rows: int = 1000,
    held_out: float = 0.5,
) -> Program:
    """Return a private program with the same noise in every sum."""
    privacy = NoisePlan(
        multipliers=(multiplier,) * len(stages),
        max_rows_per_patient=most if schema.patient else 1,
        target_clip=1.0,
    )
    return Program(schema, kernel, stages, max_rows=max_rows, held_out=held_out, privacy=privacy)


LAYER = moments.Spec(from_bounds=True), linear.Spec()


def site(whole: Table, schema: Schema = PATIENTS, *, held_out: float = 0.5) -> Site:
    """Return a hospital's site, with the outcomes that the schema has."""
    whole = with_outcomes(whole) if schema.outcomes else whole
    return Site.of_table(schema, whole, held_out=held_out, dealing=DEALING)


def total(algorithm: Any, state: Any, sites: Sequence[Site], *, multiplier: float) -> SecureTotal:
    """Sum over sites with noise."""
    layout = algorithm.layout(state)
    encoding = Encoding.noisy(
        layout, multiplier=multiplier, honest=len(sites), max_clients=len(sites)
    )
    seen = restore(storage.encode(state, broadcast=True))
    source = noise.approximate(np.random.default_rng(layout.length))
    added = np.zeros(layout.length, dtype="<u8")
    for each in sites:
        drawn = noise.draw(encoding, source=source).once()
        added += encoding.encode(contributed(algorithm, seen, each), noise=drawn)
    return encoding.decode(added, contributors=len(sites))


def states(
    algorithm: Any, spec: Any, model: Model, sites: Sequence[Site], *, multiplier: float = 1.0
) -> list[Any]:
    """Return all states of a stage, the last one finished."""
    found = [algorithm.initial(spec, model)]
    while not algorithm.finished(found[-1]):
        drawn = total(algorithm, found[-1], sites, multiplier=multiplier)
        found.append(algorithm.update(found[-1], drawn))
    return found


def fitted(whole: Program, sites: Sequence[Site], *, multiplier: float = 1.0) -> Model:
    """Return the model after all stages of a program."""
    model = whole.start()
    for algorithm, spec in whole.algorithms():
        model = states(algorithm, spec, model, sites, multiplier=multiplier)[-1].model
    return model
