"""Embarrassingly parallel MCMC [Neiswanger14] with diagonal Gaussians.

    p(θ | all rows) ∝ p(θ)^{1 − |S|} Π_c p(θ | rows of c)       ([PredBayes] eq. 2.13)

where each factor is approximated by a Gaussian with independent coordinates: precisions and
precisions times means are summed, and those of the prior are subtracted for every site but one.

broadcast  the start of the chains
local      1/s_c² and m_c/s_c² of the site's samples (`local_posterior`), and 1; n_c; and the
           squared error of its mean prediction on the rows kept for stopping
sum        precision and shift of the product, and σ²
update     mean and variance of θ; the model predicts by the mixture of networks drawn from it

A site's variance is at most the prior's and at least LEAST_VARIANCE, and its mean is within
±PARAMETER_BOUND, so the precision of the product is always positive.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from kernels.ensembles.served_networks import MOST_SAMPLES, NetworkMethod, Networks
from kernels.errors import ProgramError
from kernels.features.seeded_random import normals
from kernels.model.model import Model, check_model, known
from kernels.parameter_checks import check_whole
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import BITWISE
from kernels.rounds.shared.local_network import (
    OfSampling,
    noise_variance_of,
    rows_of,
    sample_at,
    served_blocks,
    served_contribution,
)
from kernels.rounds.shared.site_mean import SITES, of_site, total_weight, trainable
from kernels.rounds.shared.sufficient import RESOLUTION
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from privacy.layout import Block, Layout, SecureTotal

NAME = "ep_mcmc"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.NETWORKS})

LEAST_VARIANCE = 1e-6
PARAMETER_BOUND = 100.0
SHIFT_RESOLUTION = 2.0**-20


@dataclass(frozen=True, kw_only=True)
class Spec(OfSampling):
    """How sites sample; the prior is N(0, weight_variance). draws: the networks that predict."""

    STORED_AS: ClassVar[str] = "ep_mcmc.spec"

    draws: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, draws=self.draws)
        if self.draws > MOST_SAMPLES:
            raise ProgramError(f"draws must be at most {MOST_SAMPLES}, not {self.draws}")


@dataclass(frozen=True, eq=False)
class State:
    """State before and after the sum: mean and variance of θ, (P,)."""

    STORED_AS: ClassVar[str] = "ep_mcmc.state"

    model: Model
    spec: Spec
    mean: Tensor | None = field(default=None, metadata=PRIVATE)
    variance: Tensor | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)


def layout(state: State) -> Layout:
    """Return precision and shift of every parameter, the number of sites, and their errors."""
    shape = (state.spec.network(state.model).parameters,)
    precision = max(1 / LEAST_VARIANCE, 1 / state.spec.weight_variance) * (1 + 2.0**-40)
    return Layout(
        (
            Block("precision", shape, precision, RESOLUTION),
            Block("shift", shape, precision * PARAMETER_BOUND, SHIFT_RESOLUTION),
            SITES,
            *served_blocks(state.model),
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Start without a mean and a variance."""
    known(model.standardiser, "moments")
    return State(model, spec)


def contribute(state: State, site: Site) -> Contribution:
    """Sample, and return the samples' Gaussian as precision and shift."""
    model, spec = state.model, state.spec
    at = trainable(site, model)
    posterior = sample_at(at, model, spec, spec.start(model))
    widest = max(spec.weight_variance, LEAST_VARIANCE)
    variance = posterior.samples.var(0).clamp(LEAST_VARIANCE, widest)
    mean = posterior.samples.mean(0).clamp(-PARAMETER_BOUND, PARAMETER_BOUND)
    contribution = {
        "precision": (1 / variance).numpy(),
        "shift": (mean / variance).numpy(),
        "sites": np.ones(()),
        **served_contribution(at, model, lambda x: posterior.predict(x).mean),
    }
    return of_site(site, contribution)


def update(state: State, total: SecureTotal) -> State:
    """Multiply the Gaussians, and divide by the prior once for every site but one."""
    total = accepted(total, layout(state))
    sites = round(total_weight(total))
    precision = torch.tensor(total["precision"]) - (sites - 1) / state.spec.weight_variance
    # Rounding may have left a precision slightly below the prior's.
    precision = precision.clamp_min(1 / max(state.spec.weight_variance, LEAST_VARIANCE))
    model, spec = state.model, state.spec
    mean, variance = torch.tensor(total["shift"]) / precision, 1 / precision
    networks = Networks(
        NetworkMethod.EP_MCMC,
        spec.network(model),
        drawn(mean, variance, spec),
        noise_variance_of(total),
        rows_of(total),
    )
    return replace(state, model=model.with_networks(networks), mean=mean, variance=variance)


def finished(state: State) -> bool:
    """Return whether the one sum has been made; only the coordinator knows this."""
    return state.mean is not None


check_private = without_private_form(
    "ep_mcmc sums locally trained networks, and the effect of one row on them is not bounded: "
    "leave it out of a program with differential privacy"
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students | {NetworkMethod.EP_MCMC},
        words="mean and precision of a network's parameters after training on the local rows, and "
        "the error on held-out rows; networks drawn from the product become part of the model",
        sums=1,
        numbers=2 * spec.network(model).parameters + model.targets + 3,
        numbers_in_all=2 * spec.network(model).parameters + model.targets + 3,
        leaves=2 * spec.network(model).parameters + model.targets + 3,
        row_count="rows",
        local_passes=spec.passes,
        rate_times_steps=spec.step_size * spec.passes,
        reads=frozenset({Part.TRAINING, Part.STOPPING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=BITWISE,
    )


STORED = (Spec, State)


def drawn(mean: Tensor, variance: Tensor, spec: Spec) -> Tensor:
    """Draw networks from the product, (draws, P); the same ones on every machine."""
    return mean + variance.sqrt() * normals(spec.seed, NAME, spec.draws, len(mean))
