"""A budget that nobody can outwit by choosing noise after seeing results: a filter, with its proof.

Whoever asks a site's next sum, in this session or in a later one, may choose its noise, its sample
and its part of the rows in view of everything released before. A rule that allows the next sum
while "the least of several accountants is below ε" is then no proof: which accountant is least, and
at which Rényi order, is known only afterwards. This filter fixes two accountants, one order and a
share of δ for each when the budget (ε, δ) is set, and allows a sum if, with it, one of the two is
still within its own limit. Whatever strategy chooses the sums, everything released is
(ε, δ)-private for one unit. Neighbours differ by one unit added or removed.

**One unit's bill.** Fix the unit and the dealings' secret. The unit's part in every dealing that
anyone may choose later is then fixed, and sums over other parts do not depend on the unit. So the
unit's own bill is a fixed choice among those of `privacy.accounting.bills`; the ledger requires
every choice to be within the budget, hence this one. In what follows all sums are on that bill.

**Gaussian, δ_G = 3/4·δ.** Limit: Σ 1/z² ≤ μ². Claim: whoever chooses at most k more sums, with
Σ 1/z² ≤ b² whatever the outputs, is b-Gaussian private. Nothing to prove for k = 0. The first sum
is chosen from what is known, and is 1/z-Gaussian private, also over a sample. Whatever its output,
at most k − 1 sums with Σ ≤ b² − 1/z² follow, which are √(b² − 1/z²)-Gaussian private by induction:
the same bound for every output, which is what the composition theorem [DongRothSu22] (theorem 3.2)
needs. It gives √(1/z² + b² − 1/z²) = b. (The result is [SmithThakurta22]'s; it holds because of
Gaussians only Σ 1/z² matters, not which of them come later.)

The noise is a sum of integer shares. For fixed Λ₀ and T₀ the filter also requires Λ ≤ Λ₀ and
T ≤ T₀ of the gap (`privacy.accounting.distributed`). The logarithms of the probabilities of a
transcript under integer and rounded Gaussian noise then differ by at most Λ₀, except for
transcripts with a coordinate in a tail. The conditional probabilities of those add up to at most T₀
along every transcript, so their probability is at most T₀. If (ε', δ') holds for rounded noise, the
transcript of integers is (ε' + 2Λ₀, e^Λ₀·δ' + (1 + e^(ε'+Λ₀))·T₀)-private, as shown there. Λ₀ and
T₀ follow from ε and δ, so that this costs at most 2⁻¹² of each.

**Rényi at one order α, δ_R = 1/4·δ.** Limit: Σ D_α ≤ r, with r from ε and δ_R [Canonne20]. Claim:
whoever chooses sums with Σ D_α ≤ r whatever the outputs has E_Q[(P/Q)^α] ≤ e^((α−1)r). Again by
induction: given the first output y, the rest contributes at most e^((α−1)(r−D_α)), the same for
every y, and the first sum contributes e^((α−1)D_α) [FeldmanZrnic21]. α is an integer, because then
the D_α of a sum over a sample follows from moments of p₁/p₀ alone, where p₀ and p₁ are the noise
without and with the unit's vector:

    E_p₀[((1−q)·p₀ + q·p₁)^α / p₀^α] = Σ_j binom(α, j)·(1−q)^(α−j)·q^j·E_p₀[(p₁/p₀)^j],

and the discrete Gaussian's moments are at most the Gaussian's, e^(j(j−1)/2z²) [Canonne20]. So
Opacus's D_α for continuous noise bounds that of integers. The other direction is never larger
[Mironov19] (theorem 5): its proof uses only that a reflection exchanges p₀ and p₁, here
k → v − k with the unit's integer vector v. Shares instead of one discrete Gaussian add at most 3η
to each sum's D_α, in both directions, since mixtures are also within e^±η.

**Either of the two.** Let τ_G and τ_R be the times at which each accountant passes its limit, and L
the privacy loss of a transcript. The filter stops at τ = max(τ_G, τ_R), so

    E[(1 − e^(ε−L_τ))₊] ≤ E[(1 − e^(ε−L_τ))₊; τ = τ_G] + E[(1 − e^(ε−L_τ))₊; τ = τ_R]
                        ≤ E[(1 − e^(ε−L_τ_G))₊] + E[(1 − e^(ε−L_τ_R))₊] ≤ δ_G + δ_R = δ,

because each term is the δ(ε) of the same strategy under one accountant's filter. The left side is
the δ(ε) of this filter. This is what choosing between two accountants afterwards costs: their share
of δ. With sums over all units only, z grows by 1.4 to 2.4 % for ε from 0.1 to 3 at δ = 1e-5.

What is not proven: that a *smaller* ε than the budget's, reported on the way, is a promise of its
own for a time that was chosen after seeing results. The promise is the budget's.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import final

from privacy.accounting import gaussian, sampled
from privacy.accounting.bills import Bill, bills_of
from privacy.accounting.cost import Cost
from privacy.accounting.events import Release

_GAUSSIAN = 0.75
"""The Gaussian accountant's share of δ; the rest is the Rényi accountant's."""
_GAP = 2.0**-14
"""Λ₀ divided by ε, or by 1 if ε is larger; and half the fraction of δ_G that is for the tails."""


@final
@dataclass(frozen=True)
class Filter:
    """The accountants of a budget (ε, δ), fixed with it.

    >>> release = Release(statistic="scatter", part="training", multiplier=4.0, dimension=5150,
    ...                   share_deviation=2**30, honest=7)
    >>> spent = Filter(1.0, 1e-5).spent([release])
    >>> round(spent.epsilon, 3), spent.accountant
    (0.944, 'gaussian')
    """

    epsilon: float
    delta: float

    def spent(self, releases: Iterable[Release]) -> Cost:
        """Return the cost for the unit that pays most; it is allowed if its ε is the budget's."""
        return max((self._of(bill) for bill in bills_of(releases)), key=lambda it: it.epsilon)

    @cached_property
    def order(self) -> int:
        """α: the order at which Gaussian sums may spend most."""
        return max(range(2, sampled.MOST_ORDER + 1), key=lambda order: self._limit(order) / order)

    @property
    def most_mu(self) -> float:
        """The largest μ = √(Σ 1/z²) that the Gaussian accountant allows, rounded down."""
        return gaussian.most_mu(self.epsilon - 2 * self._log_gap, self._gaussian_delta)

    @property
    def most_renyi_mu(self) -> float:
        """The largest μ that the Rényi accountant allows for sums over all units."""
        return math.sqrt(max(2 * self._limit(self.order) / self.order, 0.0))

    def _limit(self, order: int) -> float:
        """Return r, the largest D_α that is (ε, δ_R)-private."""
        return self.epsilon - gaussian.from_renyi_at(order, 0.0, self._renyi_delta)

    @property
    def _log_gap(self) -> float:
        """Λ₀."""
        return _GAP * min(self.epsilon, 1.0)

    @property
    def _tails(self) -> float:
        """T₀."""
        slack = 2 * _GAP * _GAUSSIAN * self.delta
        return slack / (1 + math.exp(min(self.epsilon + self._log_gap, 700.0)))

    @property
    def _gaussian_delta(self) -> float:
        """δ', the δ that rounded Gaussian noise may have."""
        return math.exp(-self._log_gap) * _GAUSSIAN * self.delta * (1 - 2 * _GAP)

    @property
    def _renyi_delta(self) -> float:
        return (1 - _GAUSSIAN) * self.delta

    def _of(self, bill: Bill) -> Cost:
        if not bill.sums:
            return Cost(0.0, self.delta, "nothing")
        return min(
            Cost(self._by_gaussian(bill), self.delta, "gaussian"),
            Cost(self._by_renyi(bill), self.delta, "renyi"),
            key=lambda it: it.epsilon,
        )

    def _by_gaussian(self, bill: Bill) -> float:
        if bill.gap.rounded > self._log_gap or bill.gap.tails > self._tails:
            return math.inf
        return gaussian.epsilon(bill.mu(sampled=True), self._gaussian_delta) + 2 * self._log_gap

    def _by_renyi(self, bill: Bill) -> float:
        divergence = 3 * bill.gap.shares + math.fsum(
            count * sampled.divergence(z, q, self.order) for (z, q), count in bill.sums.items()
        )
        return max(gaussian.from_renyi_at(self.order, divergence, self._renyi_delta), 0.0)
