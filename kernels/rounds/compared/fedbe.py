"""FedBE [ChenChao21]: an ensemble of networks drawn around the sites' networks.

The ensemble consists of the sites' networks, their mean θ̄, and `draws` networks from N(θ̄, s²),
where s² is the variance between sites of each coordinate. It teaches a student at public rows, as
in `one_shot`.

broadcast  the start of training, and the public rows, which are part of the program
local      after training, θ_c − θ and its square, f_c and f_c² at the public rows, 1, n_c; and the
           squared error of f_c on the rows kept for stopping
sum        θ̄ and s², the summed outputs of the sites' networks, and σ²: no site's network is seen
update     the outputs of θ̄ and of the drawn networks are added; the student of
           N(mean, spread + σ²)
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from kernels.ensembles.networks import outputs
from kernels.ensembles.served_networks import NetworkMethod
from kernels.ensembles.student_network import PARAMETER_STEP
from kernels.features.seeded_random import normals
from kernels.model.model import Model, check_model
from kernels.parameter_checks import check_whole
from kernels.reproducible import on_grid, to_bits
from kernels.reproducible import total as sum_of
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, Bits, Replay, Step
from kernels.rounds.shared.lessons import OfPublicRows
from kernels.rounds.shared.local_network import (
    OfTraining,
    noise_variance_of,
    rows_of,
    served_blocks,
    served_contribution,
    train_at,
)
from kernels.rounds.shared.network_ensemble import (
    ensemble,
    output_blocks,
    output_contribution,
    said_at,
    taught,
)
from kernels.rounds.shared.public_set import digest_of
from kernels.rounds.shared.site_mean import (
    CHANGE_RESOLUTION,
    of_site,
    total_weight,
    trainable,
)
from kernels.rounds.site.site import Part, Site
from kernels.scores.gaussians import Gaussian
from kernels.storage import PRIVATE
from privacy.layout import Block, Layout, SecureTotal

NAME = "fedbe"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.NETWORKS})

OUTPUT_STEP = 2.0**-20
"""The grid of what drawn networks predict, in deviations of the targets."""
VARIANCE_BITS = 24
"""Significant bits of the teacher's variance."""


@dataclass(frozen=True, kw_only=True)
class Spec(OfTraining, OfPublicRows):
    """How sites train, and how the student is distilled. draws: the number of networks to draw."""

    STORED_AS: ClassVar[str] = "fedbe.spec"

    draws: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(0, draws=self.draws)


@dataclass(frozen=True, eq=False)
class State:
    """The state before and after the sum. mean: θ̄. teacher: at the public rows."""

    STORED_AS: ClassVar[str] = "fedbe.state"

    model: Model
    spec: Spec
    mean: Tensor | None = field(default=None, metadata=PRIVATE)
    teacher: Gaussian | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)


def layout(state: State) -> Layout:
    """Return the networks, their outputs at the public rows, and their errors at their sites."""
    model, spec = state.model, state.spec
    shape = (spec.network(model).parameters,)
    bound = spec.reach(model.max_rows)
    return Layout(
        (
            Block("change", shape, bound, CHANGE_RESOLUTION),
            Block("change_squares", shape, bound**2, CHANGE_RESOLUTION),
            *output_blocks(model, spec.public_rows),
            *served_blocks(model),
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Check the public rows."""
    spec.inputs(model)
    return State(model, spec)


def contribute(state: State, site: Site) -> Contribution:
    """Train, and return the network's change from the start and its outputs."""
    model, spec = state.model, state.spec
    at, start = trainable(site, model), spec.start(model)
    trained = train_at(at, model, spec, start, turn=0)
    contribution = {
        "change": (trained - start).numpy(),
        "change_squares": (trained - start).square().numpy(),
        **output_contribution(said_at(spec, model, trained)),
        **served_contribution(at, model, partial(outputs, spec.network(model), trained)),
    }
    return of_site(site, contribution)


def update(state: State, total: SecureTotal) -> State:
    """Draw networks, add their outputs, and distil the student."""
    total = accepted(total, layout(state))
    model, spec, count = state.model, state.spec, total_weight(total)
    change = torch.tensor(total["change"]) / count
    spread = (torch.tensor(total["change_squares"]) / count - change.square()).clamp_min(0.0)
    mean = spec.start(model) + change
    noise = normals(spec.seed, "fedbe", spec.draws, len(mean))
    own = said_at(spec, model, torch.cat([mean[None], mean + spread.sqrt() * noise]))
    own = on_grid(own, OUTPUT_STEP)
    teacher = ensemble(
        torch.tensor(total["outputs"]) + sum_of(own),
        torch.tensor(total["output_squares"]) + sum_of(own.square()),
        count + len(own),
        noise_variance_of(total),
    )
    teacher = Gaussian(on_grid(teacher.mean, OUTPUT_STEP), to_bits(teacher.variance, VARIANCE_BITS))
    networks = taught(NetworkMethod.FEDBE, spec, model, teacher, rows=rows_of(total))
    return replace(state, model=model.with_networks(networks), mean=mean, teacher=teacher)


def finished(state: State) -> bool:
    """Return whether the one sum has been made; only the coordinator knows this."""
    return state.teacher is not None


check_private = without_private_form(
    "fedbe sums locally trained networks, and the effect of one row on them is not bounded: leave"
    " it out of a program with differential privacy"
)


REPLAY = Replay(
    grids={
        "model.networks.samples": Step(PARAMETER_STEP),
        "teacher.mean": Step(OUTPUT_STEP),
        "teacher.variance": Bits(VARIANCE_BITS),
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students | {NetworkMethod.FEDBE},
        words="how training on the local rows changes a network's parameters, what that network "
        "predicts for the rows of a public table, and its error on held-out rows; "
        "a network taught by all of them becomes part of the model",
        sums=1,
        numbers=layout(State(before.model, spec)).length,
        numbers_in_all=layout(State(before.model, spec)).length,
        leaves=spec.student(before.model).network.parameters + before.model.targets,
        row_count="rows",
        local_passes=spec.epochs,
        rate_times_steps=spec.learning_rate * spec.epochs,
        reads=frozenset({Part.TRAINING, Part.STOPPING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.INPUTS,
        public_set=digest_of(spec.public),
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)
