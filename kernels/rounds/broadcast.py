"""A broadcast as a site receives it: checked against the program that the site agreed to.

A coordinator may send any bytes. What a site computes on is a state of the algorithm that the
program has at that stage, with the program's own schema, kernel (whose seed fixes every random
frequency), bounds and parameters; and its standardiser must fit the site's own rows
(`Site.rows`), or features could be made to single out one patient.
"""

from typing import Any

from kernels.errors import StateError
from kernels.rounds.model import check_model
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of, restore


def received(data: bytes, program: Program, stage: int) -> Any:
    """Return the state in a broadcast for a stage of a program; the bytes are not trusted."""
    spec = program.stages[stage]
    algorithm = algorithm_of(spec)
    restored = restore(data)
    if type(restored) is not algorithm.State:
        raise StateError(f"this broadcast is no state of {algorithm.NAME}, the program's stage")
    state: Any = restored
    check_model(state.model)
    for name in ("schema", "kernel", "max_rows", "privacy"):
        if getattr(state.model, name) != getattr(program, name):
            raise StateError(f"this broadcast has another {name} than the program")
    if getattr(state, "spec", spec) != spec:
        raise StateError(f"this broadcast has other parameters of {algorithm.NAME}")
    return state
