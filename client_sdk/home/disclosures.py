"""The disclosure ledger of a data source: what its exact sums have made known, over all sessions.

Every run that this hospital enters has one entry, written before anything is sent for it. Entries
are never removed, whether the run succeeds or not. A table under a second name shares the ledger,
as it shares the privacy budget: a source that ever had exactly the same rows counts too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class EnteredRun:
    """A run that this hospital entered, and what it makes known at most.

    source: the data source. program: the digest of what the run computes, including the kind of run
    and the model that it starts from. dealt: the digest of the table, how it is dealt into
    parts, and its rows to add and remove. rows: the digest of its rows alone. exact: whether its
    sums have no noise.
    coordinator, hospitals: exact numbers that become known to the coordinator, and to each
        hospital, as `kernels.rounds.known` counts them: one of them is how the run ended.
    sums: the maximum number of sums.
    """

    run: str
    session: str
    source: str
    at: str
    program: str
    dealt: str
    rows: str
    exact: bool
    coordinator: int
    hospitals: int
    sums: int


@dataclass(frozen=True)
class DisclosureLedger:
    """All runs over a data source, and how many vectors were computed for its exact sums."""

    entries: tuple[EnteredRun, ...]
    vectors: int = 0

    def with_run(self, run: EnteredRun) -> "DisclosureLedger":
        """Return the ledger after another run."""
        return DisclosureLedger((*self.entries, run), self.vectors)

    @property
    def runs(self) -> int:
        """Number of runs that were entered."""
        return len(self.entries)

    @property
    def programs(self) -> int:
        """Number of distinct programs."""
        return len({entry.program for entry in self.entries})

    @property
    def exact(self) -> bool:
        """Whether there has been a run with exact sums."""
        return any(entry.exact for entry in self.entries)

    @property
    def private(self) -> bool:
        """Whether there has been a run with noise."""
        return not all(entry.exact for entry in self.entries)

    @property
    def coordinator(self) -> int:
        """Numbers that have become known to the coordinator."""
        return sum(max(each.coordinator for each in same) for same in self._same()) + self._repeats

    @property
    def hospitals(self) -> int:
        """Numbers that have become known to each hospital."""
        return sum(max(each.hospitals for each in same) for same in self._same()) + self._repeats

    @property
    def _repeats(self) -> int:
        """One number per repetition of an exact run: how it ended, which is all that is new."""
        return sum(len(same) - 1 for same in self._same())

    def _same(self) -> Iterator[tuple[EnteredRun, ...]]:
        """Yield the runs of each program and table: a repetition makes the same numbers known.

        They may differ in who reads them: the sums of one may be blind, and those of another open.
        """

        def what(entry: EnteredRun) -> tuple[str, str]:
            return entry.program, entry.dealt

        exact = sorted((entry for entry in self.entries if entry.exact), key=what)
        for _, same in groupby(exact, key=what):
            yield tuple(same)
