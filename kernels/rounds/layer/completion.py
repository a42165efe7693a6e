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

Of two kernels (`kernels.model.second`) each has its sums, and its layer with and without them.

With differential privacy no row is added: each unit would be charged for a second sum.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from kernels.layer.posterior import SCALE_BITS
from kernels.model.model import Model, Parts, check_fitted, check_model, known
from kernels.model.second import Second
from kernels.model.withheld import Withheld
from kernels.outcomes.logistic import newton
from kernels.parameter_checks import check_flag
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows, layers_of
from kernels.rounds.replay import LEAST_BUDGET, SCALES, WITHHELD, Bits, Replay, scales
from kernels.rounds.shared.changed_sums import changed_outcomes, changed_statistics
from kernels.rounds.shared.two_kernels import (
    SECOND,
    blocks_of_each,
    contribution_of_each,
    layer_numbers,
)
from kernels.rounds.shared.weighted_sums import all_statistics, all_statistics_blocks
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
    return Layout(
        blocks_of_each(state.model, lambda own: all_statistics_blocks(own, own.outcomes or ()))
    )


def initial(spec: Spec, model: Model) -> State:
    """Start from a model with layers of its training rows."""
    check_fitted(model)
    model = model.judged
    before = Withheld(model.statistics, model.hyperparameters, model.outcomes)
    return State(model.advanced(recalibration=None, calibrations=None), spec, before=before)


def contribute(state: State, site: Site) -> Contribution:
    """Sum over the site's held-out rows."""

    def summed(model: Model) -> Contribution:
        fitted = model.outcomes or ()
        stopping, calibration = (
            all_statistics(model, fitted, site, part=part, rule=newton) for part in _HELD_OUT
        )
        return {name: stopping[name] + calibration[name] for name in stopping}

    return contribution_of_each(state.model, summed)


def update(state: State, total: SecureTotal) -> State:
    """Add the sums, and keep the layers without them."""
    total = accepted(total, layout(state))
    before, model = known(state.before, NAME), state.model
    parts: Parts = {"withheld": before, "second": _completed(model, total)}
    if before.statistics is not None:
        parts["statistics"] = changed_statistics(before.statistics, total, model)
    if before.outcomes is not None:
        parts["outcomes"] = changed_outcomes(before.outcomes, total, model, refit=True)
    return replace(state, model=model.advanced(**parts), done=True, before=None)


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
        **scales("model.second.withheld.hyperparameters"),
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
    numbers = layer_numbers(model)
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


def _completed(model: Model, total: SecureTotal) -> Second | None:
    """Return the second kernel with the sums in its layer, and the layer without them."""
    second, other = model.second, model.other
    if second is None or other is None:
        return None
    before = Withheld(second.statistics, second.hyperparameters, None)
    statistics = known(second.statistics, "linear")
    changed = changed_statistics(statistics, total.part(SECOND), other)
    return replace(second, statistics=changed, withheld=before)
