"""The web page at `/`, for an admin who has signed in; others see the sign-in form.

It is rendered here and kept current by a small script that follows open runs
(`service/page/templates/page.js`). Everything is loaded from this host, and the page's content
security policy allows nothing else.
"""

from pathlib import Path
from urllib.parse import parse_qs
from uuid import UUID

from fastapi import APIRouter, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse

from service.context import Context, Here
from service.errors import NotFound
from service.http import sign_in
from service.http.bodies import read_unsigned
from service.http.times import iso_time
from service.http.tokens import Issued, Token
from service.page import views
from service.page.shown_effects import shown_effects
from service.page.shown_models import shown_models
from service.routes.parts import EffectsHere, RunsHere
from service.runs.runs import Runs

router = APIRouter(include_in_schema=False)

MAX_FORM = 4096
_FILES = Path(__file__).parent.parent / "page" / "templates"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_KINDS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_HOME = "/"


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


@router.get(_HOME)
def overview(request: Request, here: Here, runs: RunsHere) -> Response:
    """Show all sessions and models."""
    if _signed_in(request, here) is None:
        return _rendered(request, "sign_in.html", refused=False)
    awaited = _awaited(runs)
    with here.database.reading() as connection:
        outlines = views.outlines(connection, awaited, now=here.clock())
        models = shown_models(connection)
    names = {outline.session.id: outline.session.name for outline in outlines}
    return _rendered(request, "overview.html", outlines=outlines, models=models, names=names)


@router.get("/view/{session_id}")
def session(
    request: Request, session_id: UUID, here: Here, runs: RunsHere, known: EffectsHere
) -> Response:
    """Show one session."""
    if _signed_in(request, here) is None:
        return RedirectResponse(_HOME, status_code=303)
    awaited = _awaited(runs)
    try:
        with here.database.reading() as connection:
            view = views.view(connection, str(session_id), awaited, now=here.clock())
    except NotFound:
        return RedirectResponse(_HOME, status_code=303)
    newest = view.models[0] if view.models else None
    found = None if newest is None or newest.members_only else known.get(newest.id)
    waiting = found is None and newest is not None and not newest.members_only
    effects = shown_effects(found or (), view.features)
    return _rendered(request, "session.html", view=view, effects=effects, effects_due=waiting)


@router.post("/sign-in")
async def begin(request: Request, here: Here) -> Response:
    """Read the admin token from the form and set a cookie that can only read the page."""
    form = parse_qs((await read_unsigned(request, MAX_FORM)).decode("ascii", "replace"))
    secret = form.get("token", [""])[0].strip()
    issued = await run_in_threadpool(_begin, here, secret)
    if issued is None:
        return _rendered(request, "sign_in.html", status=403, refused=True)
    response = RedirectResponse(_HOME, status_code=303)
    settings = here.settings
    secure = settings.tls_certificate is not None or settings.behind_tls_proxy
    sign_in.set_cookie(response, issued, secure=secure)
    return response


@router.post("/sign-out")
def end(request: Request, here: Here) -> Response:
    """Sign this browser out."""
    token = _signed_in(request, here)
    if token is not None:
        with here.database.changing() as connection:
            sign_in.sign_out(connection, token, now=here.clock())
    response = RedirectResponse(_HOME, status_code=303)
    response.delete_cookie(sign_in.COOKIE)
    return response


@router.get("/page/{name}")
def file(name: str) -> Response:
    """Return one of the page's files; they contain nothing confidential."""
    if name not in _KINDS:
        raise NotFound("The page has no file of this name.")
    return Response((_FILES / name).read_bytes(), media_type=_KINDS[name])


def _begin(here: Context, secret: str) -> Issued | None:
    # A stranger's attempt must not wait for those who write, nor make them wait.
    with here.database.reading() as connection:
        if not sign_in.is_admin(connection, secret, now=here.clock()):
            return None
    with here.database.changing() as connection:
        return sign_in.sign_in(connection, secret, now=here.clock())


def _signed_in(request: Request, here: Context) -> Token | None:
    with here.database.reading() as connection:
        return sign_in.find(connection, request.cookies, now=here.clock())


def _awaited(runs: Runs) -> dict[str, tuple[str, ...]]:
    """Return the names of the members that each open run waits for."""
    found = {run_id: runs.progress(run_id) for run_id in runs.open_ids()}
    return {run_id: progress.awaited for run_id, progress in found.items() if progress is not None}


def _rendered(request: Request, template: str, *, status: int = 200, **shown: object) -> Response:
    templates: Environment = request.app.state.templates
    text = templates.get_template(template).render(shown)
    return HTMLResponse(text, status_code=status, headers={"Content-Security-Policy": _POLICY})


def _readable(seconds: float) -> str:
    """Return a time in readable form.

    >>> _readable(0.0)
    '1970-01-01 00:00 UTC'
    """
    return f"{iso_time(seconds)[:16].replace('T', ' ')} UTC"
