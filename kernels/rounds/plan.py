"""What a program would sum, in words and numbers, for the person who decides whether to allow it.

This is computed from the program alone, using its algorithms' declarations, before anything is
sent. The numbers are upper bounds: a run that stops early requests fewer sums.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from kernels.ensembles.distilled import Method
from kernels.errors import ProgramError
from kernels.rounds.declaration import Before, Declaration, Made
from kernels.rounds.program import Program
from kernels.rounds.site.site import Part
from kernels.rounds.task import statistic_of
from kernels.strict_json import encode_json
from kernels.tables.schema import Schema


def declared(program: Program) -> tuple[Declaration, ...]:
    """Return each stage's declaration."""
    return tuple(_declarations(program))


def _declarations(program: Program) -> Iterator[Declaration]:
    model = program.start()
    students = _students_before(program)
    for algorithm, spec in program.algorithms():
        declaration = algorithm.declare(spec, Before(model=model, students=students))
        students = declaration.students
        yield declaration


def _students_before(program: Program) -> frozenset[Method]:
    """Return the methods of the students that the model can have before the first stage.

    All methods are possible if the program starts from an earlier model and keeps its students
    (`Program.start`).
    """
    algorithm, spec = next(program.algorithms())
    first = algorithm.declare(spec, Before(model=program.start(), students=frozenset()))
    keeps = first.needs and Made.LAYER not in first.makes and program.privacy is None
    return frozenset(Method) if keeps else frozenset()


@dataclass(frozen=True)
class StageDisclosure:
    """One stage: its statistic, and the maximum number of sums and of numbers in each sum."""

    algorithm: str
    sums: int
    numbers: int
    words: str


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


def dealing(program: Program, seed: int, *, table: bytes = b"") -> bytes:
    """Return 32 bytes that identify how a program's tables are dealt into parts.

    The part of each unit follows from the seed, the held-out share, and what the schema reads. A
    row without a patient is dealt by its content: if a cell is corrected, the row may move to
    another part and is then charged in both. A site, which knows its table, therefore passes the
    table's digest, and a different table counts as a different dealing.
    """
    own = table.hex() if program.schema.patient is None else ""
    text = encode_json([program.schema.to_json(), program.held_out, seed, own])
    return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True)
class ReleasePlan:
    """What a run of a private program would release: its stages, and how its tables are dealt."""

    stages: tuple[Planned, ...]
    dealing: bytes


def release_plan(program: Program, seed: int, *, table: bytes = b"") -> ReleasePlan:
    """Plan a run over tables dealt by a seed; a site passes its table's digest (`dealing`)."""
    return ReleasePlan(planned(program), dealing(program, seed, table=table))


def columns_read(schema: Schema) -> tuple[str, ...]:
    """Return the names of the table columns that a program with this schema reads."""
    named = [column.name for column in (*schema.features, *schema.targets)]
    return (*named, *([] if schema.patient is None else [schema.patient]))
