"""The sections of a model's card: privacy, methods, linear layer, laws of residuals, evaluation.

Scores are in the targets' units; σ², λ² and the evidence are on the standardised scale.
"""

from dataclasses import dataclass
from typing import Self

from kernels.ensembles.distilled import Method
from kernels.errors import ArtifactError
from kernels.model.methods import FEDBNR, METHODS, methods_of
from kernels.model.model import Model, known
from kernels.scores.evaluation import in_units
from kernels.scores.metrics import LEVELS, Scores
from kernels.tables.schema import Schema

DISTILLED = "distilled"
"""An ensemble that is served by a student of what all sites said together."""


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """How the hospitals' numbers were protected, and what that leaves open.

    unit: whose presence a guarantee is about, "patient" or "row".
    epsilon, delta: what the session had spent on any one unit; None without differential privacy.
    meaning: the same in words.
    mechanism, releases: what noise was added to how many sums of the session so far.
    """

    differential_privacy: bool
    unit: str
    min_cohort: int
    max_colluders: int
    epsilon: float | None
    delta: float | None
    meaning: str
    mechanism: str | None = None
    releases: int | None = None

    def __post_init__(self) -> None:
        if self.unit not in ("patient", "row"):
            raise ArtifactError("a card's unit of privacy is patient or row")
        if {self.epsilon is not None, self.delta is not None} != {self.differential_privacy}:
            raise ArtifactError("a card has ε and δ with differential privacy, and only then")
        if not self.differential_privacy and (self.mechanism or self.releases is not None):
            raise ArtifactError("a card has noise with differential privacy, and only then")

    @classmethod
    def of(
        cls,
        schema: Schema,
        *,
        min_cohort: int,
        max_colluders: int,
        epsilon: float | None = None,
        delta: float | None = None,
        mechanism: str | None = None,
        releases: int | None = None,
    ) -> Self:
        """Describe a session's terms; without ε and δ it had no differential privacy."""
        unit = "row" if schema.patient is None else "patient"
        meaning = explained(unit, min_cohort, max_colluders, epsilon, delta)
        return cls(
            differential_privacy=epsilon is not None,
            unit=unit,
            min_cohort=min_cohort,
            max_colluders=max_colluders,
            epsilon=epsilon,
            delta=delta,
            meaning=meaning,
            mechanism=mechanism,
            releases=releases,
        )


def explained(
    unit: str, min_cohort: int, max_colluders: int, epsilon: float | None, delta: float | None
) -> str:
    """Say in words what terms promise and what they leave open."""
    colluding = f"even if it colluded with up to {max_colluders} of them"
    sums = (
        f"The coordinator saw sums over at least {min_cohort} hospitals and no hospital's own "
        f"numbers, {colluding if max_colluders else 'unless it colluded with one of them'}."
    )
    if epsilon is None or delta is None:
        return (
            f"{sums} There was no differential privacy: the sums and this model are exact, so "
            f"whoever knows enough of all other {unit}s may learn of one {unit} from them."
        )
    return (
        f"{sums} Noise was added, enough if {min_cohort - max_colluders} of them add theirs: "
        f"whether any one {unit} was in the tables changes the probability of any outcome by a "
        f"factor of at most e^{epsilon:.4g}, except with probability {delta:g}."
    )


@dataclass(frozen=True, kw_only=True)
class Served:
    """A method that the model predicts by.

    ensemble: where many sites' predictions are made into one, how they are served: "distilled", by
    a student network. None for `fedbnr`, which is no ensemble.
    divergence: of a student, KL(teacher ‖ student) at the public rows in nats, all targets added.
    beta: of `beta`, each target's, from 0, the mixture, to 1, the product.
    """

    method: str
    ensemble: str | None = None
    divergence: float | None = None
    beta: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS or self.ensemble not in (None, DISTILLED):
            raise ArtifactError(f"a card has methods of {', '.join(METHODS)}, or {DISTILLED} ones")

    @classmethod
    def of(cls, model: Model) -> tuple[Self, ...]:
        """Describe every method that a model has."""
        return tuple(
            cls(method=each) if each == FEDBNR else cls._student(model, Method(each))
            for each in methods_of(model)
        )

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
    """One target of the linear layer: σ², λ² and the log evidence of all training rows."""

    name: str
    noise_variance: float
    prior_variance: float
    log_evidence: float

    @classmethod
    def of(cls, model: Model) -> tuple[Self, ...]:
        """Describe every target."""
        found = known(model.hyperparameters, "linear")
        columns = found.noise_variance, found.prior_variance, model.posterior.log_evidence
        return tuple(
            cls(name=target.name, noise_variance=noise, prior_variance=prior, log_evidence=evidence)
            for target, noise, prior, evidence in zip(
                model.schema.targets, *(column.tolist() for column in columns), strict=True
            )
        )


@dataclass(frozen=True, kw_only=True)
class Law:
    """One target's law of residuals, from held-out rows: Student's t, or Gaussian without ν.

    fitted: False where the rows were too few, and N(μ, v) stands as it is.
    """

    name: str
    rows: int
    fitted: bool
    freedom: float | None
    scale: float

    @classmethod
    def of(cls, model: Model) -> tuple[Self, ...] | None:
        """Describe every target; None if the program had no recalibration."""
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
            for target, each in zip(model.schema.targets, model.recalibration, strict=True)
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
        """Describe every target."""
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
            for i, target in enumerate(model.schema.targets)
        )


@dataclass(frozen=True, kw_only=True)
class StudentQuality:
    """Each target's scores by one of the model's further methods."""

    method: str
    quality: tuple[Quality, ...]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores on held-out rows: of N(μ, v), and of the recalibrated law where there is one.

    conformal: for each target, the share of rows inside their conformal intervals at each level.
    students: of the model's further methods, on the same rows.
    """

    part: str
    rows: int
    levels: tuple[float, ...]
    gaussian: tuple[Quality, ...]
    recalibrated: tuple[Quality, ...] | None
    conformal: tuple[tuple[float, ...], ...] | None
    students: tuple[StudentQuality, ...] = ()

    def __post_init__(self) -> None:
        if self.levels != LEVELS:
            raise ArtifactError("a card's calibration curve is at the levels 0.05, 0.10 … 0.95")
        if self.rows < 1:
            raise ArtifactError("a card has an evaluation only where a row was held out for it")
        for curve in self.conformal or ():
            _check_curve(curve)

    @classmethod
    def of(cls, model: Model) -> Self | None:
        """Describe a model's scores; None if it has none, or there was no row to have any of."""
        scores = model.scores
        if scores is None or not bool((scores.gaussian.rows >= 0.5).all()):
            return None
        curve = scores.conformal_curve()
        return cls(
            part=scores.part,
            rows=round(float(scores.gaussian.rows[0])),
            levels=LEVELS,
            gaussian=Quality.of(scores.gaussian, model),
            recalibrated=None
            if scores.recalibrated is None
            else Quality.of(scores.recalibrated, model),
            conformal=None if curve is None else tuple(map(tuple, curve.tolist())),
            students=tuple(
                StudentQuality(method=each.method, quality=Quality.of(each.scores, model))
                for each in scores.students
            ),
        )


def _check_curve(curve: tuple[float, ...]) -> None:
    if len(curve) != len(LEVELS):
        raise ArtifactError(f"a curve of a card has {len(LEVELS)} numbers, not {len(curve)}")
