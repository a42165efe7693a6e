"""Rows that are summed together, in the words of a refusal.

Floors are about rows whose products are in one sum (docs/threats.md A12). Mostly these are the
training rows. A stage such as `completion` sums the held-out rows without the others, which are
fewer: the refusal then says which rows are too few, how many there would have to be, and what to
ask for instead.
"""

import math
from dataclasses import dataclass

from kernels.rounds.site.parts import Part


@dataclass(frozen=True)
class RowsInASum:
    """`rows` of these parts are summed together by an algorithm, `stage`.

    share: the share of a table's rows that is dealt to these parts, on average.
    """

    parts: frozenset[Part]
    rows: int
    stage: str
    share: float

    @property
    def trained(self) -> bool:
        """Whether they are the training rows, without which no session has a purpose."""
        return self.parts == {Part.TRAINING}

    @property
    def nothing(self) -> bool:
        """Whether no row of this site is in such a sum, and there is nothing to refuse."""
        return not (self.rows or self.trained)

    @property
    def words(self) -> str:
        """What they are called: `30 training rows`, without the number."""
        if self.trained:
            return "training rows"
        return f"held-out rows (for {' and '.join(sorted(self.parts, reverse=True))})"

    @property
    def summed(self) -> str:
        """Who sums them, as a clause after `words`; empty for training rows."""
        return "" if self.trained else f", which {self.stage!r} sums without the training rows"

    def instead(self, *, least: float, fewer: str = "") -> str:
        """Return what to ask for, so that at least `least` rows are summed or none of these."""
        if self.trained:
            smaller = f"with {fewer}, or one " if fewer else ""
            return (
                f"Ask for a session {smaller}with differential privacy, which needs no least rows."
            )
        others = f", or for one with {fewer}" if fewer else ""
        enough = (
            f" With this session's share held out, {self.share:.0%}, a table of about "
            f"{math.ceil(least / self.share):,} rows has enough."
            if self.share and least
            else ""
        )
        return (
            f"Ask for a session without the stage {self.stage!r}, in which held-out rows are only "
            f"scored{others}.{enough}"
        )
