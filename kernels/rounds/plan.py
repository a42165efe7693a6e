"""What a program would sum, in plain words and in numbers: for whoever decides on it.

Computed from the program alone, by what its algorithms declare of themselves, before anything is
sent. The numbers are upper bounds: a run that stops early asks for fewer sums.
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
    """Return what each stage declares of itself."""
    return tuple(_declarations(program))


def _declarations(program: Program) -> Iterator[Declaration]:
    model = program.start()
    students = _students_before(program)
    for algorithm, spec in program.algorithms():
        declaration = algorithm.declare(spec, Before(model=model, students=students))
        students = declaration.students
        yield declaration


def _students_before(program: Program) -> frozenset[Method]:
    """Return the students that the model before the first stage can have.

    Any, where the program starts from an earlier model and keeps them (`Program.start`).
    """
    algorithm, spec = next(program.algorithms())
    first = algorithm.declare(spec, Before(model=program.start(), students=frozenset()))
    keeps = first.needs and Made.LAYER not in first.makes and program.privacy is None
    return frozenset(Method) if keeps else frozenset()


@dataclass(frozen=True)
class StageDisclosure:
    """One stage: which statistic, at most how many sums, at most how many numbers in each."""

    algorithm: str
    sums: int
    numbers: int
    words: str


def stages_disclosed(program: Program) -> tuple[StageDisclosure, ...]:
    """Work it out from the program."""
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
    """What a stage would release with differential privacy: what it costs follows from this.

    part: whose rows. sums: at most how many. numbers: at most how many in each. multiplier: z, the
    noise of each over what one unit can change. sampling_rate: with which chance a unit is in one.
    noise_share: how much of what its part may spend it asks for, relative to other stages.
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
        """Whether the part is one of those that each unit is dealt to one of.

        Sums over different dealt parts are paid for by different units; others by every unit.
        """
        return self.part in _DEALT


_DEALT = (Part.TRAINING, Part.STOPPING, Part.CALIBRATION)


def planned(program: Program) -> tuple[Planned, ...]:
    """Say for each stage of a private program what it would release; a free one has no sums."""
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
    """Return the part that a private stage reads; what is charged to whom follows from it."""
    if len(own.reads) != 1:
        raise ProgramError("a stage with differential privacy reads exactly one part of the rows")
    return next(iter(own.reads))


def dealing(program: Program, seed: int, *, table: bytes = b"") -> bytes:
    """Name the way in which a program's tables are dealt into parts: 32 bytes.

    Who is in which part follows from the seed, the share held out, and what the schema reads. A row
    without a patient is dealt by what is in it: where a cell is corrected, the row may move to
    another part, and pays in both. So a site, which knows its table, gives its digest, and another
    table is another dealing.
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
    """Plan a run over tables dealt by a seed; a site gives its table's digest (`dealing`)."""
    return ReleasePlan(planned(program), dealing(program, seed, table=table))


def columns_read(schema: Schema) -> tuple[str, ...]:
    """Give the columns of a table that a program reads."""
    named = [column.name for column in (*schema.features, *schema.targets)]
    return (*named, *([] if schema.patient is None else [schema.patient]))
