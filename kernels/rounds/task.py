"""What a task states about a sum besides its encoding: the statistic, the run and the stage.

The coordinator writes these fields into a task and every hospital compares them; both use this
module.
"""

import hashlib

from kernels.rounds.algorithm import Algorithm
from kernels.rounds.program import Program
from kernels.strict_json import encode_json


def statistic_of(algorithm: Algorithm) -> str:
    """Return the name of the summed statistic: the algorithm's name and version."""
    return f"{algorithm.NAME}/{algorithm.VERSION}"


def program_digest(text: str) -> str:
    """Return the digest of a run's program for a task: the SHA-256 of its text as sent."""
    return hashlib.sha256(text.encode()).hexdigest()


def task_parameters(*, program: str, run_kind: str, seed: int, stage: int) -> bytes:
    """Return a task's parameters; `program` is the digest of the run's program."""
    parameters = {"program": program, "run_kind": run_kind, "seed": seed, "stage": stage}
    return encode_json(parameters).encode()


def noise_multiplier(program: Program, stage: int) -> float | None:
    """Return a stage's noise divided by what one unit can change; None if its sums are exact."""
    return None if program.privacy is None else program.privacy.multipliers[stage]
