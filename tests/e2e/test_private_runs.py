"""Differential privacy between the real coordinator and the real SDK, in one process.

One study of four hospitals whose budget is for two runs: in the first a hospital falls silent, in
the second one has reached its own cap, and a third does not begin.
"""

import asyncio
import math
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks import hospitals
from client_sdk import GlobalModel, Policy, join_async
from client_sdk.errors import BudgetSpent
from client_sdk.home import Home
from client_sdk.progress import Event, VectorLeft
from privacy.ledger import Budget
from service import tokens
from service.app import create_app
from service.settings import Settings
from tests.e2e import sessions

DELTA = 1e-5
NAMES = [mix.name for mix in hospitals.MIXES[:4]]
TABLES = {
    mix.name: {
        **hospitals.patients(mix, 160, 3),
        "patient": np.array([f"{mix.name}-{i // 2}" for i in range(160)]),
    }
    for mix in hospitals.MIXES[:4]
}
STAGES = [
    {"algorithm": "moments", "parameters": {"from_bounds": True}},
    {"algorithm": "linear"},
    {"algorithm": "recalibration"},
    {"algorithm": "evaluation"},
]
NEW = {
    **sessions.NEW,
    "schema": {**hospitals.SCHEMA, "patient": "patient"},
    "kernel": {"architecture": "rbf", "samples": 10, "seed": 1},
    "stages": STAGES,
    "members": 4,
    "privacy": {
        "differential_privacy": True,
        "epsilon": 8.0,
        "delta": DELTA,
        "runs": 2,
        "max_rows_per_patient": 2,
        "max_colluders": 1,
        "min_cohort": 3,
    },
}


class Study:
    """A coordinator with little patience, and four hospitals within this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        patience = {"gather_s": 30, "leave_out_after_s": 4, "repair_after_s": 1}
        self.app = create_app(Settings(data_dir=folder / "coordinator", **patience))
        transport = httpx.ASGITransport(self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self.roster: dict[str, bytes] = {}
        self.links: dict[str, str] = {}

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
        self.session = await self.admin("POST", "/sessions", NEW)
        self.path = f"/sessions/{self.session['id']}"
        for name in NAMES:
            self.roster[name] = Home(self.folder / name).identity().key
            invited = await self.admin("POST", f"{self.path}/invitations", {"name": name})
            self.links[name] = invited["link"]

    def policy(self, epsilon: float) -> Policy:
        return Policy.from_toml(
            sessions.policy(
                algorithms=[stage["algorithm"] for stage in STAGES],
                columns=[*next(iter(TABLES.values()))],
                without_differential_privacy=False,
                epsilon=epsilon,
                delta=DELTA,
            )
        )

    def joined(
        self, name: str, *, epsilon: float = 8.0, events: list[Event] | None = None
    ) -> "asyncio.Task[GlobalModel]":
        return asyncio.create_task(
            join_async(
                self.links[name],
                TABLES[name],
                self.policy(epsilon),
                home=self.folder / name,
                roster=self.roster,
                progress="silent" if events is None else events.append,
                transport=httpx.ASGITransport(self.app),
            )
        )

    async def approve(self) -> None:
        while len(members := await self.admin("GET", f"{self.path}/members")) < len(NAMES):
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
            ledger = store.ledger("table", Budget(8.0, DELTA))
            departures = [(d.session, d.run, d.epoch, d.slot) for d in store.departures()]
        finally:
            store.close()
        assert [entry.sum for entry in ledger.entries] == departures, "all that left was charged"
        return len(departures), ledger.spent.epsilon


async def whole_study(folder: Path) -> None:
    study = Study(folder)
    async with study.app.router.lifespan_context(study.app):
        await study.begin()
        budget = study.session["budget"]
        assert (budget["epsilon"], budget["runs"]) == (8.0, 2)
        once = budget["run_costs"]
        assert once < 8.0
        await _one_falls_silent(study)
        await _one_reaches_its_own_cap(study, cap=1.05 * once)
        await _nothing_is_left(study, once)


async def _one_falls_silent(study: Study) -> None:
    events: list[Event] = []
    silent = study.joined(NAMES[0], events=events)
    others = [study.joined(name) for name in NAMES[1:]]
    await study.approve()
    run = await study.start()
    while not any(isinstance(event, VectorLeft) for event in events):
        await asyncio.sleep(0.01)
    silent.cancel()
    done, _ = await asyncio.wait(others, timeout=120)
    ended = await study.admin("GET", f"/runs/{run}")
    assert len(done) == len(others), str(ended)
    models = [task.result() for task in done]
    assert len({model.id for model in models}) == 1
    assert (ended["status"], ended["progress"]["sums"]) == ("done", 3)
    card = models[0].artifact.card.privacy
    assert (card.unit, card.releases, card.delta) == ("patient", 3, DELTA)
    assert card.epsilon is not None
    assert card.epsilon <= study.session["budget"]["run_costs"]
    assert "e^" in card.meaning
    assert np.isfinite(models[0].predict(TABLES[NAMES[0]]).mean).all()
    await asyncio.gather(silent, return_exceptions=True)
    returned = await study.joined(NAMES[0])
    assert returned.id == models[0].id, "who comes back gets the model all the same"
    assert 1 <= study.spent(NAMES[0])[0] < 3
    assert study.spent(NAMES[1])[0] == 3


async def _one_reaches_its_own_cap(study: Study, *, cap: float) -> None:
    """The site has paid for one run, and its policy for no more; the session has two."""
    run = await study.start()
    capped = study.joined(NAMES[1], epsilon=cap)
    others = [study.joined(name) for name in (NAMES[0], *NAMES[2:])]
    await asyncio.wait([capped], timeout=120)
    assert isinstance(capped.exception(), BudgetSpent)
    done, _ = await asyncio.wait(others, timeout=120)
    ended = await study.admin("GET", f"/runs/{run}")
    assert (len(done), ended["status"]) == (3, "done"), str(ended)
    assert len({task.result().id for task in done}) == 1
    members = {each["name"]: each for each in await study.admin("GET", f"{study.path}/members")}
    assert members[NAMES[1]]["refusal"]["code"] == "policy.budget"
    assert study.spent(NAMES[1])[0] == 3
    assert study.spent(NAMES[2])[0] == 6


async def _nothing_is_left(study: Study, once: float) -> None:
    refused = await study.asked("POST", f"{study.path}/runs", {"kind": "train"})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (409, "ledger.budget_exceeded")
    assert "beyond the budget of 8" in problem["detail"]
    report = await study.admin("GET", f"{study.path}/privacy")
    assert len(report["releases"]) == 6
    assert once < report["spent"] <= 8.0 < report["after_another_run"]
    assert math.isclose(report["over_time"][-1]["epsilon"], report["spent"])
    curve = [each["epsilon"] for each in report["over_time"]]
    assert curve == sorted(curve)
    assert (report["unit"], report["honest"]) == ("patient", 2)
    assert {each["part"] for each in report["releases"]} == {"training", "calibration"}


def test_a_dropout_a_sites_own_cap_and_a_budget_that_runs_out(tmp_path: Path) -> None:
    asyncio.run(whole_study(tmp_path))
