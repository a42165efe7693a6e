"""Phase 2 of outcomes: q(w) of yes/no outcomes, classes, counts and times to an event.

Each sum is made at a candidate q, from weighted statistics of the same kind as regression's
(`kernels.outcomes`): S_ω = Σωφφᵀ, b = Σκφ and the bound's terms Σt. The first parabolas are those
of the Pólya–Gamma bound, the next are Newton's, whose steps are shortened where the bound fell
(`kernels.outcomes.newton`). λ, the ratio of a kernel's linear part and the dispersion of counts are
chosen by the same sums.

broadcast  the standardiser, the kernel and its weights θ, the census; then the sums so far, from
           which each site computes the candidate q of every outcome
local      S_ω, b, Σt and n over the training rows, for every outcome whose search goes on; of a
           count also Σ E[log p] for each dispersion of a public grid
sum        the same over all rows together
update     the next candidates; an outcome is finished when a step gains at most `tolerance` nats

All outcomes share their sums, and each leaves them when it is finished. Features and parabolas are
on grids, so the sums do not depend on how rows are divided among sites.

With differential privacy there are `private_sums` sums: the first of S_ω and b, with Pólya–Gamma
parabolas at the prior, and then only of slopes, Σ ∂E[log p]/∂m·φ (`kernels.outcomes.noisy_newton`).
The bound is not summed. q takes the noise into account. The dispersion of a count remains at 1 and
the ratio at the kernel's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from kernels.errors import StateError
from kernels.layer.posterior import SCALE_BITS
from kernels.model.model import Model, check_model, known
from kernels.outcomes.classes import STRIDE
from kernels.outcomes.fitted import FittedOutcome, latent_functions
from kernels.outcomes.likelihood import Likelihood
from kernels.outcomes.logistic import polya_gamma
from kernels.outcomes.newton import BOUND_STEP, Search, advanced, rule
from kernels.outcomes.noisy_newton import (
    DEVIATION_BITS,
    Constant,
    Curvature,
    Logits,
    first,
    first_weight,
    refined,
)
from kernels.parameter_checks import check_at_least, check_flag, check_whole
from kernels.rounds.algorithm import Contribution, accepted
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, Bits, OwnStep, Replay, Step
from kernels.rounds.shared.sufficient import check_features, rows_block
from kernels.rounds.shared.weighted_sums import (
    contribution_at,
    dispersion_in,
    outcome_chunks,
    outcome_numbers,
    slope_blocks,
    slope_numbers,
    slopes_at,
    slopes_of,
    starting,
    sums_of,
    terms_rounding,
    weighted_blocks,
)
from kernels.rounds.site.site import Part, Site
from kernels.tables.targets import Classes, Count
from privacy.layout import Layout, SecureTotal

NAME = "outcomes"
VERSION = 2
NEEDS = frozenset({Made.STANDARDISER})
MAKES = frozenset({Made.OUTCOMES})

_RESTARTS = 3
"""How often a count's dispersion may change, and its search begin again."""
_SAME_DISPERSION = 0.05
"""A dispersion that changes by a smaller share than this is kept."""
_FEWEST = 2
"""A search is not finished before its second sum, with Newton's parabolas."""
_CONSTANTS = 10
"""At most so many numbers of a latent function beside S_ω and b: λ, its ratio and offset, noise."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """When to stop.

    sums: the maximum number of sums. tolerance: an outcome is finished when a step gains at most so
    many nats. private_sums: the number of sums with differential privacy.
    """

    STORED_AS: ClassVar[str] = "outcomes.spec"

    sums: int = 12
    tolerance: float = 0.01
    private_sums: int = 8

    def __post_init__(self) -> None:
        check_whole(1, sums=self.sums, private_sums=self.private_sums)
        check_at_least(0.0, tolerance=self.tolerance)


@dataclass(frozen=True, eq=False)
class Fitting:
    """The search for one outcome's q.

    offsets, dispersion: as in `FittedOutcome`. restarts: how often the dispersion has changed.
    curvature: with differential privacy, what the first sum left for later ones.
    """

    STORED_AS: ClassVar[str] = "outcomes.fitting"

    search: Search
    offsets: tuple[float, ...]
    dispersion: float | None
    restarts: int = 0
    finished: bool = False
    curvature: Curvature | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.search, Search):
            raise StateError("a fitting needs a search")
        if not (self.curvature is None or isinstance(self.curvature, Curvature)):
            raise StateError("the curvature of a fitting must be a Curvature or None")
        check_whole(0, restarts=self.restarts)
        check_flag(finished=self.finished)

    @property
    def candidate(self) -> FittedOutcome:
        """The outcome at the q at which the next sum is made."""
        return FittedOutcome(self.search.layers, self.offsets, self.dispersion)


@dataclass(frozen=True, eq=False)
class State:
    """The searches of all outcomes. step: the number of sums made."""

    STORED_AS: ClassVar[str] = "outcomes.state"

    model: Model
    spec: Spec
    fittings: tuple[Fitting, ...]
    step: int = 0

    def __post_init__(self) -> None:
        check_model(self.model)
        check_whole(0, step=self.step)
        outcomes = self.model.schema.outcomes
        fittings = self.fittings if isinstance(self.fittings, tuple) else ()
        if len(fittings) != len(outcomes) or not all(isinstance(f, Fitting) for f in fittings):
            raise StateError(f"fittings must be one for each of {len(outcomes)} outcomes")
        for outcome, fitting in zip(outcomes, fittings, strict=True):
            fitting.candidate.check(outcome, self.model.kernel.features)


def layout(state: State) -> Layout:
    """Return the blocks of every outcome whose search goes on, and n."""
    model = state.model
    blocks_of = slope_blocks if _sums_slopes(state) else weighted_blocks
    blocks = [
        block
        for index, fitting in _active(state)
        for block in blocks_of(model, index, fitting.candidate)
    ]
    if model.privacy is None:
        blocks.append(rows_block(model))
    return Layout(tuple(blocks))


def initial(spec: Spec, model: Model) -> State:
    """Start every outcome at its prior, and drop earlier layers of outcomes."""
    model = model.advanced(outcomes=None)
    fittings = tuple(
        Fitting(
            Search(own.layers, stride=STRIDE if isinstance(outcome, Classes) else 1.0),
            own.offsets,
            own.dispersion,
        )
        for outcome, own in zip(model.schema.outcomes, starting(model), strict=True)
    )
    return State(model, spec, fittings)


def contribute(state: State, site: Site) -> Contribution:
    """Sum over the site's training rows."""
    model, active = state.model, list(_active(state))
    likelihoods = {index: _likelihood(state, index, fitting) for index, fitting in active}
    sums = {block.name: np.zeros(block.shape) for block in layout(state).blocks}
    for phi, columns in outcome_chunks(model, site, Part.TRAINING):
        for index, at in likelihoods.items():
            if _sums_slopes(state):
                found = slopes_at(index, at, phi, columns[index])
            else:
                found = contribution_at(model, index, at, phi, columns[index])
            for name, own in found.items():
                sums[name] = sums[name] + own
    if model.privacy is None:
        sums["rows"] = np.array(float(site.count(Part.TRAINING)))
    return sums


def update(state: State, total: SecureTotal) -> State:
    """Move every search on; set the outcomes when all are finished."""
    total = accepted(total, layout(state))
    model, step = state.model, state.step + 1
    last = step == _most_sums(state.spec, model)
    fittings = list(state.fittings)
    for index, fitting in _active(state):
        fittings[index] = _moved(state, index, fitting, total, last=last)
    state = replace(state, fittings=tuple(fittings), step=step)
    if all(fitting.finished for fitting in fittings):
        outcomes = tuple(fitting.candidate for fitting in fittings)
        state = replace(state, model=model.advanced(outcomes=outcomes))
    return state


def finished(state: State) -> bool:
    """Return whether every outcome is finished."""
    return state.model.outcomes is not None


def check_private(_spec: Spec, model: Model) -> None:
    """Refuse a kernel whose features are not bounded."""
    check_features(model)


_LAYERS = ("layers", "kept")
_PRIVATE = ("fittings.search", "model.outcomes")
REPLAY = Replay(
    grids={
        **{f"{each}.layers.sums.cross": OwnStep() for each in _PRIVATE},
        **{f"{each}.layers.sums.noise.cross": Bits(DEVIATION_BITS) for each in _PRIVATE},
        "model.outcomes.layers.prior_variance": Bits(SCALE_BITS),
        "model.outcomes.dispersion": Bits(SCALE_BITS),
        "fittings.dispersion": Bits(SCALE_BITS),
        "fittings.search.bound": Step(BOUND_STEP),
        "fittings.search.gain": Step(BOUND_STEP),
        **{f"fittings.search.{each}.prior_variance": Bits(SCALE_BITS) for each in _LAYERS},
    },
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    model = before.model
    sums = _most_sums(spec, model)
    numbers = outcome_numbers(model) + (model.privacy is None)
    functions = sum(latent_functions(outcome) for outcome in model.schema.outcomes)
    later = numbers if model.privacy is None else slope_numbers(model)
    numbers_in_all = numbers + (sums - 1) * later
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset(),
        needs_held_out=False,
        makes=MAKES,
        answers=Answers.OUTCOMES,
        students=before.students,
        words="weighted sums of products of features (S_ω, b, Σt, n) for each outcome, several "
        "times; with differential privacy once, and then sums of features times errors",
        sums=sums,
        numbers=numbers,
        numbers_in_all=numbers_in_all,
        leaves=min(numbers_in_all, numbers + _CONSTANTS * functions),
        row_count="rows",
        local_passes=0,
        rate_times_steps=0.0,
        reads=frozenset({Part.TRAINING}),
        summed_together=frozenset({frozenset({Part.TRAINING})}),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State, Fitting, Search, Curvature)


def _active(state: State) -> Sequence[tuple[int, Fitting]]:
    """Return the outcomes whose search goes on, with their positions."""
    return [(i, fitting) for i, fitting in enumerate(state.fittings) if not fitting.finished]


def _sums_slopes(state: State) -> bool:
    return state.model.privacy is not None and state.step > 0


def _most_sums(spec: Spec, model: Model) -> int:
    return spec.sums if model.privacy is None else spec.private_sums


def _likelihood(state: State, index: int, fitting: Fitting) -> Likelihood:
    own = polya_gamma if state.model.privacy is not None else rule(fitting.search)
    return Likelihood(state.model.schema.outcomes[index], fitting.candidate, own)


def _moved(
    state: State, index: int, fitting: Fitting, total: SecureTotal, *, last: bool
) -> Fitting:
    """Return a fitting after a sum."""
    model, search = state.model, fitting.search
    if model.privacy is not None:
        return _moved_privately(state, index, fitting, total, last=last)
    rows = round(float(total["rows"]))
    sums = sums_of(total, model, index, fitting.candidate, rows=rows)
    after_search = advanced(search, sums, rounding=terms_rounding(total, index))
    settled = (
        after_search.gain is not None
        and after_search.gain <= state.spec.tolerance
        and after_search.share >= search.stride
        and state.step + 1 >= _FEWEST
    )
    if isinstance(model.schema.outcomes[index], Count) and not last:
        restarted = _with_dispersion(fitting, after_search, dispersion_in(total, index))
        if restarted is not None:
            return restarted
    if last and not settled:
        # The candidate was not tried: keep the best q that was.
        after_search = replace(after_search, layers=known(after_search.kept, NAME))
    return replace(fitting, search=after_search, finished=settled or last)


def _with_dispersion(fitting: Fitting, search: Search, best: float) -> Fitting | None:
    """Return a fitting that begins again with a count's better r; None if it is the same."""
    before = known(fitting.dispersion, NAME)
    if fitting.restarts == _RESTARTS or abs(best - before) <= _SAME_DISPERSION * before:
        return None
    return replace(
        fitting,
        search=Search(search.layers, stride=search.stride),
        dispersion=best,
        restarts=fitting.restarts + 1,
    )


def _moved_privately(
    state: State, index: int, fitting: Fitting, total: SecureTotal, *, last: bool
) -> Fitting:
    """Return a fitting after a sum with noise."""
    model, search, offset = state.model, fitting.search, fitting.offsets[0]
    if fitting.curvature is None:
        # The number of rows is that of the census, which was summed before; with noise, maybe none.
        trials = max(1.0, known(model.census, "moments").trials(model.schema)[index])
        sums = sums_of(total, model, index, fitting.candidate, rows=round(trials))
        layers, curvature = first(search.layers, sums, weight=trials * first_weight(offset))
    else:
        classes = isinstance(model.schema.outcomes[index], Classes)
        slopes, deviation = slopes_of(total, index, fitting.candidate)
        layers, curvature = refined(
            search.layers,
            fitting.curvature,
            slopes,
            deviation=deviation,
            kind=Constant(1 / STRIDE) if classes else Logits(offset),
        )
    return replace(
        fitting,
        search=replace(search, layers=layers),
        curvature=curvature,
        finished=last,
    )
