"""A student with a mean and a variance, distilled from a teacher's moments."""

from typing import Any

import pytest
import torch
from torch import Tensor

from kernels.ensembles.networks import outputs
from kernels.ensembles.student_network import (
    Direction,
    StudentSpec,
    distil,
    mean_divergence,
    predict,
)
from kernels.errors import EmptyTable, SpecError, WeightsError, WrongShape
from kernels.scores.gaussians import Gaussian

SPEC = StudentSpec(inputs=2, targets=2, hidden=(20, 20))


def _rows(count: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 2, generator=generator, dtype=torch.float64)


def _teacher(x: Tensor) -> Gaussian:
    """Two targets; where one is more certain, the other is less."""
    mean = torch.stack([x[:, 0].sin(), x[:, 1] / 2], 1)
    return Gaussian(mean, torch.stack([0.2 + x[:, 1].sigmoid(), (-x[:, 1] / 2).exp() / 3], 1))


def _distilled(direction: Direction = Direction.TEACHER_FIRST, **changed: Any) -> Tensor:
    x = _rows(400)
    options = {"seed": 3, "epochs": 60, "learning_rate": 0.01, **changed}
    generator = torch.Generator().manual_seed(2)
    return distil(SPEC, _teacher(x), x, direction=direction, generator=generator, **options)


@pytest.mark.parametrize("direction", Direction)
def test_a_student_says_what_its_teacher_says_also_at_rows_it_has_not_seen(
    direction: Direction,
) -> None:
    theta, unseen = _distilled(direction), _rows(300, seed=9)
    teacher, student = _teacher(unseen), predict(SPEC, theta, unseen)
    assert mean_divergence(SPEC, theta, teacher, unseen) < 0.04
    near = unseen.abs().max(1).values < 1.5
    assert (student.mean - teacher.mean)[near].abs().max() < 0.25
    assert (student.variance / teacher.variance).log()[near].abs().max() < 0.5
    before = _distilled(direction, epochs=1)
    assert mean_divergence(SPEC, before, teacher, unseen) > 0.3


def test_the_two_directions_are_not_the_same() -> None:
    assert not torch.allclose(*(_distilled(direction, epochs=3) for direction in Direction))


def test_the_divergence_is_what_the_teacher_would_draw_loses() -> None:
    """KL(teacher ‖ student) = E[log teacher − log student] over the teacher's draws."""
    x, theta = _rows(1), _distilled(epochs=1)
    teacher, student = _teacher(x), predict(SPEC, theta, x)
    generator = torch.Generator().manual_seed(4)
    noise = torch.randn(200_000, 1, 2, generator=generator, dtype=torch.float64)
    draws = teacher.mean + teacher.variance.sqrt() * noise
    lost = (teacher.log_density(draws) - student.log_density(draws)).sum((1, 2))
    error = float(lost.std()) / len(draws) ** 0.5
    assert mean_divergence(SPEC, theta, teacher, x) == pytest.approx(
        float(lost.mean()), abs=4 * error
    )


def test_distilling_is_a_function_of_seed_and_generator() -> None:
    assert torch.equal(_distilled(epochs=2), _distilled(epochs=2))
    assert not torch.equal(_distilled(epochs=2), _distilled(epochs=2, seed=4))


def test_students_of_several_teachers_learn_at_once_what_each_would_alone() -> None:
    x = _rows(130)
    one = _teacher(x)
    other = Gaussian(-one.mean, 2 * one.variance)
    together = Gaussian(
        torch.stack([one.mean, other.mean]), torch.stack([one.variance, other.variance])
    )

    def taught(teacher: Gaussian) -> Tensor:
        generator = torch.Generator().manual_seed(2)
        return distil(SPEC, teacher, x, seed=3, epochs=4, generator=generator)

    both = taught(together)
    assert both.shape == (2, SPEC.network.parameters)
    for student, teacher in zip(both, (one, other), strict=True):
        assert torch.allclose(student, taught(teacher), rtol=0, atol=1e-9)


def test_a_hostile_student_has_a_finite_variance() -> None:
    theta = torch.full((SPEC.network.parameters,), 1e3).double()
    student = predict(SPEC, theta, _rows(3).abs())
    assert (outputs(SPEC.network, theta, _rows(3).abs()) > 1e6).all()
    assert student.variance.isfinite().all()


def test_what_is_no_teacher_is_refused() -> None:
    x, generator = _rows(4), torch.Generator()
    with pytest.raises(WrongShape, match="teacher"):
        distil(SPEC, _teacher(x[:3]), x, seed=1, generator=generator)
    with pytest.raises(EmptyTable, match="at least one public row"):
        distil(SPEC, _teacher(x[:0]), x[:0], seed=1, generator=generator)
    with pytest.raises(SpecError):
        StudentSpec(inputs=0)


def test_diverging_says_so() -> None:
    x = _rows(5)
    with pytest.raises(WeightsError, match="learning_rate"):
        distil(
            SPEC,
            Gaussian(_teacher(x).mean * 1e300, _teacher(x).variance),
            x,
            seed=1,
            epochs=3,
            generator=torch.Generator(),
        )
