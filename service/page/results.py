"""What a model has achieved, in one line for each target: how far off, and how honest about it.

All scores are of held-out rows of all hospitals together, and are those that the model is served
with (recalibrated, if it is).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.model.card_sections import Evaluation
from kernels.model.judged_outcome import JudgedOutcome
from kernels.scores.metrics import LEVELS
from kernels.tables.standardiser import Scale
from kernels.tables.targets import Outcome, Target
from service.page.figures import figure, share

LEVEL = 0.9
"""The level of the intervals whose coverage is said."""
_CHANCE = 0.5
_DEVIATIONS = 3.0
_TOLERATED = 0.05
"""A coverage is called wrong if it is off by more than this, and by more than chance explains."""


@dataclass(frozen=True)
class Result:
    """One target's result: a headline, what supports it, and what is wrong with it."""

    target: str
    headline: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def results(
    evaluation: Evaluation,
    targets: Sequence[Target],
    outcomes: Sequence[Outcome],
    scales: Sequence[Scale] | None,
) -> list[Result]:
    """Return the results of all targets; scales: of the targets in the tables, if known."""
    own = evaluation.recalibrated or evaluation.gaussian
    spreads: Sequence[Scale | None] = scales or [None] * len(targets)
    inside = [
        (each.curve if evaluation.conformal is None else evaluation.conformal[i])[
            LEVELS.index(LEVEL)
        ]
        for i, each in enumerate(own)
    ]
    said = [
        _of_number(target, each.rmse, at, evaluation.rows, None if of is None else of.scale)
        for target, each, at, of in zip(targets, own, inside, spreads, strict=True)
    ]
    return said + [
        _of_outcome(target, each, evaluation.rows)
        for target, each in zip(outcomes, evaluation.outcomes, strict=True)
    ]


def _of_number(
    target: Target, rmse: float, inside: float, rows: int, spread: float | None
) -> Result:
    headline = f"off by {figure(rmse, target.unit)} on average"
    notes = ["the root mean squared error"]
    warnings = []
    if not math.isfinite(rmse):
        headline = "has no usable predictions"
        warnings.append("The error is not a number: training has diverged.")
    elif spread is not None:
        notes[0] += f"; always predicting the mean would be off by {figure(spread, target.unit)}"
        if rmse >= spread:
            warnings.append("The model is no better than always predicting the mean.")
    notes.append(f"{share(LEVEL)} intervals contain {share(inside)} of {rows:,} held-out rows")
    warnings += _of_coverage(inside, rows)
    return Result(target.name, headline, tuple(notes), tuple(warnings))


def _of_outcome(target: Outcome, judged: JudgedOutcome, rows: int) -> Result:
    scores, kind = judged.further, judged.kind
    warnings: list[str] = []
    if kind == "count":
        unit = getattr(target, "unit", "1")
        error = scores["RMSE"]
        headline = "was not scored" if error is None else f"off by {figure(error, unit)} on average"
        notes = ["the root mean squared error"]
    elif kind == "classes":
        right = scores["accuracy"]
        headline = "was not scored" if right is None else f"right for {share(right)} of rows"
        notes = ["how often the likeliest level is the true one (accuracy)"]
    else:
        name = "AUC" if kind == "binary" else "concordance"
        ordered = scores[name]
        headline = (
            "was not scored"
            if ordered is None
            else f"puts {share(ordered)} of pairs in the right order"
        )
        what = f"of two patients, the one with the event gets the higher risk ({name})"
        notes = [f"{what}; {share(_CHANCE)} is chance"]
        if ordered is not None and ordered <= _CHANCE:
            warnings.append("The model is no better than chance.")
    inside = judged.inside(LEVEL)
    if inside is not None:
        sets = "intervals" if kind == "count" else "sets"
        notes.append(f"{share(LEVEL)} {sets} contain {share(inside)} of {rows:,} held-out rows")
        warnings += _of_coverage(inside, rows)
    return Result(target.name, headline, tuple(notes), tuple(warnings))


def _of_coverage(inside: float, rows: int) -> list[str]:
    # Discrete outcomes are covered more often than asked, which is no mistake: only too few are.
    by_chance = _DEVIATIONS * math.sqrt(LEVEL * (1 - LEVEL) / max(rows, 1))
    if inside >= LEVEL - max(_TOLERATED, by_chance):
        return []
    level = share(LEVEL)
    should = f"{level} intervals should contain {level} of rows, and contain {share(inside)}."
    return [f"Its intervals are too narrow: {should}"]
