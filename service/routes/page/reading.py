"""The pages at `/` and `/view`, for an admin who has signed in; others see the sign-in form.

They are rendered here and kept current by a small script that follows open runs
(`service/page/templates/page.js`).
"""

from pathlib import Path
from uuid import UUID

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from service import models
from service.context import Context, Here
from service.errors import NotFound
from service.http import sign_in
from service.http.access import ModelAccess
from service.http.forms import Browser, SignedIn
from service.page import views
from service.page.model_effects import ModelEffects
from service.page.model_folder import zipped
from service.page.shown_effects import shown_effects
from service.page.shown_models import shown_models
from service.prediction import callers
from service.routes.page.rendering import HOME, PageRoute, Trouble, rendered
from service.routes.parts import EffectsHere, RunsHere
from service.runs.runs import Runs

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_FILES = Path(__file__).parents[2] / "page" / "templates"
_KINDS = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "invitation.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


@router.get(HOME)
def overview(request: Request, here: Here, runs: RunsHere) -> Response:
    """Show all sessions and models."""
    browser = _signed_in(request, here)
    if browser is None:
        return rendered(request, "sign_in.html", refused=False)
    awaited = waited_for(runs)
    with here.database.reading() as connection:
        outlines = views.outlines(connection, awaited, now=here.clock())
        models = shown_models(connection)
    names = {outline.session.id: outline.session.name for outline in outlines}
    return rendered(
        request, "overview.html", browser=browser, outlines=outlines, models=models, names=names
    )


@router.get("/view/new")
def new_session(request: Request, browser: Browser) -> Response:
    """Show the form for a new session."""
    return rendered(request, "new_session.html", browser=browser)


@router.get("/view/callers")
def all_callers(request: Request, browser: Browser, here: Here) -> Response:
    """Show all callers."""
    return callers_page(request, browser, here)


@router.get("/view/models/{name}")
def model(
    request: Request, name: str, browser: Browser, here: Here, known: EffectsHere
) -> Response:
    """Show one model, by its id or an alias."""
    try:
        return model_page(request, name, browser, here, known)
    except NotFound:
        return RedirectResponse(HOME, status_code=303)


@router.get("/view/models/{name}/folder")
def model_folder(name: str, _: Browser, here: Here) -> Response:
    """Download a model's folder."""
    with here.database.reading() as connection:
        model_id = models.resolve(connection, name, ModelAccess(everything=True))
        packed = zipped(connection, model_id)
    named = {"Content-Disposition": f'attachment; filename="{model_id}.zip"'}
    return Response(packed, media_type="application/zip", headers=named)


@router.get("/view/{session_id}")
def session(
    request: Request, session_id: UUID, browser: Browser, here: Here, runs: RunsHere
) -> Response:
    """Show one session."""
    try:
        return session_page(request, session_id, browser, here, runs)
    except NotFound:
        return RedirectResponse(HOME, status_code=303)


@router.get("/page/{name}")
def file(name: str) -> Response:
    """Return one of the page's files; they contain nothing confidential."""
    if name not in _KINDS:
        raise NotFound("The page has no file of this name.")
    return Response((_FILES / name).read_bytes(), media_type=_KINDS[name])


def session_page(
    request: Request,
    session_id: UUID,
    browser: SignedIn,
    here: Context,
    runs: Runs,
    trouble: Trouble | None = None,
) -> Response:
    """Return the page of a session, with what is wrong with one of its forms."""
    awaited = waited_for(runs)
    with here.database.reading() as connection:
        view = views.view(connection, str(session_id), awaited, now=here.clock())
    return rendered(
        request,
        "session.html",
        status=200 if trouble is None else trouble.status,
        browser=browser,
        view=view,
        hours=here.settings.run_deadline_s / 3600,
        trouble=trouble,
    )


def model_page(
    request: Request,
    name: str,
    browser: SignedIn,
    here: Context,
    known: ModelEffects,
    trouble: Trouble | None = None,
) -> Response:
    """Return the page of a model, with what is wrong with one of its forms."""
    with here.database.reading() as connection:
        view = views.model_view(connection, name)
    shown = view.model
    found = known.get(shown.id) if view.served else ()
    features = 0 if shown.schema is None else len(shown.schema.features)
    return rendered(
        request,
        "model.html",
        status=200 if trouble is None else trouble.status,
        browser=browser,
        view=view,
        effects=shown_effects(found or (), features),
        effects_due=found is None,
        trouble=trouble,
    )


def callers_page(
    request: Request, browser: SignedIn, here: Context, trouble: Trouble | None = None
) -> Response:
    """Return the page of all callers."""
    with here.database.reading() as connection:
        found = callers.every(connection)
        names = {each.id: each.name for each in shown_models(connection)}
    return rendered(
        request,
        "callers.html",
        status=200 if trouble is None else trouble.status,
        browser=browser,
        callers=found,
        names=names,
        now=here.clock(),
        trouble=trouble,
    )


def waited_for(runs: Runs) -> dict[str, tuple[str, ...]]:
    """Return the names of the members that each open run waits for."""
    found = {run_id: runs.progress(run_id) for run_id in runs.open_ids()}
    return {run_id: progress.awaited for run_id, progress in found.items() if progress is not None}


def _signed_in(request: Request, here: Context) -> SignedIn | None:
    with here.database.reading() as connection:
        token = sign_in.find(connection, request.cookies, now=here.clock())
    return None if token is None else SignedIn(token, sign_in.form_key(request.cookies))
