"""What a program will do and cost, in sentences, for whoever makes a session.

The hospital's own disclosure says the same of every stage, and more about what protects it.
"""

from kernels.features.spec import KernelSpec
from kernels.rounds import sized
from kernels.rounds.expected.forecast_in_words import expected_in_words
from kernels.rounds.known import known_to_coordinator, numbers_in_sums
from kernels.rounds.order.whole_program import kernel_alone
from kernels.rounds.plan import mixes_kernels, stages_disclosed
from kernels.rounds.program import Program
from kernels.rounds.work import work
from kernels.tables.schema import Schema

_ROWS = 1000
"""How many training rows the hospital has that time is estimated for."""
KERNEL_ALONE = (
    "No layer is summed: the result is a kernel, which predicts nothing by itself. A hospital fits "
    "a personal model to it, at home and of its own rows alone, and the coordinator can predict "
    "nothing."
)
_MOST_NAMES = 12
"""Most columns that are listed by name."""


def in_words(
    program: Program,
    *,
    blind: bool,
    members_only: bool = False,
    budget: tuple[float, float, int] | None = None,
) -> tuple[str, ...]:
    """Return sentences: what is learned, every stage, all of them, and who reads what.

    blind: the coordinator cannot read sums. members_only: nor does it get the model.
    budget: ε, δ and the number of runs that they are planned for, with differential privacy.
    """
    stages = stages_disclosed(program)
    sums = sum(stage.sums for stage in stages)
    in_all = (
        f"In all: at most {sums:,} sum{'s' if sums != 1 else ''} and "
        f"{numbers_in_sums(program):,} numbers. Only the sums over hospitals become known, to "
        "every hospital."
    )
    own = work(program, rows=_ROWS)
    costs = (
        f"A hospital sends at most {max(1, round(own.megabytes)):,} MB. With {_ROWS:,} training "
        f"rows it computes for about {max(1, round(own.cpu_seconds)):,} seconds on one core."
    )
    said = [
        _learned(program),
        *(f"Stage {place}, {stage.sentence}." for place, stage in enumerate(stages, 1)),
        in_all,
        costs,
        _read(program, blind=blind, members_only=members_only),
        *([KERNEL_ALONE] if kernel_alone(program) else []),
        *filter(None, [sized.in_words(program)]),
    ]
    if budget is not None:
        epsilon, delta, runs = budget
        unit = "row" if program.schema.patient is None else "patient"
        of = "one run" if runs == 1 else f"{runs} runs"
        said.append(
            f"The noise is planned so that {of} cost{'s' if runs == 1 else ''} any one {unit} at "
            f"most ε = {epsilon:g} at δ = {delta:g}. A sum that is lost and requested again costs "
            "again."
        )
    return *said, *expected_in_words(program)


def _learned(program: Program) -> str:
    schema = program.schema
    targets = " and ".join(target.name for target in schema.targets)
    which = "the kernel" if len(program.kernels) == 1 else "the best of these kernels,"
    if mixes_kernels(program):
        which = "the best of these kernels, or a mixture of the best two:"
    kernels = "; ".join(map(_kernel, program.kernels))
    return f"Learned is to predict {targets} from {_columns(schema)}, with {which} {kernels}."


def _kernel(kernel: KernelSpec) -> str:
    linear = " with a linear part" if kernel.linear_part else ""
    return f"{kernel.architecture}{linear} ({kernel.features:,} features)"


def _columns(schema: Schema) -> str:
    names = [column.name for column in schema.features]
    if len(names) > _MOST_NAMES:
        return f"{len(names)} columns"
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _read(program: Program, *, blind: bool, members_only: bool) -> str:
    if not blind:
        return "The coordinator reads every sum and has the model."
    numbers = known_to_coordinator(program, blind=True, members_only=members_only)
    if members_only:
        return (
            "The coordinator reads no sum, and does not have the model: it reads the scores on "
            "held-out rows, the number of training rows, and how the run ended. "
            f"Known to the coordinator: at most {numbers:,} numbers."
        )
    return (
        "The coordinator reads no sum. It has the finished model, which contains sums over all "
        "hospitals, and sees how the run ended. "
        f"Known to the coordinator: at most {numbers:,} numbers."
    )
