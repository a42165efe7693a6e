"""For anyone: the console, from files of this installation; it asks no other host for anything.

The page itself is no secret. What it does it does with the token that its user enters, which stays
in the page.
"""

import json
import os
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from service import sample
from service.context import Here

router = APIRouter()

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # Swagger UI's style sheet has small pictures within it.
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_ASKED_AGAIN = {"Cache-Control": "no-cache"}
_FILES = Path(str(files("openapi"))) / "console"


@router.get("/docs", include_in_schema=False)
def page() -> Response:
    """Show the console."""
    return FileResponse(
        _FILES / "index.html", headers={"Content-Security-Policy": _POLICY, **_ASKED_AGAIN}
    )


@router.get("/openapi.json", include_in_schema=False)
def contract(request: Request, here: Here) -> Response:
    """Give the contract; where the sample is, its examples name the sample's own models."""
    text = json.dumps(request.app.openapi())
    with here.database.reading() as connection:
        for stand_in, model_id in sample.model_ids(connection).items():
            text = text.replace(stand_in, model_id)
    return Response(text, media_type="application/json")


class ConsoleFiles(StaticFiles):
    """The files that the page asks for."""

    def __init__(self) -> None:
        super().__init__(directory=_FILES)

    def file_response(
        self,
        full_path: "str | os.PathLike[str]",
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Let browsers keep a file, and ask whether it is still the same."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_ASKED_AGAIN)
        return response
