"""What a run spends of its session's budget.

A sum is charged before anyone hears of it, and only where the rest of the run is affordable with
it: or it would be spent on a run that ends without a model. A sum that is lost was spent, and is
repeated only where that, too, leaves enough for the rest.
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
    """The ledger of a session, as its one run at a time draws on it.

    run: its id. stage: of the sum that was charged last, or that the run began or was restored at.
    """

    ledger: Ledger
    run: str
    program: Program
    terms: Terms
    seed: int
    stage: int

    def charged(self, entry: Entry, *, stage: int) -> "Spending":
        """Charge a sum of a stage; refused if it, with the rest of the run, is too much."""
        after = replace(self, ledger=self.ledger.charge(entry), stage=stage)
        after.ledger.affords(after._rest)
        return after

    @cached_property
    def can_repeat(self) -> bool:
        """Whether the budget allows the last sum once more, and then the rest of the run."""
        if not self.ledger.entries:
            return False
        try:
            self.ledger.affords([self.ledger.entries[-1].release, *self._rest])
        except BudgetExceeded:
            return False
        return True

    @property
    def _rest(self) -> Sequence[Release]:
        """What the run would still release, after what the ledger has of it."""
        plan = release_plan(self.program, self.seed)
        here, *later = plan.stages[self.stage :]
        done = sum(
            entry.run == self.run and entry.release.statistic == here.algorithm
            for entry in self.ledger.entries
        )
        left = replace(here, sums=max(0, here.sums - done))
        return promised(replace(plan, stages=(left, *later)), honest=self.terms.honest)
