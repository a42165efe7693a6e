"""β between mixture and product from the sites' held-out rows, without labelled public rows.

[PredBayes] eq. 4.11 needs a β that makes labelled rows likely; such rows are at the sites. The
likelihood is convex in β (`kernels.ensembles.interpolation`), so sums of its slope at a few β show
where its minimum is. [PredBayes] mentions such gradients as future work (§5.1).

broadcast  the students of product and mixture, and the current range of each target's β
local      at `points` β across that range, Σ ℓ' and Σ ℓ'' over the site's rows for stopping, as the
           two students predict them; and the number of rows
sum        the same over all sites' rows
update     the range between the two β where Σ ℓ' changes sign; after the last sum, the β between
           them by linear interpolation of Σ ℓ' to 0, and a student of the β committee, distilled
           from the sites' predictions at the public rows

With the default of two sums and 17 points, β is known to 1e-4. A row's slope and curvature are
clipped to ±ROW_BOUND: the slope still rises with β, so there is still one minimum.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels.ensembles.distilled import Method
from kernels.ensembles.interpolation import BETA_STEP, crossing, grid_between, narrowed, slopes
from kernels.errors import StateError, StatisticsError
from kernels.model.model import Model, check_model, known
from kernels.parameter_checks import check_whole
from kernels.reproducible import on_grid
from kernels.rounds.algorithm import Contribution, accepted, without_private_form
from kernels.rounds.declaration import Answers, Before, Declaration, Made, PublicRows
from kernels.rounds.replay import LEAST_BUDGET, Replay, Step
from kernels.rounds.shared.lessons import STUDENTS
from kernels.rounds.shared.sufficient import SQUARES_RESOLUTION
from kernels.rounds.site.site import Part, Site
from kernels.storage import PRIVATE, check_tensor
from privacy.layout import Block, Layout, SecureTotal

NAME = "beta"
VERSION = 1
NEEDS = frozenset({Made.STUDENTS})
MAKES = frozenset({Made.STUDENTS})

ROW_BOUND = 1e4
"""Bound on the slope and the curvature in β of one row's log-likelihood."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """How β is searched for. sums: the number of sums. points: the number of β in each."""

    STORED_AS: ClassVar[str] = "beta.spec"

    sums: int = 2
    points: int = 17

    def __post_init__(self) -> None:
        check_whole(1, sums=self.sums)
        check_whole(3, points=self.points)


@dataclass(frozen=True, eq=False)
class State:
    """The progress of the search.

    low, high: the range of each target's β, (T,). asked: sums so far. curvature: Σ ℓ'' at β, (T,);
    one over its square root is the standard error of β.
    """

    STORED_AS: ClassVar[str] = "beta.state"

    model: Model
    spec: Spec
    low: Tensor
    high: Tensor
    asked: int = 0
    curvature: Tensor | None = field(default=None, metadata=PRIVATE)

    def __post_init__(self) -> None:
        check_model(self.model)
        for name, value in (("low", self.low), ("high", self.high)):
            check_tensor(name, value, (self.model.targets,))
        if not bool(((self.low >= 0) & (self.low <= self.high) & (self.high <= 1)).all()):
            raise StateError("β and the range in which it is searched must lie between 0 and 1")
        if type(self.asked) is not int or not 0 <= self.asked <= self.spec.sums:
            raise StateError(
                f"sum {self.asked!r:.40} is beyond the program's {self.spec.sums} sums"
            )

    @property
    def betas(self) -> Tensor:
        """The β of the next sum, (points, T)."""
        return grid_between(self.low, self.high, points=self.spec.points)


def layout(state: State) -> Layout:
    """Return the slope and curvature at each β, and the number of rows."""
    most, shape = float(state.model.max_rows), (state.spec.points, state.model.targets)
    return Layout(
        (
            Block("slope", shape, most * ROW_BOUND, SQUARES_RESOLUTION),
            Block("curvature", shape, most * ROW_BOUND, SQUARES_RESOLUTION),
            Block("rows", (), most, 1.0),
        )
    )


def initial(spec: Spec, model: Model) -> State:
    """Start with the range [0, 1]; the model must have students of product and mixture."""
    distilled = known(model.distilled, "predictive")
    for method in (Method.PRODUCT, Method.MIXTURE):
        distilled.student(method)
    nothing = torch.zeros(model.targets, dtype=torch.float64)
    return State(replace(model, scores=None), spec, nothing, nothing + 1)


def contribute(state: State, site: Site) -> Contribution:
    """Sum the slope and curvature over the site's rows for stopping."""
    model, betas = state.model, state.betas
    distilled = known(model.distilled, "predictive")
    sums = {name: np.zeros(tuple(betas.shape)) for name in ("slope", "curvature")}
    for x, y, _ in site.chunks(Part.STOPPING, model):
        product, mixture = (distilled.predict(each, x) for each in (Method.PRODUCT, Method.MIXTURE))
        found = slopes(product, mixture, y, betas, most=ROW_BOUND)
        for name, own in zip(sums, found, strict=True):
            sums[name] += own.numpy()
    rows: NDArray[np.float64] = np.array(float(site.count(Part.STOPPING)))
    return {**sums, "rows": rows}


def update(state: State, total: SecureTotal) -> State:
    """Narrow the range, or choose β and distil its student."""
    total = accepted(total, layout(state))
    if float(total["rows"]) < 0.5:
        raise StatisticsError(
            "β is chosen on held-out rows, and no site has any: set the program's held_out above 0"
        )
    betas, slope = state.betas, torch.tensor(total["slope"])
    low, high = (on_grid(end, BETA_STEP) for end in narrowed(betas, slope))
    after = replace(state, low=low, high=high, asked=state.asked + 1)
    if after.asked < state.spec.sums:
        return after
    beta = on_grid(crossing(betas, slope), BETA_STEP)
    nearest = (betas - beta).abs().argmin(0, keepdim=True)
    curvature = torch.tensor(total["curvature"]).gather(0, nearest).squeeze(0)
    distilled = known(state.model.distilled, "predictive").taught([Method.BETA], beta=beta)
    return replace(after, model=replace(state.model, distilled=distilled), curvature=curvature)


def finished(state: State) -> bool:
    """Return whether the last sum has been made."""
    return state.asked == state.spec.sums


check_private = without_private_form(
    "beta sums likelihoods of held-out rows, and the effect of one row on them is not bounded: "
    "leave it out of a program with differential privacy"
)


REPLAY = Replay(
    grids={**STUDENTS, "low": Step(BETA_STEP), "high": Step(BETA_STEP)},
    budget=LEAST_BUDGET,
)


def declare(spec: Spec, before: Before) -> Declaration:
    """Return what the stage needs, makes, reads and discloses at most."""
    return Declaration(
        needs=NEEDS,
        needs_students=frozenset({Method.PRODUCT, Method.MIXTURE}),
        needs_held_out=True,
        makes=MAKES,
        answers=Answers.REAL,
        students=before.students | {Method.BETA},
        words="how the likelihood of held-out rows changes with one number, β",
        sums=spec.sums,
        numbers=2 * spec.points * before.model.targets + 1,
        numbers_in_all=spec.sums * (2 * spec.points * before.model.targets + 1),
        leaves=spec.sums * (2 * spec.points * before.model.targets + 1),
        row_count=None,
        local_passes=0,
        rate_times_steps=0.0,
        reads=frozenset({Part.STOPPING}),
        summed_together=frozenset(),
        sampling_rate=1.0,
        noise_share=1.0,
        public_rows=PublicRows.NONE,
        public_set=None,
        needs_consent=False,
        includes=frozenset(),
        replay=REPLAY,
    )


STORED = (Spec, State)
