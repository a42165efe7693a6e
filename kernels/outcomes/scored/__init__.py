"""Scores and recalibration of outcomes other than a real number, from sums that sites can add.

Every kind of outcome has a file here, with the same three names:

    Predicted    what a model says of some rows: probabilities, a law of counts, a survival curve
    Sums         sums over rows from which all scores follow; `+` adds the rows of another site
    Quality      the scores that a reader sees, plain numbers

and a file in `recalibration`, with `HeldOut`, sums over held-out rows by fold, and `Calibration`,
which turns one `Predicted` into another of the same kind. So the same sums judge a model as it is
and recalibrated. `kernels.outcomes.scored.kinds` finds them by target: a stage loops over outcomes
and knows none of their kinds.

With differential privacy there are fewer and coarser sums (`few_blocks`, `few`), each with what one
row changes it by at most, in Euclidean norm; `from_noisy` turns their noisy totals into valid sums.
"""
