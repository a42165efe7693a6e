"""Who takes part in a run's sums, and who is done without.

Two sums that differ by one member are that member's numbers. So without differential privacy
everyone on the roster takes part in every sum, and a run waits. With it noise covers the
difference, and a run goes on with whoever is there, at least max(quorum, `min_cohort`) in a sum:

    gathering   an epoch opens with all that are expected, or with enough of them after a time
    active      in the next sum: who gave its keys for the last one, and who has come back since
    left out    who has not uploaded in time; it is in the next sum again if it has come back
    refused     who will not go on; it is out for the rest of the run
"""

from dataclasses import dataclass, replace

from privacy.securesum.coordinator import Coordinator
from privacy.securesum.epoch import Epoch
from privacy.securesum.summation import Summation


@dataclass(frozen=True)
class Attendance:
    """What is known of members beyond what they have said in the present epoch; keys.

    returned: those left out of the sum under way that have asked since what is next.
    """

    refused: frozenset[bytes] = frozenset()
    returned: frozenset[bytes] = frozenset()

    def with_refusal(self, key: bytes) -> "Attendance":
        """Do without a member from here on."""
        return replace(self, refused=self.refused | {key}, returned=self.returned - {key})

    def with_return(self, key: bytes) -> "Attendance":
        """Have a member in the next sum again."""
        return replace(self, returned=self.returned | {key})

    def afresh(self) -> "Attendance":
        """Forget who has returned: a sum, or an epoch, begins."""
        return replace(self, returned=frozenset())

    # -- an epoch

    def expected(self, epoch: Coordinator) -> frozenset[bytes]:
        """Give whose adverts an epoch would best have."""
        return epoch.roster.keys - self.refused

    def can_open(self, epoch: Coordinator) -> bool:
        """Whether those that are there may sum."""
        return len(epoch.advertised) >= epoch.terms.min_cohort

    def ranks(self, epoch: Epoch) -> tuple[int, ...]:
        """Give the members of an epoch that have not refused."""
        return tuple(r for r in epoch.everyone if epoch.members[r] not in self.refused)

    def can_sum(self, epoch: Epoch) -> bool:
        """Whether enough of an epoch are left for any further sum of it."""
        return len(self.ranks(epoch)) >= least(epoch)

    # -- a sum

    def active(self, epoch: Epoch, last: Summation | None) -> tuple[int, ...]:
        """Choose who is asked for the next sum.

        Where too few were seen just now, everyone is asked: those that come back are waited for.
        """
        everyone = self.ranks(epoch)
        if last is None:
            return everyone
        there = set(last.revealed)
        seen = tuple(r for r in everyone if r in there or epoch.members[r] in self.returned)
        return seen if len(seen) >= least(epoch) else everyone

    def missing(self, slot: Summation) -> tuple[int, ...]:
        """Give whose vectors may still come."""
        return tuple(r for r in slot.dropped if slot.epoch.members[r] not in self.refused)

    def is_left_out(self, slot: Summation, key: bytes) -> bool:
        """Whether a member of the epoch has no further part in a sum, and has not returned yet."""
        epoch = slot.epoch
        if key not in epoch.members or key in self.refused or key in self.returned:
            return False
        rank = epoch.rank(key)
        dropped = slot.proposal is not None and rank in slot.dropped
        return dropped or rank not in slot.task.active


def least(epoch: Epoch) -> int:
    """Give how many members a sum of an epoch has at least."""
    return max(epoch.quorum, epoch.terms.min_cohort)


def enough(slot: Summation) -> bool:
    """Whether those whose vectors are there may be summed."""
    return len(slot.uploaded) >= least(slot.epoch)


def is_possible(attendance: Attendance, slot: Summation) -> bool:
    """Whether enough vectors are there or may still come."""
    return len(slot.uploaded) + len(attendance.missing(slot)) >= least(slot.epoch)
