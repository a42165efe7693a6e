"""How well scores put rows in order, from histograms of scores: AUC, ROC and concordance.

Of two rows of which one has the event first (or at all), the score should be higher for it. With
n_b rows with the event in bin b of the score and m_b rows without, ties within a bin counting half,

    AUC = Σ_b n_b·(Σ_{c < b} m_c + m_b/2) / (Σn·Σm)

Concordance adds numerators and denominators over the intervals of events (Harrell's C [Harrell82]
on times that are known up to their interval).
"""

import torch
from torch import Tensor

_ROC_POINTS = 50


def concordance(first: Tensor, later: Tensor) -> float | None:
    """Return the share of pairs in the right order, None without pairs.

    first: (J, bins) rows with the event in each interval. later: (J, bins) rows known to be without
    it at the end of that interval.
    """
    pairs = float((first.sum(1) * later.sum(1)).sum())
    if pairs <= 0:
        return None
    below = later.cumsum(1) - later / 2
    return float((first * below).sum()) / pairs


def auc(without: Tensor, with_event: Tensor) -> float | None:
    """Return the area under the ROC curve from two histograms (bins,); None if one is empty.

    >>> auc(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 1.0]))
    0.9166666666666666
    """
    return concordance(with_event.unsqueeze(0), without.unsqueeze(0))


def roc(
    without: Tensor, with_event: Tensor, *, points: int = _ROC_POINTS
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return false and true positive rates from (0, 0) to (1, 1), at most points + 2 of them.

    Those thresholds are kept at which another part in `points` of all rows is called positive.
    """
    false, true = without.flip(0).cumsum(0), with_event.flip(0).cumsum(0)
    if float(false[-1]) <= 0 or float(true[-1]) <= 0:
        return (), ()
    called = (false + true) / (false[-1] + true[-1])
    part = (called * points).floor()
    kept = torch.cat([part.diff() > 0, torch.ones(1, dtype=torch.bool)])
    rates = tuple((own / own[-1])[kept].tolist() for own in (false, true))
    return (0.0, *rates[0]), (0.0, *rates[1])
