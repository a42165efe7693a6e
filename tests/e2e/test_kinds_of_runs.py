"""Every kind of run, between the real coordinator and the real SDK, in one process."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from client_sdk import GlobalModel, Policy, join_async, simulate, site_of_home
from client_sdk.errors import PolicyError, RunFailed
from kernels.model.model import Model
from kernels.model.prediction import predict
from kernels.rounds.program import Program
from kernels.rounds.shared.public_set import columns_of
from kernels.rounds.site.site import Part
from kernels.storage import encode
from kernels.tables.schema import Schema
from service.app import create_app
from service.http import tokens
from service.settings import Settings
from tests.dealing import home_keys
from tests.e2e import sessions
from tests.kernels.rounds.artifacts import WITH_STUDENTS
from tests.kernels.rounds.tables import updated as updated_site

NAMES = [*sessions.TABLES]
NAMED = [*sessions.ALGORITHMS, "update"]


class Study:
    """A coordinator, and three hospitals that join it within this process."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.app = create_app(Settings(data_dir=folder / "coordinator", **settings))
        transport = httpx.ASGITransport(self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self.roster: dict[str, bytes] = {}
        self.links: dict[str, str] = {}
        self.at_home: dict[str, GlobalModel] = {}

    async def admin(self, method: str, path: str, body: object = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        response = await self.http.request(method, path, json=body, headers=headers)
        assert response.status_code < 400, response.text
        return response.json() if response.content else None

    async def begin(self, *, public: Mapping[str, Any] | None = None, **changed: Any) -> None:
        database = self.app.state.context.database
        with database.changing() as connection:
            self.token = tokens.reset_admin(connection, now=time.time()).secret
        if public is not None:
            await self.admin("PUT", "/public-sets/public", {"columns": public})
        self.session = await self.admin("POST", "/sessions", {**sessions.NEW, **changed})
        self.path = f"/sessions/{self.session['id']}"
        for name in NAMES:
            self.roster |= home_keys(self.folder, [name])
            invited = await self.admin("POST", f"{self.path}/invitations", {"name": name})
            self.links[name] = invited["link"]

    @property
    def homes(self) -> dict[str, Path]:
        return {name: self.folder / name for name in NAMES}

    async def join(self, name: str, policy: Policy, **more: Any) -> GlobalModel:
        return await join_async(
            self.links[name],
            sessions.TABLES[name],
            policy,
            home=self.folder / name,
            roster=self.roster,
            progress="silent",
            transport=httpx.ASGITransport(self.app),
            **more,
        )

    async def joining(
        self, body: object, policy: Policy, changes: dict[str, Any] | None = None
    ) -> list[asyncio.Task[GlobalModel]]:
        """Let all hospitals join, and start a run."""
        joining = [
            asyncio.create_task(self.join(name, policy, **(changes or {}).get(name, {})))
            for name in NAMES
        ]
        while len(members := await self.admin("GET", f"{self.path}/members")) < len(NAMES):
            assert not any(task.done() for task in joining), [task.result() for task in joining]
            await asyncio.sleep(0.02)
        for member in members:
            if member["status"] == "pending":
                await self.admin(
                    "PATCH", f"{self.path}/members/{member['name']}", {"status": "approved"}
                )
        await self.admin("POST", f"{self.path}/runs", body)
        return joining

    async def run(self, *how: Any) -> Model:
        """Run with all hospitals; the new model is the same at each of them."""
        joining = await self.joining(*how)
        done, _ = await asyncio.wait(joining, return_when=asyncio.FIRST_EXCEPTION, timeout=300)
        models = [task.result() for task in done]
        assert len(models) == len(NAMES)
        assert len({model.id for model in models}) == 1
        self.model = models[0].id
        self.at_home[self.model] = models[0]
        return models[0].artifact.model


async def whole_study(folder: Path) -> None:
    study = Study(folder)
    async with study.app.router.lifespan_context(study.app):
        await study.begin()
        program = Program.from_json(sessions.program_text(study.session))
        schema: Schema = program.schema
        policy = Policy.from_toml(
            sessions.policy(study.session, algorithms=[*sessions.ALGORITHMS, "update"])
        )
        trained = await study.run({"kind": "train"}, policy)
        assert encode(trained) == encode(sessions.simulated(study.session, study.homes))
        first = study.model

        again = await study.run({"kind": "linear", "model": first}, policy)
        assert encode(again) == encode(trained)
        evaluated = await study.run({"kind": "evaluate", "model": first}, policy)
        assert encode(evaluated) == encode(trained)

        new = {name: column[:7] for name, column in sessions.more_patients().items()}
        update = {"kind": "update", "model": first}
        refusing, *others = await study.joining(update, policy, {NAMES[0]: {"added": new}})
        await asyncio.wait([refusing], timeout=300)
        assert isinstance(refusing.exception(), PolicyError)
        # To the others it is absent: that it has rows to add is nobody else's business.
        (latest, *_) = await study.admin("GET", f"{study.path}/runs")
        assert latest["status"] not in ("failed", "done")
        await study.admin("POST", f"/runs/{latest['id']}/cancel")
        # Members of the run learn of its end; a member that comes too late waits for the next run.
        _, late = await asyncio.wait(others, timeout=20)
        for other in late:
            other.cancel()
        for ended in await asyncio.gather(*others, return_exceptions=True):
            assert isinstance(ended, RunFailed | asyncio.CancelledError)

        consenting = Policy.from_toml(
            sessions.policy(study.session, algorithms=NAMED, consents=["update"])
        )
        updated = await study.run(update, consenting, {NAMES[0]: {"added": new}})
        sites = sessions.dealt(study.session, study.homes)
        added = site_of_home(program, new, study.homes[NAMES[0]])
        sites[0].parts[Part.ADDED] = added.parts[Part.TRAINING]  # dealt as its table is
        refitted = simulate(
            Program(schema, program.kernel, program.stages[2:3], program.max_rows, 0.2),
            [updated_site(site) for site in sites],
            secure=False,
            model=trained,
        ).model
        assert updated.statistics is not None
        assert refitted.statistics is not None
        assert updated.statistics.count == refitted.statistics.count
        assert np.allclose(updated.statistics.scatter, refitted.statistics.scatter, rtol=1e-9)
        ours, theirs = (predict(model, new).mean for model in (updated, refitted))
        assert np.allclose(ours, theirs, rtol=1e-6)


def test_train_linear_evaluate_and_update(tmp_path: Path) -> None:
    asyncio.run(whole_study(tmp_path))


_SMALL = {"hidden": [8], "cycles": 2, "cycle_epochs": 3, "cycle_samples": 2}
ENSEMBLE = [
    *sessions.STAGES[:3],
    {
        "algorithm": "predictive",
        "parameters": {"public": "public", "extra_rows": 20, "distillation_epochs": 5, **_SMALL},
    },
    {"algorithm": "beta"},
    *sessions.STAGES[3:],
]


async def study_of_methods(folder: Path) -> None:
    study = Study(folder)
    few = {name: column[:25] for name, column in sessions.more_patients().items()}
    new = {name: list(cells) for name, cells in columns_of(few)}
    async with study.app.router.lifespan_context(study.app):
        await study.begin(public=new, stages=ENSEMBLE)
        policy = Policy.from_toml(
            sessions.policy(study.session, algorithms=[s["algorithm"] for s in ENSEMBLE])
        )
        trained = await study.run({"kind": "train"}, policy)
        expected = sessions.simulated(study.session, study.homes)
        assert trained.distilled is not None
        assert expected.distilled is not None
        assert encode(trained) == encode(
            replace(expected, distilled=expected.distilled.published())
        )
        first = study.model
        (listed,) = await study.admin("GET", "/models")
        assert [each["method"] for each in listed["methods"]] == [*WITH_STUDENTS]

        local, answers = study.at_home[first], {}
        for method in WITH_STUDENTS:
            body = {"model": first, "columns": new, "method": method}
            (stay,) = (await study.admin("POST", "/predict", body))["targets"]
            answers[method] = stay["mean"]
            said = local.predict(new, method=method)
            assert np.allclose(stay["mean"], said.mean[:, 0], rtol=1e-12)
            assert np.allclose(stay["variance"], said.variance[:, 0], rtol=1e-12)
        assert len({str(mean) for mean in answers.values()}) >= len(WITH_STUDENTS) - 1

        card = await study.admin("GET", f"/models/{first}")
        judged = card["evaluation"]["others"]
        assert [each["method"] for each in judged] == [*WITH_STUDENTS[1:]]

        evaluated = await study.run({"kind": "evaluate", "model": first}, policy)
        assert encode(evaluated) == encode(trained)
        again = await study.run({"kind": "linear", "model": first}, policy)
        assert again.distilled is None
        (newest, *_) = await study.admin("GET", "/models")
        assert newest["methods"] == [{"method": "fedbnr", "ensembles": []}]


def test_one_session_serves_every_method_and_the_hospitals_have_them_too(tmp_path: Path) -> None:
    asyncio.run(study_of_methods(tmp_path))
