"""HTML answers: the page's templates, its security policy, and errors as a page for people.

Everything is loaded from this host, and the content security policy allows nothing else.
"""

import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError
from starlette.responses import HTMLResponse, RedirectResponse

from kernels.errors import KernelsError
from privacy.errors import PrivacyError
from service.errors import NotAuthenticated, ServiceError
from service.http.forms import SignedIn
from service.http.problems import WRONG_FIELDS, Error, status_of
from service.http.request_models import RequestModel, refused
from service.http.times import iso_time

HOME = "/"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

T = TypeVar("T")
M = TypeVar("M", bound=RequestModel)


@dataclass(frozen=True)
class Trouble:
    """Why a form was refused: the same status and sentences as the API's problem documents.

    form: the name of the form beside which it is shown. entered: what was entered, to keep it.
    """

    form: str
    status: int
    problems: tuple[str, ...]
    code: str
    entered: Mapping[str, str]

    @classmethod
    def of(
        cls,
        error: Error | RequestValidationError,
        form: str = "",
        entered: Mapping[str, str] | None = None,
    ) -> Self:
        """Return what an error of the API says."""
        kept = dict(entered or {})
        if isinstance(error, RequestValidationError):
            said = tuple(_field_problem(each) for each in error.errors())
            return cls(form, 422, said, WRONG_FIELDS, kept)
        parts = getattr(error, "problems", None) or [error]
        return cls(form, status_of(type(error)), tuple(map(str, parts)), error.code, kept)


REFUSALS = (ServiceError, KernelsError, PrivacyError, RequestValidationError)
"""What the API answers with a problem document, and the page with a sentence beside the form."""


class PageRoute(APIRoute):
    """A route for people: its errors are pages, and a signed-out browser is sent to sign in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handle = super().get_route_handler()

        async def for_people(request: Request) -> Response:
            try:
                return await handle(request)
            except NotAuthenticated:
                return RedirectResponse(HOME, status_code=303)
            except REFUSALS as error:
                trouble = Trouble.of(error)
                return rendered(request, "problem.html", status=trouble.status, trouble=trouble)

        return for_people


def attempt(form: str, entered: Mapping[str, str], act: Callable[[], T]) -> T | Trouble:
    """Do what a form asks for, or return why it is refused."""
    try:
        return act()
    except REFUSALS as error:
        return Trouble.of(error, form, entered)


def checked(kind: type[M], plain: Mapping[str, object]) -> M:
    """Return the API's own request model, or its error."""
    try:
        return kind.model_validate_json(json.dumps(plain))
    except ValidationError as error:
        raise refused(error) from None


def rendered(
    request: Request,
    template: str,
    *,
    status: int = 200,
    browser: SignedIn | None = None,
    **shown: object,
) -> Response:
    """Return a page; `browser` is needed for every page with a form."""
    templates: Environment = request.app.state.templates
    given = {"trouble": None, **shown, "form_key": None if browser is None else browser.key}
    text = templates.get_template(template).render(given)
    return HTMLResponse(text, status_code=status, headers={"Content-Security-Policy": _POLICY})


def templates() -> Environment:
    """Return the templates; values are escaped, and an undefined name is an error."""
    made = Environment(
        loader=PackageLoader("service.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["iso"] = iso_time
    made.filters["time"] = _readable
    return made


def _field_problem(each: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in each["loc"] if part != "body")
    said = str(each["msg"]).removeprefix("Value error, ")
    return f"{where}: {said}" if where else said


def _readable(seconds: float) -> str:
    """Return a time in readable form.

    >>> _readable(0.0)
    '1970-01-01 00:00 UTC'
    """
    return f"{iso_time(seconds)[:16].replace('T', ' ')} UTC"
