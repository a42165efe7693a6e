"""How much the noise of differential privacy moves a model's scores: a standard error for each.

Scores of a private program are computed from one noisy total of every sum, so each is off by
chance. Its standard error follows from public numbers alone, the released sums and the deviation
of their noise: noise is drawn again, added to the sums, and the scores are made of them as they
were (repaired counts, clipped sums, ratios), DRAWS times. Their deviation is the standard error of
noise. It does not say how far scores of other patients would be: that is the error of having
finitely many held-out rows, and comes on top.

The draws come from a fixed seed, and say nothing about the noise that was added: that was drawn
elsewhere, and is known to nobody.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from kernels.model.judged_outcome import JudgedOutcome
from kernels.model.model import Model, known
from kernels.noisy.evaluation import Clips, inside
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.evaluated import OutcomeScores
from kernels.outcomes.scored.kinds import kind_of
from kernels.outcomes.scored.noisy_totals import totals_of_coverage, totals_of_scores
from kernels.scores.evaluation import Evaluation, in_units
from kernels.scores.metrics import LEVELS, Scores
from kernels.scores.student_t import StudentT
from kernels.tables.targets import Outcome

DRAWS = 64
"""A deviation from so many draws is within a tenth of the true one."""
_SEED = 0
_MEASURES = "rmse", "nll", "crps", "ece", "mce", "brier"

Noise = Mapping[str, float]
"""The deviation of the noise in every element of a block of the evaluation's sum, by its name."""


@dataclass(frozen=True, kw_only=True)
class TargetErrors:
    """Standard errors of one real target's scores under one law, as in `Quality`."""

    name: str
    rmse: float
    nll: float
    crps: float
    ece: float
    mce: float
    brier: float
    curve: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class OutcomeErrors:
    """Standard errors of an outcome's scores; `further` in the order of `JudgedOutcome.further`.

    None stands where the score itself is None. inside: of its coverage at each level.
    """

    name: str
    log_loss: float
    raw_log_loss: float
    further: tuple[float | None, ...]
    inside: tuple[float, ...] | None


@dataclass(frozen=True, kw_only=True)
class ScoreErrors:
    """The standard errors of an evaluation's numbers that are due to noise.

    rows: of the number of held-out rows. The others are those of the evaluation's fields.
    """

    rows: float
    gaussian: tuple[TargetErrors, ...]
    recalibrated: tuple[TargetErrors, ...] | None
    conformal: tuple[tuple[float, ...], ...] | None
    outcomes: tuple[OutcomeErrors, ...]

    @classmethod
    def of(cls, model: Model, noise: Noise) -> Self | None:
        """Return the standard errors of a model's scores; None if it has none."""
        if model.scores is None:
            return None
        random = torch.Generator().manual_seed(_SEED)
        pairs = zip(model.schema.outcomes, model.outcome_scores or (), strict=True)
        judged = [
            errors_of_outcome(index, target, own, noise, random)
            for index, (target, own) in enumerate(pairs)
        ]
        outcomes = tuple(own for own, _ in judged)
        if not model.targets:
            nothing = None if model.scores.recalibrated is None else ()
            return cls(
                rows=judged[0][1],
                gaussian=(),
                recalibrated=nothing,
                conformal=nothing,
                outcomes=outcomes,
            )
        drawn = [_Drawn.of(model, model.scores, noise, random) for _ in range(DRAWS)]
        by_law = {
            law: _errors_of_targets(model, [own.laws[law] for own in drawn])
            for law in drawn[0].laws
        }
        curves = [own.conformal for own in drawn if own.conformal is not None]
        return cls(
            rows=_deviation([own.rows for own in drawn]),
            gaussian=by_law["gaussian"],
            recalibrated=by_law.get("recalibrated"),
            conformal=_curves(curves) if curves else None,
            outcomes=outcomes,
        )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The scores of real targets, made again with noise drawn anew.

    laws: in units, by the law's name. conformal: (T, 19), the coverage.
    """

    rows: float
    laws: dict[str, Scores]
    conformal: Tensor | None

    @classmethod
    def of(
        cls, model: Model, scores: Evaluation, noise: Noise, random: torch.Generator
    ) -> "_Drawn":
        """Return the scores of released sums with another draw of their noise."""
        clips = Clips.of(known(model.hyperparameters, "linear"))
        laws = {"gaussian": (scores.gaussian, [StudentT()] * model.targets)}
        if scores.recalibrated is not None:
            fitted = [own.law for own in known(model.recalibration, "recalibration")]
            laws["recalibrated"] = (scores.recalibrated, fitted)
        totals = {
            f"{law}.{name}": own
            for law, (found, _) in laws.items()
            for name, own in _of_law(clips, found).items()
        }
        totals |= _of_model(scores.gaussian)
        if scores.conformal_inside is not None:
            totals["conformal.bins"] = _bins(scores.conformal_inside, scores.gaussian.rows)
        again = _noised(totals, noise, "", random)
        counted = [own.sum(1).mean() for name, own in again.items() if name.endswith("bins")]
        rows = max(float(torch.stack(counted).mean()), 1.0)
        standardiser = known(model.standardiser, "moments")
        judged = {}
        for law, (_, fitted) in laws.items():
            own = {name.removeprefix(f"{law}."): found for name, found in again.items()}
            judged[law] = in_units(clips.scores(fitted, own, rows), standardiser)
        bins = again.get("conformal.bins")
        return cls(rows, judged, None if bins is None else inside(bins))


def _of_model(scores: Scores) -> dict[str, Tensor]:
    """Return the sums that do not depend on the law of residuals, (T,)."""
    reach = torch.tensor([StudentT().half_width(p) for p in LEVELS], dtype=torch.float64)
    deviations = (scores.widths / (2 * reach)).mean(1)
    return {"squared_errors": scores.squared_errors, "deviations": deviations}


def _of_law(clips: Clips, scores: Scores) -> dict[str, Tensor]:
    """Return the sums that depend on the law of residuals."""
    return {
        "bins": _bins(scores.inside, scores.rows),
        "log_losses": scores.log_losses - scores.rows * clips.log_centre,
        "ranked_losses": scores.ranked_losses,
    }


def _bins(counted: Tensor, rows: Tensor) -> Tensor:
    """Return rows by the narrowest interval, (T, BINS), from those inside each, (T, 19)."""
    whole = torch.cat([counted, rows.unsqueeze(1)], 1)
    return whole.diff(dim=1, prepend=torch.zeros_like(whole[:, :1]))


def _noised(
    totals: Mapping[str, Tensor], noise: Noise, prefix: str, random: torch.Generator
) -> dict[str, Tensor]:
    """Return totals with noise of the deviations of their blocks."""
    return {
        name: own
        + noise[f"{prefix}{name}"] * torch.randn(own.shape, generator=random, dtype=torch.float64)
        for name, own in totals.items()
    }


def _errors_of_targets(model: Model, scores: list[Scores]) -> tuple[TargetErrors, ...]:
    columns = {
        name: torch.stack([getattr(own, name)() for own in scores]).std(0).tolist()
        for name in _MEASURES
    }
    curves = _curves([own.calibration_curve() for own in scores])
    return tuple(
        TargetErrors(
            name=target.name,
            curve=curves[i],
            **{name: column[i] for name, column in columns.items()},
        )
        for i, target in enumerate(model.schema.real)
    )


def _curves(drawn: list[Tensor]) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, torch.stack(drawn).std(0).tolist()))


def errors_of_outcome(
    index: int, target: Outcome, scores: OutcomeScores, noise: Noise, random: torch.Generator
) -> tuple[OutcomeErrors, float]:
    """Return the standard errors of an outcome's scores, and of its number of rows."""
    kind = kind_of(target).sums

    def again(what: str, own: Any) -> list[Any]:
        totals, prefix = totals_of_scores(target, own), f"outcome.{index}.{what}."
        return [
            kind.from_noisy(target, _noised(totals, noise, prefix, random)) for _ in range(DRAWS)
        ]

    raw = again("raw", scores.raw)
    served = raw if scores.recalibrated is None else again("recalibrated", scores.recalibrated)
    raw, served = ([own for own in all_of if own.row_count > 0] for all_of in (raw, served))
    judged = [JudgedOutcome.of(target, OutcomeScores(own)) for own in served]
    columns = zip(*(own.further.values() for own in judged), strict=True)
    errors = OutcomeErrors(
        name=target.name,
        log_loss=_deviation([own.log_loss for own in judged]),
        raw_log_loss=_deviation([own.quality(target).log_loss for own in raw]),
        further=tuple(_deviation_if(column) for column in columns),
        inside=_of_coverage(index, scores, noise, random),
    )
    return errors, _deviation([own.row_count for own in served])


def _of_coverage(
    index: int, scores: OutcomeScores, noise: Noise, random: torch.Generator
) -> tuple[float, ...] | None:
    if scores.covered is None or scores.coverage is None:
        return None
    totals, prefix = totals_of_coverage(scores.covered), f"outcome.{index}.covered."
    drawn = [
        Covered.from_noisy(_noised(totals, noise, prefix, random)).coverage().inside
        for _ in range(DRAWS)
    ]
    found: list[float] = torch.tensor(drawn, dtype=torch.float64).std(0).tolist()
    return tuple(found)


def _deviation(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).std()) if len(values) > 1 else 0.0


def _deviation_if(values: tuple[float | None, ...]) -> float | None:
    """Return the deviation of the draws in which a score is defined, if it is in half of them."""
    there = [each for each in values if each is not None]
    return _deviation(there) if 2 * len(there) >= len(values) else None
