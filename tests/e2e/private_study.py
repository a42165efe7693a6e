"""A coordinator with short timeouts, and hospitals with noise, all in this process."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from client_sdk import GlobalModel, Policy, join_async
from client_sdk.events import Event
from client_sdk.home.home import Home
from privacy.ledger import Budget
from service.app import create_app
from service.http import tokens
from service.settings import Settings
from tests.dealing import home_keys
from tests.e2e import sessions

Json = Mapping[str, Any]


class Study:
    """A private session, and a hospital for each table."""

    def __init__(self, folder: Path, new: Json, tables: Mapping[str, Json]) -> None:
        self.folder, self.new, self.tables = folder, new, tables
        patience = {"gather_s": 30, "leave_out_after_s": 4, "repair_after_s": 1}
        self.app = create_app(Settings(data_dir=folder / "coordinator", **patience))
        transport = httpx.ASGITransport(self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self.roster: dict[str, bytes] = {}
        self.links: dict[str, str] = {}

    @property
    def delta(self) -> float:
        delta: float = self.new["privacy"]["delta"]
        return delta

    async def asked(self, method: str, path: str, body: object = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return await self.http.request(method, path, json=body, headers=headers)

    async def admin(self, method: str, path: str, body: object = None) -> Any:
        response = await self.asked(method, path, body)
        assert response.status_code < 400, response.text
        return response.json()

    async def begin(self) -> None:
        with self.app.state.context.database.changing() as connection:
            self.token = tokens.reset_admin(connection, now=time.time()).secret
        self.session = await self.admin("POST", "/sessions", self.new)
        self.path = f"/sessions/{self.session['id']}"
        for name in self.tables:
            self.roster |= home_keys(self.folder, [name])
            invited = await self.admin("POST", f"{self.path}/invitations", {"name": name})
            self.links[name] = invited["link"]

    def policy(self, epsilon: float) -> Policy:
        return Policy.from_toml(
            sessions.policy(
                self.session,
                algorithms=[stage["algorithm"] for stage in self.new["stages"]],
                without_differential_privacy=False,
                served_model=False,
                epsilon=epsilon,
                delta=self.delta,
            )
        )

    def joined(
        self, name: str, *, epsilon: float = 8.0, events: list[Event] | None = None
    ) -> "asyncio.Task[GlobalModel]":
        return asyncio.create_task(
            join_async(
                self.links[name],
                self.tables[name],
                self.policy(epsilon),
                home=self.folder / name,
                roster=self.roster,
                progress="silent" if events is None else events.append,
                transport=httpx.ASGITransport(self.app),
            )
        )

    async def approve(self) -> None:
        while len(members := await self.admin("GET", f"{self.path}/members")) < len(self.tables):
            await asyncio.sleep(0.02)
        for member in members:
            path = f"{self.path}/members/{member['name']}"
            await self.admin("PATCH", path, {"status": "approved"})

    async def start(self) -> str:
        run: str = (await self.admin("POST", f"{self.path}/runs", {"kind": "train"}))["id"]
        return run

    def spent(self, name: str) -> tuple[int, float]:
        store = Home(self.folder / name).read()
        try:
            ledger = store.ledger("table", Budget(8.0, self.delta))
            departures = [(d.session, d.run, d.epoch, d.slot) for d in store.departures()]
        finally:
            store.close()
        assert [entry.sum for entry in ledger.entries] == departures, "all that left was charged"
        return len(departures), ledger.spent.epsilon
