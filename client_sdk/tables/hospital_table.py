"""A hospital's table as the algorithms read it, and the digest that binds it.

The digest covers the rows and how they are dealt to parts. Two sessions over one table with
different secrets or different held-out shares sum different training rows: the difference between
their sums reveals the patients that moved. A table that is dealt differently therefore counts as
another table, which a named person must approve.
"""

import struct
from dataclasses import dataclass

import torch

from client_sdk.tables.reading import read_records, read_site
from client_sdk.tables.summary import TableSummary, summarise
from kernels.rounds.plan import site_dealing
from kernels.rounds.program import Program
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.site import Part, Site
from kernels.tables.problems import LeavingOut, RowByRow
from kernels.tables.row_hashes import row_keys
from privacy.framing import Label, digest


@dataclass(frozen=True)
class HospitalTable:
    """The rows dealt to parts, their digests, and the counts for the policy.

    digest: 32 bytes that change if any row or its part changes.
    journalled: 32 bytes for table and changes together, recorded with everything that leaves.
    rows: 32 bytes for the rows alone, however they are dealt.
    dealing: 32 bytes for how they are dealt, by which the ledger tells parts apart.
    row_by_row: with differential privacy, how invalid cells were handled; shown only here.
    without_target: rows that were left out because a target is missing; shown only here.
    """

    site: Site
    digest: bytes
    summary: TableSummary
    journalled: bytes
    rows: bytes
    dealing: bytes
    row_by_row: RowByRow | None
    without_target: int = 0

    @property
    def counts(self) -> dict[Part, int]:
        """The number of rows of each part, including rows to add and to remove."""
        return {part: len(own) for part, own in self.site.parts.items()}


@dataclass(frozen=True)
class Changes:
    """Rows that an update adds to a model and removes from it: tables of any type, or None."""

    added: object = None
    removed: object = None

    def __bool__(self) -> bool:
        """Return whether there are any changes."""
        return self.added is not None or self.removed is not None


def site_of(
    program: Program,
    data: object,
    dealing: Dealing,
    *,
    changes: Changes | None = None,
) -> HospitalTable:
    """Check a whole table against the program's schema, and deal its rows to parts.

    Rows that an update adds or removes are dealt as the table's are: a row is removed from what its
    part is in. Rows without a target are left out. With differential privacy invalid cells are
    clipped or their rows left out, which is not reported to anyone else. The digest is that of the
    table without changes, so it still matches what was summed before.
    """
    row_by_row = None if program.privacy is None else RowByRow()
    site = read_site(
        data,
        program.schema,
        held_out=program.held_out,
        dealing=dealing,
        row_by_row=row_by_row,
    )
    dealt = struct.pack(">d", program.held_out), dealing.commitment
    rows = site.digest
    bound, summary = digest(Label.TABLE, rows, *dealt), summarise(site)
    changes = changes or Changes()
    changed, without_target = [], site.without_target
    for part, held_out, table in (
        (Part.ADDED, Part.ADDED_HELD_OUT, changes.added),
        (Part.REMOVED, Part.REMOVED_HELD_OUT, changes.removed),
    ):
        if table is None:
            changed.append(b"")
            continue
        problems = LeavingOut() if row_by_row is None else row_by_row
        before = problems.without_target
        records = read_records(table, program.schema, problems=problems)
        without_target += problems.without_target - before
        changed.append(Site({Part.TRAINING: records}).digest)
        if program.privacy is not None:
            site.parts[part] = records  # with noise all of them are for training
            continue
        training = torch.from_numpy(
            dealing.parts(row_keys(records), held_out=program.held_out) == 0
        )
        site.parts[part], site.parts[held_out] = records.take(training), records.take(~training)
    journalled = digest(Label.TABLE, bound, *changed)
    identity = site_dealing(program, commitment=dealing.commitment, table=bound)
    return HospitalTable(
        site, bound, summary, journalled, rows, identity, row_by_row, without_target
    )
