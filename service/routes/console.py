"""For anyone: the console, served from files of this installation; it contacts no other host.

The page itself is not confidential. Its requests use the token that the user enters, which stays
in the page.
"""

import json
import os
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request
from jinja2 import Environment
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from service import sample
from service.context import Here
from service.http.problems import CODES, MEANINGS

router = APIRouter()

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        # Swagger UI's style sheet contains small inline images.
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


@router.get("/docs/problems", include_in_schema=False)
def problems(request: Request) -> Response:
    """Show every code of a problem with its meaning, by status, as the contract lists them."""
    contract = request.app.openapi()
    meanings = contract["components"]["schemas"]["ProblemCode"][MEANINGS]
    found: dict[int, set[str]] = {}
    for operations in contract["paths"].values():
        for operation in operations.values():
            for status, codes in operation[CODES].items():
                found.setdefault(int(status), set()).update(codes)
    listed = [
        {
            "status": status,
            "phrase": HTTPStatus(status).phrase,
            "codes": {code: meanings[code] for code in sorted(codes)},
        }
        for status, codes in sorted(found.items())
    ]
    templates: Environment = request.app.state.templates
    text = templates.get_template("problems.html").render(problems=listed, field=CODES)
    return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY, **_ASKED_AGAIN})


@router.get("/openapi.json", include_in_schema=False)
def contract(request: Request, here: Here) -> Response:
    """Return the contract; with the sample data, its examples name the sample's models."""
    text = json.dumps(request.app.openapi())
    with here.database.reading() as connection:
        for stand_in, model_id in sample.model_ids(connection).items():
            text = text.replace(stand_in, model_id)
    return Response(text, media_type="application/json")


class ConsoleFiles(StaticFiles):
    """The static files of the console."""

    def __init__(self) -> None:
        super().__init__(directory=_FILES)

    def file_response(
        self,
        full_path: "str | os.PathLike[str]",
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Return a file that browsers may cache but must revalidate."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_ASKED_AGAIN)
        return response
