"""What was entered in a form, as the JSON that the API reads.

A browser sends every field as text, and an empty one as "". What is not a number stays text, so
that the API's own model says which field should be one.
"""

import json
import math
from collections.abc import Mapping
from uuid import UUID

from service.errors import NotFound


def without_empty(plain: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that were filled in."""
    return {name: value for name, value in plain.items() if value not in ("", None)}


def number(text: str) -> object:
    """Return a number, or the text if it is none.

    >>> number(" 12 "), number("1e-5"), number("0,5"), number("")
    (12, 1e-05, '0,5', '')
    """
    text = text.strip()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return found if type(found) in (int, float) and math.isfinite(found) else text


def hours_in_seconds(text: str) -> object:
    """Return a time in seconds.

    >>> hours_in_seconds("0.5"), hours_in_seconds("soon")
    (1800.0, 'soon')
    """
    found = number(text)
    return found * 3600.0 if isinstance(found, int | float) else found


def identifier(text: str, what: str) -> UUID:
    """Return the id of a run in a hidden field."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound(f"There is no {what} with this id.") from None
