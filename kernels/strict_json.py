"""Plain data as JSON and back, strictly: an object has exactly the fields of its dataclass.

Problems are collected rather than raised, so that the author of a document hears of all of them
at once. Types of fields are the business of the dataclass: whoever builds it in Python is checked
by the same code.
"""

import json
import sys
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, TypeGuard, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def encode_json(plain: object) -> str:
    """Return the one canonical text of plain data: sorted keys, no spaces, no NaN."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(text: str, where: str, problems: list[str], *, refuse_nan: bool = False) -> object:
    """Parse JSON in which no object has a field twice, or say in `problems` what it is instead.

    refuse_nan: also NaN and Infinity, which Python writes and JSON does not have. Where a dataclass
    checks its numbers, it can say which field has them.
    """
    constant = _no_constant if refuse_nan else None
    try:
        return json.loads(text, object_pairs_hook=_each_field_once, parse_constant=constant)
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(f"{where} is not JSON: {error}")
        return None


def _each_field_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) < len(pairs):
        raise ValueError("an object has a field twice")
    return plain


def _no_constant(name: str) -> None:
    raise ValueError(f"it has {name}, which JSON does not; null is for what is missing")


def decode_object(kind: type[T], plain: object, where: str, problems: list[str]) -> T | None:
    """Build the dataclass `kind` from a JSON object, or say in `problems` why it cannot be.

    Unknown fields are problems, and so are absent ones that have no default. Lists become tuples.
    """
    if not isinstance(plain, dict):
        problems.append(f"{where} must be an object")
        return None
    declared = fields(kind)
    allowed = [field.name for field in declared]
    required = [field.name for field in declared if field.default is MISSING]
    found = [f"{where} lacks {name!r}" for name in required if name not in plain]
    found += [
        f"{where} has the unknown field {name!r}; the fields are {', '.join(allowed)}"
        for name in plain
        if name not in allowed
    ]
    problems += found
    if found:
        return None
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()})


def decode_list(kind: type[T], plain: object, where: str, problems: list[str]) -> tuple[T, ...]:
    """Build each object of a list that can be built; `problems` has the others."""
    if not isinstance(plain, list | tuple):
        problems.append(f"{where} must be a list")
        return ()
    decoded = (decode_object(kind, v, f"{where}[{i}]", problems) for i, v in enumerate(plain))
    return tuple(v for v in decoded if v is not None)


def is_newer(plain: object, version: int) -> bool:
    """Whether a document says that it was written by a version after `version`."""
    written = plain.get("version") if isinstance(plain, dict) else None
    return type(written) is int and written > version


def is_text(value: object) -> TypeGuard[str]:
    """Whether `value` is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a finite number; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def is_flag(value: object) -> bool:
    """Whether `value` is true or false, and not a number that passes for either."""
    return isinstance(value, bool)
