"""The sections of a model's card: privacy, methods, layers, laws of residuals, evaluation.

Scores are in the targets' units; σ², λ² and the evidence are on the standardised scale.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from kernels.ensembles.distilled import Method
from kernels.errors import ArtifactError
from kernels.features.spec import KernelSpec
from kernels.model.judged_outcome import JudgedOutcome
from kernels.model.methods import FEDBNR, METHODS, methods_of
from kernels.model.model import Model, is_fitted, is_kernel_alone, known
from kernels.model.score_errors import Noise, OutcomeErrors, ScoreErrors, TargetErrors
from kernels.scores.evaluation import in_units
from kernels.scores.metrics import LEVELS, Scores
from kernels.tables.schema import Schema
from kernels.tables.targets import (
    TARGET_KINDS,
    Binary,
    Classes,
    Count,
    Outcome,
    TimeToEvent,
    kind_of,
)

DISTILLED = "distilled"
"""An ensemble that is served by a student network of all sites' combined predictions."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """How the hospitals' numbers were protected, and what was not protected.

    unit: what the guarantee protects the presence of, "patient" or "row".
    epsilon, delta: the session's privacy loss for any one unit; None without differential privacy.
    blind: whether the sums were blind, so that the coordinator could not read them.
    members_only: whether the model is for members only, so that the coordinator does not have it.
    meaning: the same in words.
    mechanism, releases: the noise that was added, and to how many sums of the session so far.
    """

    differential_privacy: bool
    unit: str
    min_cohort: int
    max_colluders: int
    blind: bool
    members_only: bool
    epsilon: float | None
    delta: float | None
    meaning: str
    mechanism: str | None = None
    releases: int | None = None

    def __post_init__(self) -> None:
        if self.unit not in ("patient", "row"):
            raise ArtifactError("the card's privacy.unit must be 'patient' or 'row'")
        if {self.epsilon is not None, self.delta is not None} != {self.differential_privacy}:
            raise ArtifactError(
                "the card must have privacy.epsilon and privacy.delta with differential privacy, "
                "and only then"
            )
        if not self.differential_privacy and (self.mechanism or self.releases is not None):
            raise ArtifactError(
                "the card must have privacy.mechanism and privacy.releases only with differential "
                "privacy"
            )

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        min_cohort: int,
        max_colluders: int,
        blind: bool = False,
        members_only: bool = False,
        epsilon: float | None = None,
        delta: float | None = None,
        mechanism: str | None = None,
        releases: int | None = None,
    ) -> Self:
        """Return the description of a session's terms; no ε and δ means no differential privacy."""
        unit = "row" if schema.patient is None else "patient"
        meaning = explained(unit, min_cohort, max_colluders, epsilon, delta, blind=blind)
        return cls(
            differential_privacy=epsilon is not None,
            unit=unit,
            min_cohort=min_cohort,
            max_colluders=max_colluders,
            blind=blind,
            members_only=members_only,
            epsilon=epsilon,
            delta=delta,
            meaning=meaning,
            mechanism=mechanism,
            releases=releases,
        )


def explained(
    unit: str,
    min_cohort: int,
    max_colluders: int,
    epsilon: float | None,
    delta: float | None,
    *,
    blind: bool,
) -> str:
    """Return in words what the terms guarantee and what they do not."""
    colluding = f"even if it colluded with up to {max_colluders} of them"
    unless = colluding if max_colluders else "unless it colluded with one of them"
    seen = (
        "The coordinator could not read the sums from which this model was computed, unless it "
        f"colluded with a hospital; and no hospital's own numbers, {unless}. "
        if blind
        else f"The coordinator saw sums over at least {min_cohort} hospitals and no hospital's own "
        f"numbers, {unless}. "
    )
    sums = (
        f"{seen}Every hospital received the same sums; one that took part to the end has verified "
        "them and computed the model itself. A coordinator that colludes with a hospital can forge "
        "sums. Hospitals sign the model that they have computed (Ed25519); their signatures are "
        "not in this card: `veilgp verify` says who vouches for the model."
    )
    if epsilon is None or delta is None:
        return (
            f"{sums} There was no differential privacy: the sums and this model are exact, so "
            f"someone who knows enough about all other {unit}s can learn about one {unit} from "
            "them, and someone who has the records of candidates can test which of them were in "
            "the tables."
        )
    return (
        f"{sums} Noise was added, and it is sufficient if at least {min_cohort - max_colluders} "
        f"hospitals add theirs: the presence of any one {unit} in one hospital's table changes the "
        f"probability of any outcome by a factor of at most e^{epsilon:.4g}, except with "
        f"probability {delta:g}."
    )


@dataclass(frozen=True, kw_only=True)
class Served:
    """A prediction method of the model.

    ensemble: how the combined predictions of many sites are served: "distilled", by a student
    network. None for `fedbnr` and for networks, which are one model.
    networks: of networks that sites have trained together, how many predict a mixture.
    divergence: of a student, KL(teacher ‖ student) at the public rows in nats, summed over targets.
    beta: for the method `beta`, one value per target, from 0 (the mixture) to 1 (the product).
    """

    method: str
    ensemble: str | None = None
    divergence: float | None = None
    beta: tuple[float, ...] | None = None
    networks: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS or self.ensemble not in (None, DISTILLED):
            raise ArtifactError(
                f"a method of a card must be one of {', '.join(METHODS)}, and its ensemble "
                f"{DISTILLED} or null"
            )

    @classmethod
    def of(cls, model: Model) -> tuple[Self, ...]:
        """Return the description of every method of a model."""
        return tuple(cls._of_method(model, each) for each in methods_of(model))

    @classmethod
    def _of_method(cls, model: Model, method: str) -> Self:
        networks = model.networks_of(method)
        if networks is not None:
            return cls(method=method, networks=len(networks.samples))
        return cls(method=method) if method == FEDBNR else cls._student(model, Method(method))

    @classmethod
    def _student(cls, model: Model, method: Method) -> Self:
        distilled = known(model.distilled, "predictive")
        beta = distilled.beta if method is Method.BETA else None
        return cls(
            method=method.value,
            ensemble=DISTILLED,
            divergence=distilled.student(method).divergence,
            beta=None if beta is None else tuple(beta.tolist()),
        )


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The linear layer of one target: σ², λ² and the log evidence of all training rows.

    A model that predicts by networks alone has none.
    """

    name: str
    noise_variance: float
    prior_variance: float
    log_evidence: float

    @classmethod
    def of(cls, model: Model) -> tuple[Self, ...]:
        """Return the description of every target that is a real number; none of a kernel alone."""
        if not model.schema.real or not is_fitted(model):
            return ()
        found = known(model.hyperparameters, "linear")
        columns = found.noise_variance, found.prior_variance, model.posterior.log_evidence
        return tuple(
            cls(name=target.name, noise_variance=noise, prior_variance=prior, log_evidence=evidence)
            for target, noise, prior, evidence in zip(
                model.schema.real, *(column.tolist() for column in columns), strict=True
            )
        )


@dataclass(frozen=True, kw_only=True)
class SecondKernel:
    """The second kernel of a model that predicts a mixture of two, and its linear layers.

    share: the weight of its predictions, from 0 to 1.
    """

    kernel: KernelSpec
    share: float
    layer: tuple[Layer, ...]

    @classmethod
    def of(cls, model: Model) -> Self | None:
        """Return the description of a model's second kernel, if it has one."""
        if model.second is None or model.other is None:
            return None
        return cls(
            kernel=model.second.kernel, share=model.second.share, layer=Layer.of(model.other)
        )


@dataclass(frozen=True, kw_only=True)
class OutcomeLayer:
    """The layers of one target that is not a real number.

    rows: the number of training rows. levels: of a binary target and of classes, in the order of
    the schema; of a time to an event, the edges of its intervals. counts: rows of each level, or
    events in each interval; of a count a single number, the sum of all counts. exposure: of a
    count, the sum of all exposures. With differential privacy they contain noise.
    prior_variance: λ² of all its latent functions. ratio: of a kernel's linear part, for each
    latent function; 1 without one. dispersion: of a count.
    """

    name: str
    kind: str
    rows: int
    levels: tuple[str, ...]
    counts: tuple[float, ...]
    exposure: float | None
    prior_variance: float
    ratio: tuple[float, ...]
    dispersion: float | None

    def __post_init__(self) -> None:
        if self.kind not in TARGET_KINDS or len(self.counts) != max(1, len(self.levels)):
            raise ArtifactError(
                "an outcome of a card must have a known kind, and counts for each of its levels"
            )

    @property
    def occurred(self) -> str:
        """How often it occurred in the training rows, in words."""
        total = math.fsum(self.counts)
        if self.kind == "count":
            return f"{total:,.6g} during an exposure of {self.exposure or 0.0:,.6g}"
        if self.kind == "time_to_event":
            return f"{total:,.6g} events by the last of {len(self.levels)} edges"
        shares = (count / max(total, 1.0) for count in self.counts)
        return ", ".join(
            f"{level} {share:.1%}" for level, share in zip(self.levels, shares, strict=True)
        )

    @classmethod
    def of(cls, model: Model) -> tuple[Self, ...]:
        """Return the description of every target that is not real; none of a kernel alone."""
        outcomes = model.schema.outcomes
        if not outcomes or is_kernel_alone(model):
            return ()
        census, fitted = known(model.census, "moments"), known(model.outcomes, "outcomes")
        totals = iter(zip(census.counts.tolist(), census.exposures.tolist(), strict=True))
        found = []
        for outcome, own, sums in zip(
            outcomes, fitted, census.of_levels(model.schema), strict=True
        ):
            levels, counts, exposure = _occurrence(outcome, sums.tolist(), totals)
            found.append(
                cls(
                    name=outcome.name,
                    kind=kind_of(outcome),
                    rows=own.rows,
                    levels=levels,
                    counts=counts,
                    exposure=exposure,
                    prior_variance=own.layers[0].prior_variance,
                    ratio=tuple(layer.ratio for layer in own.layers),
                    dispersion=own.dispersion,
                )
            )
        return tuple(found)


def _occurrence(
    outcome: Outcome, sums: list[float], totals: Iterator[tuple[float, float]]
) -> tuple[tuple[str, ...], tuple[float, ...], float | None]:
    """Return levels, counts and exposure of an outcome from its part of the census.

    totals: Σ counts and Σ exposures of the counts that are left.
    """
    match outcome:
        case Binary():
            # The census has rows without the event first.
            counts = sums if outcome.event == outcome.levels[1] else sums[::-1]
            return outcome.levels, tuple(counts), None
        case Classes():
            return outcome.levels, tuple(sums), None
        case TimeToEvent():
            edges = tuple(f"{edge:g}" for edge in outcome.intervals)
            return edges, tuple(sums[len(edges) :]), None
        case Count():
            total, exposure = next(totals)
            return (), (total,), exposure


@dataclass(frozen=True, kw_only=True)
class Law:
    """One target's law of residuals, from held-out rows: Student's t, or Gaussian if ν is None.

    fitted: False if there were too few rows, and N(μ, v) is used unchanged.
    """

    name: str
    rows: int
    fitted: bool
    freedom: float | None
    scale: float

    @classmethod
    def of(cls, model: Model) -> tuple[Self, ...] | None:
        """Return the description of every target; None if the program had no recalibration."""
        if model.recalibration is None:
            return None
        return tuple(
            cls(
                name=target.name,
                rows=each.rows,
                fitted=each.fitted is not None,
                freedom=each.law.freedom,
                scale=each.law.scale,
            )
            for target, each in zip(model.schema.real, model.recalibration, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class Quality:
    """One target's scores under one law; `curve` and `widths` at each level."""

    name: str
    rmse: float
    nll: float
    crps: float
    ece: float
    mce: float
    brier: float
    curve: tuple[float, ...]
    widths: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_curve(self.curve)
        _check_curve(self.widths)

    @classmethod
    def of(cls, scores: Scores, model: Model) -> tuple[Self, ...]:
        """Return the scores of every target."""
        scores = in_units(scores, known(model.standardiser, "moments"))
        numbers = ("rmse", "nll", "crps", "ece", "mce", "brier")
        columns = {name: getattr(scores, name)().tolist() for name in numbers}
        curves, widths = scores.calibration_curve().tolist(), scores.width().tolist()
        return tuple(
            cls(
                name=target.name,
                curve=tuple(curves[i]),
                widths=tuple(widths[i]),
                **{name: column[i] for name, column in columns.items()},
            )
            for i, target in enumerate(model.schema.real)
        )


@dataclass(frozen=True, kw_only=True)
class MethodQuality:
    """Each target's scores for one of the model's other methods."""

    method: str
    quality: tuple[Quality, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores on held-out rows: of N(μ, v), and of the recalibrated law if there is one.

    method: the model's default, which all scores but `others` are of.
    conformal: for each target, the share of rows inside their conformal intervals at each level.
    others: scores of the model's other methods, on the same rows, in their order.
    outcomes: the scores of the targets that are not real numbers.
    errors: with differential privacy, the standard error of each number that is due to noise.
    """

    method: str
    part: str
    rows: int
    levels: tuple[float, ...]
    gaussian: tuple[Quality, ...]
    recalibrated: tuple[Quality, ...] | None
    conformal: tuple[tuple[float, ...], ...] | None
    others: tuple[MethodQuality, ...] = ()
    outcomes: tuple[JudgedOutcome, ...] = ()
    errors: ScoreErrors | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ArtifactError(
                f"the card's evaluation.method must be one of {', '.join(METHODS)}, not "
                f"{self.method!r:.40}"
            )
        if self.levels != LEVELS:
            raise ArtifactError("the card's evaluation.levels must be 0.05, 0.10 … 0.95")
        if self.rows < 1:
            raise ArtifactError(
                f"the card's evaluation.rows must be at least 1, not {self.rows}: without "
                "held-out rows, evaluation is null"
            )
        for curve in self.conformal or ():
            _check_curve(curve)
        if self.errors is not None:
            self._check_errors(self.errors)

    def _check_errors(self, errors: ScoreErrors) -> None:
        """Refuse standard errors that are not one for each number of this evaluation."""
        pairs = (self.gaussian, errors.gaussian), (self.recalibrated, errors.recalibrated)
        names = [
            (_names(own), _names(theirs))
            for own, theirs in (*pairs, (self.outcomes, errors.outcomes))
        ]
        if any(own != theirs for own, theirs in names) or (
            len(self.conformal or ()) != len(errors.conformal or ())
        ):
            raise ArtifactError(
                "the card's evaluation.errors must be of the targets that evaluation has, in order"
            )
        curves = [own.curve for _, part in pairs for own in part or ()]
        curves += [*(errors.conformal or ()), *(o.inside for o in errors.outcomes if o.inside)]
        for curve in curves:
            _check_curve(curve)
        for judged, own in zip(self.outcomes, errors.outcomes, strict=True):
            if len(own.further) != len(judged.further) or (
                (own.inside is None) != (judged.coverage is None)
            ):
                raise ArtifactError(
                    "the card's evaluation.errors must have one number for each score"
                )

    @classmethod
    def of(cls, model: Model, noise: Noise | None = None) -> Self | None:
        """Return a model's scores; None if it has none, or if no rows were held out.

        noise: with differential privacy, that of the sum that they were made from.
        """
        scores, outcomes = model.scores, model.outcome_scores or ()
        if scores is None or not all(rows >= 0.5 for rows in _held_out_rows(model)):
            return None
        curve = scores.conformal_curve()
        return cls(
            method=methods_of(model)[0],
            part=scores.part,
            rows=round(_held_out_rows(model)[0]),
            levels=LEVELS,
            gaussian=Quality.of(scores.gaussian, model),
            recalibrated=None
            if scores.recalibrated is None
            else Quality.of(scores.recalibrated, model),
            conformal=None if curve is None else tuple(map(tuple, curve.tolist())),
            others=tuple(
                MethodQuality(method=each.method, quality=Quality.of(each.scores, model))
                for each in scores.students
            ),
            outcomes=tuple(
                JudgedOutcome.of(target, own)
                for target, own in zip(model.schema.outcomes, outcomes, strict=True)
            ),
            errors=None if noise is None else ScoreErrors.of(model, noise),
        )


def _names(
    judged: Sequence[Quality | TargetErrors | JudgedOutcome | OutcomeErrors] | None,
) -> list[str]:
    return [own.name for own in judged or ()]


def _held_out_rows(model: Model) -> list[float]:
    """Return the number of held-out rows that each target was judged on."""
    real = [] if model.scores is None else model.scores.gaussian.rows.tolist()
    pairs = zip(model.schema.outcomes, model.outcome_scores or (), strict=False)
    return real + [own.raw.row_count for _, own in pairs]


def _check_curve(curve: tuple[float, ...]) -> None:
    if len(curve) != len(LEVELS):
        raise ArtifactError(f"a curve of a card must have {len(LEVELS)} numbers, not {len(curve)}")
