"""The steady-cohort rule: without differential privacy, one set of members and one table.

Σ over U minus Σ over U without u is u's vector, and a coordinator can always pretend that u did not
answer. So at its first upload a data source is bound to the epoch's members S and to its table,
across runs, sessions and coordinators. From then on the client uploads, certifies, reveals and
opens shares only if epoch members = active = survivors = S and the table is the same, in one open
epoch at a time.

Another S requires a proof that nothing was released under the old sets. Otherwise it requires, for
*every* set that was released from this source before, the consent of every member of its symmetric
difference with the new set, and the approval of the client's own operator. The approval matters
because a member in all sets is in no difference, yet {c,1,2} + {c,3,4} − {c,1,2,3,4} = c. Another
table requires the operator's approval.
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
    SameTable,
    TableChanged,
)
from privacy.securesum.journal import EpochEntry, Journal, SourceEntry
from privacy.securesum.messages import Consent
from privacy.securesum.records import Bound, CohortApproved, TableApproved, Uploaded


def bind_for_upload(
    journal: Journal, entry: EpochEntry, epoch: Epoch, active: tuple[int, ...], table: bytes
) -> Bound | None:
    """Refuse an upload that breaks the rule; return the record that binds the source, if new."""
    if epoch.terms.differential_privacy:
        return None
    check_one_open_epoch(journal, entry)
    check_whole_cohort(epoch, active)
    binding = Bound(
        source=entry.source,
        session=epoch.terms.session,
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
    check_same_members(source, epoch)
    return binding


def check_table(journal: Journal, source: str, table: bytes) -> None:
    """Refuse a table that could not be uploaded from, before an epoch is entered with it."""
    known = journal.sources.get(source)
    if known is None:
        check_new_table(journal, table)
    else:
        check_same_table(known, table)


def check_still_bound(
    journal: Journal, entry: EpochEntry, epoch: Epoch, upload: Uploaded, survivors: tuple[int, ...]
) -> None:
    """Refuse to certify, reveal or open shares if an upload would no longer be allowed."""
    if epoch.terms.differential_privacy:
        return
    check_whole_cohort(epoch, survivors)
    source = journal.sources[entry.source]
    check_same_table(source, upload.table)
    if not _in_force(source, epoch):
        raise CohortChanged(
            "The data source was bound to other members after this upload; this sum is not "
            "completed."
        )


def check_one_open_epoch(journal: Journal, entry: EpochEntry) -> None:
    """Refuse a second epoch while the same data source has uploads in another open one."""
    for other in journal.epochs.values():
        if other is entry or other.source != entry.source or other.ended or not other.uploads:
            continue
        if other.epoch is not None and not other.epoch.terms.differential_privacy:
            raise EpochStillOpen(
                f"The data source {entry.source!r} has uploads in epoch {other.name[2]} of run "
                f"{other.name[1].hex()}, which is still open at this client. End that epoch first."
            )


def check_whole_cohort(epoch: Epoch, ranks: tuple[int, ...]) -> None:
    """Refuse a sum over only some of the members."""
    if ranks != epoch.everyone:
        raise PartialCohort(
            f"Only {len(ranks)} of {epoch.size} members would be summed. Without differential "
            "privacy, the difference between a sum over all members and one over some exposes the "
            "rest: wait for them."
        )


def check_new_table(journal: Journal, table: bytes) -> None:
    """Refuse a table under a second name: the rule would not recognise that it is the same."""
    for name, other in journal.sources.items():
        if table in other.tables:
            raise SameTable(
                f"This table was summed before as the data source {name!r}; use that name for it."
            )


def check_same_table(source: SourceEntry, table: bytes) -> None:
    """Refuse a table other than the one that was bound or approved last."""
    if table != source.tables[-1]:
        raise TableChanged(
            "The table is not the one that was summed before: the difference of the sums would "
            "expose the rows that changed. An operator of this site can approve the new table, "
            "giving a name."
        )


def check_same_members(source: SourceEntry, epoch: Epoch) -> None:
    """Refuse members other than those bound before, unless the change was approved."""
    if source.approved != (epoch.terms.session, frozenset(epoch.members)):
        raise CohortChanged(
            f"The data source was summed with {len(source.bindings[-1].members)} members, and the "
            f"{epoch.size} members of this epoch are not the same: the difference of the sums "
            "would expose the members in only one of the sets. They must sign their consent, and "
            "an operator of this site must approve it."
        )


def approve_cohort(
    journal: Journal,
    source: str,
    session: bytes,
    members: Iterable[bytes],
    consents: Iterable[Consent],
    approved_by: str,
) -> CohortApproved:
    """Refuse a change of members without its consents; return the record that allows it."""
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
                    f"The difference between the {len(earlier.members)} members summed before and "
                    f"the {len(new)} new ones exposes a member that has not signed its consent for "
                    "this session."
                )
    return CohortApproved(source, session, tuple(sorted(new)), approved_by)


def approve_table(journal: Journal, source: str, table: bytes, approved_by: str) -> TableApproved:
    """Return the record that allows another table."""
    _entry(journal, source)
    check_approved_by(approved_by)
    return TableApproved(source, table, approved_by)


def check_approved_by(name: str) -> None:
    """Refuse an approval without a name."""
    if not name.strip():
        raise ApprovalMissing(
            "`approved_by` must name the operator of this site who approves the change; it is "
            "empty."
        )


def _in_force(source: SourceEntry, epoch: Epoch) -> bool:
    """Return whether the last binding is the one of this epoch."""
    return source.bindings[-1].members == frozenset(epoch.members)


def _entry(journal: Journal, source: str) -> SourceEntry:
    entry = journal.sources.get(source)
    if entry is None:
        raise ApprovalMissing(
            f"The data source {source!r} has not been summed yet, so there is nothing to approve."
        )
    return entry
