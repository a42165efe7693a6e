"""Checks that columns of a schema share: names, units, bounds and levels, which may be anything."""

from collections import Counter
from collections.abc import Iterable

from kernels.errors import SchemaError, WrongBounds, WrongField, WrongLevels
from kernels.strict_json import is_number, is_text


def name_problems(name: object, where: str) -> list[SchemaError]:
    """Return what is wrong with a column's name."""
    if is_text(name):
        return []
    return [WrongField(f"{where}: name must be text that is not blank")]


def unit_problems(unit: object, where: str) -> list[SchemaError]:
    """Return what is wrong with a column's unit."""
    if is_text(unit):
        return []
    return [WrongField(f"{where}: unit must be text; use '1' if the column has no unit")]


def bound_problems(lower: object, upper: object, where: str) -> list[SchemaError]:
    """Return what is wrong with a column's bounds, each of which may be None."""
    ends = [end for end in (lower, upper) if end is not None]
    if not all(is_number(end) for end in ends):
        return [WrongBounds(f"{where}: lower and upper must be finite numbers, or omitted")]
    numbers = [end for end in ends if is_number(end)]
    if len(numbers) == 2 and not numbers[0] < numbers[1]:
        return [
            WrongBounds(
                f"{where}: lower must be below upper, but they are {numbers[0]} and {numbers[1]}"
            )
        ]
    return []


def level_problems(
    levels: object, where: str, *, least: int, most: int | None = None
) -> list[SchemaError]:
    """Return what is wrong with a list of levels, of which there are at least `least`."""
    count = f"exactly {least} texts" if least == most else f"at least {least} texts"
    count = "at least one text" if least == 1 else count
    named = isinstance(levels, tuple) and all(isinstance(level, str) for level in levels)
    if not isinstance(levels, tuple) or not named or not all(map(is_text, levels)):
        return [WrongLevels(f"{where}: levels must be a list of {count}, none of them blank")]
    if len(levels) < least or (most is not None and len(levels) > most):
        return [
            WrongLevels(
                f"{where}: levels must be a list of {count}, none of them blank; there are "
                f"{len(levels)}"
            )
        ]
    return [
        WrongLevels(f"{where}: the level {level!r} is listed {count} times; list it once")
        for level, count in repeated(levels).items()
    ]


def repeated(names: Iterable[object]) -> dict[str, int]:
    """Return the texts that occur more than once, and how often."""
    counts = Counter(name for name in names if isinstance(name, str))
    return {name: count for name, count in counts.items() if count > 1}
