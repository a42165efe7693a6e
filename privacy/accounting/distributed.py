"""The gap between the noise that members draw (a sum of integer shares) and one Gaussian.

Each of h honest members adds N_ℤ(0, s²), the discrete Gaussian with P(k) ∝ exp(−k²/2s²), to every
coordinate. The accountants assume N(0, σ²) with σ² = h·s². Two steps lead from one to the other,
each with a bound on the difference between the logarithms of the probabilities of an integer k.

**Shares to one discrete Gaussian.** Let φ_v be the density of N(0, v²), c_v = Σ_k φ_v(k), and
κ² = 1/(1/v² + 1/s²). A product of two Gaussian densities is a Gaussian density times another,

    φ_v(x)·φ_s(k − x) = φ_√(v²+s²)(k) · φ_κ(x − a·k)    for some a,

so P(X + Y = k) for X ~ N_ℤ(0, v²), Y ~ N_ℤ(0, s²) is that of N_ℤ(0, v² + s²) times
Σ_x φ_κ(x − a·k) · c_√(v²+s²) / (c_v·c_s). By Poisson's summation each of these four sums is within
2·Σ_{j≥1} e^(−2π²κ²j²) of 1, because κ is the smallest of the deviations; the c's are never below 1,
and the larger of v and s is at least √2·κ, so its c is far closer to 1. For κ ≥ 1/2 the logarithm
of the ratio is within 5·e^(−2π²κ²). Adding one share after the other, with v² = k·s², gives
[Kairouz21]

    η = 5·Σ_{k=1}^{h−1} exp(−2π²s²·k/(k+1)).

**One discrete Gaussian to a rounded one.** Integers plus N(0, σ²), rounded to the nearest integer,
are integers plus rounded noise: what is proved for N(0, σ²) also holds for rounded noise, by
post-processing. Its probabilities

    P'(k) = ∫_{−½}^{½} φ_σ(k + u)du = φ_σ(k)·2·∫_0^½ cosh(k·u/σ²)·e^(−u²/2σ²)du

are between φ_σ(k)·e^(−1/8σ²) and φ_σ(k)·e^(k²/8σ⁴), because 1 ≤ cosh x ≤ e^(x²/2), and the discrete
Gaussian's P(k) is φ_σ(k)/c_σ with 1 ≤ c_σ ≤ e^(2.01·e^(−2π²σ²)). So for |k| ≤ K·σ, K ≥ 1, their
logarithms are within K²/8σ² + 2.01·e^(−2π²σ²) of each other. Beyond K·σ, the probability under
either is less than τ = 2·e^(−K²/2).

**Cost of the gap.** Over all coordinates of all sums, where each sum may depend on the outputs
before it, let Λ be the sum of these differences and T the sum of the tails. If Gaussian noise is
(ε, δ)-private, then for every set E of outputs, by replacing the probabilities on both sides,

    P(M(D) ∈ E) ≤ e^(ε+2Λ)·P(M(D') ∈ E) + e^Λ·δ + (1 + e^(ε+Λ))·T.

With s = 2^30 and K = 20 a coordinate costs 2^-54/h in Λ and 2^-287 in T: a hundred million
coordinates cost 1e-8 of ε and no δ. Where ε is so large that e^ε·T matters, zero-concentrated
privacy is used instead: in it the discrete Gaussian is exactly as good as the continuous one
[Canonne20], and only η is paid. Let P, Q be the probabilities under single discrete Gaussians and
P', Q' within a factor e^±H of them. Then

    (α − 1)·D_α(P'‖Q') = log E_P'[(P'/Q')^(α−1)] ≤ H + 2H(α − 1) + (α − 1)·D_α(P‖Q),

so D_α grows by at most 3H for α ≥ 2.

Noise from members beyond h is post-processing, so it does no harm. Colluders know what they draw,
so their noise does not count and h leaves them out.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, final

from privacy.accounting.events import Release

_REACH = 20.0
"""K: the number of deviations within which probabilities are compared one by one."""
_SHARES = 1000
"""For larger k, k/(k + 1) is replaced by its value at this k, which only increases the bound."""


@final
@dataclass(frozen=True)
class Gap:
    """The gap of some sums. Gaps add up over sums.

    shares: H, the sum of η: the gap to single discrete Gaussians, in logarithms of probabilities.
    rounded: Λ, the gap to rounded Gaussians.
    tails: T, the probability that the bound Λ does not hold.
    """

    shares: float = 0.0
    rounded: float = 0.0
    tails: float = 0.0

    @classmethod
    def of(cls, release: Release) -> Self:
        """Return the gap over all sums of a release."""
        elements = release.dimension * release.sums
        exponent = 2 * (math.pi * release.share_deviation) ** 2
        shares = 5 * math.fsum(
            math.exp(-exponent * k / (k + 1)) for k in range(1, min(release.honest, _SHARES))
        )
        if release.honest > _SHARES:
            left = release.honest - _SHARES
            shares += 5 * left * math.exp(-exponent * _SHARES / (_SHARES + 1))
        variance = release.honest * release.share_deviation**2
        rounding = _REACH**2 / (8 * variance) + 2.01 * math.exp(-2 * math.pi**2 * variance)
        tails = 2 * math.exp(-(_REACH**2) / 2)
        return cls(elements * shares, elements * (shares + rounding), elements * tails)

    @classmethod
    def together(cls, gaps: Iterable["Gap"]) -> Self:
        """Return the total gap of several sums, given the gap of each."""
        listed = list(gaps)
        return cls(
            math.fsum(gap.shares for gap in listed),
            math.fsum(gap.rounded for gap in listed),
            math.fsum(gap.tails for gap in listed),
        )

    @classmethod
    def greatest(cls, gaps: Iterable["Gap"]) -> Self:
        """Return a gap that is at least as large as each of these."""
        listed = list(gaps)
        return cls(
            max(gap.shares for gap in listed),
            max(gap.rounded for gap in listed),
            max(gap.tails for gap in listed),
        )

    def slack(self, epsilon: float) -> float:
        """Return (1 + e^(ε+Λ))·T, which is added to e^Λ·δ if Gaussian noise is (ε, δ)-private."""
        return self.tails * (1 + math.exp(min(epsilon + self.rounded, 700.0)))
