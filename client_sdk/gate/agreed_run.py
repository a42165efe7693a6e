"""Whether a run computes what this hospital agreed to with its session.

A run's program follows from its kind and from the session's program (`kernels.rounds.run_kinds`):
the hospital derives it itself and compares. Its seed is the session's: another one would deal the
same rows otherwise, and the difference of two sums would be the rows that moved. With differential
privacy each run has noise multipliers of its own, whose cost the site's ledger knows.
"""

from client_sdk.errors import WrongRun
from client_sdk.gate.run_in_hand import RunInHand
from kernels.errors import ProgramError
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, besides_noise, program_of


def check_run(run: RunInHand, program: Program, text: str, *, seed: int) -> None:
    """Refuse a run that is not what its kind says, over what the session is about."""
    for part in ("schema", "kernel", "max_rows", "held_out"):
        if getattr(run.program, part) != getattr(program, part):
            raise WrongRun(f"the run has another {part} than its session")
    if run.seed != seed:
        raise WrongRun("the run has another seed than its session: rows would be dealt otherwise")
    try:
        agreed = program_of(Kind(run.kind), program).program
    except (ValueError, ProgramError):
        raise WrongRun(f"this session has no run of the kind {run.kind!r:.20}") from None
    if run.kind == Kind.TRAIN:
        fits = run.text == text
    else:
        fits = besides_noise(run.program) == besides_noise(agreed)
    if not fits:
        names = ", ".join(algorithm.NAME for algorithm, _ in run.program.algorithms())
        raise WrongRun(
            f"a run of the kind {run.kind!r:.20} of this session does not compute {names} with "
            "these parameters"
        )
