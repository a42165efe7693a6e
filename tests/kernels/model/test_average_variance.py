"""Average variances: the same for every row, of the right size, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from kernels.model.average_variance import with_average_variance
from kernels.model.exposure import (
    effective_features,
    exposed_features,
    membership_auc,
    rows_shown_alone,
)
from kernels.model.model import training_rows
from kernels.model.prediction import Predictions, predict
from kernels.model.second import Second
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
    found = float(effective_features(LINEAR.model.posterior).max())
    assert found == pytest.approx(float(free), rel=1e-6)
    assert 0.5 < membership_auc(LINEAR.model) < 1
    assert training_rows(LINEAR.model) == 300


def test_outcomes_count_as_well() -> None:
    model = every_kind.artifact(every_kind.READMITTED).model
    assert model.outcomes is not None
    assert exposed_features(model) >= model.kernel.features


def test_the_prior_does_not_lower_the_estimate() -> None:
    """Its part of the variances does not change by chance, so it hides nobody."""
    scales = LINEAR.model.hyperparameters
    assert scales is not None
    shrunk = replace(scales, prior_variance=scales.prior_variance * 1e-6)
    model = replace(LINEAR.model, hyperparameters=shrunk)
    assert float(effective_features(model.posterior).max()) < 1
    assert membership_auc(model) == membership_auc(LINEAR.model)


def test_both_kernels_of_a_mixture_count() -> None:
    model = replace(LINEAR.model, withheld=None)
    second = Second(
        kernel=model.kernel,
        share=0.5,
        weights=model.weights,
        hyperparameters=model.hyperparameters,
        statistics=model.statistics,
    )
    mixed = replace(model, second=second)
    assert exposed_features(mixed) == 2 * exposed_features(model)
    plain = predict(mixed, Population(30).draw(3, np.random.default_rng(3)))
    assert torch.allclose(
        with_average_variance(mixed, plain).variance, with_average_variance(model, plain).variance
    )


def test_the_file_shows_held_out_rows_alone() -> None:
    assert LINEAR.model.withheld is not None
    assert rows_shown_alone(LINEAR.model) == 60
    assert rows_shown_alone(replace(LINEAR.model, withheld=None)) == training_rows(LINEAR.model)
