"""Rows identified by their content, regardless of their order and of the files they came from.

A row's hash is computed from its cells as the schema reads them (raw numbers, the mask of missing
ones, positions of levels, targets, the patient's hash): 32 bytes from BLAKE2b. A row's key is the
patient's hash, so that a patient's rows have one key, or the row's hash if the schema has no
patient column.

The digest of a table is SHA-256 of (the number of its rows, Σ of their hashes modulo 2²⁵⁶): it
does not depend on their order, and two equal rows count twice. All of this stays at the site.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from kernels.tables.records import Records

_ROW, _PATIENT = b"veilgp/row/1", b"veilgp/patient/1"


def row_keys(records: "Records") -> list[bytes]:
    """Return 32 bytes for each row, equal for the rows of one patient."""
    return _cells(records) if records.patients is None else _patients(records.patients)


def keys_and_hashes(records: "Records") -> tuple[list[bytes], list[bytes]]:
    """Return `row_keys` and the row hashes: 32 bytes for each row, equal for equal rows."""
    keys = row_keys(records)
    return keys, keys if records.patients is None else _cells(records, keys)


def words(keys: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return hashes as (n, 4) words of 64 bits."""
    return np.frombuffer(b"".join(keys), dtype="<u8").reshape(-1, 4)


@dataclass(frozen=True)
class Fingerprint:
    """The sum of the hashes of rows; `+` adds further rows."""

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, hashes: list[bytes]) -> "Fingerprint":
        """Return the sum of these row hashes."""
        halves = words(hashes).view("<u4").astype(np.uint64).sum(0, dtype=np.uint64)
        return cls(len(hashes), sum(int(half) << (32 * i) for i, half in enumerate(halves)))

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, self.total + other.total)

    def digest(self) -> bytes:
        """Return the table's digest, 32 bytes."""
        total = (self.total % 2**256).to_bytes(32, "big")
        return hashlib.sha256(b"veilgp/table/1" + self.rows.to_bytes(8, "big") + total).digest()


def _cells(records: "Records", patients: list[bytes] | None = None) -> list[bytes]:
    columns = [records.numeric, records.missing, records.levels]
    columns += [own for own in (records.targets, records.outcomes) if own is not None]
    # Adding 0.0 turns −0 into 0: they are the same number.
    cells = np.concatenate([column.numpy().astype("<f8") + 0.0 for column in columns], axis=1)
    packed = cells.view(np.uint8)
    if patients is not None:
        packed = np.concatenate([packed, words(patients).view(np.uint8)], axis=1)
    # One bytes object per row, made in C: slicing in Python would take longer than hashing.
    rows = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}")[:, 0].tolist()
    hashed = hashlib.blake2b
    return [hashed(row, digest_size=32, person=_ROW).digest() for row in rows]


def _patients(patients: tuple[str, ...]) -> list[bytes]:
    hashed = {
        patient: hashlib.blake2b(patient.encode(), digest_size=32, person=_PATIENT).digest()
        for patient in set(patients)
    }
    return [hashed[patient] for patient in patients]
