"""The gap between what members draw, the sum of integer shares, and one Gaussian.

Each of h honest members adds N_ℤ(0, s²), the discrete Gaussian with P(k) ∝ exp(−k²/2s²), to every
coordinate. Accounting speaks of N(0, σ²) with σ² = h·s², so two steps are to be paid for.

**Shares to one discrete Gaussian.** Let φ_v be the density of N(0, v²), c_v = Σ_k φ_v(k), and
κ² = 1/(1/v² + 1/s²). A product of two Gaussian densities is a Gaussian density times another,

    φ_v(x)·φ_s(k − x) = φ_√(v²+s²)(k) · φ_κ(x − a·k)    for some a,

so P(X + Y = k) for X ~ N_ℤ(0, v²), Y ~ N_ℤ(0, s²) is that of N_ℤ(0, v² + s²) times
Σ_x φ_κ(x − a·k) · c_√(v²+s²) / (c_v·c_s). By Poisson's summation each of these four sums is within
2·Σ_{j≥1} e^(−2π²κ²j²) of 1, as κ is the smallest of the deviations, the c's from above only; and of
v and s the larger is at least √2·κ, so its c is far closer. For κ ≥ 1/2 the logarithm of the ratio
is within 5·e^(−2π²κ²). With v² = k·s², one share after the other (Kairouz, Liu and Steinke, The
distributed discrete Gaussian mechanism, 2021),

    η = 5·Σ_{k=1}^{h−1} exp(−2π²s²·k/(k+1))

bounds the logarithm of the ratio of the two probabilities, at every integer.

**One discrete Gaussian to a rounded one.** Integers plus N(0, σ²), rounded to the nearest integer,
are integers plus rounded noise: what is proved of N(0, σ²) holds of it, by post-processing. Its
P'(k) is the integral of φ over [k − ½, k + ½], and φ(k) is the midpoint rule for it, with the error
∫K(u)φ''(k + u)du, 0 ≤ K(u) = (½ − |u|)²/2 ≤ 1/8. Summed over k that is at most
(1/8)·∫|φ''| = (1/8)·4·φ_1(1)/σ² < 0.1211/σ²; the constant c adds less than 2.01·e^(−2π²σ²). Half of
the sum is the total variation: less than 1/(16σ²) for σ ≥ 1.

So, coordinate by coordinate and sum by sum, what is drawn and what is accounted are within

    t = 1/(16·h·s²) + η

in total variation (for η ≤ 1), and the sums of a run within the sum of these, T: as each is chosen
from the outputs before it, replace one after the other. Probabilities of one table then differ by T
from those of an (ε, δ)-private mechanism, and so do those of its neighbour:

    P(M(D) ∈ E) ≤ e^ε·P(M(D') ∈ E) + δ + (1 + e^ε)·T.

With s at 2^30 a coordinate costs 2^-64/h. At large ε the factor e^ε outgrows it; the other way is
concentrated privacy, where the discrete Gaussian itself is exactly as good as the continuous one
(Canonne, Kamath and Steinke, 2020) and only η is paid: with d coordinates, and P and Q the ideal
probabilities that P' and Q' are within e^±ηd of,

    (α − 1)·D_α(P'‖Q') = log E_P'[(P'/Q')^(α−1)] ≤ ηd + 2ηd(α − 1) + (α − 1)·D_α(P‖Q),

so D_α grows by at most 3ηd for α ≥ 2.

More noise than accounted for, from members beyond h, is post-processing. What colluders draw they
know, so it counts for nothing: h leaves them out.
"""

import math

from privacy.accounting.events import Release


def ratio(release: Release) -> float:
    """Return η·d over all sums of a release: shares against one discrete Gaussian, in log."""
    square = 2 * (math.pi * release.share_deviation) ** 2
    per_element = 5 * math.fsum(
        math.exp(-square * k / (k + 1)) for k in range(1, min(release.honest, _SHARES))
    )
    if release.honest > _SHARES:
        per_element += 5 * (release.honest - _SHARES) * math.exp(-square * _SHARES / (_SHARES + 1))
    return per_element * release.dimension * release.sums


def gap(release: Release) -> float:
    """Return T: the total variation between a release's sums and ones with Gaussian noise."""
    variance = release.honest * release.share_deviation**2
    return min(release.dimension * release.sums / (16 * variance) + ratio(release), 1.0)


def slack(epsilon: float, gap: float) -> float:
    """Return what a gap adds to δ at ε."""
    return gap * (1 + math.exp(min(epsilon, 700.0)))


_SHARES = 1000
"""From here on k/(k + 1) is taken as it is at this k, which only adds."""
