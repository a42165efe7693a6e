"""A coordinator in this process, with a clock that tests set, and members that sign by hand."""

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from fastapi import FastAPI
from httpx import Response

from privacy.identity import Identity
from privacy.requests import sign_request
from service.app import create_app
from service.context import Context
from service.http import tokens
from service.settings import Settings

Json = Mapping[str, Any]
HOST = "coordinator"

SCHEMA: Json = {
    "features": [{"kind": "numeric", "name": "age", "unit": "a", "lower": 0, "upper": 120}],
    "targets": [{"name": "stay", "unit": "d", "lower": 0, "upper": 100}],
}
SESSION: Json = {
    "name": "Length of stay",
    "schema": SCHEMA,
    "kernel": {"architecture": "rbf", "samples": 4, "seed": 1},
    "stages": [{"algorithm": "moments"}, {"algorithm": "linear"}],
    "max_rows": 1000,
    "held_out": 0.2,
    "members": 5,
    "privacy": {"differential_privacy": False},
    "sums": "open",
    "model": "served",
}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Coordinator:
    """The application with its admin token."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.clock = Clock()
        self.app: FastAPI = create_app(Settings(data_dir=directory, **settings), clock=self.clock)
        self._runner = asyncio.Runner()
        self._lifespan = self.app.router.lifespan_context(self.app)
        transport = httpx.ASGITransport(self.app)
        self._http = httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}")

    def __enter__(self) -> Self:
        self._runner.run(self._lifespan.__aenter__())
        self.reset_token()
        return self

    def __exit__(self, *error: Any) -> None:
        self._runner.run(self._http.aclose())
        self._runner.run(self._lifespan.__aexit__(*error))
        self._runner.close()

    def request(self, method: str, path: str, **more: Any) -> Response:
        return self._runner.run(self._http.request(method, path, **more))

    def begin(self, method: str, path: str, **more: Any) -> "asyncio.Task[Response]":
        """Send a request in the background; `finish` waits for its end."""
        request = self._http.request(method, path, **more)
        return self._runner.get_loop().create_task(request)

    def finish(self, answer: "asyncio.Task[Response]") -> Response:
        async def wait() -> Response:
            return await answer

        return self._runner.run(wait())

    def forget_cookies(self) -> None:
        self._http.cookies.clear()

    def reset_token(self) -> None:
        with self.context.database.changing() as connection:
            self.token = tokens.reset_admin(connection, now=self.clock()).secret

    @property
    def context(self) -> Context:
        context: Context = self.app.state.context
        return context

    def admin(self, method: str, path: str, body: object = None, **more: Any) -> Response:
        return self.bearer(self.token, method, path, body, **more)

    def bearer(
        self, token: str, method: str, path: str, body: object = None, **more: Any
    ) -> Response:
        headers = {"Authorization": f"Bearer {token}"}
        if body is not None:
            more["json"] = body
        return self.request(method, path, headers=headers, **more)

    def session(self, **changes: Any) -> str:
        response = self.admin("POST", "/sessions", {**SESSION, **changes})
        assert response.status_code == 201, response.text
        identifier: str = response.json()["id"]
        return identifier

    def invite(self, session: str, name: str, **more: Any) -> str:
        """Return the secret of a new invitation."""
        path = f"/sessions/{session}/invitations"
        response = self.admin("POST", path, {"name": name, **more})
        assert response.status_code == 201, response.text
        secret: str = response.json()["link"].partition("#")[2]
        return secret

    def approved(self, session: str, name: str) -> "Hospital":
        """Return a hospital that has enrolled and been approved."""
        hospital = Hospital(self)
        assert hospital.enrol(session, self.invite(session, name)).status_code == 201
        path = f"/sessions/{session}/members/{name}"
        assert self.admin("PATCH", path, {"status": "approved"}).status_code == 200
        return hospital


@dataclass
class Hospital:
    """Signs requests as the SDK does."""

    coordinator: Coordinator
    identity: Identity = field(default_factory=Identity.generate)

    host = HOST

    def header(self, method: str, target: str, body: bytes = b"") -> str:
        return sign_request(
            self.identity,
            method=method,
            host=self.host,
            target=target,
            digest=hashlib.sha256(body).digest(),
            now_ms=int(self.coordinator.clock() * 1000),
            nonce=os.urandom(16),
        )

    def send(self, method: str, target: str, plain: object = None) -> Response:
        body = b"" if plain is None else json.dumps(plain).encode()
        return self.forward(method, target, self.header(method, target, body), body)

    def forward(self, method: str, target: str, header: str, body: bytes = b"") -> Response:
        headers = {"Authorization": header, "Content-Type": "application/json"}
        return self.coordinator.request(method, target, headers=headers, content=body)

    def enrol(self, session: str, secret: str) -> Response:
        return self.send("POST", f"/sessions/{session}/members", {"invitation": secret})

    def membership(self, session: str) -> Response:
        return self.send("GET", f"/sessions/{session}/membership")
