"""What a task says of a sum beside its encoding: which statistic, at which place of which run.

The coordinator writes it into a task and every hospital compares: both take it from here.
"""

import hashlib

from kernels.rounds.algorithm import Algorithm
from kernels.rounds.program import Program
from kernels.strict_json import encode_json


def statistic_of(algorithm: Algorithm) -> str:
    """Return the name of what is summed: the algorithm's, with its version."""
    return f"{algorithm.NAME}/{algorithm.VERSION}"


def program_digest(text: str) -> str:
    """Return what a task says of its run's program: the SHA-256 of its text as it was sent."""
    return hashlib.sha256(text.encode()).hexdigest()


def task_parameters(*, program: str, run_kind: str, seed: int, stage: int) -> bytes:
    """Return a task's parameters; `program` is the run's program's digest."""
    parameters = {"program": program, "run_kind": run_kind, "seed": seed, "stage": stage}
    return encode_json(parameters).encode()


def noise_multiplier(program: Program, stage: int) -> float | None:
    """Return the noise of a stage's sums over what one unit can change; None if they are exact."""
    return None if program.privacy is None else program.privacy.multipliers[stage]
