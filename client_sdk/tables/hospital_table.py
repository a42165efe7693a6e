"""A hospital's table as its half of the algorithms sees it, and the digest that binds it.

The digest is of the rows and of how they are dealt. Two sessions over one table with another seed,
or another share held out, sum other training rows: the difference of their sums is the patients
that moved. So a table that is dealt otherwise is another table, which an operator approves by name.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from client_sdk.tables import TableSummary, read_records, read_site, summarise
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part, Site
from kernels.tables.problems import RowByRow
from privacy.framing import Label, digest


@dataclass(frozen=True)
class HospitalTable:
    """Rows in parts, 32 bytes that are others if any row or its part is, and counts for policies.

    journalled: 32 bytes of table and changes together, written beside all that leaves.
    rows: 32 bytes of the rows alone, however they are dealt.
    row_by_row: with differential privacy, what was done about bad cells; for the operator alone.
    """

    site: Site
    digest: bytes
    summary: TableSummary
    journalled: bytes
    rows: bytes
    row_by_row: RowByRow | None


@dataclass(frozen=True)
class Changes:
    """Rows that an update adds to a model and takes from it: tables of any kind, or None."""

    added: object = None
    removed: object = None

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.added is not None or self.removed is not None


def site_of(
    program: Program,
    data: object,
    seed: int,
    *,
    consents: Iterable[str] = (),
    changes: Changes | None = None,
) -> HospitalTable:
    """Check a table against the program's schema, all of it, and deal its rows.

    With differential privacy bad cells are clipped, or their rows left out, and nobody else hears.
    The digest is that of the table without changes: what was summed before is still the same.
    """
    row_by_row = None if program.privacy is None else RowByRow()
    site = read_site(
        data,
        program.schema,
        held_out=program.held_out,
        seed=seed,
        consents=consents,
        row_by_row=row_by_row,
    )
    dealt = struct.pack(">d", program.held_out), str(seed).encode()
    rows = site.digest
    bound, summary = digest(Label.TABLE, rows, *dealt), summarise(site)
    changes = changes or Changes()
    for part, table in ((Part.ADDED, changes.added), (Part.REMOVED, changes.removed)):
        if table is not None:
            site.parts[part] = read_records(table, program.schema, row_by_row=row_by_row)
    changed = (
        Site({Part.TRAINING: site.parts[part]}).digest if part in site.parts else b""
        for part in (Part.ADDED, Part.REMOVED)
    )
    journalled = digest(Label.TABLE, bound, *changed)
    return HospitalTable(site, bound, summary, journalled, rows, row_by_row)
