"""All rows in one place, standardised: what the methods of others are given.

They may spend the whole (ε, δ) on the training rows, and are given for free what our routes pay
for: the columns' noisy means and deviations, and the variance of their errors.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.dp.data import Private
from benchmarks.dp.routes import program, public_kernel, scales_alone
from benchmarks.dp.scores import Score, of_gaussian
from client_sdk.simulation import simulate
from kernels.model.model import known
from kernels.rounds.site.site import Part
from kernels.tables.records import Records
from privacy.noise import approximate

Matrix = NDArray[np.float64]
Parts = tuple[Matrix, NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Pooled:
    """All rows in one place, standardised."""

    training: Parts
    validation: Parts
    test: Parts
    scale: float

    @classmethod
    def of(cls, data: Private, epsilon: float, seed: int) -> "Pooled":
        """Standardise by the noisy moments of the routes."""
        source = approximate(np.random.default_rng([seed, 3]))
        asked = scales_alone(program(data, public_kernel, epsilon))
        model = simulate(asked, data.sites, secure=False, source=source).model
        standardiser = known(model.standardiser, "moments")

        def standardised(records: Records) -> Parts:
            rows = standardiser.apply(records)
            return rows.features.numpy(), known(rows.targets, "moments")[:, 0].numpy()

        return cls(
            standardised(data.pooled(Part.TRAINING)),
            standardised(data.pooled(Part.CALIBRATION)),
            standardised(data.dataset.records(data.test)),
            standardiser.targets[0].scale,
        )

    def score(self, mean: Matrix, variance: Matrix) -> Score:
        """Score standardised predictions of the test rows in the target's unit."""
        return of_gaussian((self.test[1] - mean) * self.scale, variance * self.scale**2)

    def with_own_variance(self, held_out: Matrix, tested: Matrix) -> Score:
        """Score predictions with the variance of validation errors: free, and not private."""
        variance = float(np.mean((self.validation[1] - held_out) ** 2))
        return self.score(tested, np.full(len(tested), variance))
