"""A12: with fewer rows than features, the scatter matrix is the data.

S = Σ φφᵀ of n < M rows spans those rows and nothing else: φ of every member lies in this span to
the last digit, and φ of a stranger does not. The attacker has records of patients, and computes how
much of each φ is outside the span. With noise S̃ spans everything, so the attacker uses the n
largest directions; or it ignores the span, and computes how much of what a patient would add is in
the sum.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from kernels.rounds.program import Program
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
