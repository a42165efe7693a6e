"""A6 with noise: one more patient between two sums is exposed by their difference, unless noisy.

The coordinator requests the sum of 5,000 rows and later, after one more patient has come, of 5,001.
Without noise the difference of the two is that patient: features and target. With differential
privacy both sums are allowed, and together cost ε = 1.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kernels.rounds.program import Program
from privacy.layout import SecureTotal
from tests.client_sdk.hospitals import drive
from tests.client_sdk.private import PROGRAM, private_session
from tests.kernels.rounds.tables import tables

from .membership import (
    TOLD_BETWEEN_RELEASES,
    Contribution,
    auc,
    contributions,
    dealt,
    encoding,
    patients,
    program,
    records,
    rows_of,
    total,
)

ROWS = 5000
SAMPLES = 10
GAMES = 800
EXACT = program(samples=SAMPLES, sums=None)
PRIVATE = program(samples=SAMPLES, sums=2)


def joined(others: list[Contribution], patient: Contribution) -> list[Contribution]:
    """Return the hospitals' contributions after one more patient has come to the first."""
    first = {name: value + patient[name] for name, value in others[0].items()}
    return [first, *others[1:]]


def read_off(more: SecureTotal, fewer: SecureTotal) -> tuple[NDArray[np.float64], float]:
    """Return estimates of φφᵀ and |y| of the new patient: the nearest rank one, and b along it."""
    values, vectors = np.linalg.eigh(more["scatter"] - fewer["scatter"])
    phi = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
    cross = (more["cross"] - fewer["cross"])[:, 0]
    return np.outer(phi, phi), float(abs(cross @ phi) / (phi @ phi))


def test_without_noise_the_difference_is_the_patient() -> None:
    random = np.random.default_rng(6)
    everyone = patients(ROWS + 1, random)
    how = encoding(EXACT)
    more, fewer = (
        total(how, contributions(EXACT, dealt(rows_of(everyone, rows))), random)
        for rows in (slice(None), slice(ROWS))
    )
    (phi,), (y,) = records(EXACT, rows_of(everyone, slice(ROWS, None)))
    found, target = read_off(more, fewer)
    assert np.abs(found - np.outer(phi, phi)).max() < 1e-9
    assert abs(target - abs(y)) < 1e-9


def test_at_epsilon_one_what_is_read_off_is_worse_than_a_guess() -> None:
    """The guess to beat: the patient is like the average of all others, which is public anyway."""
    random = np.random.default_rng(6)
    how = encoding(PRIVATE)
    others = contributions(PRIVATE, dealt(patients(ROWS, random)))
    average = np.sum([part["scatter"] for part in others], 0) / ROWS
    read, guessed = [], []
    for _ in range(20):
        newcomer = patients(1, random)
        (phi,), _ = records(PRIVATE, newcomer)
        more = total(how, joined(others, contributions(PRIVATE, [newcomer])[0]), random)
        found, _ = read_off(more, total(how, others, random))
        read.append(np.linalg.norm(found - np.outer(phi, phi)))
        guessed.append(np.linalg.norm(average - np.outer(phi, phi)))
    assert min(read) > max(guessed)
    assert np.mean(read) > 10 * np.mean(guessed)


def told(own: Program, *, games: int) -> float:
    """Return the AUC of an attacker who has a patient's record and asks whether they came.

    It projects the difference onto what the patient would add, each block divided by its noise.
    This is the likelihood ratio, and no score is better.
    """
    random = np.random.default_rng(6)
    how = encoding(own)
    others = contributions(own, dealt(patients(ROWS, random)))
    (patient,) = contributions(own, [patients(1, random)])

    def excess(second: list[Contribution]) -> float:
        now, before = total(how, second, random), total(how, others, random)
        return sum(
            float(np.vdot(now[name] - before[name], change)) / (now.noise(name) or 1.0) ** 2
            for name, change in patient.items()
        )

    came = [excess(joined(others, patient)) for _ in range(games)]
    stayed = [excess(others) for _ in range(games)]
    return auc(np.array(came), np.array(stayed))


def test_whether_the_patient_came_is_certain_without_noise_and_a_coin_at_epsilon_one() -> None:
    """800 games of each kind: the AUC is 0.53, with a standard deviation of 0.014."""
    assert told(EXACT, games=1) == 1.0
    found = told(PRIVATE, games=GAMES)
    assert abs(found - 0.5) < TOLD_BETWEEN_RELEASES - 0.5


def test_through_a_whole_session_the_difference_is_not_the_patient(tmp_path: Path) -> None:
    """Hospitals answer for both tables, as they may, with noise that they draw themselves."""
    more = tables(3)
    fewer = [{name: column[:-1] for name, column in more[0].items()}, *more[1:]]
    seen = []
    for data in (more, fewer):
        coordinator, hospitals = private_session(tmp_path, epsilon=2.0, data=data)
        drive(hospitals, coordinator)
        assert [hospital.error for hospital in hospitals] == [None] * 3
        statistics = coordinator.model.statistics
        assert statistics is not None
        seen.append(statistics.scatter.numpy())
    of_one_row = PROGRAM.kernel.squared_norm_bound
    assert of_one_row is not None
    assert np.linalg.norm(seen[0] - seen[1]) > 3 * of_one_row
