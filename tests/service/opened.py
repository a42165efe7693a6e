"""A session with a finished run that requests samples, stored without running its sums."""

from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import uuid4

from httpx import Response
from sqlalchemy import insert

from kernels.model.artifact import Artifact
from kernels.rounds.program import Program
from service import models
from service.database import tables
from tests.kernels.rounds.artifacts import CREATED, PRIVACY
from tests.kernels.rounds.ensemble.test_open_ensemble import PROGRAM, SITES, finished
from tests.service.coordinator import Coordinator
from tests.service.sites import OCTETS, Site, session_of

COLUMNS = {"age": [61, 30], "lactate": [None, 2.0], "ward": ["medical", "surgical"]}


@cache
def artifact() -> Artifact:
    return Artifact.of(
        finished()[1], program=PROGRAM, members=SITES, sums=6, privacy=PRIVACY, created=CREATED
    )


@cache
def files() -> tuple[bytes, ...]:
    """Return the samples file of each site."""
    return tuple(own.to_bytes() for own in finished()[2])


@dataclass
class Opened:
    """The run and its model; `sites[i]` uploads `files()[i]`."""

    coordinator: Coordinator
    sites: list[Site]
    run: str
    model: str

    @property
    def session(self) -> str:
        return self.sites[0].session

    @property
    def target(self) -> str:
        return f"/sessions/{self.session}/runs/{self.run}/samples"

    def show(self, i: int, body: bytes | None = None, **headers: str) -> Response:
        body = files()[i] if body is None else body
        signed = {"Authorization": self.sites[i].header("PUT", self.target, body), **OCTETS}
        return self.coordinator.request(
            "PUT", self.target, headers={**signed, **headers}, content=body
        )

    def withdraw(self, i: int) -> Response:
        return self.sites[i].send("DELETE", f"/sessions/{self.session}/samples")

    def ask(self, coordinator: Coordinator | None = None, **more: Any) -> Response:
        body = {"model": self.model, "columns": COLUMNS, "ensemble": "open", **more}
        return (coordinator or self.coordinator).admin("POST", "/predict", body)

    def listed(self) -> dict[str, Any]:
        response = self.coordinator.admin("GET", f"/runs/{self.run}/samples")
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found


def opened(coordinator: Coordinator, *, program: Program = PROGRAM, status: str = "done") -> Opened:
    """Store the session, its run and its model in the database."""
    sites = session_of(coordinator, program, [{}] * SITES)
    run, session = str(uuid4()), sites[0].session
    with coordinator.context.database.changing() as connection:
        done = status == "done"
        model = artifact().id
        connection.execute(
            insert(tables.runs).values(
                id=run,
                session_id=session,
                kind="train",
                program=program.to_json(),
                status=status,
                created_at=0.0,
                deadline_at=1.0,
                version=1,
                epoch=0,
                epoch_closed=True,
                since=0.0,
                stage=0,
                sums=6,
                model_id=model if done else None,
            )
        )
        rows = [{"run_id": run, "key": s.identity.key, "name": s.name} for s in sites]
        connection.execute(insert(tables.run_members), rows)
        if done:
            models.store(
                connection,
                session_id=session,
                run_id=run,
                artifact=artifact(),
                now=0.0,
                serve_uncertified=True,
            )
    return Opened(coordinator, sites, run, model)
