"""Errors over HTTP: RFC 9457 documents with stable codes."""

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

WRONG_FIELDS = "request.fields"
"""The code of a request whose parameters or body have not the form that the contract states."""

_TOO_LATE = (OutOfOrder, Conflict, AdvertForAnotherEpoch)
"""The run has gone on, or has another answer: nobody's fault, and the member asks what is next."""
UNBELIEVED = (RequestError, BadSignature, InvalidKey)
"""Who asks cannot be believed."""


def status_of(error: type[Error]) -> int:
    """Give the HTTP status of an error."""
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
    """Give the document of one problem."""
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
    """Answer every error of ours, and the framework's, in one form."""

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
            headers = {"Connection": "close"}  # or it would go on arriving
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
        # `input` would repeat what was sent: it may be a patient's value or a secret.
        problems = [
            {"where": ".".join(str(part) for part in each["loc"]), "what": each["msg"]}
            for each in error.errors()
        ]
        detail = "; ".join(f"{each['where']}: {each['what']}" for each in problems)
        return problem(422, WRONG_FIELDS, detail, problems=problems)

    @app.exception_handler(DataError)
    def of_database(_: Request, error: DataError) -> JSONResponse:
        # The one character that PostgreSQL's text does not have, in a path or a field.
        if not _has_nul(error.params):
            raise error
        return problem(422, WRONG_FIELDS, "No name or text here has a NUL character.")

    @app.exception_handler(HTTPException)
    def of_framework(_: Request, error: HTTPException) -> JSONResponse:
        return problem(
            error.status_code,
            f"http.{error.status_code}",
            str(error.detail),
            headers=error.headers,
        )


def _has_nul(parameters: object) -> bool:
    """Whether a NUL is in a text among the parameters of one statement, or of many."""
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
    """Give the problems that an error is made of, each with its own code."""
    return [{"code": e.code, "what": str(e)} for e in getattr(error, "problems", ())]
