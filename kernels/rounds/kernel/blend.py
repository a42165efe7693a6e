"""The mixture of the two best kernels of a search, and the share of the second in it.

Each share on a grid is judged as a kernel alone is, by the density of held-out rows under what
would be served: the Gaussian of the mixture (`kernels.model.second`), with the law of residuals
that recalibration would give it. A mixture costs a second kernel at every prediction, and one of
several shares is the densest by chance. So it must be better than the best kernel alone by more
than LEAST_GAIN in all, where the log of 4s(1 − s) is added to the density: a prior that is 1 at
s = 1/2. Its handicap lies between those of both recipes, in proportion to its share.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kernels.model.model import Model
from kernels.model.prediction import mixed, predict_standardised
from kernels.model.second import SHARES
from kernels.reproducible import near
from kernels.rounds.kernel.densities import (
    DENSITY_STEP,
    Residuals,
    density_blocks,
    held_out_chunks,
    held_out_rows,
    loss,
    rows_judged,
)
from kernels.rounds.site.site import Site
from privacy.layout import Block, SecureTotal

LEAST_GAIN = 1.0
"""Nats by which a mixture must be better than a kernel alone, on all held-out rows (Akaike)."""


def shares() -> Iterator[float]:
    """Yield the shares that are tried."""
    yield from (index / SHARES for index in range(1, SHARES))


def densest(losses: Sequence[float | None]) -> tuple[int, int] | None:
    """Return the positions of the least loss and of the next, if there are two."""
    found = sorted((own, index) for index, own in enumerate(losses) if own is not None)
    return None if len(found) < 2 else (found[0][1], found[1][1])


def mixture_blocks(model: Model) -> list[Block]:
    """Return the blocks of the densities under a mixture, those of all shares side by side."""
    return [
        Block(_prefix(share) + own.name, own.shape, own.bound, own.resolution)
        for share in shares()
        for own in density_blocks(model)
    ]


def judged_mixtures(first: Model, second: Model, site: Site) -> dict[str, NDArray[np.float64]]:
    """Sum what the densities of a site's held-out rows under each mixture follow from."""
    found = {share: Residuals(first.targets) for share in shares()}
    for x, y, fold in held_out_chunks(first, site):
        said = [predict_standardised(own, x) for own in (first, second)]
        for share, own in found.items():
            own.add(mixed(said, (1 - share, share)), y, fold)
    rows = held_out_rows(first, site)
    return {
        _prefix(share) + name: each
        for share, own in found.items()
        for name, each in {"held_out": rows, **own.blocks()}.items()
    }


def mixture_losses(
    model: Model, total: SecureTotal, handicaps: tuple[float, float]
) -> tuple[float, ...]:
    """Return −log density per held-out row under each mixture, rounded."""
    one, other = handicaps
    return tuple(
        loss(model, total.part(_prefix(share)), (1 - share) * one + share * other)
        for share in shares()
    )


def rows_mixed(total: SecureTotal) -> int:
    """Return the number of held-out rows that mixtures were judged by."""
    return rows_judged(total.part(_prefix(next(shares()))))


def best_share(losses: Sequence[float], alone: float, rows: int) -> float | None:
    """Return the share of the best mixture, or None if the best kernel alone is kept.

    losses: of the mixtures, per held-out row. alone: of the best kernel. rows: how many there are.
    """
    gains = {
        share: rows * (alone - own) + near(math.log(4 * share * (1 - share)), DENSITY_STEP)
        for share, own in zip(shares(), losses, strict=True)
    }
    best = max(gains, key=lambda share: gains[share])
    return best if gains[best] > LEAST_GAIN else None


def _prefix(share: float) -> str:
    return f"{round(share * SHARES)}."
