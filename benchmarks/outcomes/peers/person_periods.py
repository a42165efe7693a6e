"""Times as yes/no rows: one for each interval that a patient entered, an event in it or none.

Whoever is censored within an interval has no row for it: part of an interval says nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.outcomes.dataset import Table, TimeToEvent

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PersonPeriods:
    """For each row the patient's row, the interval's number and whether the event came in it."""

    patient: NDArray[np.int64]
    interval: NDArray[np.int64]
    event: Matrix


def person_periods(outcome: TimeToEvent, rows: Table) -> PersonPeriods:
    """Return the rows of a table of times."""
    time, dead = rows[outcome.name], rows[outcome.event] == 1
    ends = np.array(outcome.edges)
    starts = np.concatenate([[-np.inf], ends[:-1]])  # an event at time 0 is of the first interval
    survived = ends <= time[:, None]
    survived &= ~(dead[:, None] & (time[:, None] == ends))
    happened = dead[:, None] & (time[:, None] > starts) & (time[:, None] <= ends)
    patient, interval = np.nonzero(survived | happened)
    return PersonPeriods(patient, interval, happened[patient, interval].astype(np.float64))


def with_intervals(x: Matrix, interval: NDArray[np.int64], count: int) -> Matrix:
    """Return inputs with one more column per interval."""
    return np.column_stack([x, np.eye(count)[interval]])


def every_interval(rows: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return patients and intervals of a table in which everyone enters every interval."""
    return np.repeat(np.arange(rows), count), np.tile(np.arange(count), rows)


def survival(hazard: Matrix, count: int) -> Matrix:
    """Return S at the edges from hazards in the order of `every_interval`."""
    return np.asarray(np.cumprod(1 - hazard.reshape(-1, count), axis=1), dtype=np.float64)
