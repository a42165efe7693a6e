"""Strict models of JSON from outside, and types for names and texts."""

import unicodedata
from typing import Annotated, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from kernels.strict_json import parse_json


class RequestModel(BaseModel):
    """JSON from outside: unknown fields are refused, and values are not converted between types."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


T = TypeVar("T", bound=BaseModel)


def refused(error: ValidationError) -> RequestValidationError:
    """Return the framework's error for invalid JSON, without the values that were sent.

    They may be a patient's values or secrets.
    """
    return RequestValidationError(
        error.errors(include_input=False, include_url=False, include_context=False)
    )


def read_table_json(kind: type[T], body: bytes) -> T:
    """Read JSON with a table's cells; NaN and duplicate fields are refused."""
    wrong: list[str] = []
    try:
        plain = parse_json(body.decode(), "the body", wrong, refuse_nan=True)
    except UnicodeDecodeError:
        wrong.append("the body is not JSON: it is not valid UTF-8")
    if wrong:
        raise RequestValidationError([{"loc": ("body",), "msg": "; ".join(wrong)}])
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        raise refused(error) from None


MOST_NAME_BYTES = 200
"""The same limit as in `privacy.identity.Member`, where members' names are used."""


def checked_name(name: str) -> str:
    """Return a name in Unicode form NFC, or raise ValueError saying what is wrong with it.

    >>> checked_name("Charite\u0301 Berlin")
    'Charité Berlin'
    """
    name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name.encode()) <= MOST_NAME_BYTES:
        raise ValueError(f"a name must have 1 to {MOST_NAME_BYTES} bytes in UTF-8")
    if name != name.strip():
        raise ValueError("a name must not start or end with a space")
    # Control, formatting and line characters are invisible or can reorder the displayed text.
    if any(c[0] == "C" or c in ("Zl", "Zp") for c in map(unicodedata.category, name)):
        raise ValueError("a name must not contain control, invisible or line-break characters")
    if "/" in name or name in (".", ".."):
        raise ValueError("a name is part of URLs: it must not contain '/' or be '.' or '..'")
    return name


def likeness(name: str) -> str:
    """Return a form that is equal for two names that people would confuse.

    >>> likeness("CHARITÉ") == likeness("charité")
    True
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def checked_sentence(text: str) -> str:
    """Return the text, or refuse control characters, which a terminal would execute."""
    if any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in text):
        raise ValueError("text must not contain control characters other than tabs and line breaks")
    return text


Name = Annotated[str, AfterValidator(checked_name)]
"""A name for people: 1 to 200 bytes."""
Sentence = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(checked_sentence)]
"""An explanation for people."""
Code = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]{0,99}$")]
"""A stable code of a problem."""
Seconds = Annotated[int, Field(ge=60, le=366 * 86400)]
"""A period of validity in seconds: from a minute to a year."""
