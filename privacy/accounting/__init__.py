"""What releases cost: what happened (`events`) apart from what it costs (`cost`).

events       Release: one statistic's noisy sums, as they will be drawn
gaussian     closed forms: composition, the exact ε(δ) of a Gaussian, Rényi to (ε, δ)
distributed  how far the sum of the members' integer noise is from one Gaussian
sampled      Opacus's accountants, for sums over Poisson samples
cost         the tightest valid ε of a list of releases
planning     the noise that makes a plan cost what may be spent
"""
