"""A mean over sites, from two blocks of one sum: weighted values, and weights.

The coordinator divides the first by the second. It sees neither a site's value nor its weight.
"""

from enum import StrEnum

import numpy as np

from kernels.errors import StatisticsError
from kernels.model.model import Model
from kernels.rounds.algorithm import Contribution
from kernels.rounds.site.made_up import made_up_site
from kernels.rounds.site.site import Part, Site
from privacy.layout import Block, SecureTotal

CHANGE_RESOLUTION = 2.0**-20
"""The coarsest step of a change of parameters: any mean is a valid model, and later sums are
computed at the mean that was actually taken."""

SITES = Block("sites", (), 1.0, 1.0)
"""The number of sites with training rows: the total weight if every site counts the same."""


class Weighting(StrEnum):
    """How a site is weighted in the mean."""

    SITES = "sites"
    """Every site counts the same, as in [FedBNR]."""
    ROWS = "rows"
    """Every site counts in proportion to its training rows."""

    def weight(self, rows: int) -> int:
        """Return the weight of a site with `rows` training rows; 0 if it has none."""
        return rows if self is Weighting.ROWS else min(rows, 1)


def trainable(site: Site, model: Model) -> Site:
    """Return the site to train at: a site without training rows trains on made-up rows.

    What it finds is not sent (`of_site`), but it takes the same path as a site with rows.
    """
    return site if site.count(Part.TRAINING) else made_up_site(model)


def of_site(site: Site, contribution: Contribution) -> Contribution:
    """Return a site's contribution: all zeros if it has no training rows."""
    if site.count(Part.TRAINING):
        return contribution
    return {name: np.zeros(np.shape(own)) for name, own in contribution.items()}


def total_weight(total: SecureTotal, block: str = SITES.name) -> float:
    """Return the total weight to divide by; refuse a sum in which no site has training rows."""
    weight = float(total[block])
    if weight < 0.5:
        raise StatisticsError("no site has rows to train on: lower the program's held_out")
    return weight
