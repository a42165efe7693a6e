"""Scores with bounds compared with scores without bounds."""

from dataclasses import fields

import pytest
import torch

from kernels.scores.evaluation import (
    INTERVAL_LOSS_BOUND,
    LOG_LOSS_BOUND,
    RESIDUAL_BOUND,
    WIDTH_BOUND,
    in_units,
    score,
)
from kernels.scores.metrics import Scores
from kernels.scores.student_t import StudentT
from kernels.tables.standardiser import Scale, Standardiser


def rows(count: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(4)
    variance = 0.2 + torch.rand(count, 1, generator=random, dtype=torch.float64)
    return torch.randn(count, 1, generator=random, dtype=torch.float64), variance


def assert_same(one: Scores, other: Scores) -> None:
    for field in fields(Scores):
        left, right = getattr(one, field.name), getattr(other, field.name)
        assert torch.allclose(left, right, rtol=1e-10, atol=1e-12), field.name


def test_the_standard_law_is_scored_as_the_gaussian() -> None:
    residuals, variance = rows()
    assert_same(
        score([StudentT()], residuals, variance),
        Scores.of(torch.zeros_like(residuals), variance, residuals),
    )


def test_a_scaled_gaussian_is_scored_as_one_of_larger_variance() -> None:
    residuals, variance = rows()
    assert_same(
        score([StudentT(None, 1.5)], residuals, variance),
        Scores.of(torch.zeros_like(residuals), variance * 2.25, residuals),
    )


def test_scores_in_units_are_the_scores_of_predictions_in_units() -> None:
    residuals, variance = rows()
    standardiser = Standardiser((), (), (Scale("stay", 7.0, 3.5), Scale("cost", 9e3, 2e3)))
    both = score([StudentT()] * 2, residuals.expand(-1, 2), variance.expand(-1, 2))
    scale = torch.tensor([3.5, 2e3], dtype=torch.float64)
    mean = torch.zeros(50, 2, dtype=torch.float64)
    assert_same(
        in_units(both, standardiser),
        Scores.of(mean, variance * scale**2, residuals * scale),
    )


@pytest.mark.parametrize("law", [StudentT(), StudentT(2.3, 200.0), StudentT(None, 0.02)])
@pytest.mark.parametrize("residual", [0.0, 1e7, -1e7])
@pytest.mark.parametrize("variance", [1e-9, 1.0, 1e9])
def test_no_row_exceeds_its_bounds(law: StudentT, residual: float, variance: float) -> None:
    row = [torch.tensor([[number]], dtype=torch.float64) for number in (residual, variance)]
    scores = score([law], *row)
    assert float(scores.squared_errors) <= RESIDUAL_BOUND**2
    assert float(scores.log_losses.abs()) <= LOG_LOSS_BOUND
    assert 0 <= float(scores.ranked_losses) <= RESIDUAL_BOUND
    assert float(scores.widths.max()) <= WIDTH_BOUND
    assert float(scores.interval_losses.max()) <= INTERVAL_LOSS_BOUND


def test_no_rows_score_nothing() -> None:
    nothing = torch.zeros(0, 1, dtype=torch.float64)
    assert_same(score([StudentT()], nothing, nothing), Scores.zero(1))
