"""Sessions with blind sums between real hospitals and the real coordinator, in one process.

Of a `RemoteStudy` the coordinator is a process of its own.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from benchmarks import hospitals
from benchmarks.federation import Federation
from client_sdk import GlobalModel, Policy, join_async
from client_sdk.conversation.replay import Needed, Replay
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
        timing = {"author_after_s": 2.0, "repair_after_s": 0.5}
        self.app = create_app(Settings(data_dir=folder / "coordinator", **(timing | settings)))
        self._prepare(folder, members, "http://127.0.0.1")

    def _prepare(self, folder: Path, members: int, url: str) -> None:
        self.folder = folder
        self.names = NAMES[:members]
        self.http = httpx.AsyncClient(transport=self.transport(), base_url=url)
        self.tables = {
            mix.name: hospitals.patients(mix, sessions.ROWS, 3) for mix in hospitals.MIXES
        }
        self.links: dict[str, str] = {}
        self.events: dict[str, list[Event]] = {name: [] for name in self.names}
        self.roster = home_keys(folder, self.names)

    def transport(self) -> httpx.AsyncBaseTransport:
        """Return a new way to the coordinator."""
        return httpx.ASGITransport(self.app)

    def new_token(self) -> str:
        """Return a token of an admin."""
        with self.app.state.context.database.changing() as connection:
            return tokens.reset_admin(connection, now=time.time()).secret

    async def admin(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        response = await self.http.request(method, path, json=body, headers=headers)
        assert response.status_code < 400, response.text
        return response.json() if response.content else None

    async def begin(self, **changed: Any) -> None:
        self.token = self.new_token()
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
            transport=transport or self.transport(),
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


class RemoteStudy(BlindStudy):
    """The same hospitals, and the coordinator of a federation of processes."""

    def __init__(self, folder: Path, federation: Federation, *, members: int = 3) -> None:
        self._token = federation.token
        self._prepare(folder, members, federation.url)

    def transport(self) -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport()

    def new_token(self) -> str:
        return self._token


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


def objects_once(monkeypatch: Any) -> set[int]:
    """Let the last member object once to each task: then its author must seal its state.

    Returns the slots in which it has objected, while they are played.
    """
    objected: set[int] = set()
    answering = Replay.answering

    def objecting(self: Any, task: Any, item: Any) -> Any:
        _, epoch = self._client.journal.entry(task.epoch_id)
        own = epoch.rank(self._home.identity.key)
        if item.kind == "task" and own == epoch.size - 1 and task.slot not in objected:
            objected.add(task.slot)
            return Needed(objection=True)
        return (yield from answering(self, task, item))

    monkeypatch.setattr(Replay, "answering", objecting)
    return objected
