"""What a run may compute, given the session that this hospital agreed to.

    train      the session's program, to the letter
    linear     the linear layer of an existing model, recalibration and evaluation
    evaluate   one evaluation of an existing model
    update     rows added to and removed from an existing model, then as for linear

All over the session's schema, kernel, bounds and seed: another seed would deal the same rows
otherwise, and the difference of two sums would be the rows that moved. With differential privacy
each run has noise multipliers of its own, whose cost the site's ledger knows; all else that privacy
means is the session's.
"""

from dataclasses import replace

from client_sdk.errors import WrongRun
from client_sdk.gate.door import RunInHand
from kernels.model.noise_plan import Privacy
from kernels.rounds.program import Program

_AFTERWARDS = frozenset({"recalibration", "evaluation"})
_LAYERS = frozenset({"linear", "linear_two_sums"})


def check_run(run: RunInHand, program: Program, text: str, *, seed: int) -> None:
    """Refuse a run that is not what its kind says, over what the session is about."""
    for part in ("schema", "kernel", "max_rows", "held_out"):
        if getattr(run.program, part) != getattr(program, part):
            raise WrongRun(f"the run has another {part} than its session")
    if _besides_noise(run.program) != _besides_noise(program):
        raise WrongRun("the run has another privacy than its session")
    if run.seed != seed:
        raise WrongRun("the run has another seed than its session: rows would be dealt otherwise")
    names = [algorithm.NAME for algorithm, _ in run.program.algorithms()]
    first, rest = names[0], frozenset(names[1:])
    match run.kind:
        case "train":
            fits = run.text == text
        case "linear":
            fits = first in _LAYERS and rest <= _AFTERWARDS
        case "evaluate":
            fits = names == ["evaluation"]
        case "update":
            fits = first == "update" and rest <= _AFTERWARDS
        case _:
            fits = False
    if not fits:
        raise WrongRun(
            f"a run of the kind {run.kind!r:.20} does not compute {', '.join(names)} in this "
            "session"
        )


def _besides_noise(program: Program) -> Privacy | None:
    privacy = program.privacy
    return None if privacy is None else replace(privacy, multipliers=())
