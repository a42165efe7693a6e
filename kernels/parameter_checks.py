"""Checks of an algorithm's parameters, which arrive as JSON from an untrusted program."""

from enum import StrEnum
from typing import TypeVar

from kernels.errors import ProgramError
from kernels.strict_json import is_flag, is_number

Kind = TypeVar("Kind", bound=StrEnum)

MOST = 100_000
"""The most rounds or steps: a program must not make a hospital train without end."""


def check_flag(**flags: bool) -> None:
    """Refuse parameters that are not true or false; the message names the parameter."""
    for name, flag in flags.items():
        if not is_flag(flag):
            raise ProgramError(f"{name} must be true or false, not {flag!r}")


def check_whole(least: int, **numbers: int) -> None:
    """Refuse parameters that are not integers from `least` to MOST, by name."""
    for name, number in numbers.items():
        if type(number) is not int or not least <= number <= MOST:
            raise ProgramError(f"{name} must be an integer from {least} to {MOST}, not {number!r}")


def check_at_least(least: float, **numbers: float) -> None:
    """Refuse parameters that are not finite numbers of at least `least`, by name."""
    for name, number in numbers.items():
        if not is_number(number) or number < least:
            raise ProgramError(
                f"{name} must be a finite number of at least {least:g}, not {number!r}"
            )


def choices(**grids: tuple[float, ...]) -> tuple[float, ...]:
    """Return the candidate values of one parameter: at least one number, none below 0."""
    ((name, numbers),) = grids.items()
    if not isinstance(numbers, tuple | list) or not numbers:
        raise ProgramError(f"{name} must be a list of at least one number, not {numbers!r}")
    for number in numbers:
        check_at_least(0.0, **{name: number})
    return tuple(numbers)


def one_of(kind: type[Kind], **named: str) -> Kind:
    """Return the member of an enumeration that a parameter names."""
    ((name, value),) = named.items()
    try:
        return kind(value)
    except ValueError:
        raise ProgramError(f"{name} must be one of {', '.join(kind)}, not {value!r}") from None


def check_learning_rate(**rates: float) -> None:
    """Refuse rates that are not above 0 and at most 1, about the length of one Adam step."""
    for name, rate in rates.items():
        if not is_number(rate) or not 0 < rate <= 1:
            raise ProgramError(f"{name} must be a number above 0 and at most 1, not {rate!r}")
