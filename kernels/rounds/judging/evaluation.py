"""Evaluation: one sum of scores over held-out rows.

`kernels.scores.evaluation` defines the scores and their bounds.

How far the scores can be trusted depends on the rows. Training rows were used for the fit, and rows
for stopping to choose the weights. Rows for calibration were used for neither, so N(μ, v) is judged
on them. But the recalibrated law and the conformal quantiles were fitted to them and would look
better on them than they are, so each of the two folds is judged by the recalibration of the other
fold. This judges a recalibration of half the rows on rows that it has not seen: on average it is a
little worse than the one that is served. On the other parts, the served recalibration is judged.
Where the layers have the held-out rows too (`completion`), those without them are judged.

If the model has further methods (students of the sites' committee, and networks), each is judged on
the same rows by its own N(μ, v). Rows for calibration are new to them: no student saw any of these
rows, the sites' networks trained on other rows, and their noise and β come from the rows for
stopping. A model of networks alone is judged by its default method in place of the layer.

broadcast  the whole model, and for each fold the recalibration that its rows are judged by
local      rows, squared errors, log and ranked losses, rows inside intervals, widths, interval
           losses over the site's rows of the part; the same for each method
sum        the same over all sites: no single site's scores are seen
update     the scores

Outcomes are judged in the same way, by the sums of `kernels.outcomes.scored`: as the model predicts
them, recalibrated, and by how often their conformal sets are right.

Coverage at single sites differs if their patients differ. It is known only to the site and is never
summed here.

With differential privacy there are fewer sums, which are clipped (`kernels.noisy.evaluation`), and
the scores contain noise. Calibration rows are then judged by the served recalibration: its noise
already prevents it from being fitted to any single row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.errors import ProgramError, StateError
from kernels.layer.posterior import Hyperparameters
from kernels.model.methods import methods_of
from kernels.model.model import Model, check_model, check_predicts, is_fitted, known
from kernels.model.prediction import predict_each, predict_otherwise, predict_standardised
from kernels.noisy.evaluation import BINS, Clips, bins, inside
from kernels.noisy.recalibration import COUNT_STEP
from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.evaluated import OutcomeScores, check_calibrations
from kernels.outcomes.scored.kinds import kind_of
from kernels.outcomes.scored.summed import SumBlock
from kernels.parameter_checks import check_flag
from kernels.reproducible import near, on_grid
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows, judged_with
from kernels.rounds.judging.outcome_sums import (
    add_to,
    blocks_of,
    calibration_grids,
    judged_rows,
    name_of,
    nothing_of,
    outcome_score_grids,
    totals_of,
)
from kernels.rounds.replay import LEAST_BUDGET, Bits, Replay, Step
from kernels.rounds.shared.sufficient import SQUARES_RESOLUTION
from kernels.rounds.site.site import Part, Site
from kernels.scores.evaluation import (
    INTERVAL_LOSS_BOUND,
    LOG_LOSS_BOUND,
    RESIDUAL_BOUND,
    WIDTH_BOUND,
    Evaluation,
    MethodScores,
    score,
)
from kernels.scores.gaussians import Gaussian
from kernels.scores.metrics import LEVELS, Scores
from kernels.scores.recalibration import BINS as RESIDUAL_BINS
from kernels.scores.recalibration import FOLDS, LAW_BITS, Recalibration
from kernels.scores.student_t import StudentT
from kernels.tables.targets import TimeToEvent
from privacy.layout import Block, Layout, SecureTotal

NAME = "evaluation"
VERSION = 2
NEEDS: frozenset[Made] = frozenset()
MAKES = frozenset({Made.SCORES})

_ROW_BOUNDS = {
    "rows": 1.0,
    "squared_errors": RESIDUAL_BOUND**2,
    "log_losses": LOG_LOSS_BOUND,
    "ranked_losses": RESIDUAL_BOUND,
    "inside": 1.0,
    "widths": WIDTH_BOUND,
    "interval_losses": INTERVAL_LOSS_BOUND,
}
NUMBERS_PER_TARGET: int = sum(getattr(Scores.zero(1), each.name).numel() for each in fields(Scores))
"""The count of numbers per target in the scores of one law."""
SCORE_STEP = 2.0**-20
"""The grid of scores from sums with noise, which are repaired."""
_LAW_BLOCKS = "bins", "log_losses", "ranked_losses"

# Only `update` may read added or removed rows, because it requires the site's consent: if only one
# site has any, a sum over them is that site's own.
_PARTS = (Part.TRAINING, Part.STOPPING, Part.CALIBRATION)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`part`: the rows to use. `recalibrated`: also judge the recalibrated law and intervals."""

    STORED_AS: ClassVar[str] = "evaluation.spec"

    part: Part = Part.CALIBRATION
    recalibrated: bool = True

    def __post_init__(self) -> None:
        check_flag(recalibrated=self.recalibrated)
        if self.part not in _PARTS:
            raise ProgramError(f"part must be one of {', '.join(_PARTS)}, not {self.part!r}")
        object.__setattr__(self, "part", Part(self.part))


@dataclass(frozen=True, eq=False)
class State:
    """For each fold, the recalibrations that its rows are judged by.

    judges: of each target that is a real number. outcome_judges: of each other target.
    """

    STORED_AS: ClassVar[str] = "evaluation.state"

    model: Model
    spec: Spec
    judges: tuple[tuple[Recalibration, ...], ...] | None
    outcome_judges: tuple[tuple[Any, ...], ...] | None = None

    def __post_init__(self) -> None:
        """Refuse judges other than one recalibration for each fold and target.

        A judge that fails only when it is used would fail only at sites that have rows.
        """
        check_model(self.model)
        there = {self.judges is not None, self.outcome_judges is not None}
        if there != {self.spec.recalibrated}:
            raise StateError("this state has judges if and only if its parameters ask for them")
        if self.judges is None or self.outcome_judges is None:
            return
        if not isinstance(self.outcome_judges, tuple) or len(self.outcome_judges) != FOLDS:
            raise StateError(f"outcome_judges must be those of each of {FOLDS} folds")
        for judges in self.outcome_judges:
            check_calibrations(judges, self.model.schema)
        folds_of = self.judges if isinstance(self.judges, tuple) else ()
        if len(folds_of) != FOLDS or not all(map(self._is_one_for_each_target, folds_of)):
            raise StateError(
                f"judges must be one recalibration for each of {FOLDS} folds and "
                f"{self.model.targets} targets"
            )

    def _is_one_for_each_target(self, judges: object) -> bool:
        return (
            isinstance(judges, tuple)
            and len(judges) == self.model.targets
            and all(isinstance(each, Recalibration) for each in judges)
        )


def layout(state: State) -> Layout:
    """Return the scores of N(μ, v), of the recalibrated law, of each other method and outcome."""
    model = state.model
    real = _real_blocks(state) if model.targets else []
    return Layout((*real, *_outcome_blocks(state)))


def initial(spec: Spec, model: Model) -> State:
    """Choose the recalibration that each fold is judged by."""
    check_predicts(model)
    judges = outcome_judges = None
    if spec.recalibrated:
        crossed = spec.part is Part.CALIBRATION and model.privacy is None
        judges = _by_fold(known(model.recalibration, "recalibration"), crossed=crossed)
        outcome_judges = _by_fold(known(model.calibrations, "recalibration"), crossed=crossed)
    model = replace(model, scores=None, outcome_scores=None)
    return State(model, spec, judges, outcome_judges)


def contribute(state: State, site: Site) -> Contribution:
    """Score the site's rows of the part."""
    real = _scored(state, site) if state.model.targets else {}
    return {**real, **_scored_outcomes(state, site)}


def update(state: State, total: SecureTotal) -> State:
    """Set the scores."""
    total = accepted(total, layout(state))
    recalibrated = state.judges is not None
    if not state.model.targets:
        nothing = Scores.zero(0)
        evaluation = Evaluation(state.spec.part.value, nothing, nothing if recalibrated else None)
    elif state.model.privacy is not None:
        evaluation = _despite_noise(state, total)
    else:
        evaluation = Evaluation(
            state.spec.part.value,
            _summed("gaussian", total),
            _summed("recalibrated", total) if recalibrated else None,
            torch.tensor(total["conformal_inside"]) if recalibrated else None,
            tuple(MethodScores(each, _summed(each, total)) for each in _other_methods(state.model)),
        )
    outcomes = tuple(
        _outcome_scores(state, index, total) for index in range(len(state.model.schema.outcomes))
    )
    return replace(state, model=replace(state.model, scores=evaluation, outcome_scores=outcomes))


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.model.scores is not None


def check_private(spec: Spec, model: Model) -> None:
    """Refuse nothing: every part has a private form."""


REPLAY = Replay(
    grids={
        "judges.fitted.freedom": Bits(LAW_BITS),
        "judges.fitted.scale": Bits(LAW_BITS),
        "judges.counts": Step(COUNT_STEP),
        "model.scores.conformal_inside": Step(SCORE_STEP),
        **calibration_grids("outcome_judges"),
        **outcome_score_grids("model.outcome_scores"),
        **{
            f"model.scores.{law}.{each.name}": Step(SCORE_STEP)
            for law in ("gaussian", "recalibrated")
            for each in fields(Scores)
        },
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    scales = Hyperparameters.of(noise_variance=1, prior_variance=1, targets=before.model.targets)
    model = replace(before.model, hyperparameters=scales, withheld=None, second=None)
    judges = _placeholders(model) if spec.recalibrated else None
    outcome_judges = _outcome_placeholders(model) if spec.recalibrated else None
    own = layout(State(model, spec, judges, outcome_judges)).length
    layers = judged_with(model.schema, before.students)
    return Declaration(
        needs=layers | {Made.RECALIBRATION} if spec.recalibrated else layers,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.ALL,
        students=before.students,
        words="sums of scores of the predictions for held-out rows, for every method that the model"
        " has",
        sums=1,
        numbers=own + len(before.students) * model.targets * NUMBERS_PER_TARGET,
        numbers_in_all=own + len(before.students) * model.targets * NUMBERS_PER_TARGET,
        leaves=own + len(before.students) * model.targets * NUMBERS_PER_TARGET,
        row_count=None,
        local_passes=0,
        rate_times_steps=0.0,
        reads=frozenset({spec.part}),
        summed_together=frozenset(),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)


def _real_blocks(state: State) -> list[Block]:
    """Return the blocks of the targets that are real numbers."""
    model = state.model
    if model.privacy is not None:
        return list(_private_blocks(state))
    blocks = _score_blocks("gaussian", model)
    if state.judges is not None:
        shape = (model.targets, len(LEVELS))
        blocks += _score_blocks("recalibrated", model)
        blocks += [Block("conformal_inside", shape, float(model.max_rows), 1.0)]
    for method in _other_methods(model):
        blocks += _score_blocks(method, model)
    return blocks


def _by_fold(own: tuple[Any, ...], *, crossed: bool) -> tuple[tuple[Any, ...], ...]:
    """Return the recalibrations for each fold: if crossed, those of the other fold."""
    return tuple(
        tuple(each.without(fold) for each in own) if crossed else own for fold in range(FOLDS)
    )


def _scored_model(state: State) -> Model:
    """Return the model with the layers that the part is scored by; no held-out row is in them."""
    held_out = state.spec.part in (Part.STOPPING, Part.CALIBRATION)
    return state.model.judged if held_out else state.model


def _scored(state: State, site: Site) -> Contribution:
    """Score the targets that are real numbers."""
    part, model = state.spec.part, _scored_model(state)
    if model.privacy is not None:
        return _private_contribution(state, site)
    gaussian, recalibrated = Scores.zero(model.targets), Scores.zero(model.targets)
    inside = torch.zeros(model.targets, len(LEVELS), dtype=torch.float64)
    normal, others = [StudentT()] * model.targets, _other_methods(model)
    of_others = dict.fromkeys(others, Scores.zero(model.targets))
    for (x, y, _), fold in site.chunks_in_folds(part, model, folds=FOLDS):
        predicted = _by_default(model, x)
        residuals, variance = y - predicted.mean, predicted.variance
        gaussian += score(normal, residuals, variance)
        for method in others:
            said = predict_otherwise(model, method, x)
            of_others[method] += score(normal, y - said.mean, said.variance)
        for f, judges in enumerate(state.judges or ()):
            r, v = residuals[fold == f], variance[fold == f]
            recalibrated += score([judge.law for judge in judges], r, v)
            reach = [[judge.conformal(level) for level in LEVELS] for judge in judges]
            z = (r.abs() / v.sqrt())[:, :, None]
            inside += (z <= torch.tensor(reach, dtype=torch.float64)).double().sum(0)
    blocks = _named("gaussian", gaussian)
    if state.judges is not None:
        blocks |= _named("recalibrated", recalibrated) | {"conformal_inside": inside.numpy()}
    for method, own in of_others.items():
        blocks |= _named(method, own)
    return blocks


def _placeholders(model: Model) -> tuple[tuple[Recalibration, ...], ...]:
    """Return judges that judge nothing, for a layout, which depends on their number alone."""
    nothing = Recalibration(torch.zeros(FOLDS, RESIDUAL_BINS, dtype=torch.float64), None)
    return ((nothing,) * model.targets,) * FOLDS


def _outcome_placeholders(model: Model) -> tuple[tuple[Any, ...], ...]:
    """Return the judges of outcomes that judge nothing."""
    nothing = tuple(
        kind_of(target).calibration.of(target, kind_of(target).held.zero(target), dispersion=1.0)
        for target in model.schema.outcomes
    )
    return (nothing,) * FOLDS


def _outcome_blocks(state: State) -> list[Block]:
    """Return the blocks of all outcomes."""
    model = state.model
    return [
        block
        for index in range(len(model.schema.outcomes))
        for prefix, described in _described(state, index).items()
        for block in blocks_of(model, prefix, described)
    ]


def _described(state: State, index: int) -> dict[str, tuple[SumBlock, ...]]:
    """Return what is summed of an outcome, by the beginning of the names of its blocks."""
    target, private = state.model.schema.outcomes[index], state.model.privacy is not None
    sums = kind_of(target).sums
    of_sums = sums.few_blocks(target) if private else sums.blocks(target)
    found = {name_of(index, "raw"): of_sums}
    if state.outcome_judges is None:
        return found
    found[name_of(index, "recalibrated")] = of_sums
    if not isinstance(target, TimeToEvent):
        covered = Covered.few_blocks(target) if private else Covered.blocks(target)
        found[name_of(index, "covered")] = covered
    return found


def _scored_outcomes(state: State, site: Site) -> dict[str, NDArray[np.float64]]:
    """Score the site's rows of every outcome."""
    model, private = _scored_model(state), state.model.privacy is not None
    sums: dict[str, NDArray[np.float64]] = {}
    for index in range(len(model.schema.outcomes)):
        for prefix, described in _described(state, index).items():
            sums |= nothing_of(prefix, described)

    def scored(target: Any, columns: Any, said: Any) -> Mapping[str, Tensor]:
        kind = kind_of(target).sums
        few: Mapping[str, Tensor] = kind.few(target, columns, said) if private else {}
        return few if private else kind.of(target, columns, said).named()

    for index, target, columns, said, folds in judged_rows(
        model, site, state.spec.part, folds=FOLDS
    ):
        add_to(sums, name_of(index, "raw"), scored(target, columns, said))
        for fold, judges in enumerate(state.outcome_judges or ()):
            mine, judge = folds == fold, judges[index]
            own, own_said = columns[mine], said[mine]
            recalibrated = scored(target, own, judge.apply(own_said))
            add_to(sums, name_of(index, "recalibrated"), recalibrated)
            if isinstance(target, TimeToEvent):
                continue
            if private:
                found = judge.few_covered(target, own, own_said)
            else:
                found = judge.covered(target, own, own_said).named()
            add_to(sums, name_of(index, "covered"), found)
    return sums


def _outcome_scores(state: State, index: int, total: SecureTotal) -> OutcomeScores:
    """Return an outcome's scores from a total."""
    target, private = state.model.schema.outcomes[index], state.model.privacy is not None
    described, kind = _described(state, index), kind_of(target).sums

    def summed(what: str) -> Any:
        totals = totals_of(total, name_of(index, what), described[name_of(index, what)])
        return kind.from_noisy(target, totals) if private else kind.of_totals(target, totals)

    if state.outcome_judges is None:
        return OutcomeScores(summed("raw"))
    covered, name = None, name_of(index, "covered")
    if name in described and not isinstance(target, TimeToEvent):
        totals = totals_of(total, name, described[name])
        covered = Covered.from_noisy(totals) if private else Covered.of_totals(target, totals)
    return OutcomeScores(summed("raw"), summed("recalibrated"), covered)


def _private_blocks(state: State) -> Iterator[Block]:
    model, privacy = state.model, known(state.model.privacy, NAME)
    targets, clips = (model.targets,), _clips(model)
    per_row = clips.sensitivities()

    def block(name: str) -> Block:
        kind = name.rpartition(".")[2]
        shape = (*targets, BINS) if kind == "bins" else targets
        sensitivity = privacy.max_rows_per_patient * per_row[kind]
        # No element changes by more than the whole block.
        return Block(name, shape, model.max_rows * per_row[kind], SQUARES_RESOLUTION, sensitivity)

    yield block("squared_errors")
    yield block("deviations")
    for law in _judged(state):
        for name in _LAW_BLOCKS:
            yield block(f"{law}.{name}")
    if state.judges is not None:
        yield block("conformal.bins")


def _clips(model: Model) -> Clips:
    return Clips.of(known(model.hyperparameters, "linear"))


def _judged(state: State) -> dict[str, list[StudentT]]:
    """Return the laws that are judged, by name."""
    laws = {"gaussian": [StudentT()] * state.model.targets}
    if state.judges is not None:
        laws["recalibrated"] = [judge.law for judge in state.judges[0]]
    return laws


def _score_blocks(name: str, model: Model) -> list[Block]:
    shapes = Scores.zero(model.targets)
    return [
        Block(
            f"{name}.{field.name}",
            tuple(getattr(shapes, field.name).shape),
            model.max_rows * _ROW_BOUNDS[field.name],
            SQUARES_RESOLUTION,
        )
        for field in fields(Scores)
    ]


def _other_methods(model: Model) -> tuple[str, ...]:
    """Return all methods but the default."""
    return methods_of(model)[1:]


def _by_default(model: Model, features: Tensor) -> Gaussian:
    """Return what the model's default method predicts of standardised targets, (n, T)."""
    if not is_fitted(model):
        return predict_otherwise(model, methods_of(model)[0], features)
    said = predict_standardised(model, features)
    return Gaussian(said.mean, said.variance)


def _private_contribution(state: State, site: Site) -> Contribution:
    model, clips = state.model, _clips(state.model)
    sums = {
        block.name: torch.zeros(block.shape, dtype=torch.float64)
        for block in _private_blocks(state)
    }
    reach = [[judge.conformal(p) for p in LEVELS] for judge in (state.judges or ((),))[0]]
    for x, y, _ in site.chunks(state.spec.part, model):
        mean, variance, computed = predict_each(model, x)
        residuals, variance = (y - mean)[computed], variance[computed]
        found = clips.of_model(residuals, variance)
        for name, laws in _judged(state).items():
            of_laws = clips.of_laws(laws, residuals, variance)
            found |= {f"{name}.{each}": own for each, own in of_laws.items()}
        if reach:
            found["conformal.bins"] = bins(residuals / variance.sqrt(), reach)
        for name, own in found.items():
            sums[name] += own
    return {name: own.numpy() for name, own in sums.items()}


def _named(name: str, scores: Scores) -> dict[str, NDArray[np.float64]]:
    return {f"{name}.{f.name}": getattr(scores, f.name).numpy() for f in fields(Scores)}


def _despite_noise(state: State, total: SecureTotal) -> Evaluation:
    sums = {block.name: torch.tensor(total[block.name]) for block in total.layout.blocks}
    counted = [own.sum(1).mean() for name, own in sums.items() if name.endswith("bins")]
    rows = near(max(float(torch.stack(counted).mean()), 1.0), SCORE_STEP)
    clips = _clips(state.model)

    def scores(name: str, laws: list[StudentT]) -> Scores:
        found = clips.scores(
            laws, sums | {each: sums[f"{name}.{each}"] for each in _LAW_BLOCKS}, rows
        )
        return Scores(*(on_grid(getattr(found, f.name), SCORE_STEP) for f in fields(Scores)))

    judged = {name: scores(name, laws) for name, laws in _judged(state).items()}
    conformal = None
    if state.judges is not None:
        conformal = on_grid(inside(sums["conformal.bins"]) * rows, SCORE_STEP)
    return Evaluation(
        state.spec.part.value, judged["gaussian"], judged.get("recalibrated"), conformal
    )


def _summed(name: str, total: SecureTotal) -> Scores:
    return Scores(*(torch.tensor(total[f"{name}.{f.name}"]) for f in fields(Scores)))
