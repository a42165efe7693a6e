"""FedYogi [Reddi21], a network with an adaptive server: [PredBayes]'s AdaptFL.

    Δ = Σ_c (θ_c − θ) / |S|;  m ← β₁m + (1 − β₁)Δ;  V ← V − (1 − β₂)Δ²·sign(V − Δ²)
    θ ← θ + η·m/(√V + τ)

broadcast  θ
local      θ_c − θ after training on the site's rows (`local_network`), and 1; n_c; and the squared
           error of θ_c on the rows kept for stopping
sum        the mean change, and σ² as the mean error of the sites' networks on their own rows
update     θ by Yogi's step; after the last step the model has the network, which predicts
           N(f_θ, σ²)
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from kernels.ensembles.networks import outputs
from kernels.ensembles.served_networks import NetworkMethod, Networks
from kernels.errors import StateError
from kernels.model.model import Model, check_model
from kernels.parameter_checks import check_at_least, check_whole
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import BITWISE
from kernels.rounds.shared.local_network import (
    OfTraining,
    noise_variance_of,
    rows_of,
    served_blocks,
    served_contribution,
    train_at,
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

NAME = "fedyogi"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.NETWORKS})

DECAY = 0.9, 0.99


@dataclass(frozen=True, kw_only=True)
class Spec(OfTraining):
    """How sites train. rounds: rounds of training. server_rate: η. adaptivity: τ."""

    STORED_AS: ClassVar[str] = "fedyogi.spec"

    rounds: int = 5
    server_rate: float = 0.1
    adaptivity: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(1, rounds=self.rounds)
        check_at_least(1e-12, server_rate=self.server_rate, adaptivity=self.adaptivity)


@dataclass(frozen=True, eq=False)
class State:
    """The progress of training: θ, the server's m and V, all (P,)."""

    STORED_AS: ClassVar[str] = "fedyogi.state"

    model: Model
    spec: Spec
    parameters: Tensor
    round: int = 0
    momentum: Tensor | None = field(default=None, metadata=PRIVATE)
    spread: Tensor | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_whole(0, round=self.round)
        if self.round > self.spec.rounds:
            raise StateError(f"round {self.round} is beyond the program's {self.spec.rounds}")
        self.spec.check_parameters(self.model, self.parameters)


def layout(state: State) -> Layout:
    """Return the change, the number of sites in it, and their errors."""
    bound = state.spec.reach(state.model.max_rows)
    return Layout(
        (
            Block("change", tuple(state.parameters.shape), bound, CHANGE_RESOLUTION),
            SITES,
            *served_blocks(state.model),
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Start at the parameters given by the seed, with V = τ²."""
    start = spec.start(model)
    return State(
        model,
        spec,
        start,
        momentum=torch.zeros_like(start),
        spread=torch.full_like(start, spec.adaptivity**2),
    )


def contribute(state: State, site: Site) -> Contribution:
    """Train, and return the change of θ."""
    model, spec = state.model, state.spec
    at = trainable(site, model)
    trained = train_at(at, model, spec, state.parameters, turn=state.round)
    contribution = {
        "change": (trained - state.parameters).numpy(),
        "sites": np.ones(()),
        **served_contribution(at, model, partial(outputs, spec.network(model), trained)),
    }
    return of_site(site, contribution)


def update(state: State, total: SecureTotal) -> State:
    """Take Yogi's step."""
    total = accepted(total, layout(state))
    change = torch.tensor(total["change"]) / total_weight(total)
    momentum, spread = stepped(change, state)
    step = momentum / (spread.sqrt() + state.spec.adaptivity)
    after = replace(
        state,
        parameters=state.parameters + state.spec.server_rate * step,
        round=state.round + 1,
        momentum=momentum,
        spread=spread,
    )
    if not finished(after):
        return after
    networks = Networks(
        NetworkMethod.FEDYOGI,
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
    "fedyogi sums locally trained networks, and the effect of one row on them is not bounded: "
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
        students=before.students | {NetworkMethod.FEDYOGI},
        words="how training on the local rows changes a network's parameters, and the error on "
        "held-out rows; the network becomes part of the model",
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


def stepped(change: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """Return m and V updated by a mean change."""
    start = torch.zeros_like(change)
    momentum = start if state.momentum is None else state.momentum
    spread = start if state.spread is None else state.spread
    squares = change.square()
    momentum = DECAY[0] * momentum + (1 - DECAY[0]) * change
    return momentum, spread - (1 - DECAY[1]) * squares * (spread - squares).sign()
