"""Checks of a received broadcast against the program that the site agreed to.

A coordinator may send any bytes. A site only accepts a state of the algorithm that the program has
at that stage, with the program's own schema, kernel (whose seed fixes every random frequency),
bounds and parameters. The standardiser must also fit the site's own rows (`Site.rows`); otherwise
features could be constructed to single out one patient.

With differential privacy, anything that others see may depend on the rows only through the noise,
so this check does not look at the rows. Instead, weights that would turn rounding errors into
features are refused (`kernels.features.rounding`).
"""

from typing import Any

from kernels.errors import StateError
from kernels.features.rounding import feature_rounding
from kernels.model.model import Model, check_model
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of, restore

MOST_ROUNDING = 2.0**-20
"""The maximum rounding of a row's features, which `privacy.scales` adds to a sensitivity."""


def received(data: bytes, program: Program, stage: int) -> Any:
    """Return the state that a broadcast for a program's stage contains; `data` is not trusted."""
    spec = program.stages[stage]
    algorithm = algorithm_of(spec)
    restored = restore(data)
    if type(restored) is not algorithm.State:
        raise StateError(f"this broadcast is not a state of {algorithm.NAME}, the program's stage")
    state: Any = restored
    check_model(state.model)
    for name in ("schema", "kernel", "max_rows", "privacy"):
        if getattr(state.model, name) != getattr(program, name):
            raise StateError(f"this broadcast has another {name} than the program")
    if state.spec != spec:
        raise StateError(f"this broadcast has other parameters of {algorithm.NAME}")
    if program.privacy is not None:
        _check_features(state.model)
    return state


def _check_features(model: Model) -> None:
    """Refuse weights for which adding a row could change other rows' features, or overflow."""
    if model.standardiser is not None and not feature_rounding(model.urk) <= MOST_ROUNDING:
        raise StateError(
            "the weights of this broadcast are so large that features would be mostly rounding "
            "errors, which the noise does not cover"
        )
