"""A ledger of releases, and whether the budget allows more of them.

The coordinator keeps one ledger per session, and a site keeps one per data source over all
sessions; if they disagree, the site's counts. An entry is made before any bytes leave, and is never
removed, because nobody can prove that a sum failed on its way. A ledger is plain data: entries in
the order in which they were made.

The noise of a release may be chosen in view of everything released before, within a session and
from session to session. The budget holds nevertheless: what counts is `privacy.accounting.filters`,
whose accountants are fixed when the budget is set. So decide a budget before seeing results: one
that is changed later has other accountants and is another promise.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, final

from privacy.accounting.cost import Cost, cost
from privacy.accounting.events import Release
from privacy.accounting.filters import Filter
from privacy.errors import AccountingError, AlreadyCharged, BudgetExceeded, LedgerError

MOST_EPSILON = 1e3
"""Of a budget."""
_TEXT = 200


@final
@dataclass(frozen=True)
class Budget:
    """The most that may be spent per unit: (ε, δ)."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name, least, most in (("epsilon", 1e-6, MOST_EPSILON), ("delta", 1e-15, 0.1)):
            number = getattr(self, name)
            if type(number) not in (int, float) or not least <= number <= most:
                raise LedgerError(
                    f"a budget's `{name}` must be a number from {least:g} to {most:g}, "
                    f"not {number!r:.40}"
                )
            object.__setattr__(self, name, float(number))

    @cached_property
    def filter(self) -> Filter:
        """The accountants of this budget."""
        return Filter(self.epsilon, self.delta)


@final
@dataclass(frozen=True)
class Entry:
    """One charge: the sum in slot `slot` of an epoch of a run of a session, and what it releases.

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
            raise LedgerError(
                f"an entry's `at` must be a number of seconds since 1970, not {self.at!r:.40}"
            )
        for name in ("session", "run"):
            text = getattr(self, name)
            if type(text) is not str or not 0 < len(text) <= _TEXT:
                raise LedgerError(
                    f"an entry's `{name}` must be a string of 1 to {_TEXT} characters"
                )
        for name in ("epoch", "slot"):
            number = getattr(self, name)
            if type(number) is not int or number < 0:
                raise LedgerError(
                    f"an entry's `{name}` must be a non-negative integer, not {number!r:.40}"
                )
        if type(self.release) is not Release:
            raise LedgerError(
                f"an entry's `release` must be a Release, not {type(self.release).__name__}"
            )

    @property
    def sum(self) -> tuple[str, str, int, int]:
        """The sum's identifier; each sum is charged once."""
        return self.session, self.run, self.epoch, self.slot

    def to_json(self) -> dict[str, object]:
        """Return plain data."""
        return {**vars(self), "release": self.release.to_json()}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read the plain data of `to_json`; refuse anything else."""
        values = _fields(cls, data)
        try:
            return cls(**{**values, "release": Release.from_json(values["release"])})
        except AccountingError as error:
            raise LedgerError(f"an entry's `release` is invalid: {error}") from error


@final
@dataclass(frozen=True)
class Ledger:
    """A budget, and everything that was charged to it.

    >>> release = Release(statistic="scatter", part="training", multiplier=4.0, dimension=5150,
    ...                   share_deviation=2**30, honest=7)
    >>> ledger = Ledger(Budget(epsilon=1.0, delta=1e-5))
    >>> ledger = ledger.charge(Entry(0.0, "session", "run", 0, 0, release))
    >>> round(ledger.spent.epsilon, 3)
    0.944
    >>> ledger.charge(Entry(1.0, "session", "run", 0, 1, release))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    privacy.errors.BudgetExceeded: scatter would increase ε to ..., above the budget of 1; ...
    """

    budget: Budget
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        if type(self.budget) is not Budget or not isinstance(self.entries, tuple):
            raise LedgerError("a ledger must have a Budget and a tuple of Entry objects")
        if any(type(entry) is not Entry for entry in self.entries):
            raise LedgerError("a ledger must have a Budget and a tuple of Entry objects")
        if len({entry.sum for entry in self.entries}) < len(self.entries):
            raise AlreadyCharged("a ledger must not contain two entries for the same sum")

    @cached_property
    def spent(self) -> Cost:
        """What all entries so far have spent of the budget."""
        return self.after(())

    @property
    def fixed_beforehand(self) -> Cost:
        """The cost of these entries if nobody had chosen any of them in view of another.

        For people to compare: the tightest accountant proves it, and the budget does not rely on
        it. With sums over samples it takes about 0.1 s.
        """
        return cost([entry.release for entry in self.entries], delta=self.budget.delta)

    def after(self, releases: Iterable[Release]) -> Cost:
        """Return what all entries and these releases would have spent; nothing is charged."""
        charged = [entry.release for entry in self.entries]
        return self.budget.filter.spent([*charged, *releases])

    def history(self, points: int) -> Iterator[tuple[int, "Ledger"]]:
        """Yield the ledger as it was after n sums, for at most `points` values of n up to the last.

        Each item is (n, ledger).
        """
        count = len(self.entries)
        for sums in sorted({round(i * count / points) for i in range(1, points + 1)} - {0}):
            yield sums, replace(self, entries=self.entries[:sums])

    def affords(self, releases: Sequence[Release]) -> Cost:
        """Return what would be spent after these releases; refuse them if it is over budget."""
        then = self.after(releases)
        if not then.epsilon <= self.budget.epsilon:
            names = ", ".join(dict.fromkeys(release.statistic for release in releases))
            raise BudgetExceeded(
                f"{names} would increase ε to {then.epsilon:.4g} at δ = {then.delta:g}, above the "
                f"budget of {self.budget.epsilon:g}; {self.spent.epsilon:.4g} is spent already"
            )
        return then

    def charge(self, entry: Entry) -> "Ledger":
        """Return a ledger with one more entry, or refuse it; this ledger does not change."""
        if any(entry.sum == charged.sum for charged in self.entries):
            raise AlreadyCharged(
                f"the sum in slot {entry.slot} of epoch {entry.epoch} of run {entry.run} is "
                "charged already: to retry, send the same bytes again without a charge"
            )
        self.affords([entry.release])
        return replace(self, entries=(*self.entries, entry))

    def to_json(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "budget": asdict(self.budget),
            "entries": [entry.to_json() for entry in self.entries],
        }

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read the plain data of `to_json`; refuse anything else."""
        values = _fields(cls, data)
        if not isinstance(values["entries"], list):
            raise LedgerError("a ledger's `entries` must be a list")
        return cls(
            Budget(**_fields(Budget, values["budget"])),
            tuple(Entry.from_json(entry) for entry in values["entries"]),
        )


def least_budget(releases: Sequence[Release], *, delta: float) -> Budget | None:
    """Return the smallest budget that affords these releases, in hundredths of ε; None if none.

    It is more than their cost as a list that is fixed beforehand (`privacy.accounting.cost`): a
    budget holds whatever is asked in view of earlier results.

    >>> release = Release(statistic="scatter", part="training", multiplier=4.0, dimension=5150,
    ...                   share_deviation=2**30, honest=7)
    >>> least_budget([release], delta=1e-5)
    Budget(epsilon=0.95, delta=1e-05)
    """

    def affords(hundredths: int) -> bool:
        own = Budget(hundredths / 100, delta)
        return own.filter.spent(releases).epsilon <= own.epsilon

    beforehand = cost(releases, delta=delta).epsilon
    if beforehand > MOST_EPSILON:
        return None
    low, high = max(0, math.floor(beforehand * 100) - 1), round(MOST_EPSILON * 100)
    if not affords(high):
        return None
    while high - low > 1:
        middle = min((low + high) // 2, 2 * low + 2)
        low, high = (low, middle) if affords(middle) else (middle, high)
    return Budget(high / 100, delta)


def _fields(kind: type[Any], data: object) -> dict[str, Any]:
    names = {field.name for field in fields(kind)}
    if not isinstance(data, Mapping) or set(data) != names:
        raise LedgerError(
            f"{kind.__name__} must have exactly the fields {', '.join(sorted(names))}"
        )
    return dict(data)
