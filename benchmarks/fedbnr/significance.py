"""[FedBNR]'s arrows: one-tailed signed-rank tests [Wilcoxon45] over seeds.

A row is compared with a reference, seed by seed in the same column: ↑ significantly higher (worse),
↓ significantly lower (better), doubled where p < 0.01, single where p < 0.05. With three seeds the
least p is 1/8, so a baseline can have no arrow in a column; over all columns together, by the
logarithm of the ratio, it has 30 pairs and can.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import wilcoxon

LEVELS = (0.01, 2), (0.05, 1)


def probability(values: Sequence[float], reference: Sequence[float], *, higher: bool) -> float:
    """Return p of the hypothesis that values are not higher (or lower) than their partners.

    >>> probability([2.0, 3.0, 4.0], [1.0, 1.5, 1.0], higher=True)
    0.125
    """
    differences = np.asarray(values) - np.asarray(reference)
    if not differences.any():
        return 1.0
    side = "greater" if higher else "less"
    return float(wilcoxon(differences, alternative=side).pvalue)


def arrows(values: Sequence[float], reference: Sequence[float]) -> str:
    """Return the mark of a row in one column, or nothing.

    >>> arrows([2.0, 3, 4, 5, 6, 7, 8], [1.0] * 7), arrows([1.0] * 5, [2.0, 3, 4, 5, 6])
    ('↑↑', '↓')
    """
    for higher, arrow in ((True, "↑"), (False, "↓")):
        p = probability(values, reference, higher=higher)
        for level, count in LEVELS:
            if p < level:
                return arrow * count
    return ""


def log_ratios(values: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Return log(value/reference) of each pair, so that columns in other units can be joined."""
    return [math.log(value / other) for value, other in zip(values, reference, strict=True)]
