"""Sessions with blind sums between real hospitals and the real coordinator, in one process."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from benchmarks import hospitals
from client_sdk import GlobalModel, Policy, join_async
from client_sdk.events import Event
from privacy.securesum.client import Client
from service.app import create_app
from service.http import tokens
from service.settings import Settings
from tests.dealing import home_keys
from tests.e2e import sessions

STAGES = [
    {"algorithm": "moments"},
    {"algorithm": "linear"},
    {"algorithm": "recalibration"},
    {"algorithm": "evaluation"},
]
NAMES = tuple(mix.name for mix in hospitals.MIXES)
Transports = Mapping[str, Callable[[Any], httpx.AsyncBaseTransport]]


class BlindStudy:
    """A coordinator, and hospitals that join it; `events` are what each of them has seen."""

    def __init__(self, folder: Path, *, members: int = 3, **settings: Any) -> None:
        self.folder = folder
        self.names = NAMES[:members]
        timing = {"author_after_s": 2.0, "repair_after_s": 0.5}
        self.app = create_app(Settings(data_dir=folder / "coordinator", **(timing | settings)))
        transport = httpx.ASGITransport(self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self.tables = {
            mix.name: hospitals.patients(mix, sessions.ROWS, 3) for mix in hospitals.MIXES
        }
        self.links: dict[str, str] = {}
        self.events: dict[str, list[Event]] = {name: [] for name in self.names}
        self.roster = home_keys(folder, self.names)

    async def admin(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        response = await self.http.request(method, path, json=body, headers=headers)
        assert response.status_code < 400, response.text
        return response.json() if response.content else None

    async def begin(self, **changed: Any) -> None:
        with self.app.state.context.database.changing() as connection:
            self.token = tokens.reset_admin(connection, now=time.time()).secret
        new = {**sessions.NEW, "stages": STAGES, "members": len(self.names), "sums": "blind"}
        self.session = await self.admin("POST", "/sessions", {**new, **changed})
        self.path = f"/sessions/{self.session['id']}"
        for name in self.names:
            invited = await self.admin("POST", f"{self.path}/invitations", {"name": name})
            self.links[name] = invited["link"]

    def policy(self, **lines: Any) -> Policy:
        return Policy.from_toml(sessions.policy(self.session, **lines))

    async def join(self, name: str, *, transport: Any = None, **lines: Any) -> GlobalModel:
        return await join_async(
            self.links[name],
            self.tables[name],
            self.policy(**lines),
            home=self.folder / name,
            roster=self.roster,
            progress=self.events[name].append,
            transport=transport or httpx.ASGITransport(self.app),
        )

    async def start(self, body: object, joining: list["asyncio.Task[GlobalModel]"]) -> None:
        """Approve all hospitals that join, and start a run."""
        while len(members := await self.admin("GET", f"{self.path}/members")) < len(self.names):
            assert not any(task.done() for task in joining), [task.result() for task in joining]
            await asyncio.sleep(0.02)
        for member in members:
            if member["status"] == "pending":
                path = f"{self.path}/members/{member['name']}"
                await self.admin("PATCH", path, {"status": "approved"})
        await self.admin("POST", f"{self.path}/runs", body)

    async def run(
        self, body: object = None, *, transports: Transports | None = None, timeout_s: float = 60
    ) -> dict[str, GlobalModel]:
        """Run with all hospitals, and return the model that each of them has."""
        made = transports or {}
        joining = [
            asyncio.create_task(
                self.join(name, transport=made[name](self.app) if name in made else None)
            )
            for name in self.names
        ]
        await self.start(body or {"kind": "train"}, joining)
        done, late = await asyncio.wait(
            joining, return_when=asyncio.FIRST_EXCEPTION, timeout=timeout_s
        )
        for task in late:
            task.cancel()
        models = [task.result() for task in done]
        assert not late, (await self.runs(), self.events)
        return (
            dict(zip(self.names, [task.result() for task in joining], strict=True))
            if models
            else {}
        )

    async def runs(self) -> Any:
        return await self.admin("GET", f"{self.path}/runs")

    def seen(self, name: str, kind: type[Event]) -> list[Event]:
        return [event for event in self.events[name] if isinstance(event, kind)]


def lies(monkeypatch: Any, method: str, key: bytes, lie: Callable[..., Any]) -> None:
    """Let the hospital with this key answer with `lie` instead of a method of its client.

    `lie` gets the honest method, bound to the client, and then its arguments.
    """
    honest = getattr(Client, method)

    def either(self: Client, *given: Any, **named: Any) -> Any:
        if self._identity.key != key:
            return honest(self, *given, **named)
        return lie(lambda *g, **n: honest(self, *g, **n), *given, **named)

    monkeypatch.setattr(Client, method, either)
