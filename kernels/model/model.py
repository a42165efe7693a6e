"""The model that a program builds, stage by stage, as plain data.

Each stage takes the model so far and returns it with more parts: the standardiser after the
moments, weights after phase 1, statistics and hyperparameters after phase 2, and the results on
held-out rows after recalibration and evaluation. Posterior and kernel are derived from these parts
and never stored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor

from kernels.ensembles.distilled import Distilled
from kernels.ensembles.served_networks import Networks
from kernels.errors import NotFitted, ProgramError, StateError
from kernels.features.spec import KernelSpec
from kernels.features.urk import URK, weight_count
from kernels.layer.posterior import Hyperparameters, Posterior, Spectrum
from kernels.layer.statistics import Statistics
from kernels.model.noise_plan import NoisePlan
from kernels.model.second import Second
from kernels.model.withheld import Withheld
from kernels.noisy import noise_aware
from kernels.outcomes.census import Census
from kernels.outcomes.fitted import FittedOutcome, check_outcomes
from kernels.outcomes.scored.evaluated import OutcomeScores, check_calibrations
from kernels.outcomes.scored.evaluated import check_scores as check_outcome_scores
from kernels.scores.evaluation import Evaluation
from kernels.scores.recalibration import Recalibration, inflation
from kernels.storage import check_tensor
from kernels.tables.few_rows import FewRows
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Standardiser

T = TypeVar("T")

MOST_CHOICES = 16
"""The largest number of kernels that a program chooses from."""


@dataclass(frozen=True, eq=False)
class Centre:
    """The weights from which the linear layer is refined, and the deviations of its residuals.

    weights: w₀, (M, T). deviations: approximate, of the residuals y − φᵀw₀, (T,).
    """

    STORED_AS: ClassVar[str] = "centre"

    weights: Tensor
    deviations: Tensor

    def __post_init__(self) -> None:
        check_tensor("centre.weights", self.weights, tuple(self.weights.shape))
        check_tensor("centre.deviations", self.deviations, (self.weights.shape[-1],))
        if not (self.weights.ndim == 2 and bool((self.deviations > 0).all())):
            raise StateError(
                "centre.weights must have shape (M, T), and centre.deviations must be positive"
            )


class Parts(TypedDict, total=False):
    """The parts of a model that its program computes, stage by stage; None until then."""

    standardiser: Standardiser | None
    census: Census | None
    distilled: Distilled | None
    networks: tuple[Networks, ...] | None
    weights: Tensor | None
    hyperparameters: Hyperparameters | None
    centre: Centre | None
    statistics: Statistics | None
    outcomes: tuple[FittedOutcome, ...] | None
    withheld: Withheld | None
    second: Second | None
    recalibration: tuple[Recalibration, ...] | None
    calibrations: tuple[Any, ...] | None
    scores: Evaluation | None
    outcome_scores: tuple[OutcomeScores, ...] | None


_SCORES = ("scores", "outcome_scores")
_OF_PREDICTIONS = ("recalibration", "calibrations", *_SCORES)
_OF_A_LAYER = ("withheld", *_OF_PREDICTIONS)
_OF_THE_LAYER = ("hyperparameters", "centre", "statistics", "outcomes", *_OF_A_LAYER)

FOLLOWING: Mapping[str, Sequence[str]] = {
    "standardiser": ("census", "distilled", "networks", "weights", "second", *_OF_THE_LAYER),
    "census": ("outcomes", *_OF_A_LAYER),
    "distilled": _SCORES,
    "networks": _SCORES,
    "weights": ("second", *_OF_THE_LAYER),
    "hyperparameters": ("centre", "statistics", *_OF_A_LAYER),
    "centre": ("statistics", *_OF_A_LAYER),
    "statistics": _OF_A_LAYER,
    "outcomes": _OF_A_LAYER,
    "withheld": _OF_PREDICTIONS,
    "second": _OF_PREDICTIONS,
    "recalibration": _SCORES,
    "calibrations": _SCORES,
    "scores": (),
    "outcome_scores": (),
}
"""For every part, the parts that depend on it: they are dropped when it is replaced."""


@dataclass(frozen=True, eq=False)
class Model:
    """The parts of a model that have been computed so far.

    max_rows: the most rows that one site contributes; the bounds of every layout follow from it.
    privacy: with differential privacy, what one unit may change; the sensitivities follow from it.
    choices: the kernels that a later stage chooses from; none if `kernel` is settled.
    distilled: students of the sites' posteriors, which need no kernel.
    networks: those that sites have trained together, one of each method; they need no kernel.
    weights: θ, flat, in the order of `weight_shapes(kernel)`.
    centre: with differential privacy; if present, statistics are of the residuals from it.
    statistics: (S, b, yᵀy, n) of all rows at these weights, for the targets that are real numbers.
    census: how often each outcome occurs. outcomes: the layers of all other targets, in order.
    withheld: if the layers have the held-out rows as well, the layers without them.
    second: another kernel with its layer, if predictions are a mixture of both. All other parts and
    properties are those of `kernel`; whatever predicts loops over `members`.
    recalibration: for each target, from the residuals of rows kept for calibration.
    calibrations: the same for each outcome (`kernels.outcomes.scored`).
    scores, outcome_scores: the scores on held-out rows.
    """

    STORED_AS: ClassVar[str] = "model"

    schema: Schema
    kernel: KernelSpec
    max_rows: int
    privacy: NoisePlan | None = None
    choices: tuple[KernelSpec, ...] = ()
    standardiser: Standardiser | None = None
    census: Census | None = None
    distilled: Distilled | None = None
    networks: tuple[Networks, ...] | None = None
    weights: Tensor | None = None
    hyperparameters: Hyperparameters | None = None
    centre: Centre | None = None
    statistics: Statistics | None = None
    outcomes: tuple[FittedOutcome, ...] | None = None
    withheld: Withheld | None = None
    second: Second | None = None
    recalibration: tuple[Recalibration, ...] | None = None
    calibrations: tuple[Any, ...] | None = None
    scores: Evaluation | None = None
    outcome_scores: tuple[OutcomeScores, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema) or not isinstance(self.kernel, KernelSpec):
            raise StateError("model.schema must be a Schema and model.kernel a KernelSpec")
        if self.weights is not None:
            check_tensor("model.weights", self.weights, (weight_count(self.kernel),))
        if len(self.schema.feature_names) != self.kernel.inputs:
            raise ProgramError(
                f"the kernel's inputs must equal the schema's number of features, "
                f"{len(self.schema.feature_names)}, not {self.kernel.inputs}"
            )
        check_choices(self.kernel, self.choices)
        if self.privacy is not None:
            _check_kind("privacy", self.privacy, NoisePlan)
        if type(self.max_rows) is not int or not 1 <= self.max_rows <= 10**9:
            raise ProgramError(f"max_rows must be an integer from 1 to 10⁹, not {self.max_rows!r}")
        self._check_parts()

    def _check_parts(self) -> None:
        """Refuse parts of another schema or kernel; they may come from untrusted bytes."""
        features, targets = self.kernel.features, self.targets
        if self.standardiser is not None:
            _check_kind("standardiser", self.standardiser, Standardiser)
            self.standardiser.check(self.schema)
        if self.census is not None:
            _check_kind("census", self.census, Census)
            self.census.check(self.schema)
        if self.outcomes is not None:
            check_outcomes(self.outcomes, self.schema, features)
        if self.second is not None:
            _check_kind("second", self.second, Second)
            self._check_second(self.second)
        if self.withheld is not None:
            _check_kind("withheld", self.withheld, Withheld)
            self._check_withheld(self.withheld)
        if self.distilled is not None:
            _check_kind("distilled", self.distilled, Distilled)
            self.distilled.check(self.kernel.inputs, targets)
        if self.networks is not None:
            self._check_networks(self.networks)
        if self.hyperparameters is not None:
            check_scales(self.hyperparameters, targets)
        if self.centre is not None:
            _check_kind("centre", self.centre, Centre)
            check_tensor("model.centre.weights", self.centre.weights, (features, targets))
        if self.statistics is not None:
            _check_kind("statistics", self.statistics, Statistics)
            if (self.statistics.features, self.statistics.targets) != (features, targets):
                raise StateError(
                    f"model.statistics must have {features} features and {targets} targets, not "
                    f"{self.statistics.features} and {self.statistics.targets}"
                )
        if self.recalibration is not None:
            _check_kind("recalibration", self.recalibration, tuple)
            _check_count("model.recalibration", len(self.recalibration), targets)
            for index, each in enumerate(self.recalibration):
                _check_kind(f"recalibration[{index}]", each, Recalibration)
        if self.scores is not None:
            _check_kind("scores", self.scores, Evaluation)
            self.scores.check(targets)
        if self.calibrations is not None:
            check_calibrations(self.calibrations, self.schema)
        if self.outcome_scores is not None:
            check_outcome_scores(self.outcome_scores, self.schema)

    def _check_networks(self, networks: tuple[Networks, ...]) -> None:
        """Refuse networks without noise where there must be some, of other columns, or twice."""
        if self.privacy is not None:
            raise StateError("model.networks must be None with differential privacy")
        _check_kind("networks", networks, tuple)
        for index, own in enumerate(networks):
            _check_kind(f"networks[{index}]", own, Networks)
            own.check(self.kernel.inputs, self.targets)
        if not networks or len({own.method for own in networks}) < len(networks):
            raise StateError("model.networks must be None or have one entry for each method")

    def _check_withheld(self, withheld: Withheld) -> None:
        """Refuse layers without held-out rows where there are none with them, or of other sizes."""
        names = ("statistics", "hyperparameters", "outcomes")
        if any((getattr(self, n) is None) != (getattr(withheld, n) is None) for n in names):
            raise StateError("model.withheld must have the layers that the model has")
        self.judging(withheld)

    def _check_second(self, second: Second) -> None:
        """Refuse a second kernel of other columns, or beside what it has no form for."""
        if self.privacy is not None or self.schema.outcomes or self.choices:
            raise StateError(
                "model.second must be None with differential privacy, with targets that are not "
                "real numbers, and before a kernel is chosen"
            )
        if second.statistics is not None and (second.withheld is None) != (self.withheld is None):
            raise StateError("model.second.withheld must be there if model.withheld is")
        both = self.statistics, second.statistics
        if len({own.count for own in both if own is not None}) == 2:
            raise StateError("model.second.statistics must be of as many rows as model.statistics")
        _ = self.other  # with all that is checked of a model

    def judging(self, withheld: Withheld) -> "Model":
        """Return the model with the layers that held-out rows are judged by."""
        return replace(
            self,
            statistics=withheld.statistics,
            hyperparameters=withheld.hyperparameters,
            outcomes=withheld.outcomes,
            withheld=None,
            second=None if self.second is None else self.second.judged,
        )

    @cached_property
    def judged(self) -> "Model":
        """The model that held-out rows are judged by: this one, unless its layers have them."""
        return self if self.withheld is None else self.judging(self.withheld)

    @cached_property
    def members(self) -> tuple[tuple["Model", float], ...]:
        """Return a model of each kernel alone, with the weight of its predictions."""
        if self.second is None or self.other is None:
            return ((self, 1.0),)
        share = self.second.share
        return (replace(self, second=None), 1 - share), (self.other, share)

    @cached_property
    def other(self) -> "Model | None":
        """The model of the second kernel alone, if there is one."""
        own = self.second
        if own is None:
            return None
        return Model(
            self.schema,
            own.kernel,
            self.max_rows,
            standardiser=self.standardiser,
            weights=own.weights,
            hyperparameters=own.hyperparameters,
            statistics=own.statistics,
            withheld=own.withheld,
        )

    def beside(self, other: "Model") -> "Model":
        """Return the model with the weights and the layer of its second kernel from its own."""
        second = replace(
            known(self.second, "search"),
            weights=other.weights,
            hyperparameters=other.hyperparameters,
            statistics=other.statistics,
            withheld=other.withheld,
        )
        return self.advanced(second=second)

    def advanced(self, **parts: Unpack[Parts]) -> "Model":
        """Return the model with these parts replaced, and without those that depend on them.

        New weights drop the statistics, a new linear layer drops the recalibration: FOLLOWING.
        """
        anew: dict[str, Any] = {gone: None for name in parts for gone in FOLLOWING[name]}
        anew.update(parts)
        return replace(self, **anew)

    def with_networks(self, networks: Networks) -> "Model":
        """Return the model with the networks of a method, in place of earlier ones of it."""
        kept = tuple(own for own in self.networks or () if own.method is not networks.method)
        return self.advanced(networks=(*kept, networks))

    def networks_of(self, method: str) -> Networks | None:
        """Return the networks of a method, if there are any."""
        return next((own for own in self.networks or () if own.method == method), None)

    def has_features_of(self, other: "Model") -> bool:
        """Return whether both models compute the same features from a table."""
        same = (self.kernel, self.standardiser) == (other.kernel, other.standardiser)
        return same and torch.equal(self.urk.weights, other.urk.weights)

    @property
    def targets(self) -> int:
        """Return T, the number of targets that are real numbers."""
        return len(self.schema.real)

    @cached_property
    def urk(self) -> URK:
        """Return the kernel at the present weights, or else at the starting weights."""
        return URK(self.kernel, self.weights)

    @cached_property
    def features(self) -> Callable[[Tensor], Tensor]:
        """Return the kernel's φ, prepared for repeated calls with few rows."""
        return self.urk.fixed()

    @cached_property
    def few_rows(self) -> FewRows:
        """Return the reader of tables with few rows."""
        return FewRows(self.schema, known(self.standardiser, "moments"))

    @cached_property
    def inflation(self) -> Tensor:
        """Return the variance of each target's law of z, (T,)."""
        return inflation(self.recalibration, self.targets)

    @cached_property
    def noise_variance(self) -> Tensor:
        """Return the calibrated noise variance of each target in its unit, (T,)."""
        _, scale = known(self.standardiser, "moments").target_columns
        return self.standardised_noise * self.inflation * scale.square()

    @cached_property
    def standardised_noise(self) -> Tensor:
        """Return σ² of each target on the standardised scale, before recalibration, (T,)."""
        if self.second is None:
            return known(self.hyperparameters, "linear").noise_variance
        noise = ((own.standardised_noise, weight) for own, weight in self.members)
        return torch.stack([each * weight for each, weight in noise]).sum(0)

    @cached_property
    def posterior(self) -> Posterior:
        """Return the posterior of the linear layer."""
        statistics = known(self.statistics, "linear")
        scales = known(self.hyperparameters, "linear")
        if statistics.noise is None:
            inducing = self.kernel.inducing_features
            return Posterior.of(Spectrum.of(statistics, inducing=inducing), scales)
        posterior = noise_aware.posterior(statistics, scales)
        if self.centre is None:
            return posterior
        return replace(posterior, weights=self.centre.weights + posterior.weights)


def check_choices(kernel: KernelSpec, choices: object) -> None:
    """Refuse choices that are not different kernels of the same inputs, `kernel` first."""
    if not isinstance(choices, tuple) or not all(isinstance(own, KernelSpec) for own in choices):
        raise ProgramError("choices must be a list of kernels")
    if choices and (choices[0] != kernel or len(set(choices)) != len(choices)):
        raise ProgramError("choices must be different kernels, and the first one is the kernel")
    if len(choices) > MOST_CHOICES or any(own.inputs != kernel.inputs for own in choices):
        raise ProgramError(
            f"choices must be at most {MOST_CHOICES} kernels with as many inputs as the kernel"
        )


def _check_kind(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise StateError(f"model.{name} must be a {kind.__name__}, not {type(value).__name__}")


def _check_count(what: str, count: int, targets: int) -> None:
    if count != targets:
        raise StateError(f"{what} must have {targets} values, one per target, not {count}")


def check_scales(scales: object, targets: int) -> None:
    """Refuse a value that is not Hyperparameters with one σ² and λ² per target."""
    if not isinstance(scales, Hyperparameters):
        raise StateError(f"hyperparameters must be Hyperparameters, not {type(scales).__name__}")
    _check_count("hyperparameters", len(scales.noise_variance), targets)


def check_model(model: object) -> None:
    """Refuse a value that is not a model; states come from the coordinator."""
    if not isinstance(model, Model):
        raise StateError(f"state.model must be a Model, not {type(model).__name__}")


def is_fitted(model: Model) -> bool:
    """Return whether a model has a layer for each of its targets, so that it can predict."""
    real = not model.schema.real or all(own.statistics is not None for own, _ in model.members)
    return real and (model.outcomes is not None or not model.schema.outcomes)


def is_kernel_alone(model: Model) -> bool:
    """Return whether a model has a trained kernel and no layer: every site fits its own to it."""
    members = [own for own, _ in model.members]
    return (
        model.standardiser is not None
        and all(own.weights is not None and own.statistics is None for own in members)
        and (model.outcomes, model.distilled) == (None, None)
        and not model.networks
    )


def check_fitted(model: Model) -> None:
    """Refuse a model that has no layer for some of its targets."""
    if is_kernel_alone(model):
        raise NotFitted(
            "this model has a kernel and no layer (its program has no stage like 'linear'), so it "
            "predicts nothing by itself: each hospital fits a layer of its own rows to it at home, "
            "with model.personal(table) or `veilgp personal`"
        )
    for own, _ in model.members if model.schema.real else ():
        known(own.statistics, "linear")
    if model.schema.outcomes:
        known(model.outcomes, "outcomes")


def serves_alone(networks: tuple[Networks, ...] | None, schema: Schema) -> bool:
    """Return whether networks predict all targets, so that a model needs no layer."""
    return bool(networks) and not schema.outcomes


def check_predicts(model: Model) -> None:
    """Refuse a model that cannot predict all its targets: it needs layers, or networks."""
    if not serves_alone(model.networks, model.schema):
        check_fitted(model)


def training_rows(model: Model) -> int:
    """Return the number of training rows of a model that can predict; 0 of a kernel alone."""
    if is_kernel_alone(model):
        return 0
    check_predicts(model)
    if model.networks and not is_fitted(model):
        return model.networks[0].rows
    if model.statistics is not None:
        return model.statistics.count
    return known(model.outcomes, "outcomes")[0].rows


def known(part: T | None, stage: str) -> T:
    """Return a part of a model; the error names the stage that computes it."""
    if part is None:
        raise NotFitted(f"the model lacks the result of the stage {stage!r}: run it first")
    return part
