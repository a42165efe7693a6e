"""A12: with fewer rows than features, the scatter matrix is the data.

S = Σ φφᵀ of n < M rows spans those rows and nothing else: φ of every member lies in this span to
the last digit, and φ of a stranger does not. The attacker has records of patients, and computes how
much of each φ is outside the span. With noise S̃ spans everything, so the attacker uses the n
largest directions; or it ignores the span, and computes how much of what a patient would add is in
the sum.

A mixture of two kernels has two such matrices over the same rows, and a floor of so many rows for
each feature counts the features of both (`kernels.rounds.plan.most_features`).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.rounds.program import Program
from kernels.rounds.stated.default_limits import ROWS_PER_FEATURE
from privacy.layout import SecureTotal

from .membership import (
    TOLD_WITHIN_A_RELEASE,
    auc,
    contributions,
    dealt,
    encoding,
    patients,
    program,
    records,
    total,
)

SAMPLES = 40
ROWS = 60
"""Fewer than the 80 features."""
STRANGERS = 300
RELEASES = 20
EXACT = program(samples=SAMPLES, sums=None)
PRIVATE = program(samples=SAMPLES, sums=1)
_FEATURES, _FLOOR = 20, int(ROWS_PER_FEATURE)

Vectors = NDArray[np.float64]
Attack = Callable[[SecureTotal, Vectors, Vectors], Vectors]
"""Maps a total, and φ and y of patients, to scores: higher for likely members."""


def within_the_span(seen: SecureTotal, phi: Vectors, _: Vectors) -> Vectors:
    """Return minus the part of φ outside the n largest eigenvectors; n is public."""
    _, vectors = np.linalg.eigh(seen["scatter"])
    outside: Vectors = ((phi @ vectors[:, :-ROWS]) ** 2).sum(1)
    return -outside


def in_the_sum(seen: SecureTotal, phi: Vectors, y: Vectors) -> Vectors:
    """Return ⟨S̃, φφᵀ⟩ + ⟨b̃, φy⟩, each divided by its noise variance: high if likely in the sum."""
    of_scatter = ((phi @ seen["scatter"]) * phi).sum(1) / (seen.noise("scatter") or 1.0) ** 2
    of_cross = (phi @ seen["cross"])[:, 0] * y / (seen.noise("cross") or 1.0) ** 2
    leaning: Vectors = of_scatter + of_cross
    return leaning


def ranked(own: Program, attack: Attack, *, releases: int) -> float:
    """Return the AUC of members against strangers, averaged over releases with new patients."""
    random = np.random.default_rng(12)
    how = encoding(own)
    found = []
    for _ in range(releases):
        members, strangers = patients(ROWS, random), patients(STRANGERS, random)
        seen = total(how, contributions(own, dealt(members)), random)
        inside, outside = (attack(seen, *records(own, who)) for who in (members, strangers))
        found.append(auc(inside, outside))
    return float(np.mean(found))


def test_without_noise_membership_is_certain() -> None:
    assert ranked(EXACT, within_the_span, releases=2) == 1.0


@pytest.mark.parametrize("attack", [within_the_span, in_the_sum])
def test_at_epsilon_one_members_are_not_told_from_strangers(attack: Attack) -> None:
    """60 members, 300 strangers, 20 times: AUCs of 0.54 and 0.55, standard deviation 0.009."""
    assert abs(ranked(PRIVATE, attack, releases=RELEASES) - 0.5) < TOLD_WITHIN_A_RELEASE - 0.5


def test_a_floor_counts_the_features_of_both_kernels_of_a_mixture() -> None:
    """Two matrices over the same rows tell more than one, unless there are rows for both."""
    one = told_apart(kernels=1, rows=_FLOOR * _FEATURES)
    assert told_apart(kernels=2, rows=_FLOOR * _FEATURES) > one + 0.03
    assert told_apart(kernels=2, rows=_FLOOR * 2 * _FEATURES) < one


def told_apart(*, kernels: int, rows: int) -> float:
    """Return the AUC of members against strangers from exact S of some kernels over some rows.

    The attacker knows other patients of the population, and how much of what a patient would add
    is in each sum beyond what they lead to expect: φᵀA(S − nA⁻¹)Aφ, with A⁻¹ their mean of φφᵀ.
    """
    random = np.random.default_rng(5)
    found = []
    for _ in range(RELEASES):
        members, strangers = patients(rows, random), patients(STRANGERS, random)
        others = patients(10 * STRANGERS, random)
        inside, outside = np.zeros(rows), np.zeros(STRANGERS)
        for seed in range(kernels):
            own = program(samples=_FEATURES // 2, sums=None)
            own = replace(own, kernel=replace(own.kernel, seed=seed))
            phi, known, expected = (records(own, who)[0] for who in (members, strangers, others))
            precision = np.linalg.pinv(expected.T @ expected / len(expected), rcond=1e-6)
            beyond = precision @ (phi.T @ phi) @ precision - rows * precision
            inside += ((phi @ beyond) * phi).sum(1)
            outside += ((known @ beyond) * known).sum(1)
        found.append(auc(inside, outside))
    return float(np.mean(found))
