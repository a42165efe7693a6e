"""Strict conversion of plain data to JSON and back: an object has exactly its dataclass's fields.

Problems are collected, not raised, so that the author of a document sees all of them at once. The
dataclass checks the types of its fields, so that building it in Python runs the same checks.
"""

import json
import sys
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, TypeGuard, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def encode_json(plain: object) -> str:
    """Return the canonical JSON of plain data: sorted keys, no spaces, no NaN."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(text: str, where: str, problems: list[str], *, refuse_nan: bool = False) -> object:
    """Parse JSON in which no object has a field twice; errors are added to `problems`.

    refuse_nan: also refuse NaN and Infinity, which Python writes but JSON does not have. If a
    dataclass checks its numbers, leave this off: its message names the field.
    """
    constant = _no_constant if refuse_nan else None
    try:
        return json.loads(text, object_pairs_hook=_each_field_once, parse_constant=constant)
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(f"{where} is not valid JSON: {error}")
        return None


def _each_field_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) < len(pairs):
        raise ValueError("an object has the same field twice")
    return plain


def _no_constant(name: str) -> None:
    raise ValueError(f"it contains {name}, which JSON does not allow; use null for missing values")


def decode_object(kind: type[T], plain: object, where: str, problems: list[str]) -> T | None:
    """Build the dataclass `kind` from a JSON object; errors are added to `problems`.

    Unknown fields and missing fields without a default are errors. Lists become tuples.
    """
    if not isinstance(plain, dict):
        problems.append(f"{where} must be an object")
        return None
    declared = fields(kind)
    allowed = [field.name for field in declared]
    required = [field.name for field in declared if field.default is MISSING]
    found = [f"{where} lacks the field {name!r}" for name in required if name not in plain]
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
    """Build the valid objects of a list; errors of the others are added to `problems`."""
    if not isinstance(plain, list | tuple):
        problems.append(f"{where} must be a list")
        return ()
    decoded = (decode_object(kind, v, f"{where}[{i}]", problems) for i, v in enumerate(plain))
    return tuple(v for v in decoded if v is not None)


def is_newer(plain: object, version: int) -> bool:
    """Return whether a document states a version later than `version`."""
    written = plain.get("version") if isinstance(plain, dict) else None
    return type(written) is int and written > version


def is_text(value: object) -> TypeGuard[str]:
    """Return whether `value` is text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a finite number; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def is_flag(value: object) -> bool:
    """Return whether `value` is true or false; 0 and 1 are not."""
    return isinstance(value, bool)
