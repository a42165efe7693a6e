"""Signing in to the page with the admin token, and signing out."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from service.context import Context, Here
from service.http import sign_in
from service.http.bodies import read_unsigned
from service.http.forms import Browser, check_same_origin, read_fields
from service.http.tokens import Issued
from service.routes.page.rendering import HOME, PageRoute, rendered

router = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_FORM = 4096
_FORM = "application/x-www-form-urlencoded"


@router.post("/sign-in")
async def begin(request: Request, here: Here) -> Response:
    """Read the admin token from the form and set a cookie that is valid on the page only."""
    check_same_origin(request)
    fields = read_fields(_FORM, await read_unsigned(request, MAX_FORM))
    issued = await run_in_threadpool(_begin, here, fields.get("token", "").strip())
    if issued is None:
        return rendered(request, "sign_in.html", status=403, refused=True)
    response = RedirectResponse(HOME, status_code=303)
    settings = here.settings
    secure = settings.tls_certificate is not None or settings.behind_tls_proxy
    sign_in.set_cookie(response, issued, secure=secure)
    return response


@router.post("/sign-out")
def end(request: Request, browser: Browser, here: Here) -> Response:
    """Sign this browser out."""
    check_same_origin(request)
    with here.database.changing() as connection:
        sign_in.sign_out(connection, browser.token, now=here.clock())
    response = RedirectResponse(HOME, status_code=303)
    response.delete_cookie(sign_in.COOKIE)
    return response


def _begin(here: Context, secret: str) -> Issued | None:
    # A stranger's attempt must not wait for those who write, nor make them wait.
    with here.database.reading() as connection:
        if not sign_in.is_admin(connection, secret, now=here.clock()):
            return None
    with here.database.changing() as connection:
        return sign_in.sign_in(connection, secret, now=here.clock())
