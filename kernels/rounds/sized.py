"""A program of the size that the smallest table allows.

Hospitals refuse sums over few rows of their own (docs/threats.md, A12): by default each wants at
least 50 rows that are summed together, and three for each feature of the kernel, or of both if two
may be mixed (`plan.most_features`). What a hospital refuses because of its rows it refuses in
silence, so a session for small hospitals with the largest program never gets its cohort. Whoever
makes the session therefore states how many rows the smallest table has, as a band: 128 stands for
128 to 255 rows. Hospitals tell it each other beforehand, by telephone; it is part of a public
request, so it is no more exact than that (`veilgp check TABLE` prints it).

Rows are dealt to parts by a secret, so how many of n rows are in a part with share p varies with
deviation √(np(1 − p)). Counted on are two deviations fewer than the average.

| derived | such that |
| --- | --- |
| the most features | training rows ≥ 3 × features; with `least_rows` the coordinator's ratio |
| a mixture of two, or one kernel | the same for the features of both: one larger kernel rather |
| `completion` or not | as many held-out rows, which it sums by themselves: of a line, mostly |

A line through the columns is the smallest program of a schema, and is kept whatever the band. It is
refused only if no table of the band could have enough rows for it.

With differential privacy hospitals have no such floors: noise covers few rows as well as many.
"""

import math
from dataclasses import dataclass, replace

from kernels.errors import ProgramError
from kernels.rounds.automatic import (
    LEAST_FEATURES,
    MAX_FEATURES,
    MAX_SUMS,
    automatic_program,
)
from kernels.rounds.automatic_with_noise import private_program
from kernels.rounds.kernel import search
from kernels.rounds.known import known
from kernels.rounds.layer import completion
from kernels.rounds.plan import dealt_share, mixes_kernels, most_features, summed_together
from kernels.rounds.program import Program
from kernels.rounds.site.parts import Part
from kernels.rounds.stated.band import USUAL_TABLE, check_band
from kernels.rounds.stated.default_limits import LEAST_ROWS, RATIO, ROWS_PER_FEATURE
from kernels.tables.schema import Schema

_DEVIATIONS = 2.0
_TRAINING = frozenset({Part.TRAINING})
_HELD_OUT = frozenset({Part.STOPPING, Part.CALIBRATION})


def dealt_at_least(rows: int, share: float) -> int:
    """Return how many of some rows can be counted on to be in a part.

    >>> [dealt_at_least(rows, 0.2) for rows in (128, 256, 512)]
    [16, 38, 84]
    """
    expected = rows * share
    return max(0, math.floor(expected - _DEVIATIONS * math.sqrt(expected * (1 - share))))


def rows_needed(program: Program) -> int:
    """Return how many rows a table needs for a program, by hospitals' default floors.

    0 with differential privacy, which has none.
    """
    if program.privacy is not None:
        return 0
    features = most_features(program)
    wanted = max(LEAST_ROWS, math.ceil(ROWS_PER_FEATURE * features))
    summed = (_TRAINING, *summed_together(program))
    shares = (dealt_share(parts, program.held_out) for parts in summed)
    return max(_rows_for(wanted, share) for share in shares if share)


@dataclass(frozen=True, kw_only=True)
class Size:
    """What fits into a table of a band.

    max_features: of a kernel. both_kernels: of two that are mixed, together. completed: of a model
    whose held-out rows may be summed too; 0 if none may.
    """

    max_features: int
    both_kernels: int
    completed: int


def size_for(
    smallest_table: int, *, held_out: float = Program.held_out, features: int = MAX_FEATURES
) -> Size:
    """Return what fits into a table of `smallest_table` rows.

    features: the most that are wanted.

    >>> size_for(128), size_for(4096)  # doctest: +NORMALIZE_WHITESPACE
    (Size(max_features=31, both_kernels=31, completed=0),
     Size(max_features=400, both_kernels=1075, completed=256))
    """
    training = dealt_at_least(check_band(smallest_table), dealt_share(_TRAINING, held_out))
    most = int(training / ROWS_PER_FEATURE)
    aside = dealt_at_least(smallest_table, dealt_share(_HELD_OUT, held_out))
    completed = int(aside / ROWS_PER_FEATURE) if aside >= LEAST_ROWS else 0
    return Size(max_features=min(features, most), both_kernels=most, completed=completed)


def sized_program(
    schema: Schema,
    *,
    smallest_table: int | None,
    members: int,
    private: bool = False,
    min_sites: int = 3,
    max_rows: int = Program.max_rows,
    held_out: float = Program.held_out,
    least_rows: int = Program.least_rows,
    max_sums: int = MAX_SUMS,
    max_features: int = MAX_FEATURES,
) -> Program:
    """Return the program of a session without stages whose smallest table has so many rows.

    smallest_table: None if nobody has said, and USUAL_TABLE is assumed. members: the least
    number of members, by which what becomes known is counted. private: with differential privacy,
    for which few rows are no reason to refuse.
    """
    if private:
        program = private_program(schema, min_sites=min_sites, max_rows=max_rows)
        return replace(program, held_out=held_out, least_rows=least_rows)
    smallest_table = USUAL_TABLE if smallest_table is None else smallest_table
    size = size_for(smallest_table, held_out=held_out, features=max_features)
    while True:
        program = automatic_program(
            schema,
            min_sites=min_sites,
            max_rows=max_rows,
            max_sums=max_sums,
            max_features=max(size.max_features, LEAST_FEATURES),
        )
        program = _within(replace(program, held_out=held_out, least_rows=least_rows), size)
        if most_features(program) > size.both_kernels:
            program = _without_mixing(program)
        if most_features(program) > size.completed:
            program = _without_completion(program)
        if _becomes_known(program, members) or len(program.kernels) == 1:
            break
        size = replace(size, max_features=size.max_features * 3 // 4)
    check_fits_smallest(program, smallest_table)
    return program


def check_fits_smallest(program: Program, smallest_table: int) -> None:
    """Refuse a program for which no table of a band has enough rows."""
    needed, most = rows_needed(program), 2 * check_band(smallest_table) - 1
    if needed > most:
        features = most_features(program)
        alone = ", mix no kernels (blend = false)" if mixes_kernels(program) else ""
        without = ", leave the stage 'completion' out" if _completes(program) else ""
        raise ProgramError(
            f"the program has {features} features, and by default a hospital joins it with about "
            f"{needed:,} rows or more, but smallest_table says that one has at most {most:,}: "
            f"state fewer columns or features{alone}{without}, go without the smallest hospital, "
            "or use differential privacy, with which few rows are no reason to refuse"
        )


def in_words(program: Program) -> str:
    """Return how many rows a hospital needs, as a sentence; empty with differential privacy."""
    needed = rows_needed(program)
    if not needed:
        return ""
    features = most_features(program)
    both = ", those of the two kernels that may be mixed" if mixes_kernels(program) else ""
    rows = f"{needed:,} rows"
    if _completes(program):
        fewer = rows_needed(_without_completion(program))
        rows += f", because 'completion' sums held-out rows alone (without it about {fewer:,})"
    return (
        f"By default a hospital's policy asks for {LEAST_ROWS} rows in every sum and "
        f"{ROWS_PER_FEATURE:g} for each of {features:,} features{both}: a table needs about "
        f"{rows}. If hospitals have fewer, or many more, state smallest_table, and the program "
        "is made to fit."
    )


def _rows_for(wanted: int, share: float) -> int:
    """Return the fewest rows of which `wanted` can be counted on to be in a part."""
    # The root of n·p − d·√(np(1 − p)) = wanted in √n, and the next whole numbers.
    slope = _DEVIATIONS * math.sqrt(share * (1 - share))
    root = (slope + math.sqrt(slope**2 + 4 * share * wanted)) / (2 * share)
    rows = max(0, math.floor(root**2) - 2)
    while dealt_at_least(rows, share) < wanted:
        rows += 1
    return rows


def _completes(program: Program) -> bool:
    return any(isinstance(stage, completion.Spec) for stage in program.stages)


def _becomes_known(program: Program, members: int) -> bool:
    """Return whether the coordinator's ratio holds; it is not known without `least_rows`."""
    if program.least_rows == Program.least_rows:
        return True
    numbers = known(program, members=members, blind=True)
    return numbers.coordinator <= RATIO * numbers.cells


def _without_mixing(program: Program) -> Program:
    """Return the program whose search keeps one kernel, the best one."""
    stages = (
        replace(own, blend=False) if isinstance(own, search.Spec) else own for own in program.stages
    )
    return replace(program, stages=tuple(stages))


def _without_completion(program: Program) -> Program:
    """Return the program whose held-out rows are only scored."""
    stages = tuple(own for own in program.stages if not isinstance(own, completion.Spec))
    return replace(program, stages=stages)


def _within(program: Program, size: Size) -> Program:
    """Return the program without the kernels that are too large; the line stays."""
    (place,) = (n for n, own in enumerate(program.stages) if isinstance(own, search.Spec))
    spec: search.Spec = program.stages[place]
    line, *others = program.choices
    kept = (line, *(own for own in others if own.features <= size.max_features))
    before, behind = program.stages[:place], program.stages[place + 1 :]
    if len(kept) == 1:
        # Of a line there is nothing to train, and nothing to choose.
        return replace(program, kernel=line, choices=(), stages=(*before, *behind))
    recipes = tuple(
        replace(own, kernel=kept.index(program.choices[own.kernel]))
        for own in spec.recipes
        if program.choices[own.kernel] in kept
    )
    stages = (*before, replace(spec, recipes=recipes), *behind)
    return replace(program, choices=kept, stages=stages)
