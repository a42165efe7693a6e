"""Checks of a received broadcast against the program that the site agreed to.

A coordinator may send any bytes. A site only accepts a state of the algorithm that the program has
at that stage, with the program's own schema, kernel (whose seed fixes every random frequency),
bounds and parameters. No check looks at the site's rows: whether a site refuses must not depend on
them. With differential privacy, weights that would turn rounding errors into features are refused
(`kernels.features.rounding`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kernels.errors import ComputationFailed, KernelsError, StateError
from kernels.features.rounding import feature_rounding
from kernels.model.model import Model, check_model
from kernels.rounds.program import Program
from kernels.rounds.registry import algorithm_of, restore

MOST_ROUNDING = 2.0**-20
"""The maximum rounding of a row's features, which `privacy.scales` adds to a sensitivity."""


def received(data: bytes, program: Program, stage: int) -> Any:
    """Return the state that a broadcast for a program's stage contains; `data` is not trusted."""
    with _reading():
        return checked(restore(data), program, stage)


def checked(restored: object, program: Program, stage: int) -> Any:
    """Return a state that a site may compute from, whoever computed it."""
    with _reading():
        return _checked(restored, program, stage)


@contextmanager
def _reading() -> Iterator[None]:
    """Turn every failure in the block into a declared error: a hostile state may fail anywhere."""
    try:
        yield
    except (KernelsError, OSError):
        raise
    except Exception as error:
        raise ComputationFailed(
            f"this broadcast cannot be read: {type(error).__name__}: {error}"
        ) from error


def _checked(restored: object, program: Program, stage: int) -> Any:
    spec = program.stages[stage]
    algorithm = algorithm_of(spec)
    if type(restored) is not algorithm.State:
        raise StateError(f"this broadcast is not a state of {algorithm.NAME}, the program's stage")
    state: Any = restored
    check_model(state.model)
    for name in ("schema", "max_rows", "privacy"):
        if getattr(state.model, name) != getattr(program, name):
            raise StateError(f"this broadcast has another {name} than the program")
    if not {own.kernel for own, _ in state.model.members} <= set(program.kernels):
        raise StateError("this broadcast has another kernel than the program")
    if state.model.choices not in ((), program.choices):
        raise StateError("this broadcast has other kernels to choose from than the program")
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
