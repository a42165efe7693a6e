"""A hospital's table as its half of the algorithms sees it, and the digest that binds it."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from client_sdk.errors import TableNotRead
from kernels.records import Records
from kernels.rounds.program import Program
from kernels.rounds.site import Part, Site


@dataclass(frozen=True)
class TableSummary:
    """Counts that the site's policy asks for, made and kept at the site.

    level_rows: for each categorical column, the training rows of each level that any of them has.
    """

    training_rows: int
    level_rows: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class HospitalTable:
    """Rows in parts, 32 bytes that are others if any row is, and what the policy asks for."""

    site: Site
    digest: bytes
    summary: TableSummary


def site_of(
    program: Program, data: object, seed: int, *, consents: Iterable[str] = ()
) -> HospitalTable:
    """Check a table against the program's schema, all of it, and deal its rows."""
    if not isinstance(data, Mapping):
        raise TableNotRead("a table is a mapping from column names to arrays")
    site = Site.of_table(program.schema, data, held_out=program.held_out, seed=seed)
    site.consents = frozenset(consents)
    return HospitalTable(site, _digest(site), _summary(site))


def _summary(site: Site) -> TableSummary:
    training = site.records[Part.TRAINING]
    found = zip(training.schema.categorical, training.levels.unbind(1), strict=True)
    counted = {
        column.name: {
            level: int((codes == position).sum()) for position, level in enumerate(column.levels)
        }
        for column, codes in found
    }
    return TableSummary(
        len(training),
        {name: {k: rows for k, rows in own.items() if rows} for name, own in counted.items()},
    )


def _digest(site: Site) -> bytes:
    """Hash the rows whatever their order, and whatever part they were dealt to."""
    records = Records.concatenate(list(site.records.values()))
    columns = [records.numeric, records.missing.double(), records.levels.double()]
    columns += [] if records.targets is None else [records.targets]
    rows = [row.tobytes() for row in torch.cat(columns, 1).numpy()]
    if records.patients is not None:
        rows = [row + who.encode() for row, who in zip(rows, records.patients, strict=True)]
    whole = hashlib.sha256(records.schema.to_json().encode())
    for digest in sorted(hashlib.sha256(row).digest() for row in rows):
        whole.update(digest)
    return whole.digest()
