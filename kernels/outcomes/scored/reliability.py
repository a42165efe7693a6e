"""Whether predictions mean what they say: the calibration curve, in bins of equal mass.

Fine bins of a histogram are merged into GROUPS groups with about as many rows each, so that no
point of the curve rests on a few rows. A fine bin belongs to the group in which its middle row is.

    ECE = Σ_g n_g·|mean predicted − observed share| / Σ_g n_g

is then comparable between models whose probabilities are spread out differently [Nixon19].
"""

from dataclasses import dataclass

import torch
from torch import Tensor

GROUPS = 10


@dataclass(frozen=True)
class Curve:
    """Points of a calibration curve, from the lowest prediction to the highest."""

    predicted: tuple[float, ...]
    observed: tuple[float, ...]
    rows: tuple[float, ...]

    @classmethod
    def of(cls, predicted: Tensor, observed: Tensor, rows: Tensor) -> "Curve":
        """Return the curve of means, each (groups,), without groups that have no rows."""
        own = rows > 0
        return cls(*(tuple(each[own].tolist()) for each in (predicted, observed, rows)))

    def ece(self) -> float:
        """Return the mean distance from the diagonal, in the unit of the prediction."""
        points = zip(self.predicted, self.observed, self.rows, strict=True)
        return sum(n * abs(p - o) for p, o, n in points) / sum(self.rows)


def merged(counts: Tensor, *columns: Tensor, groups: int = GROUPS) -> tuple[Tensor, ...]:
    """Return sums of columns (…, bins) over groups of bins with about as many rows each.

    counts: (bins,) rows. Each result has shape (…, groups).

    >>> counts = torch.tensor([3.0, 3.0, 0.0, 6.0])
    >>> merged(counts, counts, groups=2)[0].tolist()
    [6.0, 6.0]
    """
    middles = (counts.cumsum(0) - counts / 2) / counts.sum()
    group = (middles * groups).floor().clamp(0, groups - 1).long()
    return tuple(
        torch.zeros(*own.shape[:-1], groups, dtype=torch.float64).index_add(-1, group, own.double())
        for own in columns
    )


def curve(chances: Tensor, without: Tensor, with_event: Tensor) -> Curve:
    """Return the curve of probabilities (bins,) from rows without and with the event by bin."""
    rows = without + with_event
    n, said, seen = merged(rows, rows, rows * chances, with_event)
    return Curve.of(said / n, seen / n, n)
