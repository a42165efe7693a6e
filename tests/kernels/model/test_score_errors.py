"""Standard errors of noisy scores: as large as scores vary, for every kind of target."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from client_sdk.model.card import ModelCard
from client_sdk.simulation import Simulated, simulate
from kernels.errors import ArtifactError
from kernels.features.spec import Architecture, KernelSpec
from kernels.model.card import Card
from kernels.model.noise_plan import NoisePlan
from kernels.model.score_errors import ScoreErrors, errors_of_outcome
from kernels.noisy.evaluation import BINS
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.evaluated import OutcomeScores
from kernels.outcomes.scored.kinds import kind_of, predicted
from kernels.outcomes.scored.noisy_totals import totals_of_coverage, totals_of_scores
from kernels.rounds.columns import moments
from kernels.rounds.judging import evaluation, recalibration
from kernels.rounds.layer import linear
from kernels.rounds.program import Program
from kernels.rounds.released_scores import released_scores
from kernels.tables.targets import Outcome
from privacy.noise import approximate
from tests.adversary.membership import SCHEMA, dealt, patients
from tests.dealing import DEALING
from tests.kernels.outcomes.scored.test_kinds import TARGETS, fitted, table

ROWS_EACH = 40.0
"""How often each row of the small tables is counted."""
DEVIATION = 4.0


def totals(target: Outcome) -> dict[str, Tensor]:
    """Return the exact totals of a table of 1,200 rows."""
    columns, mean, variance = table(target)
    said = predicted(target, fitted(target), columns, mean, variance)
    found = kind_of(target).sums.few(target, columns, said)
    return {name: ROWS_EACH * own.double() for name, own in found.items()}


def noised(target: Outcome, random: torch.Generator) -> Any:
    again = {
        name: own + DEVIATION * torch.randn(own.shape, generator=random, dtype=torch.float64)
        for name, own in totals(target).items()
    }
    return kind_of(target).sums.from_noisy(target, again)


@pytest.mark.parametrize("target", TARGETS)
def test_scores_show_the_totals_that_they_were_made_of(target: Outcome) -> None:
    known = totals(target)
    found = totals_of_scores(target, kind_of(target).sums.from_noisy(target, known))
    assert found.keys() == known.keys()
    for name, own in known.items():
        # A total may be impossible in itself: squares beyond their patients are cut.
        torch.testing.assert_close(found[name].sum(), own.sum(), rtol=0.01, atol=1e-2)


@pytest.mark.parametrize("target", TARGETS)
def test_the_error_of_an_outcomes_score_is_how_much_it_varies(target: Outcome) -> None:
    random = torch.Generator().manual_seed(5)
    noise = {f"outcome.0.raw.{name}": DEVIATION for name in totals(target)}
    scores = [noised(target, random) for _ in range(32)]
    losses = torch.tensor([own.quality(target).log_loss for own in scores])
    said = [
        errors_of_outcome(0, target, OutcomeScores(own), noise, torch.Generator().manual_seed(1))
        for own in scores[:1]
    ]
    for own, rows in said:
        assert own.log_loss == pytest.approx(float(losses.std()), rel=0.5)
        assert rows > 0
        assert own.inside is None


def test_the_error_of_a_coverage_is_that_of_its_counts() -> None:
    least = torch.full((BINS,), 50.0, dtype=torch.float64)
    covered = Covered.from_noisy({"least": least})
    torch.testing.assert_close(totals_of_coverage(covered)["least"], least)


# -- a whole private program


def trained(*, multiplier: float = 1.0) -> Simulated:
    kernel = KernelSpec(inputs=5, architecture=Architecture.RBF, samples=8, seed=1)
    stages = (
        moments.Spec(from_bounds=True),
        linear.Spec(),
        recalibration.Spec(),
        evaluation.Spec(),
    )
    plan = NoisePlan(multipliers=(multiplier,) * len(stages))
    program = Program(SCHEMA, kernel, stages, max_rows=10_000, held_out=0.4, privacy=plan)
    random = np.random.default_rng(3)
    rows = dealt(patients(4000, random))
    return simulate(program, rows, DEALING, secure=False, source=approximate(random))


MODEL = trained()


def test_errors_of_a_real_target_are_those_of_its_noise() -> None:
    card = MODEL.artifact.card
    judged = card.evaluation
    assert judged is not None
    errors = judged.errors
    assert errors is not None
    released = released_scores(MODEL.program, MODEL.model)
    assert released is not None
    noise = MODEL._score_noise()
    assert noise is not None
    # Rows are the mean of three histograms of BINS bins, and RMSE is √(Q/n).
    rows = noise["gaussian.bins"] * math.sqrt(BINS / 3)
    assert errors.rows == pytest.approx(rows, rel=0.3)
    (own,), (off,) = judged.gaussian, errors.gaussian
    in_units = MODEL.model.standardiser.target_columns[1] ** 2  # type: ignore[union-attr]
    squares = float(noise["squared_errors"] * in_units[0]) / (2 * judged.rows * own.rmse)
    expected = math.hypot(squares, own.rmse * rows / (2 * judged.rows))
    assert off.rmse == pytest.approx(expected, rel=0.3)
    assert card.rows_error == MODEL.model.statistics.noise.count  # type: ignore[union-attr]


def test_with_more_noise_errors_are_larger_and_without_noise_there_are_none() -> None:
    noise = MODEL._score_noise()
    assert noise is not None
    one = ScoreErrors.of(MODEL.model, noise)
    more = ScoreErrors.of(MODEL.model, {name: 3 * own for name, own in noise.items()})
    assert one is not None
    assert more is not None
    assert one == ScoreErrors.of(MODEL.model, noise), "the same for everyone who computes it"
    assert more.gaussian[0].rmse > 2 * one.gaussian[0].rmse
    assert released_scores(replace(MODEL.program, privacy=None), MODEL.model) is None


def test_a_card_shows_every_noisy_score_with_its_error() -> None:
    said = repr(ModelCard(MODEL.artifact.card))
    table_of = said.splitlines()[-1]
    assert table_of.count("±") == 5, table_of
    assert "held-out rows; ± is the standard error from the noise" in said


def test_a_card_with_errors_of_other_targets_is_refused() -> None:
    plain = json.loads(MODEL.artifact.card.to_json())
    plain["evaluation"]["errors"]["gaussian"][0]["name"] = "other"
    with pytest.raises(ArtifactError, match=r"evaluation\.errors"):
        Card.from_plain(plain)
