"""The sum that a private program's scores came from: its layout, and how much noise it had.

Both follow from the program and the finished model, so a card's author needs no total to say how
sure its scores are (`kernels.model.score_errors`).
"""

from typing import NamedTuple

from kernels.model.model import Model
from kernels.rounds.judging import evaluation
from kernels.rounds.program import Program
from kernels.rounds.task import noise_multiplier
from privacy.layout import Layout


class ReleasedScores(NamedTuple):
    """The layout of the last evaluation's sum, and the noise multiplier z of its stage."""

    layout: Layout
    multiplier: float


def released_scores(program: Program, model: Model) -> ReleasedScores | None:
    """Return what is known of the sum of a model's scores; None without scores or noise."""
    stages = [
        (stage, spec)
        for stage, spec in enumerate(program.stages)
        if isinstance(spec, evaluation.Spec)
    ]
    if model.scores is None or model.privacy is None or not stages:
        return None
    stage, spec = stages[-1]
    multiplier = noise_multiplier(program, stage)
    if multiplier is None:
        return None
    return ReleasedScores(evaluation.layout(evaluation.initial(spec, model)), multiplier)
