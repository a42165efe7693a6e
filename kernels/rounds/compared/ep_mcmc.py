"""Embarrassingly parallel MCMC [Neiswanger14] with diagonal Gaussians: for comparison.

    p(θ | all rows) ∝ p(θ)^{1 − |S|} Π_c p(θ | rows of c)       ([PredBayes] eq. 2.13)

where each factor is approximated by a Gaussian with independent coordinates: precisions and
precisions times means are summed, and those of the prior are subtracted for every site but one.

broadcast  the start of the chains
local      1/s_c² and m_c/s_c² of the site's samples (`local_posterior`), and 1; and the squared
           error of its mean prediction on the rows kept for stopping
sum        precision and shift of the product, and σ²
update     mean and variance of θ, from which networks are drawn

A site's variance is at most the prior's and at least LEAST_VARIANCE, and its mean is within
±PARAMETER_BOUND, so the precision of the product is always positive.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from kernels.model.model import Model, check_model, known
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import BITWISE
from kernels.rounds.shared.local_network import (
    OfSampling,
    error_blocks,
    noise_variance_of,
    sample_at,
)
from kernels.rounds.shared.site_mean import SITES, of_site, total_weight, trainable
from kernels.rounds.shared.sufficient import RESOLUTION, TARGET_BOUND
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from privacy.layout import Block, Layout, SecureTotal

NAME = "ep_mcmc"
VERSION = 1
NEEDS = frozenset({Made.STANDARDISER})
MAKES: frozenset[Made] = frozenset()

LEAST_VARIANCE = 1e-6
PARAMETER_BOUND = 100.0
SHIFT_RESOLUTION = 2.0**-20


@dataclass(frozen=True, kw_only=True)
class Spec(OfSampling):
    """How sites sample; the prior is N(0, weight_variance)."""

    STORED_AS: ClassVar[str] = "ep_mcmc.spec"


@dataclass(frozen=True, eq=False)
class State:
    """State before and after the sum: mean and variance of θ, (P,); noise_variance: σ², (T,)."""

    STORED_AS: ClassVar[str] = "ep_mcmc.state"

    model: Model
    spec: Spec
    mean: Tensor | None = field(default=None, metadata=PRIVATE)
    variance: Tensor | None = field(default=None, metadata=PRIVATE)
    noise_variance: Tensor | None = field(default=None, metadata=PRIVATE)

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
            *error_blocks(state.model),
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
    x, y = at.table(Part.STOPPING, model)
    missed = posterior.predict(x).mean.clamp(-TARGET_BOUND, TARGET_BOUND) - y
    contribution = {
        "precision": (1 / variance).numpy(),
        "shift": (mean / variance).numpy(),
        "sites": np.ones(()),
        "missed_squares": missed.square().sum(0).numpy(),
        "missed_rows": np.array(float(len(y))),
    }
    return of_site(site, contribution)


def update(state: State, total: SecureTotal) -> State:
    """Multiply the Gaussians, and divide by the prior once for every site but one."""
    total = accepted(total, layout(state))
    sites = round(total_weight(total))
    precision = torch.tensor(total["precision"]) - (sites - 1) / state.spec.weight_variance
    # Rounding may have left a precision slightly below the prior's.
    precision = precision.clamp_min(1 / max(state.spec.weight_variance, LEAST_VARIANCE))
    return replace(
        state,
        mean=torch.tensor(total["shift"]) / precision,
        variance=1 / precision,
        noise_variance=noise_variance_of(total),
    )


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
        students=before.students,
        words="mean and precision of a network's parameters after training on the local rows, and "
        "the error on held-out rows",
        sums=1,
        numbers=2 * spec.network(model).parameters + model.targets + 2,
        numbers_in_all=2 * spec.network(model).parameters + model.targets + 2,
        leaves=0,
        row_count=None,
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


def drawn(state: State, count: int, *, generator: torch.Generator) -> Tensor:
    """Draw networks from the product, (count, P)."""
    mean, variance = known(state.mean, NAME), known(state.variance, NAME)
    noise = torch.randn((count, len(mean)), generator=generator, dtype=torch.float64)
    return mean + variance.sqrt() * noise
