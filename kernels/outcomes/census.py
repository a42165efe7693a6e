"""How often each outcome occurs: counts of all rows, from which the layers of outcomes start.

For each outcome in the order of the schema,

    binary          rows without the event, rows with it
    classes         rows of each class
    time_to_event   for each interval, patients who entered it; then, for each, its events
    count           Σ counts and Σ exposures, in blocks of their own, as they have other bounds

and for each level of a binary target and of classes the number of sites that have it. All are sums
over rows or sites.

The offset o of an outcome is the logit, or the logarithm, of its share or rate over all rows
(`offsets`). f is then what a row's features add to it, and the search for q starts near its end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from kernels.errors import StateError
from kernels.outcomes import binary, count
from kernels.outcomes.time_to_event import periods
from kernels.reproducible import number_to_bits
from kernels.storage import check_tensor
from kernels.tables.outcome_cells import positions
from kernels.tables.records import Records
from kernels.tables.schema import Schema
from kernels.tables.targets import Binary, Classes, Count, Outcome, TimeToEvent

EXPOSURE_STEP = 2.0**-12
"""Exposures are counted in this unit, so that their sum does not depend on how rows are divided."""
_OFFSET_BITS = 16


@dataclass(frozen=True, eq=False)
class Census:
    """Sums over rows, float64; `+` adds the rows of another table, and its site."""

    STORED_AS: ClassVar[str] = "census"

    levels: Tensor
    """(L,) rows of each level, and patients of each interval."""
    counts: Tensor
    """(number of counts,) Σ counts."""
    exposures: Tensor
    """(number of counts,) Σ exposures."""
    sites: Tensor
    """(levels of binary targets and classes,) sites that have a row of the level."""

    @classmethod
    def zero(cls, schema: Schema) -> "Census":
        """Return the census of no rows."""
        counts = sum(isinstance(own, Count) for own in schema.outcomes)
        lengths = (
            sum(_lengths(schema.outcomes)),
            counts,
            counts,
            sum(len(own.levels) for own in schema.outcomes if isinstance(own, Binary | Classes)),
        )
        return cls(*(torch.zeros(length, dtype=torch.float64) for length in lengths))

    @classmethod
    def of(cls, records: Records) -> "Census":
        """Return the census of one site's rows, read for training."""
        schema = records.schema
        if records.outcomes is None:
            return cls.zero(schema)
        levels, counts, exposures, sites = [], [], [], []
        for outcome, where in zip(schema.outcomes, positions(schema.outcomes), strict=True):
            columns = records.outcomes[:, where]
            match outcome:
                case Binary() | Classes():
                    kinds = 2 if isinstance(outcome, Binary) else len(outcome.levels)
                    own = torch.bincount(columns[:, 0].long(), minlength=kinds).double()
                    levels.append(own)
                    sites.append((own > 0).double())
                case TimeToEvent():
                    edges = torch.tensor(outcome.intervals, dtype=torch.float64)
                    found = periods(columns[:, 0], columns[:, 1], edges)
                    entered = torch.bincount(found.interval, minlength=len(edges))
                    ended = found.interval[found.outcome == 1]
                    events = torch.bincount(ended, minlength=len(edges))
                    levels += [entered.double(), events.double()]
                case Count():
                    counts.append(columns[:, 0].sum())
                    steps = (columns[:, 1] / EXPOSURE_STEP).round().clamp_min(1.0)
                    exposures.append((steps * EXPOSURE_STEP).sum())
        none = torch.zeros(0, dtype=torch.float64)
        return cls(
            torch.cat([none, *levels]),
            torch.stack(counts) if counts else none,
            torch.stack(exposures) if exposures else none,
            torch.cat([none, *sites]),
        )

    def __add__(self, other: "Census") -> "Census":
        return Census(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Census)))

    def check(self, schema: Schema) -> None:
        """Refuse a census of another schema, or with negative numbers; it may be untrusted."""
        like = Census.zero(schema)
        for field in fields(self):
            own = getattr(self, field.name)
            check_tensor(f"census.{field.name}", own, tuple(getattr(like, field.name).shape))
            if not bool((own >= 0).all()):
                raise StateError(f"census.{field.name} contains negative numbers")

    def of_levels(self, schema: Schema) -> tuple[Tensor, ...]:
        """Return the part of `levels` of each outcome; empty for a count."""
        return torch.split(self.levels, _lengths(schema.outcomes))

    def trials(self, schema: Schema) -> tuple[float, ...]:
        """Return how many trials each outcome has in all rows, counts with a dispersion of 1.

        A row of a yes/no outcome and of classes is one, an interval that a patient enters is one,
        and a count of y is y + 1. The rows of counts are those of their exposures, if each is 1.
        """
        found, counts = [], iter((self.counts + self.exposures).tolist())
        for outcome, levels in zip(schema.outcomes, self.of_levels(schema), strict=True):
            match outcome:
                case Binary() | Classes():
                    found.append(float(levels.sum()))
                case TimeToEvent():
                    found.append(float(levels.chunk(2)[0].sum()))
                case Count():
                    found.append(next(counts))
        return tuple(found)

    def offsets(self, schema: Schema) -> tuple[tuple[float, ...], ...]:
        """Return o of each outcome's latent functions, rounded: the same on every machine."""
        found, counts = [], iter(zip(self.counts.tolist(), self.exposures.tolist(), strict=True))
        for outcome, levels in zip(schema.outcomes, self.of_levels(schema), strict=True):
            match outcome:
                case Binary():
                    rows, events = float(levels.sum()), float(levels[1])
                    own = [binary.base_offset(events=events, rows=rows)]
                case Classes():
                    logs = [math.log(max(rows, 0.0) + 0.5) for rows in levels.tolist()]
                    own = [log - math.fsum(logs) / len(logs) for log in logs]
                case TimeToEvent():
                    entered, events_in = levels.chunk(2)
                    events, rows = float(events_in.sum()), float(entered.sum())
                    own = [binary.base_offset(events=events, rows=rows)]
                case Count():
                    total, exposure = next(counts)
                    own = [count.base_offset(total=total, exposure=exposure)]
            found.append(tuple(number_to_bits(each, _OFFSET_BITS) for each in own))
        return tuple(found)


def _lengths(outcomes: Sequence[Outcome]) -> list[int]:
    """Return how many elements of `levels` each outcome has."""
    lengths = []
    for outcome in outcomes:
        match outcome:
            case Binary():
                lengths.append(2)
            case Classes():
                lengths.append(len(outcome.levels))
            case TimeToEvent():
                lengths.append(2 * len(outcome.intervals))
            case Count():
                lengths.append(0)
    return lengths
