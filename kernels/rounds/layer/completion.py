"""Phase 2, completed: the rows that were held out are added to the layers in the end.

A fifth of the rows is held out to choose weights and kernel and to recalibrate. Where rows are few
that is a fifth of what is known. So their sums are added to those of the training rows, which are
not summed again, and the layers that predict have all rows. The layers without them stay in the
model beside the others: held-out rows are judged by those, by `recalibration` and `evaluation`
after this stage, so no row is judged by a layer that has it. The law of z = (y − μ)/√v that they
find is that of the complete layers too, as v says how many rows a layer has, and σ and λ stay those
of the training rows: fitted again, they would follow from other residuals than z was counted with.
A network explains the rows it was trained on too well, and the law makes up for its σ. (Outcomes
have no σ; their λ is fitted again.)

broadcast  the whole model
local      (S, b, yᵀy, n) of the rows for stopping and for calibration, and the outcomes' sums at q
sum        the same over all sites
update     the layers with these sums (`kernels.rounds.shared.changed_sums`); σ and λ stay

With differential privacy no row is added: each unit would be charged for a second sum.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from kernels.layer.posterior import SCALE_BITS
from kernels.model.model import Model, Withheld, check_fitted, check_model, known
from kernels.outcomes.logistic import newton
from kernels.parameter_checks import check_flag
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows, layers_of
from kernels.rounds.replay import LEAST_BUDGET, SCALES, WITHHELD, Bits, Replay
from kernels.rounds.shared.changed_sums import changed_outcomes, changed_statistics
from kernels.rounds.shared.sufficient import statistics_length
from kernels.rounds.shared.weighted_sums import (
    all_statistics,
    all_statistics_blocks,
    outcome_numbers,
)
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE
from privacy.layout import Layout, SecureTotal

NAME = "completion"
VERSION = 1
NEEDS: frozenset[Made] = frozenset()
MAKES = frozenset({Made.COMPLETION})

_HELD_OUT = (Part.STOPPING, Part.CALIBRATION)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """No parameters."""

    STORED_AS: ClassVar[str] = "completion.spec"


@dataclass(frozen=True, eq=False)
class State:
    """The layers of the training rows, which the change is added to.

    outcomes: their q, at which sites sum. before: all of the layers, which sites do not need.
    """

    STORED_AS: ClassVar[str] = "completion.state"

    model: Model
    spec: Spec
    done: bool = False
    before: Withheld | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_flag(done=self.done)


def layout(state: State) -> Layout:
    """Return (S, b, yᵀy, n) and the sums of outcomes."""
    return Layout(all_statistics_blocks(state.model, state.model.outcomes or ()))


def initial(spec: Spec, model: Model) -> State:
    """Start from a model with layers of its training rows."""
    check_fitted(model)
    model = model.judged
    before = Withheld(model.statistics, model.hyperparameters, model.outcomes)
    return State(model.advanced(recalibration=None, calibrations=None), spec, before=before)


def contribute(state: State, site: Site) -> Contribution:
    """Sum over the site's held-out rows."""
    fitted = state.model.outcomes or ()
    first, second = (
        all_statistics(state.model, fitted, site, part=part, rule=newton) for part in _HELD_OUT
    )
    return {name: first[name] + second[name] for name in first}


def update(state: State, total: SecureTotal) -> State:
    """Add the sums, and keep the layers without them."""
    total = accepted(total, layout(state))
    before, model = known(state.before, NAME), state.model
    if before.statistics is not None:
        statistics = changed_statistics(before.statistics, total, model)
        model = replace(model, statistics=statistics)
    if before.outcomes is not None:
        outcomes = changed_outcomes(before.outcomes, total, model, refit=True)
        model = replace(model, outcomes=outcomes)
    return replace(state, model=model.advanced(withheld=before), done=True, before=None)


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.done


check_private = without_private_form(
    "completion sums held-out rows, which other sums have read: with differential privacy leave it "
    "out"
)


REPLAY = Replay(
    grids={
        **SCALES,
        "model.outcomes.layers.prior_variance": Bits(SCALE_BITS),
        "model.outcomes.dispersion": Bits(SCALE_BITS),
        **{
            f"{each}.{name}": grid
            for each in ("before", "model.withheld")
            for name, grid in WITHHELD.items()
        },
    },
    budget=LEAST_BUDGET,
)


def declare(_spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    numbers = (statistics_length(model) if model.targets else 1) + outcome_numbers(model)
    return Declaration(
        needs=layers_of(model.schema),
        needs_students=frozenset(),
        needs_held_out=True,
        makes=MAKES,
        answers=Answers.ALL,
        students=before.students,
        words="sums of products of features of the rows that were held out alone (S, b, yᵀy, n), "
        "once; the model has the layers with and without them, so these sums can be told from it",
        sums=1,
        numbers=numbers,
        numbers_in_all=numbers,
        leaves=numbers,
        row_count=None,
        local_passes=0,
        rate_times_steps=0.0,
        reads=frozenset(_HELD_OUT),
        summed_together=frozenset({frozenset(_HELD_OUT)}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)
