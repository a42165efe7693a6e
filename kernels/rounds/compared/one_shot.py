"""One-shot federated learning [Guha19]: an ensemble of trained networks served by its student.

Each site trains a network on its own rows. The networks' mean, and their spread plus σ² as the
variance, teach a student at public rows.

broadcast  the start of training, and the public rows, which are part of the program
local      after training, f_c and f_c² at the public rows, 1, n_c; and the squared error of f_c on
           the rows kept for stopping
sum        the ensemble's mean and spread at the public rows, and σ²: no site's network is seen
update     the student of N(mean, spread + σ²)
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import torch

from kernels.ensembles.networks import outputs
from kernels.ensembles.served_networks import NetworkMethod
from kernels.ensembles.student_network import PARAMETER_STEP
from kernels.model.model import Model, check_model
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, Replay, Step
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
from kernels.rounds.shared.site_mean import of_site, total_weight, trainable
from kernels.rounds.site.site import Part, Site
from kernels.scores.gaussians import Gaussian
from kernels.storage import PRIVATE
from privacy.layout import Layout, SecureTotal

NAME = "one_shot"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.NETWORKS})


@dataclass(frozen=True, kw_only=True)
class Spec(OfTraining, OfPublicRows):
    """How sites train, and how the student is distilled."""

    STORED_AS: ClassVar[str] = "one_shot.spec"


@dataclass(frozen=True, eq=False)
class State:
    """The state before and after the sum. teacher: at the public rows."""

    STORED_AS: ClassVar[str] = "one_shot.state"

    model: Model
    spec: Spec
    teacher: Gaussian | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)


def layout(state: State) -> Layout:
    """Return the networks' outputs at the public rows, and their errors at their own sites."""
    model = state.model
    return Layout((*output_blocks(model, state.spec.public_rows), *served_blocks(model)))


def initial(spec: Spec, model: Model) -> State:
    """Check the public rows."""
    spec.inputs(model)
    return State(model, spec)


def contribute(state: State, site: Site) -> Contribution:
    """Train, and return the network's outputs at the public rows."""
    model, spec = state.model, state.spec
    at = trainable(site, model)
    trained = train_at(at, model, spec, spec.start(model), turn=0)
    contribution = {
        **output_contribution(said_at(spec, model, trained)),
        **served_contribution(at, model, partial(outputs, spec.network(model), trained)),
    }
    return of_site(site, contribution)


def update(state: State, total: SecureTotal) -> State:
    """Make the ensemble the teacher, and distil its student."""
    total = accepted(total, layout(state))
    teacher = ensemble(
        torch.tensor(total["outputs"]),
        torch.tensor(total["output_squares"]),
        total_weight(total),
        noise_variance_of(total),
    )
    model, spec = state.model, state.spec
    networks = taught(NetworkMethod.ONE_SHOT, spec, model, teacher, rows=rows_of(total))
    return replace(state, model=model.with_networks(networks), teacher=teacher)


def finished(state: State) -> bool:
    """Return whether the one sum has been made; only the coordinator knows this."""
    return state.teacher is not None


check_private = without_private_form(
    "one_shot sums what locally trained networks predict, and the effect of one row on them is "
    "not bounded: leave it out of a program with differential privacy"
)


REPLAY = Replay(
    grids={"model.networks.samples": Step(PARAMETER_STEP)},
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
        students=before.students | {NetworkMethod.ONE_SHOT},
        words="what a network trained on the local rows predicts for the rows of a public table, "
        "and its error on held-out rows; "
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
