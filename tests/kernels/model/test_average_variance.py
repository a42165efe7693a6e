"""Average variances: the same for every row, of the right size, and nothing else changes."""

import numpy as np
import pytest
import torch

from kernels.model.average_variance import with_average_variance
from kernels.model.exposure import membership_auc, most_effective_features
from kernels.model.model import training_rows
from kernels.model.prediction import Predictions, predict
from tests.adversary.variance_oracle import Attacked, Population
from tests.kernels.rounds import every_kind

LINEAR = Attacked.of("linear", columns=30, rows=300)


def covered(predictions: Predictions, y: np.ndarray, *, level: float) -> float:
    lower, upper = (ends[:, 0].numpy() for ends in predictions.interval(level))
    return float(np.mean((lower <= y) & (y <= upper)))


def test_the_average_is_that_of_new_patients_and_intervals_keep_their_coverage() -> None:
    patients = Population(30).draw(2000, np.random.default_rng(1))
    rows = predict(LINEAR.model, patients)
    averages = with_average_variance(LINEAR.model, rows)
    assert torch.equal(averages.mean, rows.mean)
    assert len(averages.variance.unique()) == 1
    of_rows = float(rows.variance.mean())
    assert float(averages.variance[0, 0]) == pytest.approx(of_rows, rel=0.02)
    own, level = np.asarray(patients["y"]), 0.9
    found = covered(averages, own, level=level)
    assert found == pytest.approx(covered(rows, own, level=level), abs=0.01)


def test_the_parts_add_up_and_without_real_targets_nothing_changes() -> None:
    patients = Population(30).draw(3, np.random.default_rng(2))
    averages = with_average_variance(LINEAR.model, predict(LINEAR.model, patients))
    assert torch.equal(averages.variance, averages.latent_variance + averages.noise_variance)
    model = every_kind.artifact(every_kind.READMITTED).model
    plain = predict(model, every_kind.table(3))
    assert with_average_variance(model, plain) is plain


def test_effective_features_are_those_of_the_layer() -> None:
    statistics, scales = LINEAR.model.statistics, LINEAR.model.hyperparameters
    assert statistics is not None
    assert scales is not None
    ridge = torch.eye(31).double() * scales.noise_variance / scales.prior_variance
    free = torch.linalg.solve(statistics.scatter + ridge, statistics.scatter).trace()
    assert most_effective_features(LINEAR.model) == pytest.approx(float(free), rel=1e-6)
    assert 0.5 < membership_auc(LINEAR.model) < 1
    assert training_rows(LINEAR.model) == 300


def test_outcomes_count_as_well() -> None:
    model = every_kind.artifact(every_kind.READMITTED).model
    assert model.outcomes is not None
    assert 1 < most_effective_features(model) < model.kernel.features
