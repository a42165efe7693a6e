"""What releases cost: the least ε that a valid accountant proves for them at a δ.

A unit pays for the releases over its rows: for every release without a dealing, and of each dealing
for those over the one part that it is in. Which part that is nobody says, so it is the dearest: the
cost is the greatest over the choices of one part of each dealing.

For the releases that a unit pays for, each of these is a proof, and the least counts:

    gaussian      exact composition, as if every sum were over all units, plus the integers' gap
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
"""Parts of δ, tried in turn, that are set aside for the gap."""
_MOST_CHOICES = 16


@final
@dataclass(frozen=True)
class Cost:
    """(ε, δ), and the accountant whose proof it is."""

    epsilon: float
    delta: float
    accountant: str


def cost(releases: Iterable[Release], *, delta: float, enough: float = 0.0) -> Cost:
    """Return what these releases cost the unit that pays most, at this δ.

    A proof of `enough` or less is not improved upon, which saves the dearer accountants.

    >>> release = Release(statistic="scatter", part="training", multiplier=4.0, dimension=5150,
    ...                   share_deviation=2**30, honest=7)
    >>> spent = cost([release], delta=1e-5)
    >>> round(spent.epsilon, 3), spent.accountant
    (0.926, 'gaussian')
    """
    if type(delta) is not float or not 1e-15 <= delta < 1:
        raise AccountingError(f"δ is a number from 1e-15 to 1, not {delta!r:.40}")
    listed = tuple(releases)
    for release in listed:
        if type(release) is not Release:
            raise UnknownRelease(f"no accountant here knows what {type(release).__name__} costs")
    return max(
        (_cheapest(bill, delta, enough) for bill in _bills(listed)), key=lambda it: it.epsilon
    )


@dataclass(frozen=True)
class _Bill:
    """What one unit pays for.

    sums: how many there are of each (multiplier, sampling rate).
    gap: of all of them, between integer shares and Gaussians.
    """

    sums: Mapping[tuple[float, float], int]
    gap: Gap


def _bills(releases: Sequence[Release]) -> list[_Bill]:
    """Return the bills of all choices of one part of each dealing, or ones above them all."""
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
    """Return a bill at least as dear as each of these.

    Sums over all units are one with their composed multiplier; of those over samples it has, of
    each kind, as many as the bill with the most.
    """
    mu = max(_composed(bill, sampled=False) for bill in bills)
    sums: Counter[tuple[float, float]] = Counter({(1 / mu, 1.0): 1} if mu else {})
    for bill in bills:
        sums |= Counter({kind: count for kind, count in bill.sums.items() if kind[1] < 1})
    return _Bill(sums, Gap.greatest(bill.gap for bill in bills))


def _composed(bill: _Bill, *, sampled: bool) -> float:
    """Return μ of a bill's sums over all units; and of those over samples, as if they were too."""
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
    """Give all accountants that know this bill, the quick ones first."""
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
    """Return ε that a proof for Gaussian noise, from δ to ε, gives for integer shares.

    A part r of δ is set aside: what it proves at e^−Λ·δ(1 − r), ε − 2Λ, is true at δ if the slack
    is at most δ·r. The first such r is taken.
    """
    for reserve in _RESERVES:
        if gap.slack(0.0) > delta * reserve:
            continue
        epsilon = proof(math.exp(-gap.rounded) * delta * (1 - reserve))
        if gap.slack(epsilon) <= delta * reserve:
            return epsilon + 2 * gap.rounded
    return math.inf
