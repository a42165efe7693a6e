"""The cost of releases: the least ε that a valid accountant proves for them at a given δ.

A unit pays for the releases over its rows: for every release without a dealing, and in each dealing
for the releases over the one part that it is in. That part is not known, so the most expensive one
is assumed: the cost is the maximum over all choices of one part per dealing.

For the releases that a unit pays for, each of these accountants is a proof. The least ε counts:

    gaussian      exact composition, as if every sum were over all units, plus the integers' gap
                  (privacy.accounting.distributed)
    concentrated  the same by zero-concentrated privacy, whose gap does not grow with ε
    renyi         with sums over Poisson samples: Opacus's Rényi divergences, plus the gap
    numerical     the same by the distribution of the privacy loss
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

from privacy.accounting import gaussian, sampled
from privacy.accounting.distributed import Gap
from privacy.accounting.events import Release
from privacy.errors import AccountingError, UnknownRelease

_RESERVES = (0.0, 2.0**-30, 2.0**-10, 0.5)
"""Fractions of δ to reserve for the gap, tried in this order."""
_MOST_CHOICES = 16


@final
@dataclass(frozen=True)
class Cost:
    """(ε, δ), and the name of the accountant that proves it."""

    epsilon: float
    delta: float
    accountant: str


def cost(releases: Iterable[Release], *, delta: float, enough: float = 0.0) -> Cost:
    """Return the cost of these releases for the unit that pays most, at this δ.

    Once an accountant proves `enough` or less, the slower ones are skipped.

    >>> release = Release(statistic="scatter", part="training", multiplier=4.0, dimension=5150,
    ...                   share_deviation=2**30, honest=7)
    >>> spent = cost([release], delta=1e-5)
    >>> round(spent.epsilon, 3), spent.accountant
    (0.926, 'gaussian')
    """
    if type(delta) is not float or not 1e-15 <= delta < 1:
        raise AccountingError(f"δ must be a float from 1e-15 to below 1, not {delta!r:.40}")
    listed = tuple(releases)
    for release in listed:
        if type(release) is not Release:
            raise UnknownRelease(
                f"the cost of a {type(release).__name__} is unknown: only a Release can be charged"
            )
    return max(
        (_cheapest(bill, delta, enough) for bill in _bills(listed)), key=lambda it: it.epsilon
    )


@dataclass(frozen=True)
class _Bill:
    """What one unit pays for.

    sums: the number of sums for each (multiplier, sampling rate).
    gap: between integer shares and Gaussians, over all these sums.
    """

    sums: Mapping[tuple[float, float], int]
    gap: Gap


def _bills(releases: Sequence[Release]) -> list[_Bill]:
    """Return the bills of all choices of one part per dealing, or an upper bound of them all."""
    every = _bill(release for release in releases if not release.dealing)
    dealings: dict[bytes, dict[str, list[Release]]] = defaultdict(lambda: defaultdict(list))
    for release in releases:
        if release.dealing:
            dealings[release.dealing][release.part].append(release)
    choices = [[_bill(part) for part in parts.values()] for parts in dealings.values()]
    if math.prod(map(len, choices)) > _MOST_CHOICES:
        choices = [[_above(bills)] for bills in choices]
    return [_together([every, *chosen]) for chosen in itertools.product(*choices)]


def _bill(releases: Iterable[Release]) -> _Bill:
    return _together(
        [_Bill({(it.multiplier, it.sampling_rate): it.sums}, Gap.of(it)) for it in releases]
    )


def _together(bills: Sequence[_Bill]) -> _Bill:
    sums: Counter[tuple[float, float]] = Counter()
    for bill in bills:
        sums.update(bill.sums)
    return _Bill(sums, Gap.together(bill.gap for bill in bills))


def _above(bills: Sequence[_Bill]) -> _Bill:
    """Return a bill that costs at least as much as each of these.

    Its sums over all units are one sum with the largest composed μ. Of each kind of sum over
    samples it has as many as the bill with the most of that kind.
    """
    mu = max(_composed(bill, sampled=False) for bill in bills)
    sums: Counter[tuple[float, float]] = Counter({(1 / mu, 1.0): 1} if mu else {})
    for bill in bills:
        sums |= Counter({kind: count for kind, count in bill.sums.items() if kind[1] < 1})
    return _Bill(sums, Gap.greatest(bill.gap for bill in bills))


def _composed(bill: _Bill, *, sampled: bool) -> float:
    """Return μ of a bill's sums over all units.

    With `sampled`, sums over samples are included as if they were over all units.
    """
    return gaussian.composed((z, count) for (z, q), count in bill.sums.items() if q == 1 or sampled)


def _cheapest(bill: _Bill, delta: float, enough: float) -> Cost:
    if not bill.sums:
        return Cost(0.0, delta, "nothing")
    best = Cost(math.inf, delta, "none")
    for name, proof in _proofs(bill, delta):
        if best.epsilon <= enough:
            break
        best = min(best, Cost(proof(), delta, name), key=lambda it: it.epsilon)
    return best


def _proofs(bill: _Bill, delta: float) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield all accountants that apply to this bill, the fast ones first."""
    mu = _composed(bill, sampled=True)
    divergences = mu**2 / 2 * gaussian.ORDERS + 3 * bill.gap.shares
    yield "gaussian", partial(_with_gap, partial(gaussian.epsilon, mu), bill.gap, delta)
    yield "concentrated", partial(gaussian.from_renyi, gaussian.ORDERS, divergences, delta)
    if any(q < 1 for _, q in bill.sums):
        sums = {kind: count for kind, count in bill.sums.items() if kind[1] < 1}
        if rest := _composed(bill, sampled=False):
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
