"""Which members take part in a run's sums.

The difference of two sums that differ by one member is that member's numbers. So without
differential privacy all members of the roster take part in every sum, and a run waits for them.
With differential privacy, noise covers the difference, and a run continues with the members that
are present, at least max(quorum, `min_cohort`) in a sum:

    gathering   an epoch opens with all expected members, or with enough of them after a time
    active      in the next sum: members that sent their keys for the last one or have come back
    left out    members that did not upload in time; in the next sum again if they come back
    refused     members that refuse to continue; out for the rest of the run
"""

from dataclasses import dataclass, replace

from privacy.securesum.coordinator import Coordinator
from privacy.securesum.epoch import Epoch
from privacy.securesum.summation import Summation


@dataclass(frozen=True)
class Attendance:
    """The keys of members that have refused or returned.

    returned: members left out of the current sum that have since requested their next item.
    """

    refused: frozenset[bytes] = frozenset()
    returned: frozenset[bytes] = frozenset()

    def with_refusal(self, key: bytes) -> "Attendance":
        """Return the attendance without a member that refuses."""
        return replace(self, refused=self.refused | {key}, returned=self.returned - {key})

    def with_return(self, key: bytes) -> "Attendance":
        """Return the attendance with a member that takes part in the next sum again."""
        return replace(self, returned=self.returned | {key})

    def afresh(self) -> "Attendance":
        """Return the attendance at the start of a sum or an epoch: nobody has returned yet."""
        return replace(self, returned=frozenset())

    # -- an epoch

    def expected(self, epoch: Coordinator) -> frozenset[bytes]:
        """Return the members from which an epoch expects adverts."""
        return epoch.roster.keys - self.refused

    def can_open(self, epoch: Coordinator) -> bool:
        """Whether enough members have advertised for a sum."""
        return len(epoch.advertised) >= epoch.terms.min_cohort

    def ranks(self, epoch: Epoch) -> tuple[int, ...]:
        """Return the ranks of an epoch's members that have not refused."""
        return tuple(r for r in epoch.everyone if epoch.members[r] not in self.refused)

    def can_sum(self, epoch: Epoch) -> bool:
        """Whether enough members of an epoch are left for another sum."""
        return len(self.ranks(epoch)) >= least(epoch)

    # -- a sum

    def active(self, epoch: Epoch, last: Summation | None) -> tuple[int, ...]:
        """Return the ranks of the members that the next sum expects.

        If too few were present in the last sum, all members are expected, and the sum waits for
        those that come back.
        """
        everyone = self.ranks(epoch)
        if last is None:
            return everyone
        there = set(last.revealed)
        seen = tuple(r for r in everyone if r in there or epoch.members[r] in self.returned)
        return seen if len(seen) >= least(epoch) else everyone

    def missing(self, slot: Summation) -> tuple[int, ...]:
        """Return the ranks of the members whose vectors may still arrive."""
        return tuple(r for r in slot.dropped if slot.epoch.members[r] not in self.refused)

    def is_left_out(self, slot: Summation, key: bytes) -> bool:
        """Whether a member of the epoch was left out of a sum and has not returned yet."""
        epoch = slot.epoch
        if key not in epoch.members or key in self.refused or key in self.returned:
            return False
        rank = epoch.rank(key)
        dropped = slot.proposal is not None and rank in slot.dropped
        return dropped or rank not in slot.task.active


def least(epoch: Epoch) -> int:
    """Return the least number of members in a sum of an epoch."""
    return max(epoch.quorum, epoch.terms.min_cohort)


def enough(slot: Summation) -> bool:
    """Whether enough vectors have arrived for a sum."""
    return len(slot.uploaded) >= least(slot.epoch)


def is_possible(attendance: Attendance, slot: Summation) -> bool:
    """Whether enough vectors have arrived or may still arrive."""
    return len(slot.uploaded) + len(attendance.missing(slot)) >= least(slot.epoch)
