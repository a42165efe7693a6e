"""Forms of sessions: create one, invite hospitals, approve them, start and cancel runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import RedirectResponse

from service.context import Context, Here
from service.errors import NotAllowed
from service.http.forms import Browser, Fields, OwnForm, SignedIn
from service.routes import roster, runs, sessions
from service.routes.page.new_session_form import entered, session_of
from service.routes.page.reading import session_page
from service.routes.page.rendering import HOME, PageRoute, Trouble, attempt, checked, rendered
from service.routes.page.typed_fields import hours_in_seconds, identifier, without_empty
from service.routes.parts import RunsHere
from service.routes.runs import RunIn
from service.runs.runs import Runs
from service.sessions.invitations import NewInvitation
from service.sessions.members import NewStatus

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@dataclass(frozen=True)
class SessionForm:
    """A form on a session's page, and what answering it needs."""

    request: Request
    session_id: UUID
    browser: SignedIn
    fields: Fields
    here: Context
    runs: Runs

    def field(self, name: str) -> str:
        """Return a field; an absent one is empty."""
        return self.fields.get(name, "")

    def does(self, form: str, act: Callable[[], object]) -> Response:
        """Do something and show the session again; if it is refused, with the reason."""
        found = attempt(form, self.fields, act)
        if isinstance(found, Trouble):
            return self.refused(found)
        return RedirectResponse(f"/view/{self.session_id}", status_code=303)

    def refused(self, trouble: Trouble) -> Response:
        """Show the session with what is wrong with a form."""
        return session_page(
            self.request, self.session_id, self.browser, self.here, self.runs, trouble
        )


async def _session_form(
    request: Request,
    session_id: UUID,
    browser: Browser,
    fields: OwnForm,
    here: Here,
    open_runs: RunsHere,
) -> SessionForm:
    return SessionForm(request, session_id, browser, fields, here, open_runs)


Sent = Annotated[SessionForm, Depends(_session_form)]


@router.post("/view/new")
def create(request: Request, browser: Browser, fields: OwnForm, here: Here) -> Response:
    """Create a session from a schema file and a few choices."""
    kept = entered(fields)
    made = attempt("new", kept, lambda: sessions.create(browser.token, session_of(kept), here))
    if isinstance(made, Trouble):
        return rendered(
            request, "new_session.html", status=made.status, browser=browser, trouble=made
        )
    return RedirectResponse(f"/view/{made.id}", status_code=303)


@router.post("/view/{session_id}/invite")
def invite(sent: Sent) -> Response:
    """Invite a hospital; the link is shown once."""

    def make() -> roster.InvitationWithLink:
        new = checked(NewInvitation, {"name": sent.field("name").strip()})
        return roster.invite(sent.browser.token, str(sent.session_id), new, sent.request, sent.here)

    made = attempt("invite", sent.fields, make)
    if isinstance(made, Trouble):
        return sent.refused(made)
    return rendered(
        sent.request,
        "invited.html",
        browser=sent.browser,
        invitation=made,
        session_id=sent.session_id,
    )


@router.post("/view/{session_id}/revoke")
def revoke(sent: Sent) -> Response:
    """Revoke an open invitation."""
    by, where = sent.browser.token, str(sent.session_id)
    invitation = sent.field("invitation")
    return sent.does("invitations", lambda: roster.revoke(by, where, invitation, sent.here))


@router.post("/view/{session_id}/members")
def set_status(sent: Sent) -> Response:
    """Approve a member whose fingerprint was compared, or suspend one."""

    def change() -> object:
        name, new = sent.field("name"), checked(NewStatus, {"status": sent.field("status")})
        if new.status == "approved" and not sent.field("compared"):
            raise NotAllowed(
                f"Compare the fingerprint of {name} with somebody at the hospital by phone, tick "
                "the box, and then approve it."
            )
        by, where = sent.browser.token, str(sent.session_id)
        return roster.set_status(by, where, name, new, sent.here, sent.runs)

    return sent.does("members", change)


@router.post("/view/{session_id}/runs")
def start(sent: Sent) -> Response:
    """Start a run."""

    def begin() -> object:
        plain = {
            "kind": sent.field("kind"),
            "model": sent.field("model"),
            "deadline_s": hours_in_seconds(sent.field("hours")),
        }
        new = checked(RunIn, without_empty(plain))
        return runs.start(sent.browser.token, sent.session_id, new, sent.here, sent.runs)

    return sent.does("run", begin)


@router.post("/view/{session_id}/cancel")
def cancel(sent: Sent) -> Response:
    """Cancel an open run."""

    def end() -> object:
        run = identifier(sent.field("run"), "run")
        return runs.cancel(sent.browser.token, run, sent.here, sent.runs)

    return sent.does("run", end)


@router.post("/view/{session_id}/retry")
def retry(sent: Sent) -> Response:
    """Start a run again that has ended."""

    def begin() -> object:
        run = identifier(sent.field("run"), "run")
        return runs.retry(sent.browser.token, run, sent.here, sent.runs)

    return sent.does("run", begin)


@router.post("/view/{session_id}/delete")
def remove(sent: Sent) -> Response:
    """Delete a session that has no runs."""
    by, where = sent.browser.token, str(sent.session_id)
    found = attempt("delete", sent.fields, lambda: sessions.remove(by, where, sent.here))
    if isinstance(found, Trouble):
        return sent.refused(found)
    return RedirectResponse(HOME, status_code=303)
