"""What has left a hospital, in lines for people: by run and stage, or vector by vector.

A vector is what left once; a sum is what vectors of all hospitals were added up to. `Departure`
says how sums are counted, and `veilgp join`, `veilgp log` and a run's learning curve count them
alike. If a sum is abandoned and repeated, it is one sum for which two vectors left.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from client_sdk.home.remembered import Departure, Failure, UnmaskedSamples
from client_sdk.readable import printable, readable

_Line = Departure | UnmaskedSamples | Failure
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Left:
    """Everything that has left a hospital, in order; `names` are those of sessions by their id."""

    vectors: Sequence[Departure]
    samples: Sequence[UnmaskedSamples]
    failures: Sequence[Failure]
    names: Mapping[str, str]

    def by_stage(self) -> Iterator[str]:
        """Yield one line per run, and below it one per stage, per file of samples and failure."""
        for (session, run), own in self._runs().items():
            vectors = [each for each in own if isinstance(each, Departure)]
            name = printable(self.names.get(session, ""), _LONGEST_NAME)
            times = f"  {_between(vectors)}" if vectors else ""
            yield f"run {run}  of session {f'{name!r} ' if name else ''}{session}{times}"
            stages = [_Stage(tuple(each)) for _, each in groupby(vectors, key=_stage_of)]
            yield from _aligned(stage.cells() for stage in stages)
            yield from (
                f"  {readable(each.line())}" for each in own if not isinstance(each, Departure)
            )

    def one_by_one(self) -> Iterator[str]:
        """Yield one line per vector, per file of samples and per failure."""
        for each in self._everything():
            yield readable(each.line())

    def in_all(self) -> Iterator[str]:
        """Yield the totals."""
        sums = len({(each.run, each.sum_number) for each in self.vectors})
        yield (
            f"{len(self.vectors):,} masked vectors for {sums:,} sums: "
            f"{sum(each.elements for each in self.vectors):,} numbers, "
            f"{sum(each.octets for each in self.vectors):,} bytes"
        )
        if self.samples:
            withdrawn = sum(own.withdrawn_at is not None for own in self.samples)
            yield (
                f"{len(self.samples)} files of samples of this hospital's own model, NOT MASKED: "
                f"{sum(own.elements for own in self.samples):,} numbers, "
                f"{sum(own.octets for own in self.samples):,} bytes; {withdrawn} withdrawn"
            )
        if self.failures:
            yield f"{len(self.failures)} sums that this site could not compute"

    def _everything(self) -> Iterator[_Line]:
        yield from self.vectors
        yield from self.samples
        yield from self.failures

    def _runs(self) -> dict[tuple[str, str], list[_Line]]:
        runs: dict[tuple[str, str], list[_Line]] = {}
        for each in self._everything():
            runs.setdefault((each.session, each.run), []).append(each)
        return runs


@dataclass(frozen=True)
class _Stage:
    """The vectors of one stage of a run, in order; at least one."""

    vectors: tuple[Departure, ...]

    def cells(self) -> tuple[str, ...]:
        numbers = sorted({each.sum_number for each in self.vectors})
        first, last = numbers[0], numbers[-1]
        sums = f"sum {first}" if first == last else f"sums {first} to {last}"
        if len(numbers) < last - first + 1:
            sums += f" ({len(numbers)} of them)"
        again = len(self.vectors) - len(numbers)
        repeated = f"; {again} of them for sums that were repeated" if again else ""
        return (
            f"stage {self.vectors[0].stage + 1}",
            self.vectors[0].algorithm,
            sums,
            _counted(len(self.vectors), "vector"),
            _counted(sum(each.elements for each in self.vectors), "number"),
            f"{sum(each.octets for each in self.vectors):,} bytes, masked{repeated}",
        )


def _stage_of(departure: Departure) -> tuple[int, str]:
    return departure.stage, departure.algorithm


def _between(vectors: Sequence[Departure]) -> str:
    first, last = vectors[0].at, vectors[-1].at
    return first if first == last else f"{first} to {last}"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _aligned(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    table = list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
