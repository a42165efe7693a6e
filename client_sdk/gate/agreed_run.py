"""The check that a run computes what this hospital agreed to when it joined the session.

A run's program follows from its kind and from the session's program (`kernels.rounds.run_kinds`):
the hospital derives the program itself and compares, noise included. The run must hold out the
session's share: another would deal the same rows differently, and the difference between two sums
would reveal the rows that moved.
"""

from client_sdk.errors import WrongRun
from client_sdk.gate.run_in_hand import RunInHand
from kernels.errors import ProgramError
from kernels.model.model import Model
from kernels.rounds.plan import most_features
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind, program_of


def check_run(run: RunInHand, program: Program, text: str) -> None:
    """Refuse a run whose program is not the one that its kind and the session's program define."""
    for part in ("schema", "kernel", "choices", "max_rows", "held_out", "least_rows"):
        if getattr(run.program, part) != getattr(program, part):
            raise WrongRun(f"the run's {part} differs from the session's {part}")
    try:
        agreed = program_of(Kind(run.kind), program)
    except (ValueError, ProgramError):
        raise WrongRun(f"this session has no runs of kind {run.kind!r:.20}") from None
    if (run.kind == Kind.TRAIN) != (run.parent is None):
        raise WrongRun("a run starts from a model unless its kind is train")
    if run.text != (text if run.kind == Kind.TRAIN else agreed.to_json()):
        names = ", ".join(algorithm.NAME for algorithm, _ in run.program.algorithms())
        raise WrongRun(
            f"a run of kind {run.kind!r:.20} in this session must not compute {names} with these "
            "parameters"
        )


def check_start(model: Model, session: Program) -> None:
    """Refuse to start from a model with more features than the session's own models can have.

    The site's floors were checked for those: a model of another session, in which two kernels were
    mixed, would have two matrices summed where one was agreed to.
    """
    features, most = sum(own.kernel.features for own, _ in model.members), most_features(session)
    if features > most:
        raise WrongRun(
            f"the run starts from a model with {features:,} features, but models of this session "
            f"have at most {most:,}: it is a model of another session"
        )
