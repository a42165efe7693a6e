"""Problems in the contract: a response for each status, and one list of all codes.

An operation refers to the responses of the statuses that it can have and names its own codes by
status, in `x-problems`. What a code means is said once, in the schema `ProblemCode`, from the first
line of its error's docstring; the console shows that list at `/docs/problems`.
"""

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from inspect import getdoc

from service.contract.dataclass_schemas import Json, reference
from service.errors import NoRoom, RateExceeded
from service.http.problems import MEANINGS, WRONG_FIELDS, Error, problem, status_of

PAGE = "/docs/problems"

Codes = Mapping[int, Mapping[str, str]]
"""The meaning of each code, by status."""

_MISFIT = "The parameters or the body do not match their schema."
_MEDIA_TYPE = "application/problem+json"
_RETRY_AFTER: Json = {"schema": {"type": "integer"}, "description": "Seconds."}

_PROBLEM: Json = {
    "title": "Problem",
    "description": "What went wrong (RFC 9457). `code` is stable; the text of `detail` may change.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong and what to do."},
        "code": reference("ProblemCode"),
        "problems": {
            "type": "array",
            "description": "Everything that is wrong.",
            "items": {
                "type": "object",
                "required": ["what"],
                "properties": {
                    "code": reference("ProblemCode"),
                    "where": {"type": "string", "description": "A field of the request."},
                    "what": {"type": "string"},
                },
                "additionalProperties": False,
            },
        },
        "time": {"type": "string", "description": "The coordinator's time, if clocks differ."},
        "newest": {"type": "integer", "description": "The newest protocol that is supported."},
        "oldest": {"type": "integer", "description": "The oldest protocol that is supported."},
    },
    "additionalProperties": False,
}


def codes_of(errors: Iterable[type[Error]], *, may_misfit: bool) -> Codes:
    """Return the codes of these errors; `may_misfit`: also that of a request that has no sense."""
    told: dict[int, dict[str, str]] = {}
    for error in errors:
        meaning = (getdoc(error) or "").partition("\n")[0]
        told.setdefault(status_of(error), {})[error.code] = meaning
    if may_misfit:
        told.setdefault(422, {})[WRONG_FIELDS] = _MISFIT
    return {status: dict(sorted(codes.items())) for status, codes in sorted(told.items())}


def referred(codes: Codes) -> dict[str, Json]:
    """Return an operation's responses, with its codes; what each means is not repeated."""
    return {
        str(status): {
            "$ref": f"#/components/responses/{_name(status)}",
            "description": ", ".join(f"[`{code}`]({PAGE}#{code})" for code in own),
        }
        for status, own in codes.items()
    }


def united(codes: Iterable[Codes]) -> Codes:
    """Return the codes of all operations together."""
    told: dict[int, dict[str, str]] = {}
    for each in codes:
        for status, own in each.items():
            told.setdefault(status, {}).update(own)
    return {status: dict(sorted(own.items())) for status, own in sorted(told.items())}


def responses(codes: Codes) -> dict[str, Json]:
    """Return the response of each status, by name."""
    return {_name(status): _response(status, own) for status, own in codes.items()}


def schemas(codes: Codes) -> dict[str, Json]:
    """Return the schemas of a problem and of its code."""
    meanings = dict(sorted(pair for own in codes.values() for pair in own.items()))
    about = f"A stable code; `{PAGE}` lists them all, by status."
    code = {"title": "ProblemCode", "description": about, "type": "string", "enum": [*meanings]}
    return {"Problem": _PROBLEM, "ProblemCode": {**code, MEANINGS: meanings}}


def _response(status: int, codes: Mapping[str, str]) -> Json:
    first = min(codes)
    if len(codes) == 1:
        about = f"`{first}`: {codes[first]}"
    else:
        about = f"{HTTPStatus(status).phrase}: one of the [codes of {status}]({PAGE}#{status})."
    example = json.loads(bytes(problem(status, first, codes[first]).body))
    again = status in (RateExceeded.status, NoRoom.status)
    return {
        "description": about,
        **({"headers": {"Retry-After": _RETRY_AFTER}} if again else {}),
        "content": {_MEDIA_TYPE: {"schema": reference("Problem"), "example": example}},
    }


def _name(status: int) -> str:
    return f"Problem{status}"
