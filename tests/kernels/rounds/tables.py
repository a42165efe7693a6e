"""Small tables with everything in them, and programs over them, shared by the tests of rounds."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from client_sdk.simulation import simulate
from kernels.features.spec import KernelSpec
from kernels.model.model import Model
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.tables.records import Records
from kernels.tables.schema import Categorical, Numeric, Schema
from kernels.tables.targets import Target
from tests.dealing import DEALING

SCHEMA = Schema(
    (
        Numeric("age", "a", 0, 120),
        Numeric("lactate", "mmol/l", may_be_missing=True),
        Categorical("ward", ("medical", "surgical")),
    ),
    (Target("stay", "d"), Target("cost", "EUR", 0, 100_000)),
)
KERNEL = KernelSpec(
    inputs=5, samples=8, hidden=(6,), latent=4, shifter_inputs=3, shifter_hidden=4, seed=3
)
BESIDE = replace(KERNEL, linear_part=True)
INDUCING = KernelSpec(
    architecture="inducing", inputs=5, samples=8, lengthscale=2.0, linear_part=True, seed=3
)

Table = Mapping[str, NDArray[np.generic]]


def table(rows: int, *, seed: int = 0) -> Table:
    """Return patients of one hospital; their mix depends on the seed."""
    random = np.random.default_rng(seed)
    age = random.uniform(20 + 3 * (seed % 5), 90, rows)
    lactate = random.lognormal(0.3 * (seed % 3), 0.5, rows)
    surgical = random.random(rows) < 0.3
    stay = 2 + np.sin(age / 12) + lactate + surgical + 0.3 * random.normal(size=rows)
    lactate[random.random(rows) < 0.1] = np.nan
    return {
        "age": age,
        "lactate": lactate,
        "ward": np.where(surgical, "surgical", "medical"),
        "stay": stay,
        "cost": 900 * stay + 50 * random.normal(size=rows) + 2000,
    }


def tables(clients: int, *, rows: int = 40) -> list[Table]:
    """Return one table per hospital."""
    return [table(rows, seed=client) for client in range(clients)]


def program(*stages: object, held_out: float = 0.25) -> Program:
    """Return a program over the small schema: standardisation, the given stages, linear layer."""
    return Program(
        SCHEMA, KERNEL, (moments.Spec(), *stages, linear.Spec()), max_rows=1000, held_out=held_out
    )


def pooled(parts: list[Table]) -> Table:
    """Return all rows in one place."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def site(rows: int = 40, *, seed: int = 0, held_out: float = 0.25) -> Site:
    """Return one hospital's site."""
    return Site.of_table(SCHEMA, table(rows, seed=seed), held_out=held_out, dealing=DEALING)


def together(sites: list[Site]) -> Site:
    """Return the site that would hold all rows of these, part by part."""
    return Site.joined(sites)


def fitted(sites: list[Site], *stages: object) -> Model:
    """Return the model after standardisation and the given stages, over plain sums."""
    only = Program(SCHEMA, KERNEL, (moments.Spec(), *stages), max_rows=1000, held_out=0.25)
    return simulate(only, sites, DEALING, secure=False).model


def updated(site: Site) -> Site:
    """Return the site after an update that added rows: they are trained on as any others."""
    records = dict(site.records)
    added = [records.pop(Part.ADDED)] if Part.ADDED in records else []
    records[Part.TRAINING] = Records.concatenate([records[Part.TRAINING], *added])
    return Site(records, dealing=DEALING)
