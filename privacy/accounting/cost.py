"""The cost of a list of releases that is fixed beforehand: the least ε that an accountant proves.

A list that was chosen bit by bit, after seeing results, is not one of these: the least of several
proofs, or of several Rényi orders, chosen when the results are known, is no proof. A budget is kept
by `privacy.accounting.filters`; what is computed here is shown to people and used in benchmarks.

The cost is that of the most expensive bill (`privacy.accounting.bills`). For the sums of a bill,
each of these accountants is a proof. The least ε counts:

    gaussian      exact composition, as if every sum were over all units, plus the integers' gap
                  (privacy.accounting.distributed)
    concentrated  the same by zero-concentrated privacy, whose gap does not grow with ε
    renyi         with sums over Poisson samples: Opacus's Rényi divergences, plus the gap
    numerical     the same by the distribution of the privacy loss
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import final

from privacy.accounting import gaussian, sampled
from privacy.accounting.bills import Bill, bills_of
from privacy.accounting.distributed import Gap
from privacy.accounting.events import Release
from privacy.errors import AccountingError

_RESERVES = (0.0, 2.0**-30, 2.0**-10, 0.5)
"""Fractions of δ to reserve for the gap, tried in this order."""


@final
@dataclass(frozen=True)
class Cost:
    """(ε, δ), and the name of the accountant that proves it."""

    epsilon: float
    delta: float
    accountant: str


def cost(releases: Iterable[Release], *, delta: float) -> Cost:
    """Return the cost of these releases for the unit that pays most, at this δ.

    >>> release = Release(statistic="scatter", part="training", multiplier=4.0, dimension=5150,
    ...                   share_deviation=2**30, honest=7)
    >>> spent = cost([release], delta=1e-5)
    >>> round(spent.epsilon, 3), spent.accountant
    (0.926, 'gaussian')
    """
    if type(delta) is not float or not 1e-15 <= delta < 1:
        raise AccountingError(f"δ must be a float from 1e-15 to below 1, not {delta!r:.40}")
    return max((_cheapest(bill, delta) for bill in bills_of(releases)), key=lambda it: it.epsilon)


def _cheapest(bill: Bill, delta: float) -> Cost:
    if not bill.sums:
        return Cost(0.0, delta, "nothing")
    best = Cost(math.inf, delta, "none")
    for name, proof in _proofs(bill, delta):
        best = min(best, Cost(proof(), delta, name), key=lambda it: it.epsilon)
    return best


def _proofs(bill: Bill, delta: float) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield all accountants that apply to this bill, the fast ones first."""
    mu = bill.mu(sampled=True)
    divergences = mu**2 / 2 * gaussian.ORDERS + 3 * bill.gap.shares
    yield "gaussian", partial(_with_gap, partial(gaussian.epsilon, mu), bill.gap, delta)
    yield "concentrated", partial(gaussian.from_renyi, gaussian.ORDERS, divergences, delta)
    if any(q < 1 for _, q in bill.sums):
        sums = {kind: count for kind, count in bill.sums.items() if kind[1] < 1}
        if rest := bill.mu(sampled=False):
            sums[1 / rest, 1.0] = 1
        yield "renyi", partial(_with_gap, partial(sampled.renyi_epsilon, sums), bill.gap, delta)
        numerical = partial(sampled.numerical_epsilon, sums)
        yield "numerical", partial(_with_gap, numerical, bill.gap, delta)


def _with_gap(proof: Callable[[float], float], gap: Gap, delta: float) -> float:
    """Return the ε for integer shares, from a `proof` for Gaussian noise that maps δ to ε.

    A fraction r of δ is reserved for the slack. If the proof gives ε' at e^−Λ·δ(1 − r), then
    ε' + 2Λ holds at δ, provided that the slack is at most δ·r. The first r that satisfies this is
    used.
    """
    for reserve in _RESERVES:
        if gap.slack(0.0) > delta * reserve:
            continue
        epsilon = proof(math.exp(-gap.rounded) * delta * (1 - reserve))
        if gap.slack(epsilon) <= delta * reserve:
            return epsilon + 2 * gap.rounded
    return math.inf
