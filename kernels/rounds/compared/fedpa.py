"""FedPA [AlShedivat21], posterior averaging of a network.

The product of Gaussians N(μ_c, Σ_c) has its mode where Σ_c Σ_c⁻¹(θ − μ_c) = 0, so the server
follows that gradient. Site c estimates μ_c and Σ_c from ℓ samples, each the mean of a window of
SGD iterates (IASG), with a shrunk covariance:

    Σ̂ = ρ_ℓ I + (1 − ρ_ℓ)·S,   ρ_ℓ = 1/(1 + (ℓ − 1)ρ)

S has rank ℓ − 1, so with the centred samples as rows of C, Woodbury's identity gives

    Σ̂⁻¹u = (u − Cᵀ(ρ_ℓ(ℓ − 1)/(1 − ρ_ℓ)·I + CCᵀ)⁻¹Cu)/ρ_ℓ

broadcast  θ
local      Σ̂_c⁻¹(θ − μ̂_c), and 1; n_c; and the squared error of μ̂_c on the rows kept for stopping
sum        the gradient, and σ² as the mean error of the sites' networks on their own rows
update     θ by a step of gradient descent with momentum; after the last step the model has the
           network, which predicts N(f_θ, σ²)

No element of Σ̂⁻¹u exceeds ‖u‖/ρ_ℓ, and the reach of training is limited, which gives a bound.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from kernels.ensembles.networks import outputs
from kernels.ensembles.served_networks import NetworkMethod, Networks
from kernels.errors import ProgramError, StateError
from kernels.model.model import Model, check_model
from kernels.parameter_checks import check_at_least, check_whole
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import BITWISE
from kernels.rounds.shared.local_network import (
    OfTraining,
    draws_of,
    iterates,
    noise_variance_of,
    ordered_rows,
    rows_of,
    served_blocks,
    served_contribution,
)
from kernels.rounds.shared.site_mean import (
    CHANGE_RESOLUTION,
    SITES,
    of_site,
    total_weight,
    trainable,
)
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from privacy.layout import Block, Layout, SecureTotal

NAME = "fedpa"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.NETWORKS})


@dataclass(frozen=True, kw_only=True)
class Spec(OfTraining):
    """How sites train, and how the server steps.

    rounds: rounds of training. samples: ℓ. burn_in: the share of steps before the first window.
    shrinkage: ρ. server_rate, momentum: of the server's steps.
    """

    STORED_AS: ClassVar[str] = "fedpa.spec"

    rounds: int = 5
    samples: int = 5
    burn_in: float = 0.5
    shrinkage: float = 0.4
    server_rate: float = 0.5
    momentum: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, rounds=self.rounds, samples=self.samples)
        check_at_least(0.0, burn_in=self.burn_in, shrinkage=self.shrinkage, momentum=self.momentum)
        check_at_least(1e-12, server_rate=self.server_rate)
        if max(self.burn_in, self.momentum) >= 1:
            raise ProgramError("burn_in and momentum must be below 1")


@dataclass(frozen=True, eq=False)
class State:
    """The progress of training: θ and the server's velocity, (P,)."""

    STORED_AS: ClassVar[str] = "fedpa.state"

    model: Model
    spec: Spec
    parameters: Tensor
    round: int = 0
    velocity: Tensor | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_whole(0, round=self.round)
        if self.round > self.spec.rounds:
            raise StateError(f"round {self.round} is beyond the program's {self.spec.rounds}")
        self.spec.check_parameters(self.model, self.parameters)


def layout(state: State) -> Layout:
    """Return the gradient, the number of sites in it, and their errors."""
    spec = state.spec
    bound = spec.reach(state.model.max_rows) / shrunk_share(spec.samples, spec.shrinkage)
    return Layout(
        (
            Block("gradient", tuple(state.parameters.shape), bound, CHANGE_RESOLUTION),
            SITES,
            *served_blocks(state.model),
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Start at the parameters given by the seed."""
    return State(model, spec, spec.start(model))


def contribute(state: State, site: Site) -> Contribution:
    """Train, and return the gradient of the site's Gaussian at θ."""
    model, spec, theta = state.model, state.spec, state.parameters
    at = trainable(site, model)
    samples = iasg_samples(state, at)
    contribution = {
        "gradient": whitened(samples, theta - samples.mean(0), shrinkage=spec.shrinkage).numpy(),
        "sites": np.ones(()),
        **served_contribution(at, model, partial(outputs, spec.network(model), samples.mean(0))),
    }
    return of_site(site, contribution)


def update(state: State, total: SecureTotal) -> State:
    """Take a descent step along the mean gradient."""
    total = accepted(total, layout(state))
    velocity = torch.tensor(total["gradient"]) / total_weight(total)
    if state.velocity is not None:
        velocity = velocity + state.spec.momentum * state.velocity
    after = replace(
        state,
        parameters=state.parameters - state.spec.server_rate * velocity,
        round=state.round + 1,
        velocity=velocity,
    )
    if not finished(after):
        return after
    networks = Networks(
        NetworkMethod.FEDPA,
        after.spec.network(after.model),
        after.parameters[None],
        noise_variance_of(total),
        rows_of(total),
    )
    return replace(after, model=after.model.with_networks(networks))


def finished(state: State) -> bool:
    """Return whether the last round has been made."""
    return state.round == state.spec.rounds


check_private = without_private_form(
    "fedpa sums locally trained networks, and the effect of one row on them is not bounded: leave"
    " it out of a program with differential privacy"
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
        students=before.students | {NetworkMethod.FEDPA},
        words="how training on the local rows changes a network's parameters, weighted by how "
        "certain each direction is, and the error on held-out rows; the network "
        "becomes part of the model",
        sums=spec.rounds,
        numbers=spec.network(model).parameters + model.targets + 3,
        numbers_in_all=spec.rounds * (spec.network(model).parameters + model.targets + 3),
        leaves=spec.network(model).parameters + model.targets,
        row_count="rows",
        local_passes=spec.epochs,
        rate_times_steps=spec.learning_rate * spec.epochs * spec.rounds,
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


def shrunk_share(samples: int, shrinkage: float) -> float:
    """Return ρ_ℓ."""
    return 1 / (1 + (samples - 1) * shrinkage)


def iasg_samples(state: State, site: Site) -> Tensor:
    """Return means of windows of SGD iterates, (ℓ, P); fewer than ℓ if there are fewer steps."""
    model, spec = state.model, state.spec
    table = ordered_rows(site, Part.TRAINING, model)
    steps = spec.epochs * -(-len(table[0]) // spec.batch_rows)
    burn_in = min(int(spec.burn_in * steps), steps - 1)
    windows = min(spec.samples, steps - burn_in)
    total = torch.zeros(windows, len(state.parameters), dtype=torch.float64)
    count = torch.zeros(windows, 1, dtype=torch.float64)
    generator = draws_of(site, seed=spec.seed, turn=state.round)
    chain = iterates(spec.network(model), state.parameters, table, spec, generator)
    for step, parameters in enumerate(chain):
        if step >= burn_in:
            window = (step - burn_in) * windows // (steps - burn_in)
            total[window] += parameters
            count[window] += 1
    return total / count


def whitened(samples: Tensor, difference: Tensor, *, shrinkage: float) -> Tensor:
    """Return Σ̂⁻¹u for the shrunk covariance of samples (ℓ, P) and u (P,)."""
    count = len(samples)
    share = shrunk_share(count, shrinkage)
    if share == 1.0:
        return difference
    centred = samples - samples.mean(0)
    ridge = share * (count - 1) / (1 - share) * torch.eye(count, dtype=torch.float64)
    inner: Tensor = torch.linalg.solve(ridge + centred @ centred.mT, centred @ difference)
    return (difference - centred.mT @ inner) / share
