"""A16: a model's variance is lower at its training rows, and so reveals who trained it.

The attacker only has the answers of a served model: a mean and a variance for any patient. With 100
training rows, the latent variance at each is reduced by that row itself. With differential privacy
the model is a function of noisy sums, so all of its answers are protected. (At ε = 1 the model
learns almost nothing from so few rows: its variances differ in the fourth digit. What they still
reveal about members is in their order, and the score depends only on the order.)
"""

import numpy as np

from client_sdk.simulation import simulate
from kernels.model.prediction import predict
from kernels.rounds.program import Program
from privacy.noise import approximate
from tests.dealing import DEALING

from .membership import TOLD_WITHIN_A_RELEASE, auc, dealt, patients, program

SAMPLES = 50
ROWS = 100
STRANGERS = 1000


def ranked(own: Program, *, models: int) -> float:
    """Return the AUC of members against strangers by variance, averaged over some models."""
    random = np.random.default_rng(16)
    found = []
    for _ in range(models):
        members, strangers = patients(ROWS, random), patients(STRANGERS, random)
        run = simulate(own, dealt(members), DEALING, secure=False, source=approximate(random))
        inside, outside = (-predict(run.model, who).variance[:, 0] for who in (members, strangers))
        found.append(auc(inside.numpy(), outside.numpy()))
    return float(np.mean(found))


def test_without_noise_the_variance_names_the_members() -> None:
    assert ranked(program(samples=SAMPLES, sums=None), models=2) > 0.99


def test_at_epsilon_one_the_variance_says_nothing() -> None:
    """100 members, 1,000 strangers, three times: the AUC's standard deviation is 0.017."""
    found = ranked(program(samples=SAMPLES, sums=1), models=3)
    assert abs(found - 0.5) < TOLD_WITHIN_A_RELEASE - 0.5
