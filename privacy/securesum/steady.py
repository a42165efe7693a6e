"""The steady-cohort rule: without differential privacy, one set of members and one table.

Σ over U minus Σ over U without u is u's vector, and a coordinator can always pretend that u fell
silent. So a data source is bound, at its first upload and across runs, sessions and coordinators,
to the epoch's members S and to its table. From then on the client uploads, certifies, reveals and
opens shares only where epoch members = active = survivors = S and the table is the same, in one
open epoch at a time.

Another S needs a proof that nothing was released under the old ones, or, for *every* set that was
released from this source before, the consent of every member of its symmetric difference with the
new one, and the approval of the client's own operator: a member in all sets is in no difference,
yet {c,1,2} + {c,3,4} − {c,1,2,3,4} = c. Another table needs the operator's approval.

A session that allows shrinking gives the rule up inside itself, for members who all accepted
that; a source bound outside it stays outside, because those it was summed with there did not.
"""

from collections.abc import Iterable

from privacy.securesum.epoch import Epoch
from privacy.securesum.errors import (
    ApprovalMissing,
    CohortChanged,
    ConsentMissing,
    EpochStillOpen,
    ForgedConsent,
    PartialCohort,
    RuleChanged,
    SameTable,
    TableChanged,
)
from privacy.securesum.journal import EpochEntry, Journal, SourceEntry
from privacy.securesum.messages import Consent
from privacy.securesum.records import Bound, CohortApproved, TableApproved, Uploaded


def bind_for_upload(
    journal: Journal, entry: EpochEntry, epoch: Epoch, active: tuple[int, ...], table: bytes
) -> Bound | None:
    """Allow an upload or refuse it; give the record that binds the source, if it is not bound."""
    if epoch.terms.differential_privacy:
        return None
    check_one_open_epoch(journal, entry)
    check_whole_cohort(epoch, active)
    binding = Bound(
        source=entry.source,
        session=epoch.terms.session,
        shrinking=epoch.terms.allow_shrinking,
        members=epoch.members,
        table=table,
    )
    source = journal.sources.get(entry.source)
    if source is None:
        check_new_table(journal, table)
        return binding
    check_same_table(source, table)
    if _in_force(source, epoch):
        return None
    if not any(earlier.released for earlier in source.bindings):
        return binding
    check_same_rule(source, epoch)
    check_same_members(source, epoch)
    return binding


def check_still_bound(
    journal: Journal, entry: EpochEntry, epoch: Epoch, upload: Uploaded, survivors: tuple[int, ...]
) -> None:
    """Refuse to certify, reveal or open shares where an upload would no longer be allowed."""
    if epoch.terms.differential_privacy:
        return
    check_whole_cohort(epoch, survivors)
    source = journal.sources[entry.source]
    check_same_table(source, upload.table)
    if not _in_force(source, epoch):
        raise CohortChanged("The data source has since been bound to other members.")


def check_one_open_epoch(journal: Journal, entry: EpochEntry) -> None:
    """Refuse a second epoch beside one in which the same data source has uploads."""
    for other in journal.epochs.values():
        if other is entry or other.source != entry.source or other.ended or not other.uploads:
            continue
        if other.epoch is not None and not other.epoch.terms.differential_privacy:
            raise EpochStillOpen(
                f"{entry.source!r} has uploads in epoch {other.name[2]} of run "
                f"{other.name[1].hex()}, which is still open here. End that one first."
            )


def check_whole_cohort(epoch: Epoch, ranks: tuple[int, ...]) -> None:
    """Refuse a sum over some of the members only, unless the session allows shrinking."""
    if ranks != epoch.everyone and not epoch.terms.allow_shrinking:
        raise PartialCohort(
            f"{len(ranks)} of {epoch.size} members would be summed. Without differential privacy "
            "a sum over all and one over some give away the rest: wait for them."
        )


def check_new_table(journal: Journal, table: bytes) -> None:
    """Refuse a table under a second name: the rule would not see that it is the same."""
    for name, other in journal.sources.items():
        if table in other.tables:
            raise SameTable(f"This table was summed before as {name!r}; use that name for it.")


def check_same_table(source: SourceEntry, table: bytes) -> None:
    """Refuse another table than the one the source was bound with, or was approved last."""
    if table != source.tables[-1]:
        raise TableChanged(
            "The table is not the one that was summed before: the difference would be the rows "
            "that changed. An operator can approve it by name."
        )


def check_same_rule(source: SourceEntry, epoch: Epoch) -> None:
    """Keep sums under the rule and sums of a shrinking session apart."""
    last = source.bindings[-1]
    if last.shrinking != epoch.terms.allow_shrinking or (
        last.shrinking and last.session != epoch.terms.session
    ):
        raise RuleChanged(
            "The data source was summed under the steady-cohort rule and this session gives it "
            "up, or the reverse: members who did not accept that would be exposed."
        )


def check_same_members(source: SourceEntry, epoch: Epoch) -> None:
    """Refuse members that differ from those bound before, unless all of them agreed to it."""
    if epoch.terms.allow_shrinking:
        return
    if source.approved != (epoch.terms.session, frozenset(epoch.members)):
        raise CohortChanged(
            f"The data source was summed with {len(source.bindings[-1].members)} members, and "
            f"this epoch has {epoch.size}, not the same: the difference would expose those in one "
            "set only. They must sign that, and the operator approve it."
        )


def approve_cohort(
    journal: Journal,
    source: str,
    session: bytes,
    members: Iterable[bytes],
    consents: Iterable[Consent],
    approved_by: str,
) -> CohortApproved:
    """Check all that a change of members needs; give the record that allows it."""
    new = frozenset(members)
    entry = _entry(journal, source)
    check_approved_by(approved_by)
    given = set()
    for consent in consents:
        consent.check_signed_by(consent.identity, ForgedConsent, "Consent")
        if consent.session == session:
            given.add((frozenset(consent.old), frozenset(consent.new), consent.identity))
    for earlier in entry.bindings:
        if not earlier.released:
            continue
        for member in earlier.members ^ new:
            if (earlier.members, new, member) not in given:
                raise ConsentMissing(
                    f"The difference between a set of {len(earlier.members)} summed before and "
                    f"the new one of {len(new)} exposes a member that has not signed it for this "
                    "session."
                )
    return CohortApproved(source, session, tuple(sorted(new)), approved_by)


def approve_table(journal: Journal, source: str, table: bytes, approved_by: str) -> TableApproved:
    """Give the record that allows another table."""
    _entry(journal, source)
    check_approved_by(approved_by)
    return TableApproved(source, table, approved_by)


def check_approved_by(name: str) -> None:
    """Refuse an approval without a name."""
    if not name.strip():
        raise ApprovalMissing("A change is approved by an operator of this site, by name.")


def _in_force(source: SourceEntry, epoch: Epoch) -> bool:
    """Whether the last binding is this epoch's own."""
    last = source.bindings[-1]
    same_rule = last.shrinking == epoch.terms.allow_shrinking and (
        not last.shrinking or last.session == epoch.terms.session
    )
    return same_rule and last.members == frozenset(epoch.members)


def _entry(journal: Journal, source: str) -> SourceEntry:
    entry = journal.sources.get(source)
    if entry is None:
        raise ApprovalMissing(f"{source!r} is not bound to anything yet; nothing is to approve.")
    return entry
