"""Newton's steps, shortened where one went too far: the guard of `logistic.newton`.

Each sum is made at a candidate q and tells its bound. If that is no lower than the bound of the
best q so far, the candidate is kept and the next one is the full step from it. Otherwise the next
candidate is half as far from the kept one, along the same natural gradient: the kept sums are still
there, so a step that failed costs one sum. Steps then grow again by half. The bound of what is kept
never falls.

The first sum is made with the Pólya–Gamma parabolas (`rule`), which are nowhere above the
likelihood, so the first step cannot go too far: on flchain (53,766 person-intervals, 4 % events)
five sums then leave less than a tenth of a nat, with an offset and without. Newton's alone, with
the offset, overshoot from the second sum on; Pólya–Gamma's alone still gain 7 nats with the tenth
sum, and 29 without the offset.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from kernels.errors import StateError
from kernels.layer.refit import RefitOptions
from kernels.outcomes.logistic import Rule, newton, polya_gamma
from kernels.outcomes.variational import Layer, log_prior, updated_together
from kernels.outcomes.weighted import Weighted
from kernels.parameter_checks import check_whole
from kernels.reproducible import near

BOUND_STEP = 2.0**-24
"""The grid of bounds, in nats, coarser than what depends on the machine."""
_TOLERANCE = 2.0**-12
"""A bound that falls by less has not fallen. The steps after it are as short as that."""
_RATIO_STEPS = 3
"""The ratio of a stretched part is chosen in so many of the first steps."""
_FLOAT_ERROR = 1e-12
"""The same relative to the bound's terms: float64's error."""


@dataclass(frozen=True, eq=False)
class Search:
    """Where a search is. `layers` is the candidate: the q at which the next sums are made.

    One layer, or those of the latent functions that share a likelihood, with one λ.
    stride: the length of a step that was not shortened: 1, or less for classes (`classes.STRIDE`).
    kept: the best q so far, with the sums made at it and their bound. share: the length of the step
    to the candidate. gain: what the last kept step gained, in nats. kept_steps: how many were.
    """

    STORED_AS: ClassVar[str] = "outcome.search"

    layers: tuple[Layer, ...]
    stride: float = 1.0
    kept: tuple[Layer, ...] | None = None
    sums: tuple[Weighted, ...] | None = None
    bound: float | None = None
    share: float = 1.0
    gain: float | None = None
    kept_steps: int = 0

    def __post_init__(self) -> None:
        functions = len(self.layers) if isinstance(self.layers, tuple) else 0
        kept = (self.kept, self.sums, self.bound)
        if any(own is None for own in kept) != all(own is None for own in kept):
            raise StateError(
                "a search has kept layers, their sums and their bound, or none of them"
            )
        for name, kind in (("layers", Layer), ("kept", Layer), ("sums", Weighted)):
            own = getattr(self, name)
            if own is None and name != "layers":
                continue
            alike = isinstance(own, tuple) and 0 < len(own) == functions
            if not alike or not all(isinstance(each, kind) for each in own):
                raise StateError(
                    f"{name} of a search must be a tuple with one {kind.__name__} for each latent "
                    "function"
                )
        for name in ("stride", "share"):
            length = getattr(self, name)
            if not (isinstance(length, float) and 0 < length <= 1):
                raise StateError(f"{name} of a search must be a number from 0 to 1, and not 0")
        for name in ("bound", "gain"):
            value = getattr(self, name)
            if not (value is None or (isinstance(value, float) and math.isfinite(value))):
                raise StateError(f"{name} of a search must be a finite number or None")
        check_whole(0, kept_steps=self.kept_steps)


def rule(search: Search) -> Rule:
    """Return the rule of the next sum of a likelihood of logits."""
    return polya_gamma if search.kept is None else newton


def advanced(
    search: Search,
    totals: Sequence[Weighted],
    options: RefitOptions | None = None,
    *,
    fixed_prior: bool = False,
    rounding: float = 0.0,
) -> Search:
    """Return the search after the sums made at its candidate.

    rounding: the largest error of Σt, by which a bound may be lower and not have fallen.
    """
    layers, totals = search.layers, tuple(totals)
    bound = math.fsum(own.bound(total) for own, total in zip(layers, totals, strict=True))
    if not fixed_prior:
        bound += log_prior(layers[0].prior_variance, options)
    bound = near(bound, BOUND_STEP)
    before, size = search.bound, math.fsum(abs(total.terms) for total in totals)
    fallen = 0.0 if before is None else before - bound
    if before is not None and fallen > _TOLERANCE + 2 * rounding + _FLOAT_ERROR * (
        abs(before) + size
    ):
        share = search.share / 2
        kept, totals = search.kept or layers, search.sums or totals
        after = updated_together(kept, totals, options, share=share, fixed_prior=fixed_prior)
        return replace(search, layers=after, share=share)
    share = min(search.stride, 1.5 * search.share) if before is not None else 1.0
    after = updated_together(
        layers,
        totals,
        options,
        share=share,
        fixed_prior=fixed_prior,
        # Later changes of the ratio gain little, and each is many factorisations.
        choose_ratio=search.kept_steps < _RATIO_STEPS,
    )
    return replace(
        search,
        layers=after,
        kept=layers,
        sums=totals,
        bound=bound if before is None else max(bound, before),
        share=share,
        gain=None if before is None else bound - before,
        kept_steps=search.kept_steps + 1,
    )
