"""Shared by the membership attacks on noise: hospitals, one release of their sums, and a score.

The noise is exactly that of a plan with ε = 1: all five hospitals count as honest, so that no
member adds more than is accounted for. It comes from a seeded generator, so that every figure is
reproducible.

**What ε = 1 allows.** One unit more or less is as hard to tell as N(0, 1) from N(μ, 1), with the
largest μ that is (ε, δ)-private (`privacy.accounting.gaussian`), here 0.268. Two games:

- releases with the unit against releases without it: an AUC of at most Φ(μ/√2), 0.575. (Noise
  of another kind might allow 1 − (1 − δ)²/(1 + e^ε) = 0.731, the area above its trade-off.)
- one release, its members against strangers from the same population. The AUC is the probability
  that a member i scores above a stranger j. If i and j are exchanged, it is the probability of the
  opposite, by symmetry, and the two tables differ by two units: with 2μ, a guess is right with
  probability at most Φ(μ), 0.606.
"""

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from kernels.features.spec import Architecture, KernelSpec
from kernels.model.model import Model
from kernels.model.noise_plan import NoisePlan
from kernels.rounds.columns import moments
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.tables.schema import Numeric, Schema
from kernels.tables.targets import Target
from privacy.accounting import gaussian
from privacy.accounting.planning import Stage, multipliers
from privacy.encoding import Encoding
from privacy.layout import SecureTotal
from privacy.noise import approximate, draw
from tests.dealing import DEALING

EPSILON, DELTA = 1.0, 1e-5
MU = gaussian.most_mu(EPSILON, DELTA)
TOLD_BETWEEN_RELEASES = NormalDist().cdf(MU / 2**0.5)
TOLD_WITHIN_A_RELEASE = NormalDist().cdf(MU)

HOSPITALS = 5
INPUTS = 5
SCHEMA = Schema(
    tuple(Numeric(f"x{i}", "1", -2, 2) for i in range(INPUTS)), (Target("y", "1", -3, 3),)
)
Table = dict[str, NDArray[np.float64]]
Contribution = dict[str, NDArray[np.float64]]


def program(*, samples: int, sums: int | None) -> Program:
    """Return a program with one sum of (S, b, yᵀy), with public scales.

    `sums` sums of this kind cost ε = 1; None means no differential privacy. The scales are the
    schema's bounds: that stage has no sum, and its multiplier is not used.
    """
    privacy = None
    if sums is not None:
        (z,) = multipliers([Stage(part="training", sums=sums)], epsilon=EPSILON, delta=DELTA)
        privacy = NoisePlan(multipliers=(z, z))
    kernel = KernelSpec(inputs=INPUTS, architecture=Architecture.RBF, samples=samples, seed=1)
    stages = (moments.Spec(from_bounds=True), linear.Spec())
    return Program(SCHEMA, kernel, stages, max_rows=10_000, held_out=0.0, privacy=privacy)


def patients(rows: int, random: np.random.Generator) -> Table:
    """Return random patients from one population."""
    x = random.uniform(-2, 2, (rows, INPUTS))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.1 * random.normal(size=rows)
    return {**{f"x{i}": x[:, i] for i in range(INPUTS)}, "y": y}


def rows_of(table: Table, rows: slice) -> Table:
    """Return some of a table's rows."""
    return {name: column[rows] for name, column in table.items()}


def dealt(table: Table) -> list[Table]:
    """Return the patients, divided among the hospitals."""
    return [rows_of(table, slice(i, None, HOSPITALS)) for i in range(HOSPITALS)]


def scaled(own: Program) -> Model:
    """Return the model whose features the hospitals sum; everyone knows it before the sum."""
    return moments.initial(moments.Spec(from_bounds=True), own.start()).model


def contributions(own: Program, tables: Sequence[Table]) -> list[Contribution]:
    """Return each hospital's contribution, before noise is added."""
    state = linear.initial(linear.Spec(), scaled(own))
    sites = [Site.of_table(SCHEMA, table, held_out=0.0, dealing=DEALING) for table in tables]
    return [dict(linear.contribute(state, site)) for site in sites]


def encoding(own: Program) -> Encoding:
    """Return the hospitals' encoding."""
    layout = linear.layout(linear.initial(linear.Spec(), scaled(own)))
    if own.privacy is None:
        return Encoding.finest(layout, max_clients=HOSPITALS)
    z = own.privacy.multipliers[-1]
    return Encoding.noisy(layout, multiplier=z, honest=HOSPITALS, max_clients=HOSPITALS)


def total(
    how: Encoding,
    parts: Sequence[Contribution],
    random: np.random.Generator,
) -> SecureTotal:
    """Return the sum as the coordinator gets it, which is what the attacker sees."""
    source = approximate(random)
    vectors = [
        how.encode(part, noise=draw(how, source=source).once() if how.share_deviations else None)
        for part in parts
    ]
    return how.decode(np.add.reduce(vectors), contributors=len(vectors))


def records(own: Program, table: Table) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return φ, (rows, M), and the scaled y, (rows,), of patients that the attacker knows."""
    model = scaled(own)
    x, y = Site.of_table(SCHEMA, table, held_out=0.0, dealing=DEALING).table(Part.TRAINING, model)
    return model.features(x).numpy(), y[:, 0].numpy()


def auc(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """Return the probability that a member scores above a stranger; a tie counts half."""
    ordered = np.sort(outside)
    below = np.searchsorted(ordered, inside, "left") + np.searchsorted(ordered, inside, "right")
    return float(below.mean() / (2 * len(outside)))
