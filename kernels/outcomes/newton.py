"""Newton's steps, shortened where one went too far: the guard of `logistic.newton`.

Each sum is made at a candidate q and tells its bound. If that is no lower than the bound of the
best q so far, the candidate is kept and the next one is the full step from it. Otherwise the next
candidate is half as far from the kept one, along the same natural gradient: the kept sums are still
there, so a step that failed costs one sum. The bound of what is kept never falls.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from kernels.layer.refit import RefitOptions
from kernels.outcomes.variational import Layer, log_prior, updated
from kernels.outcomes.weighted import Weighted

_TOLERANCE = 1e-12
"""A bound that falls by less, relative to its terms, has not fallen: it is float64's error."""


@dataclass(frozen=True, eq=False)
class Search:
    """Where a search is. `layer` is the candidate: the q at which the next sum is made.

    kept: the best q so far, with the sums made at it and their bound. share: the length of the step
    to the candidate. gain: what the last kept step gained, in nats.
    """

    STORED_AS: ClassVar[str] = "outcome.search"

    layer: Layer
    kept: Layer | None = None
    sums: Weighted | None = None
    bound: float | None = None
    share: float = 1.0
    gain: float | None = None


def advanced(
    search: Search,
    total: Weighted,
    options: RefitOptions | None = None,
    *,
    fixed_prior: bool = False,
) -> Search:
    """Return the search after the sum made at its candidate."""
    layer = search.layer
    bound = layer.bound(total)
    if not fixed_prior:
        bound += log_prior(layer.prior_variance, options)
    if search.bound is None or search.kept is None or search.sums is None:
        kept = replace(search, kept=layer, sums=total, bound=bound)
    elif bound >= search.bound - _TOLERANCE * (abs(search.bound) + abs(total.terms)):
        gain = bound - search.bound
        kept = replace(
            search, kept=layer, sums=total, bound=max(bound, search.bound), share=1.0, gain=gain
        )
    else:
        share = search.share / 2
        following = updated(search.kept, search.sums, options, share=share, fixed_prior=fixed_prior)
        return replace(search, layer=following, share=share)
    return replace(kept, layer=updated(layer, total, options, fixed_prior=fixed_prior))
