"""What a program would sum, in words and numbers, for the person who decides whether to allow it.

This is computed from the program alone, using its algorithms' declarations, before anything is
sent. The numbers are upper bounds: a run that stops early requests fewer sums.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kernels.errors import ProgramError, TooManyRows
from kernels.model.methods import FEDBNR, METHODS
from kernels.model.model import Model
from kernels.model.second import Second
from kernels.rounds.declaration import Before, Declaration, Made
from kernels.rounds.kernel import search
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part
from kernels.rounds.task import statistic_of
from kernels.strict_json import encode_json
from kernels.tables.schema import Schema


def declared(program: Program) -> tuple[Declaration, ...]:
    """Return each stage's declaration."""
    return tuple(_declarations(program))


def algorithms_of(program: Program, stage: int) -> tuple[str, ...]:
    """Return the names of the algorithms whose sums a stage asks for, its own first."""
    algorithm, spec = list(program.algorithms())[stage]
    before = Before(model=program.start(), students=frozenset())
    return algorithm.NAME, *sorted(algorithm.declare(spec, before).includes)


def _declarations(program: Program) -> Iterator[Declaration]:
    start = program.start()
    students = _students_before(program)
    for algorithm, spec in program.algorithms():
        declaration = algorithm.declare(spec, Before(model=start, students=students))
        if Made.CHOICE not in declaration.makes:
            # Which kernel it will be is not known: the most that any of them needs.
            for own in models_after_choice(program):
                other = algorithm.declare(spec, Before(model=own, students=students))
                declaration = _most(declaration, other)
        students = declaration.students
        yield declaration


def models_after_choice(program: Program) -> Iterator[Model]:
    """Yield a model with each of a program's kernels, twice if a second one may be beside it.

    Two of the largest need the most of any two. Whether the session's search mixes kernels is not
    known to a run that starts from its model: then it may.
    """
    searches = [own for own in program.stages if isinstance(own, search.Spec)]
    mixes = not searches or any(own.blend for own in searches)
    mixes = mixes and program.privacy is None and not program.schema.outcomes
    start = program.start()
    for own in program.choices:
        model = replace(start, kernel=own, choices=())
        if mixes:
            model = model.advanced(second=Second(kernel=own, share=0.5))
        yield model


def most_features(program: Program) -> int:
    """Return the most features that a model of a program has, of both kernels if it mixes two.

    A model of two kernels has two matrices S over the same rows, and a floor of so many rows for
    each feature is about both. Whoever has both knows less than whoever has the one S of all these
    features side by side. If a floor asks for r rows per feature of both, M₁ and M₂, they are at
    most (M₁² + M₂²)/(2r(M₁ + M₂)) numbers per row, no more than the larger kernel's S alone has at
    its own floor, M/(2r). Other sums of a run are counted by the disclosure ledger.

    Which two a search mixes is not known beforehand: the largest of two recipes, which may have the
    same kernel. A program without its search may start from any mixture of its choices.
    """
    searches = [own for own in program.stages if isinstance(own, search.Spec)]
    largest = sorted((own.features for own in program.kernels), reverse=True)[:1] * 2
    if searches:
        of_recipes = (program.choices[recipe.kernel] for own in searches for recipe in own.recipes)
        largest = sorted((own.features for own in of_recipes), reverse=True)
    return sum(largest[: 2 if mixes_kernels(program) else 1])


def mixes_kernels(program: Program) -> bool:
    """Return whether a model of a program can have two kernels."""
    return any(own.second is not None for own in models_after_choice(program))


def _most(one: Declaration, other: Declaration) -> Declaration:
    """Return the larger of both numbers of everything that depends on the kernel."""
    return replace(
        one,
        sums=max(one.sums, other.sums),
        numbers=max(one.numbers, other.numbers),
        numbers_in_all=max(one.numbers_in_all, other.numbers_in_all),
        leaves=max(one.leaves, other.leaves),
    )


def _students_before(program: Program) -> frozenset[str]:
    """Return the methods of students and networks that a model can have before the first stage.

    All methods are possible if the program starts from an earlier model and keeps them
    (`Program.start`).
    """
    algorithm, spec = next(program.algorithms())
    first = algorithm.declare(spec, Before(model=program.start(), students=frozenset()))
    keeps = first.needs and Made.LAYER not in first.makes and program.privacy is None
    return frozenset(METHODS) - {FEDBNR} if keeps else frozenset()


@dataclass(frozen=True)
class StageDisclosure:
    """One stage: its statistic, and the maximum number of sums and of numbers in each sum."""

    algorithm: str
    sums: int
    numbers: int
    words: str

    @property
    def sentence(self) -> str:
        """The stage in one line."""
        return (
            f"{self.algorithm}: {self.words}; at most {self.sums} "
            f"sum{'s' if self.sums != 1 else ''} of at most {self.numbers} numbers"
        )


def stages_disclosed(program: Program) -> tuple[StageDisclosure, ...]:
    """Return the disclosure of each stage of a program."""
    return tuple(
        StageDisclosure(
            statistic_of(algorithm),
            own.sums,
            own.numbers,
            own.words + _noise(program, stage, own),
        )
        for stage, ((algorithm, _), own) in enumerate(
            zip(program.algorithms(), declared(program), strict=True)
        )
    )


def _noise(program: Program, stage: int, own: Declaration) -> str:
    if program.privacy is None or not own.sums:
        return ""
    unit = "row" if program.schema.patient is None else "patient"
    noise = program.privacy.multipliers[stage]
    return f"; with noise of {noise:g} times what any one {unit} can change in them"


@dataclass(frozen=True)
class Planned:
    """What a stage would release with differential privacy; its privacy cost follows from this.

    part: the part whose rows it reads. sums: the maximum number of sums. numbers: the maximum
    number of numbers in each sum. multiplier: z, the noise of each sum divided by what one unit can
    change. sampling_rate: the probability that a unit is in one sum. noise_share: its share of the
    privacy budget of its part, relative to other stages.
    """

    algorithm: str
    part: Part
    sums: int
    numbers: int
    multiplier: float
    sampling_rate: float
    noise_share: float

    @property
    def dealt(self) -> bool:
        """Whether this is a dealt part: each unit is assigned to exactly one of those.

        Sums over different dealt parts are charged to different units, all other sums to every
        unit.
        """
        return self.part in _DEALT


_DEALT = (Part.TRAINING, Part.STOPPING, Part.CALIBRATION)


def summed_together(program: Program) -> dict[frozenset[Part], str]:
    """Return the sets of parts that are summed together, each with the algorithm that does so.

    Those of algorithms that need consent by name are left out: what is consented to is a sum over
    whatever rows there are.
    """
    found: dict[frozenset[Part], str] = {}
    for (algorithm, _), own in zip(program.algorithms(), declared(program), strict=True):
        if not own.needs_consent:
            found |= {each: algorithm.NAME for each in own.summed_together if each not in found}
    return found


def dealt_share(parts: frozenset[Part], held_out: float) -> float:
    """Return the share of a table's rows that is dealt to some parts, on average.

    >>> dealt_share(frozenset({Part.STOPPING, Part.CALIBRATION}), 0.25)
    0.25
    """
    shares = {Part.TRAINING: 1 - held_out, Part.STOPPING: held_out / 2}
    shares[Part.CALIBRATION] = held_out / 2
    return sum(shares.get(part, 0.0) for part in sorted(parts))


def planned(program: Program) -> tuple[Planned, ...]:
    """Return what each stage of a private program would release; a free stage has no sums."""
    if program.privacy is None:
        raise ProgramError("this program is not private: there is no noise to account for")
    return tuple(
        Planned(
            statistic_of(algorithm),
            _one_part(own),
            own.sums,
            own.numbers,
            multiplier,
            own.sampling_rate,
            own.noise_share,
        )
        for (algorithm, _), own, multiplier in zip(
            program.algorithms(), declared(program), program.privacy.multipliers, strict=True
        )
    )


def _one_part(own: Declaration) -> Part:
    """Return the part that a private stage reads; it determines which units are charged."""
    if len(own.reads) != 1:
        raise ProgramError("a stage with differential privacy reads exactly one part of the rows")
    return next(iter(own.reads))


def site_dealing(program: Program, *, commitment: bytes, table: bytes) -> bytes:
    """Return 32 bytes that identify how a site's table is dealt into parts.

    commitment: of the site's `Dealing`. table: the digest of the site's table.

    A patient's part follows from the secret, the patient's identifier and the held-out share. A row
    without a patient is dealt by its content: if a cell is corrected, the row may move to another
    part and is then charged in both. A different table without a patient column therefore counts as
    a different dealing.
    """
    patient = program.schema.patient
    own = table.hex() if patient is None else ""
    return _hashed(["site", commitment.hex(), program.held_out, patient, own])


def session_dealing(program: Program) -> bytes:
    """Return 32 bytes that identify how the tables of a session are dealt, for its own ledger.

    The coordinator knows no site's secret and no table. Its ledger has the releases of one session,
    whose schema and held-out share do not change, and a member deals by one secret: it is created
    with the identity that enrolled, and no home is used with one of them missing. So all runs of a
    session have the same dealing, and schema and share identify it.

    What the coordinator cannot see is counted by the site's own ledger (`site_dealing`), by which
    the site refuses: another secret, or corrected rows in a table without a patient column.
    """
    return _hashed(["session", program.schema.to_json(), program.held_out])


def _hashed(parts: list[object]) -> bytes:
    return hashlib.sha256(encode_json(parts).encode()).digest()


@dataclass(frozen=True)
class ReleasePlan:
    """What a run of a private program would release: its stages, and how its tables are dealt."""

    stages: tuple[Planned, ...]
    dealing: bytes


def release_plan(program: Program, dealing: bytes | None = None) -> ReleasePlan:
    """Plan a run; a site passes its `site_dealing`, otherwise it is `session_dealing`."""
    return ReleasePlan(planned(program), session_dealing(program) if dealing is None else dealing)


def check_fits(program: Program, counts: Mapping[Part, int]) -> None:
    """Refuse a table with more rows in a sum than the program allows, before a run is entered.

    counts: the number of rows of each part. Parts that are summed together count together. With
    differential privacy nothing is refused: whether a site takes part would depend on its rows, and
    no noise covers that; what is beyond the bounds of a sum is clipped.
    """
    if program.privacy is not None:
        return
    stages = declared(program)
    sets = {frozenset({part}) for own in stages for part in own.reads}
    sets |= {each for own in stages for each in own.summed_together}
    for parts in sorted(sets, key=sorted):
        rows = sum(counts.get(part, 0) for part in parts)
        if rows > program.max_rows:
            raise TooManyRows(
                f"this site has {rows} rows for {' and '.join(sorted(parts))}, and this session "
                f"allows {program.max_rows} per site: ask for a session with a larger max_rows"
            )


def columns_read(schema: Schema) -> tuple[str, ...]:
    """Return the names of the table columns that a program with this schema reads."""
    return schema.columns
