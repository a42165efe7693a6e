"""The check that a run computes what this hospital agreed to when it joined the session.

A run's program follows from its kind and from the session's program (`kernels.rounds.run_kinds`):
the hospital derives the program itself and compares. The run must use the session's seed: another
seed would split the same rows differently, and the difference between two sums would reveal the
rows that moved. With differential privacy each run has its own noise multipliers; their cost is
recorded in the site's ledger.
"""

from client_sdk.errors import WrongRun
from client_sdk.gate.run_in_hand import RunInHand
from kernels.errors import ProgramError
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, besides_noise, program_of


def check_run(run: RunInHand, program: Program, text: str, *, seed: int) -> None:
    """Refuse a run whose program is not the one that its kind and the session's program define."""
    for part in ("schema", "kernel", "max_rows", "held_out"):
        if getattr(run.program, part) != getattr(program, part):
            raise WrongRun(f"the run's {part} differs from the session's {part}")
    if run.seed != seed:
        raise WrongRun(
            "the run's seed differs from the session's seed: rows would be split differently"
        )
    try:
        agreed = program_of(Kind(run.kind), program).program
    except (ValueError, ProgramError):
        raise WrongRun(f"this session has no runs of kind {run.kind!r:.20}") from None
    if run.kind == Kind.TRAIN:
        fits = run.text == text
    else:
        fits = besides_noise(run.program) == besides_noise(agreed)
    if not fits:
        names = ", ".join(algorithm.NAME for algorithm, _ in run.program.algorithms())
        raise WrongRun(
            f"a run of kind {run.kind!r:.20} in this session must not compute {names} with these "
            "parameters"
        )
