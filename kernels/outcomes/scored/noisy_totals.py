"""The noisy totals that scores of an outcome were made from, as far as the scores show them.

`Sums.from_noisy` repairs the totals of `few_blocks` and spreads them over finer bins. Here they are
put together again: the same histograms, repaired. With noise drawn a second time they show how much
noise moves a score (`kernels.model.score_errors`).

Losses are summed as shares of the most that a row may add, and the bins of a count are some of the
fine ones. Which they are, and how much a share is, `from_noisy` shows: it is asked what becomes of
one row in every bin that has all of every loss.
"""

from typing import Any

import torch
from torch import Tensor

from kernels.outcomes.scored.conformal import Covered
from kernels.outcomes.scored.kinds import kind_of
from kernels.outcomes.scored.logit_bins import COARSE, FINE, MEDIUM
from kernels.tables.targets import Binary, Classes, Count, Outcome

Totals = dict[str, Tensor]


def totals_of_scores(target: Outcome, sums: Any) -> Totals:
    """Return the totals of an outcome's `few_blocks` from sums that `from_noisy` has made."""
    match target:
        case Binary():
            return {"scores": _coarse(sums.scores)}
        case Classes():
            losses = _shares(target, sums, "log_losses", "briers")
            return {"confusion": sums.confusion, "tops": _coarse(sums.tops), "losses": losses}
        case Count():
            losses = _shares(target, sums, "deviances", "log_losses", "squared_errors")
            bins = _asked(target).rows > 0
            by_mean = torch.stack(
                [sums.rows, sums.counts / target.upper, sums.means / target.upper]
            )[:, bins]
            return {"transforms": sums.transforms, "losses": losses, "by_mean": by_mean}
    squares = torch.cat([sums.event_squares, sums.survivor_squares.unsqueeze(0)])
    return {"ends": _coarse(sums.ends), "squares": squares, "log_losses": sums.log_losses}


def totals_of_coverage(covered: Covered) -> Totals:
    """Return the counts of rows by the least level whose set has their outcome."""
    whole = torch.cat([covered.inside, covered.rows.reshape(1)])
    return {"least": whole.diff(prepend=whole.new_zeros(1))}


def _coarse(spread: Tensor) -> Tensor:
    """Return counts by the bins of COARSE from counts that were spread over finer ones."""
    bins = next(each for each in (FINE, MEDIUM) if each.count == spread.shape[-1])
    found = torch.zeros(*spread.shape[:-1], COARSE.count, dtype=torch.float64)
    return found.index_add(-1, COARSE.positions(bins.centres), spread)


def _shares(target: Outcome, sums: Any, *names: str) -> Tensor:
    """Return losses in units of the most that one row may add."""
    asked = _asked(target)
    rows = asked.row_count
    return torch.stack([getattr(sums, name) / getattr(asked, name) * rows for name in names])


def _asked(target: Outcome) -> Any:
    """Return what `from_noisy` makes of one row in every bin, each with all of every loss."""
    kind = kind_of(target).sums
    ones = {own.name: torch.ones(own.shape).double() for own in kind.few_blocks(target)}
    most = max(own.numel() for own in ones.values())
    return kind.from_noisy(target, ones | {"losses": torch.full_like(ones["losses"], float(most))})
