"""What has been released, and whether there is enough left for more.

The coordinator keeps one ledger per session, a site one per data source over all sessions; the
site's wins. An entry is made before bytes leave, and never taken back: whether a sum failed on its
way nobody can prove. A ledger is plain data, entries in the order of their making; the cost is
worked out anew from all of them, so a better accountant makes old ledgers cheaper.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, final

from privacy.accounting.cost import Cost, cost
from privacy.accounting.events import Release
from privacy.errors import AccountingError, AlreadyCharged, BudgetExceeded, LedgerError

_TEXT = 200


@final
@dataclass(frozen=True)
class Budget:
    """The most that may be spent on one unit: (ε, δ)."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name, least, most in (("epsilon", 1e-6, 1e3), ("delta", 1e-15, 0.1)):
            number = getattr(self, name)
            if type(number) not in (int, float) or not least <= number <= most:
                raise LedgerError(
                    f"a budget's {name} is a number from {least:g} to {most:g}, not {number!r:.40}"
                )
            object.__setattr__(self, name, float(number))


@final
@dataclass(frozen=True)
class Entry:
    """One charge: the sum `slot` of an epoch of a run of a session, and what it releases.

    at: seconds since 1970, for people to read.
    """

    at: float
    session: str
    run: str
    epoch: int
    slot: int
    release: Release

    def __post_init__(self) -> None:
        if type(self.at) not in (int, float) or not math.isfinite(self.at):
            raise LedgerError(f"an entry's time is in seconds since 1970, not {self.at!r:.40}")
        for name in ("session", "run"):
            text = getattr(self, name)
            if type(text) is not str or not 0 < len(text) <= _TEXT:
                raise LedgerError(f"an entry's {name} is a text of 1 to {_TEXT} characters")
        for name in ("epoch", "slot"):
            number = getattr(self, name)
            if type(number) is not int or number < 0:
                raise LedgerError(f"an entry's {name} is a number from 0, not {number!r:.40}")
        if type(self.release) is not Release:
            raise LedgerError("an entry charges for a release")

    @property
    def sum(self) -> tuple[str, str, int, int]:
        """Which sum it is; each is charged once."""
        return self.session, self.run, self.epoch, self.slot

    def to_json(self) -> dict[str, object]:
        """Return plain data."""
        return {**vars(self), "release": self.release.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read `to_json`'s plain data, and nothing but it."""
        values = _fields(cls, data)
        try:
            return cls(**{**values, "release": Release.from_json(values["release"])})
        except AccountingError as error:
            raise LedgerError(f"an entry's release: {error}") from error


@final
@dataclass(frozen=True)
class Ledger:
    """A budget, and all that has been charged to it.

    >>> release = Release(statistic="scatter", part="training", multiplier=4.0, dimension=5150,
    ...                   share_deviation=2**30, honest=7)
    >>> ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    >>> ledger = ledger.charge(Entry(0.0, "session", "run", 0, 0, release))
    >>> round(ledger.spent.epsilon, 3)
    0.926
    >>> ledger.charge(Entry(1.0, "session", "run", 0, 1, release))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    privacy.errors.BudgetExceeded: scatter would bring ε to ... beyond the budget of 1; ...
    """

    budget: Budget
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        if type(self.budget) is not Budget or not isinstance(self.entries, tuple):
            raise LedgerError("a ledger has a budget and a tuple of entries")
        if any(type(entry) is not Entry for entry in self.entries):
            raise LedgerError("a ledger has a budget and a tuple of entries")
        if len({entry.sum for entry in self.entries}) < len(self.entries):
            raise AlreadyCharged("a ledger with a sum that is charged twice")

    @cached_property
    def spent(self) -> Cost:
        """What has been spent so far, at the budget's δ."""
        return self.after(())

    def after(self, releases: Iterable[Release]) -> Cost:
        """Return what will have been spent after these releases too; nothing is charged."""
        charged = [entry.release for entry in self.entries]
        return cost([*charged, *releases], delta=self.budget.delta)

    def history(self, points: int) -> Iterator[tuple[int, "Ledger"]]:
        """Give the ledger as it was after some of its sums, at most so many, and after the last."""
        count = len(self.entries)
        for sums in sorted({round(i * count / points) for i in range(1, points + 1)} - {0}):
            yield sums, replace(self, entries=self.entries[:sums])

    def affords(self, releases: Sequence[Release]) -> Cost:
        """Return what at most will have been spent after these releases, or refuse them by name."""
        charged = [entry.release for entry in self.entries]
        enough = self.budget.epsilon
        then = cost([*charged, *releases], delta=self.budget.delta, enough=enough)
        if not then.epsilon <= self.budget.epsilon:
            names = ", ".join(dict.fromkeys(release.statistic for release in releases))
            raise BudgetExceeded(
                f"{names} would bring ε to {then.epsilon:.4g} at δ = {then.delta:g}, beyond the "
                f"budget of {self.budget.epsilon:g}; {self.spent.epsilon:.4g} is spent"
            )
        return then

    def charge(self, entry: Entry) -> "Ledger":
        """Return the ledger with one more entry, or refuse it; this one does not change."""
        if any(entry.sum == charged.sum for charged in self.entries):
            raise AlreadyCharged(
                f"sum {entry.slot} of epoch {entry.epoch} of run {entry.run} is charged already; a "
                "retry resends its bytes, anything else is another sum"
            )
        self.affords([entry.release])
        return replace(self, entries=(*self.entries, entry))

    def to_json(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "budget": dict(vars(self.budget)),
            "entries": [entry.to_json() for entry in self.entries],
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read `to_json`'s plain data, and nothing but it."""
        values = _fields(cls, data)
        if not isinstance(values["entries"], list):
            raise LedgerError("a ledger's entries are a list")
        return cls(
            Budget(**_fields(Budget, values["budget"])),
            tuple(Entry.from_json(entry) for entry in values["entries"]),
        )


def _fields(kind: type[Any], data: object) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    if not isinstance(data, Mapping) or set(data) != names:
        raise LedgerError(
            f"a {kind.__name__.lower()} has exactly the fields {', '.join(sorted(names))}"
        )
    return dict(data)
