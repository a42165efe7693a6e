"""Checks that columns of a schema share: names, units, bounds, levels and missing codes.

Any of them may be anything: they may have been read from JSON.
"""

from collections import Counter
from collections.abc import Iterable

from kernels.errors import SchemaError, WrongBounds, WrongCodes, WrongField, WrongLevels
from kernels.strict_json import is_number, is_text
from kernels.tables.labels import canonical_label

MOST_CODES = 20
"""The most missing codes of a column."""


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
    found: list[SchemaError] = [
        WrongLevels(f"{where}: the level {level!r} is listed {count} times; list it once")
        for level, count in repeated(levels).items()
    ]
    if unreadable := [repr(level) for level in levels if not canonical_label(level)]:
        found.append(WrongLevels(f"{where}: {unreadable[0]} is read as missing, not as a level"))
    same = repeated(map(canonical_label, dict.fromkeys(levels)))
    return found + [
        WrongLevels(f"{where}: {count} levels are read as {level!r}; list one of them")
        for level, count in same.items()
        if level
    ]


def number_code_problems(
    codes: object, where: str, *, bounds: tuple[float | None, float | None] = (None, None)
) -> list[SchemaError]:
    """Return what is wrong with the missing codes of a column of numbers.

    bounds: within them a number is a possible value. A column without any bound states none.
    """
    if not isinstance(codes, tuple) or not all(is_number(own) or is_text(own) for own in codes):
        return [WrongCodes(f"{where}: missing_codes must be a list of numbers and texts")]
    found: list[SchemaError] = _count_problems([_plain(own) for own in codes], where)
    for own in codes:
        if isinstance(own, str):
            if _is_a_number(own) or own != own.strip():
                sentence = "must be a number" if _is_a_number(own) else "must have no spaces around"
                found.append(WrongCodes(f"{where}: the missing code {own!r} {sentence}"))
        elif bounds != (None, None) and within(own, *bounds):
            low, high = ("open" if end is None else f"{end:g}" for end in bounds)
            found.append(
                WrongCodes(
                    f"{where}: the missing code {own:g} lies within the bounds ({low} to {high}), "
                    "so it is a possible value too; choose bounds without it, or omit the code"
                )
            )
    return found


def label_code_problems(codes: object, levels: object, where: str) -> list[SchemaError]:
    """Return what is wrong with the missing codes of a column of labels with these levels."""
    if not isinstance(codes, tuple) or not all(is_text(own) for own in codes):
        return [
            WrongCodes(f'{where}: missing_codes must be a list of texts, none blank, such as "9"')
        ]
    labels = [canonical_label(own) for own in codes]
    named = levels if isinstance(levels, tuple) else ()
    known = {canonical_label(level) for level in named if isinstance(level, str)}
    return _count_problems(labels, where) + [
        WrongCodes(f"{where}: {own!r} is both a level and a missing code; remove one of them")
        for own, label in zip(codes, labels, strict=True)
        if label in known
    ]


def within(value: float, lower: float | None, upper: float | None) -> bool:
    """Return whether a number is within bounds, of which None is open."""
    return (lower is None or value >= lower) and (upper is None or value <= upper)


def _count_problems(codes: list[str], where: str) -> list[SchemaError]:
    found: list[SchemaError] = [
        WrongCodes(f"{where}: the missing code {code!r} is listed {count} times; list it once")
        for code, count in repeated(codes).items()
    ]
    if len(codes) > MOST_CODES:
        found.append(
            WrongCodes(f"{where}: at most {MOST_CODES} missing codes are allowed, not {len(codes)}")
        )
    return found


def _plain(code: float | str) -> str:
    return code if isinstance(code, str) else f"{float(code) + 0.0:.17g}"


def _is_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def repeated(names: Iterable[object]) -> dict[str, int]:
    """Return the texts that occur more than once, and how often."""
    counts = Counter(name for name in names if isinstance(name, str))
    return {name: count for name, count in counts.items() if count > 1}
