"""Update of the linear layer for added or removed rows and sites, as if refitted from scratch.

S, b, yᵀy and n are sums over rows, so those of new rows are added and those of removed rows are
subtracted. A site that joins adds all its rows, and a site that leaves removes all its rows.

Targets that are not real numbers take one step from their changed sums
(`kernels.rounds.shared.changed_sums`), which differs from refitting from scratch in second order.
The stage `outcomes` refits from scratch.

A hospital deals rows that change as it deals its table, so a row is removed from what its part is
in. Layers of training rows have the change of training rows alone. If held-out rows are in the
layers too (`completion`), the change of those is a sum of its own, and the layers without them,
which judge, do not have it.

broadcast  the model with its kernel and weights, which do not change
local      (S, b, yᵀy, n) of the site's added rows minus those of its removed rows, and the same of
           the outcomes' sums; of held-out rows as well, if the model has them, and of each kernel,
           if it has two
sum        the change of the statistics over all sites; every member takes part, most of them
           with zero
update     the statistics with the change, and σ and λ fitted to them

If only one site has a change, the sum of the changes *is* that site's change: without differential
privacy the coordinator then sees that site's own S and b. A site with a change therefore takes part
only if its operator has consented to this algorithm by name, which the site's policy states and
checks before the site enters the run.

Students of the sites' committee are not sums over rows, so what they learned from a removed row
stays in them. A run that starts with this stage therefore discards them (`Program.start`).

With differential privacy the noise protects a single site's change, and no consent is needed. Rows
can then be added but not removed. Anything released with a row in it stays released; a sum of
removed rows would only disclose them once more, at a further privacy cost, so rows to remove are
not read here (`client_sdk` refuses them before a site enters a run). To forget a row, run `linear`
again without it. A patient whose rows are added may have others in any part of the table,
so every unit is charged for this sum, whichever part it was assigned to.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from kernels.layer.posterior import SCALE_BITS, Hyperparameters
from kernels.layer.statistics import Statistics
from kernels.model.model import Model, check_fitted, check_model, known
from kernels.model.second import Second
from kernels.model.withheld import Withheld
from kernels.noisy.realisable import DEVIATION_BITS
from kernels.outcomes.fitted import FittedOutcome, check_outcomes
from kernels.outcomes.logistic import newton, polya_gamma
from kernels.parameter_checks import check_flag
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows, layers_of
from kernels.rounds.replay import (
    LEAST_BUDGET,
    REPAIRED,
    SCALES,
    WITHHELD,
    Bits,
    OwnStep,
    Replay,
    scales,
)
from kernels.rounds.shared.changed_sums import changed_outcomes, changed_statistics
from kernels.rounds.shared.sufficient import check_features, fitted_scales
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

NAME = "update"
VERSION = 3
NEEDS: frozenset[Made] = frozenset()
MAKES: frozenset[Made] = frozenset()

_HELD_OUT = "held_out."
"""Before the names of the blocks of held-out rows."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """`refit`: fit σ and λ again to the sums (the default); otherwise they do not change."""

    STORED_AS: ClassVar[str] = "update.spec"

    refit: bool = True

    def __post_init__(self) -> None:
        check_flag(refit=self.refit)


@dataclass(frozen=True, eq=False)
class State:
    """The sums so far.

    done: the sum has been made. outcomes: the outcomes' q, at which their sums are made. completed:
    the layers have held-out rows.
    before, kept, withheld: the statistics, σ and λ so far, and the layers without held-out rows,
    which sites do not need. second: the second kernel with all of these.
    """

    STORED_AS: ClassVar[str] = "update.state"

    model: Model
    spec: Spec
    done: bool = False
    outcomes: tuple[FittedOutcome, ...] = ()
    completed: bool = False
    before: Statistics | None = field(default=None, metadata=PRIVATE)
    kept: Hyperparameters | None = field(default=None, metadata=PRIVATE)
    withheld: Withheld | None = field(default=None, metadata=PRIVATE)
    second: Second | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        check_flag(done=self.done, completed=self.completed)
        if not self.done:
            check_outcomes(self.outcomes, self.model.schema, self.model.kernel.features)


def layout(state: State) -> Layout:
    """Return the change of (S, b, yᵀy, n): of training rows, and of held-out rows if summed."""
    blocks = blocks_of_each(state.model, lambda own: all_statistics_blocks(own, state.outcomes))
    held_out = (replace(own, name=_HELD_OUT + own.name) for own in blocks if state.completed)
    return Layout((*blocks, *held_out))


def initial(spec: Spec, model: Model) -> State:
    """Start from a model that has a layer for each of its targets."""
    check_fitted(model)
    second = None
    if model.second is not None:
        second = replace(model.second.without_sums, hyperparameters=None)
    return State(
        model.advanced(hyperparameters=None, outcomes=None, second=second),
        spec,
        outcomes=model.outcomes or (),
        completed=model.withheld is not None,
        before=model.statistics,
        kept=model.hyperparameters,
        withheld=model.withheld,
        second=model.second,
    )


def contribute(state: State, site: Site) -> Contribution:
    """Return the change due to the site's rows; zero if there is none."""

    def summed(part: Part) -> Contribution:
        rule = newton if state.model.privacy is None else polya_gamma
        return contribution_of_each(
            state.model,
            lambda own: all_statistics(own, state.outcomes, site, part=part, rule=rule),
        )

    def changed(added: Part, removed: Part) -> Contribution:
        plus, minus = summed(added), summed(removed)
        return {name: plus[name] - minus[name] for name in plus}

    if state.model.privacy is not None:
        return summed(Part.ADDED)
    change = changed(Part.ADDED, Part.REMOVED)
    if not state.completed:
        return change
    held_out = changed(Part.ADDED_HELD_OUT, Part.REMOVED_HELD_OUT)
    return {**change, **{_HELD_OUT + name: each for name, each in held_out.items()}}


def update(state: State, total: SecureTotal) -> State:
    """Add the change; refuse a result that cannot be the statistics of any table."""
    total = accepted(total, layout(state))
    model, before = state.model, Withheld(state.before, state.kept, state.outcomes or None)
    held_out = total.part(_HELD_OUT) if state.completed else None
    changed = _complete(state.spec, model, total, held_out, before)
    if changed.statistics is not None:
        model = model.advanced(
            hyperparameters=changed.hyperparameters, statistics=changed.statistics
        )
    if changed.outcomes is not None:
        model = model.advanced(outcomes=changed.outcomes)
    if state.withheld is not None:
        model = model.advanced(withheld=_changed(state.spec, model, total, state.withheld))
    if state.second is not None:
        model = model.advanced(second=_changed_second(state, state.second, total, held_out))
    return replace(
        state,
        model=model,
        done=True,
        outcomes=(),
        completed=False,
        before=None,
        kept=None,
        withheld=None,
        second=None,
    )


def finished(state: State) -> bool:
    """Return whether the one sum has been made."""
    return state.done


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features are not bounded."""
    check_features(model)


_WITHHELD = ("withheld", "model.withheld")
REPLAY = Replay(
    grids={
        **SCALES,
        **scales(
            "second.hyperparameters",
            "second.withheld.hyperparameters",
            "model.second.withheld.hyperparameters",
        ),
        **REPAIRED,
        "kept.noise_variance": Bits(SCALE_BITS),
        "kept.prior_variance": Bits(SCALE_BITS),
        "before.scatter": OwnStep(),
        "before.noise.scatter": Bits(DEVIATION_BITS),
        "outcomes.layers.prior_variance": Bits(SCALE_BITS),
        "outcomes.dispersion": Bits(SCALE_BITS),
        "model.outcomes.layers.prior_variance": Bits(SCALE_BITS),
        "model.outcomes.dispersion": Bits(SCALE_BITS),
        **{f"{each}.{name}": grid for each in _WITHHELD for name, grid in WITHHELD.items()},
    },
    budget=LEAST_BUDGET,
)


def declare(_spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    private, model = before.model.privacy is not None, before.model
    numbers = layer_numbers(model)
    layers = layers_of(model.schema)
    # Whether the model has held-out rows is not known before it is there.
    numbers *= 1 if private else 2
    training = frozenset({Part.ADDED} if private else {Part.ADDED, Part.REMOVED})
    held_out = frozenset() if private else frozenset({Part.ADDED_HELD_OUT, Part.REMOVED_HELD_OUT})
    return Declaration(
        needs=layers,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=layers | ({Made.CENTRE} if model.targets else set()),
        answers=Answers.ALL,
        students=before.students,
        words="how rows that were added or removed change the sums of products of features, "
        "and again for held-out rows if the model has them",
        sums=1,
        numbers=numbers,
        numbers_in_all=numbers,
        leaves=numbers,
        row_count=None,
        local_passes=0,
        rate_times_steps=0.0,
        reads=training | held_out,
        summed_together=frozenset({training, held_out} - {frozenset()}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=not private,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)


def _complete(
    spec: Spec,
    model: Model,
    total: SecureTotal,
    held_out: SecureTotal | None,
    before: Withheld,
) -> Withheld:
    """Return the layers of all rows with the change, that of held-out rows too if there is one."""
    changed = _changed(spec, model, total, before)
    return changed if held_out is None else _changed(spec, model, held_out, changed)


def _changed(spec: Spec, model: Model, total: SecureTotal, before: Withheld) -> Withheld:
    """Return layers with the change, and σ and λ fitted to them."""
    statistics, scales = None, None
    if before.statistics is not None:
        statistics = changed_statistics(before.statistics, total, model)
        if spec.refit:
            scales = fitted_scales(statistics, model.kernel)
        else:
            scales = known(before.hyperparameters, "linear")
    outcomes = None
    if before.outcomes is not None:
        outcomes = changed_outcomes(before.outcomes, total, model, refit=spec.refit)
    return Withheld(statistics, scales, outcomes)


def _changed_second(
    state: State, second: Second, total: SecureTotal, held_out: SecureTotal | None
) -> Second:
    """Return the second kernel with the change in its layers."""
    spec, other, total = state.spec, known(state.model.other, "search"), total.part(SECOND)
    held_out = None if held_out is None else held_out.part(SECOND)
    before, withheld = Withheld(second.statistics, second.hyperparameters, None), second.withheld
    changed = _complete(spec, other, total, held_out, before)
    return replace(
        second,
        statistics=changed.statistics,
        hyperparameters=changed.hyperparameters,
        withheld=None if withheld is None else _changed(spec, other, total, withheld),
    )
