"""How much a hospital computes and sends in a run, estimated before it: from the program alone.

Of n rows, a number of a sum is a sum of n products, whether of features or in a gradient. So the
time of one core is about

    numbers in all sums × (PER_NUMBER + n × PER_ROW)

PER_NUMBER is for encoding. Both were fitted by hand to `hospital_cpu_s` of fifteen cells of
`benchmarks auto`, which sends nothing: masks, tags and replay come on top. Programs with networks
were within a factor of 2 of it; a kernel of inducing points took up to four times as long, for few
numbers. Sums are counted at most; time is no bound: machines differ.
"""

from dataclasses import dataclass

from kernels.rounds.known import known_to_hospitals
from kernels.rounds.program import Program

PER_NUMBER = 3e-8
"""Seconds of one core."""
PER_ROW = 2e-10
"""Seconds of one core, for each number and row."""
_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Work:
    """cpu_seconds: about how long one core computes. megabytes: what is sent, at most."""

    cpu_seconds: float
    megabytes: float


def work(program: Program, *, rows: int) -> Work:
    """Return what a hospital with so many training rows has to do in a run of a program.

    >>> from kernels.rounds.automatic import automatic_program
    >>> from kernels.tables.schema import Numeric, Schema
    >>> from kernels.tables.targets import Target
    >>> schema = Schema((Numeric("age", "y"), Numeric("lactate", "mmol/L")), (Target("stay", "d"),))
    >>> small, large = (work(automatic_program(schema), rows=rows) for rows in (0, 1000))
    >>> small.cpu_seconds < large.cpu_seconds < 60
    True
    """
    numbers = known_to_hospitals(program)
    return Work(
        cpu_seconds=numbers * (PER_NUMBER + rows * PER_ROW), megabytes=numbers * _BYTES / 1e6
    )
