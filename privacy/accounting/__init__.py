"""Privacy accounting: what is released (`events`), kept apart from what it costs (`cost`).

events       Release: the noisy sums of one statistic
gaussian     closed forms: composition, the exact ε(δ) of a Gaussian, Rényi to (ε, δ)
distributed  the difference between the sum of the members' integer noise and one Gaussian
sampled      Opacus's accountants, for sums over Poisson samples
bills        which of the releases one unit pays for
cost         the tightest valid ε of a list of releases that is fixed beforehand
filters      whether a budget allows a further release, chosen after seeing results; the proof
planning     the noise with which a plan costs what may be spent
"""
