"""Checks of an algorithm's parameters, which arrive as JSON from a program that is not trusted."""

from enum import StrEnum
from typing import TypeVar

from kernels.errors import ProgramError
from kernels.strict_json import is_flag, is_number

Kind = TypeVar("Kind", bound=StrEnum)

MOST = 100_000
"""Of rounds or steps: a hospital is not made to train without end by what it is sent."""


def check_flag(**flags: bool) -> None:
    """Refuse what is not true or false, by the parameter's name."""
    for name, flag in flags.items():
        if not is_flag(flag):
            raise ProgramError(f"{name} must be true or false, not {flag!r}")


def check_whole(least: int, **numbers: int) -> None:
    """Refuse what is not a whole number from `least` to MOST, by the parameter's name."""
    for name, number in numbers.items():
        if type(number) is not int or not least <= number <= MOST:
            raise ProgramError(
                f"{name} must be a whole number from {least} to {MOST}, not {number!r}"
            )


def check_at_least(least: float, **numbers: float) -> None:
    """Refuse what is not a finite number of at least `least`, by the parameter's name."""
    for name, number in numbers.items():
        if not is_number(number) or number < least:
            raise ProgramError(f"{name} must be a number of at least {least:g}, not {number!r}")


def choices(**grids: tuple[float, ...]) -> tuple[float, ...]:
    """Return the numbers that one parameter is chosen from: at least one, none below 0."""
    ((name, numbers),) = grids.items()
    if not isinstance(numbers, tuple | list) or not numbers:
        raise ProgramError(f"{name} must list at least one number, not {numbers!r}")
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
    """Refuse what is not a number above 0 and up to 1: Adam moves parameters by about it."""
    for name, rate in rates.items():
        if not is_number(rate) or not 0 < rate <= 1:
            raise ProgramError(f"{name} must be above 0 and at most 1, not {rate!r}")
