"""The law of standardised residuals compared with numerical integration."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from kernels.errors import PredictionError
from kernels.scores.student_t import StudentT

LAWS = [StudentT(), StudentT(None, 0.4), StudentT(2.3, 1.7), StudentT(5.0, 0.6)]


def density(law: StudentT, z: float) -> float:
    return float(law.log_density(torch.tensor([z], dtype=torch.float64)).exp())


@pytest.mark.parametrize("law", LAWS)
def test_density_tail_and_quantile_are_of_one_law(law: StudentT) -> None:
    for level in (0.05, 0.5, 0.9, 0.99):
        q = law.half_width(level)
        assert 2 * quad(lambda z: density(law, z), 0, q)[0] == pytest.approx(level, abs=1e-9)
        assert law.beyond(np.array([q]))[0] == pytest.approx(1 - level, rel=1e-9)


@pytest.mark.parametrize("law", LAWS)
def test_the_variance_is_the_second_moment(law: StudentT) -> None:
    # On a logarithmic axis: the tail of ν = 2.3 matters to the last digit.
    moment = 2 * quad(lambda t: math.exp(3 * t) * density(law, math.exp(t)), -30, 80, limit=500)[0]
    assert moment == pytest.approx(law.variance, rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("z", [0.0, -0.7, 3.0])
def test_the_ranked_loss_is_the_integral_it_is_defined_by(law: StudentT, z: float) -> None:
    def upper(x: float) -> float:
        tail = float(law.beyond(np.array([abs(x)]))[0]) / 2
        return tail if x >= 0 else 1 - tail

    # ∫ (F(x) − 1[x ≥ z])² dx
    below = quad(lambda x: (1 - upper(x)) ** 2, -np.inf, z, limit=200)[0]
    above = quad(lambda x: upper(x) ** 2, z, np.inf, limit=200)[0]
    loss = float(law.ranked_loss(torch.tensor([z], dtype=torch.float64)))
    assert loss == pytest.approx(below + above, rel=1e-6)


def test_many_degrees_of_freedom_are_nearly_the_gaussian() -> None:
    z = torch.linspace(-3, 3, 7, dtype=torch.float64)
    close, limit = StudentT(1e6, 0.8), StudentT(None, 0.8)
    assert torch.allclose(close.log_density(z), limit.log_density(z), atol=1e-4)
    assert torch.allclose(close.ranked_loss(z), limit.ranked_loss(z), atol=1e-4)


@pytest.mark.parametrize("law", [{"freedom": 2.0}, {"freedom": math.inf}, {"scale": 0.0}])
def test_a_law_without_a_variance_is_refused(law: dict[str, float]) -> None:
    with pytest.raises(PredictionError):
        StudentT(**law)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan, 90])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(PredictionError, match="level"):
        StudentT().half_width(level)
