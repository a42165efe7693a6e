"""What comes from outside as JSON: strict, with names that people can tell apart."""

import unicodedata
from typing import Annotated, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from kernels.strict_json import parse_json


class RequestModel(BaseModel):
    """JSON that comes from outside: unknown fields and types that only resemble are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


T = TypeVar("T", bound=BaseModel)


def refused(error: ValidationError) -> RequestValidationError:
    """Give what the framework answers for wrong JSON.

    What was sent is left out: it may be a patient's value, or a secret.
    """
    return RequestValidationError(
        error.errors(include_input=False, include_url=False, include_context=False)
    )


def read_table_json(kind: type[T], body: bytes) -> T:
    """Read JSON in which NaN, or a field given twice, is refused: it holds a table's cells."""
    wrong: list[str] = []
    try:
        plain = parse_json(body.decode(), "the body", wrong, refuse_nan=True)
    except UnicodeDecodeError:
        wrong.append("the body is not JSON: it is not in UTF-8")
    if wrong:
        raise RequestValidationError([{"loc": ("body",), "msg": "; ".join(wrong)}])
    try:
        return kind.model_validate(plain)
    except ValidationError as error:
        raise refused(error) from None


MOST_NAME_BYTES = 200
"""As in `privacy.identity.Member`, which is what a member's name ends up in."""


def checked_name(name: str) -> str:
    """Give a name in its one Unicode form, or say what is wrong with it.

    >>> checked_name("Charite\u0301 Berlin")
    'Charité Berlin'
    """
    name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name.encode()) <= MOST_NAME_BYTES:
        raise ValueError(f"a name has 1 to {MOST_NAME_BYTES} bytes")
    if name != name.strip():
        raise ValueError("a name neither begins nor ends with a space")
    # Control, formatting and line characters: invisible, or able to reorder what is shown.
    if any(c[0] == "C" or c in ("Zl", "Zp") for c in map(unicodedata.category, name)):
        raise ValueError("a name has no control, invisible or line characters")
    if "/" in name or name in (".", ".."):
        raise ValueError("a name is part of addresses: it has no '/' and is neither '.' nor '..'")
    return name


def likeness(name: str) -> str:
    """Give what two names share that people would take for one.

    >>> likeness("CHARITÉ") == likeness("charité")
    True
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def checked_sentence(text: str) -> str:
    """Refuse text that a terminal would obey rather than show."""
    if any(unicodedata.category(c) == "Cc" and c not in "\n\t" for c in text):
        raise ValueError("text has no control characters but for tabs and new lines")
    return text


Name = Annotated[str, AfterValidator(checked_name)]
"""For people: 1 to 200 bytes."""
Sentence = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(checked_sentence)]
"""An explanation, for people."""
Code = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.]{0,99}$")]
"""A stable code of a problem."""
Seconds = Annotated[int, Field(ge=60, le=366 * 86400)]
"""How long something is valid: a minute to a year."""
