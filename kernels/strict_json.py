"""Strict conversion of plain data to JSON and back: an object has exactly its dataclass's fields.

Text that is hashed is canonical by RFC 8785: keys in the order of their UTF-16 units, UTF-8 without
needless escapes, and numbers as ECMAScript writes a double. So 1.0 and 1 are one text, integers end
at 2⁵³ − 1 as in every JSON reader that has doubles only, and an implementation in any language
computes the same digest. What is meant as a float is made one by its field's type (`as_declared`).

Problems are collected, not raised, so that the author of a document sees all of them at once. The
dataclass checks the types of its fields, so that building it in Python runs the same checks.
"""

import json
import re
import sys
from dataclasses import MISSING, fields
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast, get_args, get_origin

import rfc8785

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

MOST_INTEGER = 2**53 - 1
"""The largest integer in canonical JSON: all integers up to it are doubles."""


def encode_json(plain: object) -> str:
    """Return the canonical JSON of plain data (RFC 8785).

    ValueError: NaN, an infinite number, an integer beyond ±MOST_INTEGER, a lone surrogate, or
    something that is not plain data.

    >>> encode_json({"z": 1.0, "größe": (0.000001, 1e21, None)})
    '{"größe":[0.000001,1e+21,null],"z":1}'
    """
    return rfc8785.dumps(cast("Any", plain)).decode()


def parse_json(text: str, where: str, problems: list[str], *, refuse_nan: bool = False) -> object:
    """Parse JSON in which no object has a field twice; errors are added to `problems`.

    An integer beyond ±MOST_INTEGER is read as a float, because canonical JSON has written it from
    one. refuse_nan: also refuse NaN and Infinity, which Python writes but JSON does not have. If a
    dataclass checks its numbers, leave this off: its message names the field.
    """
    constant = _no_constant if refuse_nan else None
    try:
        plain = json.loads(
            text,
            object_pairs_hook=_each_field_once,
            parse_constant=constant,
            parse_int=_integer,
        )
        if _SURROGATE.search(text):
            json.dumps(plain, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        problems.append(f"{where} is not valid JSON: it contains half of a surrogate pair")
        return None
    except (TypeError, ValueError, RecursionError) as error:
        problems.append(f"{where} is not valid JSON: {error}")
        return None
    return cast("object", plain)


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")


def _integer(digits: str) -> int | float:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer has more than {_MOST_DIGITS} digits")
    number = float(digits)  # or infinity, which whoever needs a number refuses by name
    return int(digits) if abs(number) <= MOST_INTEGER else number


_MOST_DIGITS = 1000


def _each_field_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(pairs)
    if len(plain) < len(pairs):
        raise ValueError("an object has the same field twice")
    return plain


def _no_constant(name: str) -> None:
    raise ValueError(f"it contains {name}, which JSON does not allow; use null for missing values")


def decode_object(kind: type[T], plain: object, where: str, problems: list[str]) -> T | None:
    """Build the dataclass `kind` from a JSON object; errors are added to `problems`.

    Unknown fields and missing fields without a default are errors. Lists become tuples, and
    integers become floats where the field's type says so.
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
    types = {field.name: field.type for field in declared}
    return kind(**{name: as_declared(types[name], value) for name, value in plain.items()})


def decode_list(kind: type[T], plain: object, where: str, problems: list[str]) -> tuple[T, ...]:
    """Build the valid objects of a list; errors of the others are added to `problems`."""
    if not isinstance(plain, list | tuple):
        problems.append(f"{where} must be a list")
        return ()
    decoded = (decode_object(kind, v, f"{where}[{i}]", problems) for i, v in enumerate(plain))
    return tuple(v for v in decoded if v is not None)


def as_declared(kind: object, value: Any) -> Any:
    """Return a value from JSON with tuples for lists, and floats where its type `kind` has them.

    Canonical JSON writes 1.0 as 1, so only the declared type tells which was meant. Nothing is
    checked: a value that does not fit its type is returned for its dataclass to refuse.

    >>> as_declared(tuple[float, ...] | None, [1, 2.5])
    (1.0, 2.5)
    >>> as_declared(int, 1), as_declared(float | None, 1), as_declared(float, True)
    (1, 1.0, True)
    """
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if type(value) is int:
        return float(value) if float in kinds and int not in kinds else value
    if not isinstance(value, list | tuple):
        return value
    items: tuple[Any, ...] = next((get_args(k) for k in kinds if get_origin(k) is tuple), ())
    if len(items) == 2 and items[1] is ...:
        return tuple(as_declared(items[0], each) for each in value)
    if len(items) == len(value):
        return tuple(map(as_declared, items, value))
    return tuple(value)


def is_newer(plain: object, version: int) -> bool:
    """Return whether a document states a version later than `version`."""
    written = plain.get("version") if isinstance(plain, dict) else None
    return type(written) is int and written > version


def is_text(value: object) -> TypeGuard[str]:
    """Return whether `value` is text that is not blank and that UTF-8 can encode."""
    return isinstance(value, str) and bool(value.strip()) and not _HALF.search(value)


_HALF = re.compile("[\ud800-\udfff]")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a finite number; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max


def is_leaf(value: object) -> bool:
    """Return whether `value` is a null, flag, text or number that canonical JSON has."""
    if isinstance(value, str):
        return not _HALF.search(value)
    if value is None or isinstance(value, bool):
        return True
    return is_number(value) and not (isinstance(value, int) and abs(value) > MOST_INTEGER)


def is_flag(value: object) -> bool:
    """Return whether `value` is true or false; 0 and 1 are not."""
    return isinstance(value, bool)
