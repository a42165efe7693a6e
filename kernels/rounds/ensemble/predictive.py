"""Local posteriors combined in predictive space: one sum of moments at public rows [PredBayes].

Site c predicts N(μ_c, v_c) at every public row, from its own posterior of a network
(`local_posterior`) or of the linear layer on the model's kernel.

broadcast  the model so far, and the public rows, which are part of the program
local      1, n_c and, at each public row, 1/v_c, μ_c/v_c, n_c μ_c, n_c(v_c + μ_c²), w_c, w_c/v_c,
           w_c μ_c/v_c; or nothing from a site without rows
sum        the same over all sites: the coordinator sees no site's model and no site's predictions
update     the exact product, mixture, generalised product and robust committee at the public rows
           (`kernels.ensembles.committee`), and β if they have labels
           (`kernels.ensembles.interpolation`); a distilled student of each
           (`kernels.ensembles.student_network`)

Predictions are clipped to ±MEAN_BOUND and variances to VARIANCES, in standardised units. The prior
that products divide by is N(0, `prior_variance`) for networks: it is wider than the standardised
targets, because otherwise sites would be less certain than the prior. The linear layer has its own
prior, N(0, σ² + λ²‖φ‖²).

A program may also request the samples themselves (`open`): `open_ensemble` describes how those that
sites disclose are used. A site that discloses none still takes part in the sum.
"""

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from kernels.ensembles.committee import Committee, Guard
from kernels.ensembles.distilled import Distilled, Method, Opinion
from kernels.ensembles.interpolation import BETA_STEP, fit_beta
from kernels.errors import ProgramError
from kernels.layer.posterior import Posterior, Prediction, Spectrum
from kernels.model.model import Model, check_model, known
from kernels.parameter_checks import check_at_least, one_of
from kernels.reproducible import on_grid, to_bits
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, Bits, Replay
from kernels.rounds.shared.lessons import STUDENTS, OfPublicRows
from kernels.rounds.shared.local_network import OfSampling, sample_at
from kernels.rounds.shared.public_set import digest_of, public_table
from kernels.rounds.shared.site_mean import SITES, of_site, total_weight, trainable
from kernels.rounds.shared.sufficient import (
    RESOLUTION,
    SQUARES_RESOLUTION,
    TARGET_BOUND,
    site_statistics,
)
from kernels.rounds.site.site import Part, Site
from kernels.scores.gaussians import Gaussian
from kernels.strict_json import is_flag
from privacy.layout import Block, Layout, SecureTotal

NAME = "predictive"
VERSION = 1
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.STUDENTS})

PRIOR_BITS = 24
"""Significant bits of the variances of the linear layer's prior, a sum over features."""
MEAN_BOUND = TARGET_BOUND
VARIANCES = 1e-4, 1e4
SHIFT_RESOLUTION = 2.0**-22
"""The coarsest step of sums of μ/v: 1e-6 deviations of the mean if v is 4, as for the prior."""


class Expert(StrEnum):
    """The kind of posterior that a site predicts with."""

    NETWORK = "network"
    """Samples of a small network's posterior."""
    LINEAR = "linear"
    """The Bayesian linear layer on the site's own rows, with the model's kernel, σ and λ."""


@dataclass(frozen=True, kw_only=True)
class Spec(OfSampling, OfPublicRows):
    """The public rows, the sites' experts, and how students are distilled.

    prior_variance: the variance of the prediction without any rows. guard: see `committee.Guard`.
    methods: those to distil a student of; β is fitted to the labels of the public rows
    ([PredBayes] eq. 4.11), and without labels by a separate stage (`beta`). open: also request
    samples from sites whose policies allow it; no sum hides these.
    """

    STORED_AS: ClassVar[str] = "predictive.spec"

    expert: Expert = Expert.NETWORK
    prior_variance: float = 4.0
    guard: Guard = Guard.PRIOR
    methods: tuple[Method, ...] = (Method.PRODUCT, Method.MIXTURE, Method.GPOE, Method.RBCM)
    open: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1e-6, prior_variance=self.prior_variance)
        object.__setattr__(self, "expert", one_of(Expert, expert=self.expert))
        object.__setattr__(self, "guard", one_of(Guard, guard=self.guard))
        # An empty object of JSON could be gone through, too.
        methods = self.methods if isinstance(self.methods, tuple | list) else [None]
        try:
            object.__setattr__(self, "methods", tuple(Method(each) for each in methods))
        except (TypeError, ValueError):
            raise ProgramError(f"methods must be a list of {', '.join(Method)}") from None
        if not is_flag(self.open) or (self.open and self.expert is not Expert.NETWORK):
            raise ProgramError(
                "open must be true or false, and can be true only where expert is network"
            )


@dataclass(frozen=True, eq=False)
class State:
    """The model; before the one sum it has no students of this stage."""

    STORED_AS: ClassVar[str] = "predictive.state"

    model: Model
    spec: Spec

    def __post_init__(self) -> None:
        check_model(self.model)


def layout(state: State) -> Layout:
    """Return the nine sums of `Committee`."""
    model, spec = state.model, state.spec
    most, shape = float(model.max_rows), (spec.public_rows, model.targets)
    precision = 1 / VARIANCES[0] * (1 + 2.0**-40)
    shift = precision * MEAN_BOUND
    weight = max(1.0, np.log(_widest(model, spec) / VARIANCES[0]) / 2)
    square = VARIANCES[1] + MEAN_BOUND**2
    bounds = {
        "precision": (precision, RESOLUTION),
        "shift": (shift, SHIFT_RESOLUTION),
        "row_mean": (most * MEAN_BOUND, SQUARES_RESOLUTION),
        "row_square": (most * square, SQUARES_RESOLUTION),
        "weight": (weight, RESOLUTION),
        "weighted_precision": (weight * precision, RESOLUTION),
        "weighted_shift": (weight * shift, SHIFT_RESOLUTION),
    }
    return Layout(
        (
            SITES,
            Block("rows", (), most, 1.0),
            *(Block(name, shape, *bound) for name, bound in bounds.items()),
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Check the public rows, and discard earlier students with their scores."""
    spec.inputs(model)
    if Method.BETA in spec.methods:
        public_table(spec.public, model)
    if spec.expert is Expert.LINEAR:
        known(model.hyperparameters, "linear")
    return State(replace(model, distilled=None, scores=None), spec)


def contribute(state: State, site: Site) -> Contribution:
    """Return the site's predictions at the public rows as its part of the committee's sums."""
    model, spec = state.model, state.spec
    at = trainable(site, model)
    inputs = spec.inputs(model)
    said = bounded(predict_at(at, model, spec, inputs))
    rows, prior = at.count(Part.TRAINING), prior_at(model, spec, inputs)
    own = Committee.alone(said, rows=rows, prior=prior)
    return of_site(site, {each.name: getattr(own, each.name).numpy() for each in fields(own)})


def update(state: State, total: SecureTotal) -> State:
    """Combine the predictions by every method, and distil a student of each."""
    total = accepted(total, layout(state))
    model, spec = state.model, state.spec
    total_weight(total)  # fails if no site has training rows
    inputs = spec.inputs(model)
    committee = Committee(*(torch.tensor(total[field.name]) for field in fields(Committee)))
    opinion = Opinion(inputs, committee, prior_at(model, spec, inputs), spec.guard)
    distilled = Distilled(spec.student(model), spec.lesson, (), opinion=opinion)
    beta = _beta(opinion, spec, model) if Method.BETA in spec.methods else None
    distilled = distilled.taught(spec.methods, beta=beta)
    return replace(state, model=replace(model, distilled=distilled))


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.model.distilled is not None


check_private = without_private_form(
    "predictive sums what models of single sites predict, and the effect of one row on them is "
    "not bounded: leave it out of a program with differential privacy"
)


REPLAY = Replay(
    grids={
        **STUDENTS,
        "model.distilled.opinion.prior.variance": Bits(PRIOR_BITS),
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    networks = spec.expert is Expert.NETWORK
    return Declaration(
        needs=NEEDS if networks else NEEDS | {Made.LAYER},
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=(before.students - frozenset(Method)) | frozenset(spec.methods),
        words="what a model trained on the local rows alone predicts for the rows of a public "
        "table, with variances",
        sums=1,
        numbers=7 * spec.public_rows * before.model.targets + 2,
        numbers_in_all=7 * spec.public_rows * before.model.targets + 2,
        leaves=7 * spec.public_rows * before.model.targets + 2,
        row_count="rows",
        local_passes=spec.passes if networks else 0,
        rate_times_steps=spec.step_size * spec.passes if networks else 0.0,
        reads=frozenset({Part.TRAINING, *([Part.STOPPING] if networks else [])}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.LABELLED if Method.BETA in spec.methods else PublicRows.INPUTS,
        public_set=digest_of(spec.public),
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)


def _widest(model: Model, spec: Spec) -> float:
    return float(prior_at(model, spec, spec.inputs(model)).variance.max())


def prior_at(model: Model, spec: Spec, inputs: Tensor) -> Gaussian:
    """Return the prediction at inputs without any rows, (K, T)."""
    shape = (len(inputs), model.targets)
    mean = torch.zeros(shape, dtype=torch.float64)
    if spec.expert is Expert.NETWORK:
        return Gaussian(mean, torch.full(shape, spec.prior_variance, dtype=torch.float64))
    scales = known(model.hyperparameters, "linear")
    squares = _features(model, inputs).square().sum(1, keepdim=True)
    variance = scales.noise_variance + scales.prior_variance * squares
    return Gaussian(mean, to_bits(variance.clamp(*VARIANCES), PRIOR_BITS))


def _features(model: Model, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return model.urk.features(inputs)


def bounded(said: Prediction) -> Gaussian:
    """Return a prediction clipped to the bounds of the sum."""
    return Gaussian(said.mean.clamp(-MEAN_BOUND, MEAN_BOUND), said.variance.clamp(*VARIANCES))


def predict_at(site: Site, model: Model, spec: Spec, inputs: Tensor) -> Prediction:
    """Return the predictions of one site alone at inputs (K, p)."""
    if spec.expert is Expert.NETWORK:
        return sample_at(site, model, spec, spec.start(model)).predict(inputs)
    statistics = site_statistics(model, site, Part.TRAINING)
    spectrum = Spectrum.of(statistics, inducing=model.kernel.inducing_features)
    posterior = Posterior.of(spectrum, known(model.hyperparameters, "linear"))
    return posterior.predict(_features(model, inputs))


def _beta(opinion: Opinion, spec: Spec, model: Model) -> Tensor:
    """Return the β, (T,), that makes the public rows' labels likely; extra rows have no labels."""
    _, labels = public_table(spec.public, model)
    product, mixture = (
        Gaussian(end.mean[: len(labels)], end.variance[: len(labels)])
        for end in map(opinion.teacher, (Method.PRODUCT, Method.MIXTURE))
    )
    return on_grid(fit_beta(product, mixture, labels), BETA_STEP)
