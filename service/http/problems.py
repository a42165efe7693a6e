"""Errors as HTTP answers: RFC 9457 documents with stable codes."""

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException

from kernels.errors import KernelsError
from privacy.errors import (
    BadSignature,
    BudgetExceeded,
    ClockSkew,
    InvalidKey,
    PrivacyError,
    RequestError,
)
from privacy.requests import SCHEME
from privacy.securesum.errors import AdvertForAnotherEpoch, Conflict, OutOfOrder
from service.context import Context
from service.errors import BodyTooSlow, NoRoom, RateExceeded, ServiceError
from service.http.times import iso_time

Error = ServiceError | KernelsError | PrivacyError

CODES = "x-problems"
"""The field of an operation of the contract that has its codes by status."""
MEANINGS = "x-enumDescriptions"
"""The field of the contract's list of codes that has their meanings; other tools show it, too."""

WRONG_FIELDS = "request.fields"
"""The code of a request whose parameters or body do not match their schema in the contract."""

_TOO_LATE = (OutOfOrder, Conflict, AdvertForAnotherEpoch)
"""The run has moved on, or already has another answer: the member asks for its next item."""
UNBELIEVED = (RequestError, BadSignature, InvalidKey)
"""The signature of the request is missing or invalid."""


def status_of(error: type[Error]) -> int:
    """Return the HTTP status of an error."""
    if issubclass(error, ServiceError):
        return error.status
    if issubclass(error, UNBELIEVED):
        return 401
    # Every other error of the two packages is about what was sent.
    return 409 if issubclass(error, (*_TOO_LATE, BudgetExceeded)) else 422


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    problems: Sequence[Mapping[str, str]] = (),
    **more: object,
) -> JSONResponse:
    """Return the answer for one problem."""
    return JSONResponse(
        {
            "type": f"urn:veilgp:{code}",
            "title": code,
            "status": status,
            "detail": detail,
            "code": code,
            **({"problems": problems} if problems else {}),
            **more,
        },
        status_code=status,
        headers=headers,
        media_type="application/problem+json",
    )


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error, veilgp's and the framework's, with a problem document."""

    @app.exception_handler(ServiceError)
    def of_service(_: Request, error: ServiceError) -> JSONResponse:
        headers: Mapping[str, str] | None = None
        if error.status == 401:
            headers = _challenge('Bearer realm="veilgp"')
        elif isinstance(error, RateExceeded):
            headers = {"Retry-After": str(error.retry_after_s)}
        elif isinstance(error, NoRoom):
            headers = {"Retry-After": "1"}
        elif isinstance(error, BodyTooSlow):
            headers = {"Connection": "close"}  # otherwise the body would keep arriving
        return problem(
            error.status, error.code, str(error), headers=headers, problems=_parts(error)
        )

    @app.exception_handler(KernelsError)
    def of_kernels(_: Request, error: KernelsError) -> JSONResponse:
        return problem(status_of(type(error)), error.code, str(error), problems=_parts(error))

    @app.exception_handler(PrivacyError)
    def of_privacy(request: Request, error: PrivacyError) -> JSONResponse:
        status = status_of(type(error))
        if status != 401:
            return problem(status, error.code, str(error))
        more: dict[str, Any] = {}
        if isinstance(error, ClockSkew):
            here: Context = request.app.state.context
            more["time"] = iso_time(here.clock())
        return problem(status, error.code, str(error), headers=_challenge(SCHEME), **more)

    @app.exception_handler(RequestValidationError)
    def of_validation(_: Request, error: RequestValidationError) -> JSONResponse:
        # `input` is left out: it would repeat what was sent, perhaps a patient's value or a secret.
        problems = [
            {"where": ".".join(str(part) for part in each["loc"]), "what": each["msg"]}
            for each in error.errors()
        ]
        detail = "; ".join(f"{each['where']}: {each['what']}" for each in problems)
        return problem(422, WRONG_FIELDS, detail, problems=problems)

    @app.exception_handler(DataError)
    def of_database(_: Request, error: DataError) -> JSONResponse:
        # NUL, in a path or a field, is the one character that PostgreSQL cannot store as text.
        if not _has_nul(error.params):
            raise error
        return problem(422, WRONG_FIELDS, "Names and texts must not contain a NUL character.")

    @app.exception_handler(HTTPException)
    def of_framework(_: Request, error: HTTPException) -> JSONResponse:
        return problem(
            error.status_code,
            f"http.{error.status_code}",
            str(error.detail),
            headers=error.headers,
        )


def _has_nul(parameters: object) -> bool:
    """Whether a text among the parameters of one or many statements contains a NUL."""
    match parameters:
        case str():
            return "\0" in parameters
        case Mapping():
            return any(map(_has_nul, parameters.values()))
        case list() | tuple():
            return any(map(_has_nul, parameters))
    return False


def _challenge(scheme: str) -> Mapping[str, str]:
    return {"WWW-Authenticate": scheme}


def _parts(error: Exception) -> list[Mapping[str, str]]:
    """Return the problems of which an error consists, each with its own code."""
    return [{"code": e.code, "what": str(e)} for e in getattr(error, "problems", ())]
