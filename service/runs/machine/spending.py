"""What a run spends of its session's privacy budget.

A sum is charged before any member receives its task, and only if the budget also allows the rest of
the run: otherwise it would be spent on a run that ends without a model. A lost sum stays charged,
and is repeated only if the budget also allows the repetition and the rest of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kernels.rounds.plan import release_plan
from kernels.rounds.program import Program
from privacy.accounting.events import Release
from privacy.accounting.promises import promised
from privacy.errors import BudgetExceeded
from privacy.ledger import Entry, Ledger
from privacy.securesum.terms import Terms


@dataclass(frozen=True, eq=False)
class Spending:
    """The ledger of a session during its one open run.

    run: the run's id. stage: the stage of the last charged sum, or of the run's start or reload.
    """

    ledger: Ledger
    run: str
    program: Program
    terms: Terms
    stage: int

    def charged(self, entry: Entry, *, stage: int) -> "Spending":
        """Return the spending after a sum, which must be affordable with the rest of the run."""
        after = replace(self, ledger=self.ledger.charge(entry), stage=stage)
        after.ledger.affords(after._rest)
        return after

    @cached_property
    def can_repeat(self) -> bool:
        """Whether the budget allows to repeat the last sum and then the rest of the run."""
        if not self.ledger.entries:
            return False
        try:
            self.ledger.affords([self.ledger.entries[-1].release, *self._rest])
        except BudgetExceeded:
            return False
        return True

    @property
    def _rest(self) -> Sequence[Release]:
        """The releases of the run that are not charged yet."""
        plan = release_plan(self.program)
        here, *later = plan.stages[self.stage :]
        done = sum(
            entry.run == self.run and entry.release.statistic == here.algorithm
            for entry in self.ledger.entries
        )
        left = replace(here, sums=max(0, here.sums - done))
        return promised(replace(plan, stages=(left, *later)), honest=self.terms.honest)
