"""A16: a model that knows a place well has seen it: its variance says who trained it.

The attacker has nothing but answers of a served model: a mean and a variance for any patient it
asks about. Of 100 training rows the latent variance at each is pulled down by that very row. With
differential privacy the model is a function of noisy sums, so whatever is asked of it is covered.
(At ε = 1 so few rows teach it next to nothing: its variances differ in the fourth digit. What they
still say of members is in their order, which is all that the score looks at.)
"""

import numpy as np

from client_sdk.simulation import simulate
from kernels.model.prediction import predict
from kernels.rounds.program import Program
from privacy.noise import approximate

from .membership import TOLD_WITHIN_A_RELEASE, auc, dealt, patients, program

SAMPLES = 50
ROWS = 100
STRANGERS = 1000


def ranked(own: Program, *, models: int) -> float:
    """Return the AUC of members against strangers by variance, the mean over some models."""
    random = np.random.default_rng(16)
    found = []
    for _ in range(models):
        members, strangers = patients(ROWS, random), patients(STRANGERS, random)
        run = simulate(own, dealt(members), 1, secure=False, source=approximate(random))
        inside, outside = (-predict(run.model, who).variance[:, 0] for who in (members, strangers))
        found.append(auc(inside.numpy(), outside.numpy()))
    return float(np.mean(found))


def test_without_noise_the_variance_names_the_members() -> None:
    assert ranked(program(samples=SAMPLES, sums=None), models=2) > 0.99


def test_at_epsilon_one_the_variance_says_nothing() -> None:
    """100 members and 1,000 strangers, three times: the AUC's own deviation is 0.017."""
    found = ranked(program(samples=SAMPLES, sums=1), models=3)
    assert abs(found - 0.5) < TOLD_WITHIN_A_RELEASE - 0.5
