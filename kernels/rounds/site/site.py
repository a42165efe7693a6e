"""What the hospital's side of an algorithm sees: its rows, in three parts.

Rows are dealt to training, stopping (when to stop, which variant to keep) and calibration (how wide
the intervals are): a model evaluated on the rows that it was chosen by would look better than it
is. A patient's rows stay together. The parts are a function of the site's secret and of the
patients, or of the rows' content if the schema names no patient (`kernels.rounds.site.dealing`): a
table that is exported again in another order has the same parts.

With differential privacy (`Model.privacy`), every reading returns at most k rows per patient, the
unit of privacy; without a patient column the unit is the row. No reading refuses a part because of
the number or the distribution of its rows: what a program asks of a table is checked before the
site enters a run (`kernels.rounds.plan.check_fits`).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kernels.errors import DealingMissing, EmptyTable, TooManyRows
from kernels.model.model import Model, known
from kernels.rounds.site.dealing import Dealing
from kernels.rounds.site.parts import Part as Part
from kernels.rounds.site.streamed import DEALT, Dealt, Stream, Streamed
from kernels.tables.chunks import CHUNK_ROWS, chunks
from kernels.tables.problems import RowByRow
from kernels.tables.records import Records
from kernels.tables.row_hashes import Fingerprint, keys_and_hashes, row_keys
from kernels.tables.schema import Schema
from kernels.tables.standardiser import Rows, Standardiser

ROWS_IN_MEMORY = 200_000
"""A stream of more rows is read again for every sum, and algorithms that need all rows of a part
at once (local training: `fedavg`, `distillation`) fail with `TooManyRows`, which a site finds out
before it enters a run: it tries every stage on its own rows."""


MOST_KEPT = 8
"""Of how many models a site keeps the features from one sum to the next."""


class Chunk(NamedTuple):
    """At most CHUNK_ROWS rows of a part."""

    x: Tensor
    """(n, p) standardised features."""
    y: Tensor
    """(n, T) standardised targets."""
    records: Records
    """The same rows as the schema reads them."""


class Units(NamedTuple):
    """Some units of privacy with all their rows."""

    x: Tensor
    """(n, p) standardised features."""
    y: Tensor
    """(n, T) standardised targets."""
    unit: Tensor
    """(n,) int64, the index of the unit that each row belongs to: 0, 1, …"""


class Site:
    """One hospital's records in parts: in memory, or streamed if a table has too many rows.

    A part without records has no rows. `dealing` determines a row's fold, and which of a patient's
    rows are kept if there are too many; a site without it refuses what needs it with
    `DealingMissing`. `without_target`: how many rows of the table are in no part because a target
    is missing; nothing that leaves depends on it. `randomness` returns the given number of
    unpredictable bytes: which units are in a sample is the site's secret.
    """

    def __init__(
        self,
        records: Mapping[Part, Records | Streamed],
        *,
        digest: bytes | None = None,
        dealing: Dealing | None = None,
        without_target: int = 0,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if not records:
            raise EmptyTable("a site needs at least one part, even one without rows")
        self.parts = dict(records)
        self.without_target = without_target
        self._digest = digest
        self._dealing = dealing
        self._randomness = randomness
        self._bounded: dict[Part, tuple[Records | Streamed, int, Records | Streamed]] = {}
        self._units: dict[Part, tuple[Records | Streamed | None, Tensor]] = {}
        self._rows: dict[Part, tuple[Records | Streamed | None, Standardiser, Rows]] = {}
        self._dealt_by: dict[Part, list[tuple[Dealing, int]]] = {}
        self._kept: list[tuple[Model, object]] = []

    @classmethod
    def of_table(
        cls,
        schema: Schema,
        table: Mapping[str, object],
        *,
        held_out: float,
        dealing: Dealing,
        row_by_row: RowByRow | None = None,
    ) -> "Site":
        """Check a table against the schema and deal its rows into parts.

        held_out: the share held out, half for stopping and half for calibration.
        """
        return cls.of_stream(
            schema,
            [table],
            held_out=held_out,
            dealing=dealing,
            rows_in_memory=None,
            row_by_row=row_by_row,
        )

    @classmethod
    def of_stream(
        cls,
        schema: Schema,
        stream: Stream,
        *,
        held_out: float,
        dealing: Dealing,
        rows_in_memory: int | None = ROWS_IN_MEMORY,
        watch: Callable[[int], None] | None = None,
        row_by_row: RowByRow | None = None,
    ) -> "Site":
        """Check and deal a table given in pieces; it is not kept in memory if it has too many rows.

        watch: called with the number of rows read so far. row_by_row: for programs with
        differential privacy: no cell is refused, and this object counts what was done instead.
        """
        dealt = Dealt.of(
            schema,
            stream,
            held_out=held_out,
            dealing=dealing,
            rows_in_memory=rows_in_memory,
            watch=watch,
            row_by_row=row_by_row,
        )
        parts = {part: dealt.part(number) for number, part in enumerate([*Part][:DEALT])}
        return cls(
            parts,
            digest=dealt.fingerprint.digest(),
            dealing=dealing,
            without_target=dealt.without_target,
        )

    @classmethod
    def joined(cls, sites: Sequence["Site"]) -> "Site":
        """Return a site with all rows of these, each in the part and the fold it has at its own.

        What the sites' sums add up to is this site's own: for comparisons with pooled rows, all in
        memory. A patient of two sites may be in two parts. The site has no dealing of its own, so
        it refuses programs that keep some rows of a patient only.
        """
        whole = cls(
            {
                part: Records.concatenate(
                    [
                        piece
                        for site in sites
                        if part in site.parts
                        for piece in site.parts[part].in_pieces(CHUNK_ROWS)
                    ]
                    or [Records.none(sites[0].schema)]
                )
                for part in Part
                if any(part in site.parts for site in sites)
            },
        )
        for part in whole.parts:
            origins = [(site._dealing, site.count(part)) for site in sites]
            known_to_all = [(dealing, rows) for dealing, rows in origins if dealing is not None]
            if len(known_to_all) == len(origins):
                whole._dealt_by[part] = known_to_all
        return whole

    @property
    def schema(self) -> Schema:
        """The schema that the rows are read with."""
        return next(iter(self.parts.values())).schema

    @property
    def records(self) -> dict[Part, Records]:
        """The parts that are in memory."""
        return {part: own for part, own in self.parts.items() if isinstance(own, Records)}

    @property
    def digest(self) -> bytes:
        """A 32-byte digest of what the schema reads of the table, independent of the row order."""
        if self._digest is None:
            own = (self.parts[part] for part in [*Part][:DEALT] if part in self.parts)
            pieces = (piece for rows in own for piece in rows.in_pieces(CHUNK_ROWS))
            fingerprints = (Fingerprint.of(keys_and_hashes(piece)[1]) for piece in pieces)
            self._digest = sum(fingerprints, Fingerprint()).digest()
        return self._digest

    def count(self, part: Part, model: Model | None = None) -> int:
        """Return the number of rows of a part: all, or those that the model's sums would read."""
        own = self.parts.get(part) if model is None else self._own(part, model)
        return 0 if own is None else len(own)

    def in_memory(self, part: Part) -> bool:
        """Return whether a part's rows are in memory; those of a large table are read anew."""
        return not isinstance(self.parts.get(part), Streamed)

    def record_chunks(self, part: Part, model: Model) -> Iterator[Records]:
        """Yield a part's records, in bounded pieces."""
        own = self._own(part, model)
        if own is not None:
            yield from own.in_pieces(CHUNK_ROWS)

    def chunks(self, part: Part, model: Model) -> Iterator[Chunk]:
        """Yield a part standardised by the model's standardiser, in bounded pieces."""
        own = self._own(part, model)
        if isinstance(own, Records):
            x, y = self.table(part, model)
            for rows in chunks(len(x), CHUNK_ROWS):
                yield Chunk(x[rows], y[rows], own.between(rows))
            return
        standardiser = known(model.standardiser, "moments")
        for records in self.record_chunks(part, model):
            standardised = standardiser.apply(records)
            yield Chunk(standardised.features, known(standardised.targets, "moments"), records)

    def chunks_in_folds(
        self, part: Part, model: Model, *, folds: int
    ) -> Iterator[tuple[Chunk, Tensor]]:
        """Yield `chunks`, each with the folds of its rows: (n,) int64 from 0 to folds − 1."""
        own, first = self._own(part, model), 0
        whole = self._folds(part, own, folds) if isinstance(own, Records) else None
        for chunk in self.chunks(part, model):
            end = first + len(chunk.x)
            yield (
                chunk,
                self._folds(part, chunk.records, folds) if whole is None else whole[first:end],
            )
            first = end

    def _folds(self, part: Part, records: Records, folds: int) -> Tensor:
        """Return the fold of each row of a part, or of a piece of a streamed one, (n,)."""
        keys, first, found = row_keys(records), 0, []
        for dealing, rows in self._dealt_by.get(part) or [(self._secret(), len(keys))]:
            found.append(dealing.folds(keys[first : first + rows], folds))
            first += rows
        return torch.from_numpy(np.concatenate(found))

    def table(self, part: Part, model: Model) -> tuple[Tensor, Tensor]:
        """Return the standardised features (n, p) and targets (n, T) of a part, all in memory."""
        rows = self._standardised(part, model)
        return rows.features, known(rows.targets, "moments")

    def units(
        self, part: Part, model: Model, *, rows: int, sampling_rate: float = 1.0
    ) -> Iterator[Units]:
        """Yield units with all their rows, about `rows` rows at a time.

        sampling_rate: each unit is included with this probability, independently and secretly. A
        patient's rows may be anywhere in a table, so they are brought together in memory.
        """
        if model.schema.patient is None:
            for x, y, _ in self.chunks(part, model):
                own = torch.arange(len(x))[self._sample(len(x), sampling_rate)]
                for some in torch.split(own, rows):
                    yield Units(x[some], y[some], torch.arange(len(some)))
            return
        x, y = self.table(part, model)
        unit = self._unit_of(part, model)
        count = int(unit.max()) + 1 if len(unit) else 0
        order = unit.argsort(stable=True)
        order = order[self._sample(count, sampling_rate)[unit[order]]]
        while len(order):
            # As many whole units as fit, at least one.
            last = unit[order[min(rows, len(order)) - 1]]
            end = int((unit[order] < last).sum()) if rows < len(order) else len(order)
            end = end or int((unit[order] <= last).sum())
            some, order = order[:end], order[end:]
            yield Units(x[some], y[some], torch.unique(unit[some], return_inverse=True)[1])

    def _unit_of(self, part: Part, model: Model) -> Tensor:
        """Return the unit that each row of a part belongs to, (n,), computed once."""
        own, stored = self._own(part, model), self._units.get(part)
        if stored is None or stored[0] is not own:
            numbers: dict[bytes, int] = {}
            keys = row_keys(self._in_memory(part, model))
            unit = [numbers.setdefault(key, len(numbers)) for key in keys]
            stored = self._units[part] = own, torch.tensor(unit, dtype=torch.int64)
        return stored[1]

    def _sample(self, units: int, rate: float) -> Tensor:
        """Return which units are in a Poisson sample, (units,) bool."""
        if rate >= 1:
            return torch.ones(units, dtype=torch.bool)
        drawn = np.frombuffer(self._randomness(8 * units), dtype="<u8")
        return torch.from_numpy(drawn < np.uint64(rate * 2.0**64))

    def keep(self, model: Model, features: object) -> None:
        """Cache features of the model's kernel for the next sum; this only saves work.

        Those of the last MOST_KEPT models are kept, for stages that train several at once.
        """
        self._kept = [*self._kept, (model, features)][-MOST_KEPT:]

    def take_kept(self, model: Model) -> object | None:
        """Return the kept features, once, if they have the model's kernel, weights and scales."""
        for index, (kept, features) in enumerate(self._kept):
            if kept.has_features_of(model):
                del self._kept[index]
                return features
        return None

    def _own(self, part: Part, model: Model) -> Records | Streamed | None:
        """Return the rows of a part that the model's sums read; the selection is made once."""
        own = self.parts.get(part)
        if own is None or model.privacy is None or model.schema.patient is None:
            return own
        most = model.privacy.max_rows_per_patient
        stored = self._bounded.get(part)
        if stored is None or stored[0] is not own or stored[1] != most:
            stored = self._bounded[part] = own, most, _bounded(own, most, self._secret())
        return stored[2]

    def _secret(self) -> Dealing:
        if self._dealing is None:
            raise DealingMissing(
                "this site was made without a dealing, which decides the fold of a row and which "
                "rows of a patient are kept: pass `dealing`"
            )
        return self._dealing

    def _standardised(self, part: Part, model: Model) -> Rows:
        """Return the rows of a part standardised by the model's standardiser, computed once."""
        standardiser = known(model.standardiser, "moments")
        own, stored = self._own(part, model), self._rows.get(part)
        if stored is None or stored[0] is not own or stored[1] != standardiser:
            rows = standardiser.apply(self._in_memory(part, model))
            stored = self._rows[part] = own, standardiser, rows
        return stored[2]

    def _in_memory(self, part: Part, model: Model) -> Records:
        own = self._own(part, model)
        if own is None:
            return Records.none(self.schema)
        if isinstance(own, Records):
            return own
        if model.privacy is None and len(own) > ROWS_IN_MEMORY:
            raise TooManyRows(
                f"this algorithm needs all {len(own)} rows for {part} in memory, and the limit is "
                f"{ROWS_IN_MEMORY}: train with `exact`, which reads them in pieces, or use a "
                "sample of the table"
            )
        return Records.concatenate([Records.none(own.schema), *own.in_pieces(CHUNK_ROWS)])

    def __repr__(self) -> str:
        return f"Site({', '.join(f'{part}: {len(rows)}' for part, rows in self.parts.items())})"


def _bounded(own: Records | Streamed, most: int, dealing: Dealing) -> Records | Streamed:
    """Return the rows with at most `most` per patient."""
    if isinstance(own, Streamed):
        return own.bounded(most, dealing)
    kept = dealing.kept(*keys_and_hashes(own), most=most)
    return own.take(torch.from_numpy(kept))
