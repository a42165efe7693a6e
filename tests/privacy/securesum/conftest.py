"""Sessions for tests, with unique markers in the vectors that make double counting visible."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from privacy.securesum.simulator import Outcome, Simulation
from privacy.securesum.terms import Terms


@pytest.fixture
def strict() -> Callable[..., Simulation]:
    """Return a maker of sessions without differential privacy: the steady-cohort rule applies."""

    def make(n: int = 5, *, colluders: int = 1, least: int | None = None, seed: int = 0):
        least = max(3, colluders + 2) if least is None else least
        terms = Terms(bytes(16), colluders, least, False)
        return Simulation(n, terms=terms, random=random.Random(seed).randbytes)

    return make


@pytest.fixture
def private() -> Callable[..., Simulation]:
    """Return a maker of sessions with differential privacy: any survivors above the minimum."""

    def make(n: int = 5, *, colluders: int = 1, least: int | None = None, seed: int = 0):
        least = max(3, colluders + 2) if least is None else least
        terms = Terms(bytes(16), colluders, least, True)
        return Simulation(n, terms=terms, random=random.Random(seed).randbytes)

    return make


class Markers:
    """Vectors in which each site has its own element, and no number occurs twice."""

    def __init__(self) -> None:
        self._next = 1

    def vectors(self, n: int) -> list[np.ndarray]:
        """Return one vector per site."""
        made = []
        for site in range(n):
            vector = np.zeros(n + 1, dtype=np.uint64)
            vector[site] = vector[n] = self._next
            self._next += 1
            made.append(vector)
        return made

    @staticmethod
    def check(outcome: Outcome, vectors: list[np.ndarray]) -> None:
        """Assert that a total counts each survivor once, and nobody else."""
        expected = sum((vectors[site] for site in outcome.survivors), np.zeros_like(vectors[0]))
        assert outcome.total is not None
        np.testing.assert_array_equal(outcome.total, expected)


@pytest.fixture
def markers() -> Markers:
    return Markers()
