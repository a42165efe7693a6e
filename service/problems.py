"""Errors over HTTP: RFC 9457 documents with stable codes."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kernels.errors import KernelsError
from privacy.errors import BadSignature, PrivacyError, RequestError
from service.errors import ServiceError


def problem(status: int, code: str, detail: str, **more: object) -> JSONResponse:
    """Give the document of one problem."""
    return JSONResponse(
        {
            "type": f"urn:veilgp:{code}",
            "title": code,
            "status": status,
            "detail": detail,
            "code": code,
            **more,
        },
        status_code=status,
        media_type="application/problem+json",
    )


def add_problem_handlers(app: FastAPI) -> None:
    """Answer every error of ours, and the framework's, in one form."""

    @app.exception_handler(ServiceError)
    def of_service(_: Request, error: ServiceError) -> JSONResponse:
        return problem(error.status, error.code, str(error))

    @app.exception_handler(KernelsError)
    def of_kernels(_: Request, error: KernelsError) -> JSONResponse:
        return problem(422, error.code, str(error))

    @app.exception_handler(PrivacyError)
    def of_privacy(_: Request, error: PrivacyError) -> JSONResponse:
        unauthenticated = isinstance(error, RequestError | BadSignature)
        return problem(401 if unauthenticated else 422, error.code, str(error))

    @app.exception_handler(RequestValidationError)
    def of_validation(_: Request, error: RequestValidationError) -> JSONResponse:
        # `input` would repeat what was sent: it may be a patient's value or a secret.
        problems = [
            {"where": ".".join(str(part) for part in each["loc"]), "what": each["msg"]}
            for each in error.errors()
        ]
        detail = "; ".join(f"{each['where']}: {each['what']}" for each in problems)
        return problem(422, "request.fields", detail, problems=problems)

    @app.exception_handler(HTTPException)
    def of_framework(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, f"http.{error.status_code}", str(error.detail))
