"""The coordinator under schemathesis: in process, with sample data, each request authorised.

Cases are generated before there is a coordinator, and a member signs the final bytes of a request:
so cases have placeholders, which `Authorising` replaces with a token or a signature.
"""

import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

from sqlalchemy import insert
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privacy.identity import Identity
from privacy.requests import sign_request
from service import sample
from service.app import create_app
from service.database.database import Database
from service.database.tables import members, run_members
from service.http import tokens
from service.settings import Settings

TOKEN_HERE, SIGN_HERE = "Bearer token-here", "Veilgp sign-here"


class Authorising:
    """Stands between schemathesis and the application."""

    def __init__(self, app: ASGIApp, identity: Identity, token: str) -> None:
        self._app = app
        self._identity = identity
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", ()))
        asked = headers.get(b"authorization", b"").decode("latin-1")
        if asked == TOKEN_HERE:
            scope = _with(scope, f"Bearer {self._token}")
        elif asked == SIGN_HERE:
            scope, receive = await self._signed(scope, receive)
        await self._app(scope, receive, send)

    async def _signed(self, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        query = scope["query_string"]
        signature = sign_request(
            self._identity,
            method=scope["method"],
            host=dict(scope["headers"]).get(b"host", b"").decode("ascii"),
            target=(scope["raw_path"] + (b"?" + query if query else b"")).decode(),
            digest=hashlib.sha256(body).digest(),
            now_ms=int(time.time() * 1000),
            nonce=os.urandom(16),
        )
        parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return parts.pop() if parts else await receive()

        return _with(scope, signature), again


class Beginning:
    """A coordinator with sample data and one more member in two sessions; prepared once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._identity, now = Identity.generate(), time.time()
        database = Database(Settings(data_dir=directory).url)
        database.migrate()
        with database.changing() as connection:
            self._token = tokens.reset_admin(connection, now=now).secret
            sample.seed(connection, now=now)
            for session, run in ((sample.SESSION, sample.RUN), (sample.RUNNING, sample.OPEN_RUN)):
                who: dict[str, Any] = {"key": self._identity.key, "name": "Fuzzed"}
                more = {"session_id": session, "status": "approved", "enrolled_at": now}
                connection.execute(insert(members).values(**who, **more))
                connection.execute(insert(run_members).values(run_id=run, **who))
        database.close()

    def application(self, directory: Path) -> ASGIApp:
        """Return a new application in this initial state, with its own data directory."""
        shutil.copytree(self._directory, directory, dirs_exist_ok=True)
        app = create_app(Settings(data_dir=directory))
        return Authorising(app, self._identity, self._token)


def _with(scope: Scope, authorization: str) -> Scope:
    headers = {**dict(scope["headers"]), b"authorization": authorization.encode()}
    return {**scope, "headers": list(headers.items())}
