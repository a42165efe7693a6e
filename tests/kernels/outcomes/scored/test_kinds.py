"""Every kind is scored and recalibrated by one loop that knows none of them."""

import json
from dataclasses import asdict
from typing import get_args

import pytest
import torch
from torch import Tensor

from kernels.errors import PredictionError, StateError, WrongShape
from kernels.outcomes.fitted import FittedOutcome, latent_functions
from kernels.outcomes.scored.kinds import KINDS, kind_of, predicted
from kernels.outcomes.variational import Layer
from kernels.scores.recalibration import FOLDS
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent
from privacy.layout import Block

N = 30
TARGETS: tuple[Outcome, ...] = (
    Binary("died", ("no", "yes"), "yes"),
    Classes("ward", ("a", "b", "c")),
    Count("visits", "visits", 50.0, "years"),
    TimeToEvent("days", "d", "event", (1.0, 2.0, 4.0)),
)


def table(target: Outcome) -> tuple[Tensor, Tensor, Tensor | None]:
    """Outcomes as numbers, and what a model says of them."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    mean, variance = random(N, latent_functions(target)), random(N, latent_functions(target))
    match target:
        case Binary():
            return random(N, 1).round(), mean, variance
        case Classes():
            return (3 * random(N, 1)).floor(), mean, variance
        case Count():
            return torch.cat([(4 * random(N, 1)).floor(), 0.5 + random(N, 1)], 1), mean, variance
        case TimeToEvent():
            survival = (0.5 + random(N, 3) / 2).cumprod(1)
            return torch.cat([5 * random(N, 1), random(N, 1).round()], 1), survival, None


def fitted(target: Outcome) -> FittedOutcome:
    functions = latent_functions(target)
    return FittedOutcome(
        (Layer.prior(2),) * functions,
        (0.1,) * functions,
        2.0 if isinstance(target, Count) else None,
    )


@pytest.mark.parametrize("target", TARGETS)
def test_one_loop_scores_and_recalibrates_every_kind(target: Outcome) -> None:
    kind, own, (columns, mean, variance) = kind_of(target), fitted(target), table(target)
    said = predicted(target, own, columns, mean, variance)
    folds = torch.arange(N) % FOLDS
    held = kind.held.zero(target) + kind.held.of(target, columns, said, folds)
    held = kind.held.of_totals(target, held.named())
    calibration = kind.calibration.of(target, held, dispersion=own.dispersion)
    calibration.check(target)
    sums = kind.sums.zero(target)
    for fold in range(FOLDS):
        rows = folds == fold
        judged = calibration.without(fold).apply(said[rows])
        sums = sums + kind.sums.of(target, columns[rows], judged)
    quality = kind.sums.of_totals(target, sums.named()).quality(target)
    assert quality.rows == N
    json.dumps(asdict(quality), allow_nan=False)
    covered = calibration.covered(target, columns, said)
    assert (covered is None) == isinstance(target, TimeToEvent)
    if covered is not None:
        covered.check(target)
        assert covered.coverage().rows == N


@pytest.mark.parametrize("target", TARGETS)
def test_blocks_are_those_of_a_layout(target: Outcome) -> None:
    kind = kind_of(target)
    for own in (kind.sums, kind.held):
        for block in (*own.blocks(target), *own.few_blocks(target)):
            Block(block.name, block.shape, 1000 * block.bound, block.resolution, block.sensitivity)
        assert all(block.sensitivity is not None for block in own.few_blocks(target))


def test_every_kind_of_outcome_has_its_line() -> None:
    assert set(KINDS) == set(get_args(Outcome))


def test_sums_of_another_target_are_refused() -> None:
    kind, other = kind_of(TARGETS[1]), Classes("ward", ("a", "b", "c", "d"))
    with pytest.raises(StateError, match="shape"):
        kind.sums.zero(TARGETS[1]).check(other)
    with pytest.raises(WrongShape, match="different targets"):
        kind.sums.zero(TARGETS[1]) + kind.sums.zero(other)
    negative = {name: own - 1 for name, own in kind.sums.zero(TARGETS[1]).named().items()}
    with pytest.raises(StateError, match="negative"):
        kind.sums.of_totals(TARGETS[1], negative)


def test_a_prediction_without_its_variance_is_refused() -> None:
    columns, mean, _ = table(TARGETS[0])
    with pytest.raises(PredictionError, match="variances"):
        predicted(TARGETS[0], fitted(TARGETS[0]), columns, mean)
