"""Bills: which sums a unit pays for, over every choice of the one part per dealing that it is in.

A unit pays for every release without a dealing, and in each dealing for the releases over the one
part that it is in. That part is not known, so an accountant takes the most expensive bill.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from privacy.accounting import gaussian
from privacy.accounting.distributed import Gap
from privacy.accounting.events import Release
from privacy.errors import UnknownRelease

_MOST_CHOICES = 16


@final
@dataclass(frozen=True)
class Bill:
    """What one unit pays for.

    sums: the number of sums for each (multiplier, sampling rate).
    gap: between integer shares and Gaussians, over all these sums.
    """

    sums: Mapping[tuple[float, float], int]
    gap: Gap

    def mu(self, *, sampled: bool) -> float:
        """Return the composed μ of the sums over all units.

        With `sampled`, sums over samples are included as if they were over all units.
        """
        return gaussian.composed(
            (z, count) for (z, q), count in self.sums.items() if q == 1 or sampled
        )


def bills_of(releases: Iterable[Release]) -> list[Bill]:
    """Return the bills of all choices of one part per dealing, or an upper bound of them all."""
    listed = tuple(releases)
    for release in listed:
        if type(release) is not Release:
            raise UnknownRelease(
                f"the cost of a {type(release).__name__} is unknown: only a Release can be charged"
            )
    return _bills(listed)


def _bills(releases: Sequence[Release]) -> list[Bill]:
    every = _bill(release for release in releases if not release.dealing)
    dealings: dict[bytes, dict[str, list[Release]]] = defaultdict(lambda: defaultdict(list))
    for release in releases:
        if release.dealing:
            dealings[release.dealing][release.part].append(release)
    choices = [[_bill(part) for part in parts.values()] for parts in dealings.values()]
    if math.prod(map(len, choices)) > _MOST_CHOICES:
        choices = [[_above(bills)] for bills in choices]
    return [_together([every, *chosen]) for chosen in itertools.product(*choices)]


def _bill(releases: Iterable[Release]) -> Bill:
    return _together(
        [Bill({(it.multiplier, it.sampling_rate): it.sums}, Gap.of(it)) for it in releases]
    )


def _together(bills: Sequence[Bill]) -> Bill:
    sums: Counter[tuple[float, float]] = Counter()
    for bill in bills:
        sums.update(bill.sums)
    return Bill(sums, Gap.together(bill.gap for bill in bills))


def _above(bills: Sequence[Bill]) -> Bill:
    """Return a bill that costs at least as much as each of these.

    Its sums over all units are one sum with the largest composed μ. Of each kind of sum over
    samples it has as many as the bill with the most of that kind.
    """
    mu = max(bill.mu(sampled=False) for bill in bills)
    sums: Counter[tuple[float, float]] = Counter({(1 / mu, 1.0): 1} if mu else {})
    for bill in bills:
        sums |= Counter({kind: count for kind, count in bill.sums.items() if kind[1] < 1})
    return Bill(sums, Gap.greatest(bill.gap for bill in bills))
