"""What a task states about a sum besides its encoding: the statistic, the run and the stage.

The coordinator writes these fields into a task and every hospital compares them; both use this
module.
"""

import hashlib
import json

from kernels.errors import ProgramError
from kernels.rounds.algorithm import Algorithm
from kernels.rounds.program import Program
from kernels.strict_json import encode_json


def statistic_of(algorithm: Algorithm) -> str:
    """Return the name of the summed statistic: the algorithm's name and version."""
    return f"{algorithm.NAME}/{algorithm.VERSION}"


def program_digest(text: str) -> str:
    """Return the digest of a run's program for a task: the SHA-256 of its text as sent."""
    return hashlib.sha256(text.encode()).hexdigest()


def run_digest(text: str, *, run_kind: str, parent: str | None) -> str:
    """Return the digest of everything that a run computes: program, kind, and model it starts from.

    parent: that model's id, or None.
    """
    what = {"program": program_digest(text), "run_kind": run_kind, "parent": parent}
    return hashlib.sha256(encode_json(what).encode()).hexdigest()


def task_parameters(
    *, program: str, run_kind: str, parent: str | None, stage: int, sum_index: int
) -> bytes:
    """Return a task's parameters.

    program: the digest of the run's program. parent: the id of the model it starts from, or None.
    """
    parameters = {
        "program": program,
        "run_kind": run_kind,
        "parent": parent,
        "stage": stage,
        "sum_index": sum_index,
    }
    return encode_json(parameters).encode()


def place_in(parameters: bytes) -> tuple[int, int]:
    """Return stage and sum index in a task's parameters, which are not trusted.

    The caller compares the parameters with those that it derives from the result.
    """
    try:
        plain = json.loads(parameters)
        stage, sum_index = plain["stage"], plain["sum_index"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ProgramError("these are not a task's parameters") from None
    if type(stage) is not int or type(sum_index) is not int or min(stage, sum_index) < 0:
        raise ProgramError("a task's stage and sum index must be integers of at least 0")
    return stage, sum_index


def noise_multiplier(program: Program, stage: int) -> float | None:
    """Return a stage's noise divided by what one unit can change; None if its sums are exact."""
    return None if program.privacy is None else program.privacy.multipliers[stage]
