"""A session's terms: parameters that every member accepts, part of every epoch's identifier.

    m            number of colluders tolerated, over the whole roster
    min_cohort   least number of members in a sum, at least m + 2 (and 3)
    blind        the coordinator adds totals up and cannot read them (privacy/blinding.py)
    members_only the finished model is for members only: the coordinator never has it
    q            quorum of an epoch of n members, ⌊(n + m)/2⌋ + 1; also the threshold of shares

Any two quorums of one epoch share at least 2q − n ≥ m + 1 members, so at least one honest member.

>>> [default_terms(bytes(16), n).quorum(n) for n in (5, 10, 100)]
[4, 7, 67]
"""

from dataclasses import dataclass
from typing import Annotated

from privacy.securesum.errors import TermsError
from privacy.securesum.wire import Flag, Message, Rank, Uuid

LEAST_COHORT = 3


@dataclass(frozen=True)
class Terms(Message):
    """What a session promises its members; fixed when it is made."""

    kind = 1

    session: Uuid
    max_colluders: Rank
    min_cohort: Rank
    differential_privacy: Annotated[bool, Flag()]
    blind: Annotated[bool, Flag()] = False
    members_only: Annotated[bool, Flag()] = False

    def check(self) -> None:
        """Refuse terms that protect nobody, or that contradict each other."""
        least = max(LEAST_COHORT, self.max_colluders + 2)
        if self.min_cohort < least:
            raise TermsError(
                f"`min_cohort` must be at least {least} with {self.max_colluders} colluders, not "
                f"{self.min_cohort}: otherwise colluders could see the vector of a single member."
            )

        if self.blind and self.differential_privacy:
            raise TermsError(
                "Blind sums need every member in every sum, and differential privacy lets members "
                "drop out: its noise covers open sums. Set `sums` to open."
            )
        if self.members_only and not self.blind:
            raise TermsError(
                "With open sums the coordinator computes the model, so it cannot be for members "
                "only. Set `sums` to blind, or `model` to served."
            )

    @property
    def honest(self) -> int:
        """The number of honest members in the smallest sum: their noise is relied on."""
        return self.min_cohort - self.max_colluders

    def quorum(self, members: int) -> int:
        """Return the number of signatures that close a slot, and of shares that give a key."""
        return (members + self.max_colluders) // 2 + 1


def default_terms(
    session: bytes,
    roster_size: int,
    *,
    differential_privacy: bool = False,
    blind: bool = False,
    members_only: bool = False,
) -> Terms:
    """Return terms that tolerate a third of the roster, with at least five members in a sum.

    With fewer than five on the roster, all of them must be in a sum.
    """
    colluders = (roster_size - 1) // 3
    cohort = max(5, colluders + 3)
    return Terms(
        session=session,
        max_colluders=colluders,
        min_cohort=max(min(cohort, roster_size), LEAST_COHORT, colluders + 2),
        differential_privacy=differential_privacy,
        blind=blind,
        members_only=members_only,
    )
