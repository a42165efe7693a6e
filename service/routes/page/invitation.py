"""What a join link shows in a browser: what the hospital was invited to, and what to run.

Anyone may read it, so it is the same for every link: it says nothing about a session, not even
whether there is one. The link's secret is in its fragment, which browsers do not send; a small
script of the page writes the whole link into the commands, and without it they say where to put it.
"""

from uuid import UUID

from fastapi import APIRouter, Request, Response

from service.routes.page.rendering import PageRoute, rendered

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/join/{session_id}")
def explain(request: Request, session_id: UUID) -> Response:
    """Explain a join link to the hospital that got it."""
    del session_id
    return rendered(request, "invitation.html")
