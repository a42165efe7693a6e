"""Hospitals that die at each of their requests, with the real coordinator, in one process.

A killed process leaves its home directory behind; a join that stops at once and starts again from
there leaves the same. Real signals are in test_session.py, one for each role; crashes of the
coordinator are in tests/service/runs/test_run_crashes.py.
"""

import asyncio
import re
from collections import Counter
from pathlib import Path

import httpx
import pytest
import torch

from client_sdk import GlobalModel, Policy, join_async
from kernels.layer.statistics import Statistics
from kernels.rounds.site.site import Part, Site
from tests.e2e import sessions
from tests.e2e.hospital import KINDS
from tests.e2e.test_kinds_of_runs import NAMES, Study
from tests.stores import Store

ID = "[0-9a-f-]{32,}"
POINTS_OF_A_SUM = {"POST /sessions/…/runs/…/vectors", "certify", "reveal"}
POINTS = POINTS_OF_A_SUM | {
    "POST /sessions/…/members",
    "GET /sessions/…/membership",
    "GET /sessions/…/next",
    "advert",
    "boxes",
    "endorse",
    "GET /models/…",
    "GET /models/…/artifact",
    "GET /models/…/certificate",
}
"""All requests and messages of a hospital in a session of one run with blind sums."""
POINTS_OF_AN_AUTHOR = {"draft", "POST /sessions/…/runs/…/model"}
"""Those of a hospital that writes tasks and hands the model over, in addition."""


class Killed(BaseException):
    """The hospital's process ends here."""


class Mortal(httpx.ASGITransport):
    """Ends its hospital twice at each kind of request: before it, then before its answer is used.

    The first request of a kind dies before it is sent; its repetition dies before its answer.
    """

    def __init__(self, study: Study, seen: Counter[str]) -> None:
        super().__init__(study.app)
        self._seen = seen

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        kind = kind_of(request.method, request.url.path, await request.aread())
        self._seen[kind] += 1
        if self._seen[kind] in (1, 4):
            raise Killed
        response = await super().handle_async_request(request)
        if self._seen[kind] in (2, 5):
            raise Killed
        return response


def kind_of(method: str, path: str, body: bytes) -> str:
    """Return a request's method and path without ids, or the kind of its message."""
    if path.endswith("/messages"):
        return KINDS[body[1]]
    return f"{method} {re.sub(ID, '…', path)}"


async def joined(study: Study, name: str, seen: Counter[str]) -> GlobalModel:
    """Join, and again after each death."""
    while True:
        try:
            return await join_async(
                study.links[name],
                sessions.TABLES[name],
                Policy.from_toml(sessions.policy(study.session)),
                home=study.folder / name,
                roster=study.roster,
                progress="silent",
                transport=Mortal(study, seen),
            )
        except Killed:
            continue


async def whole_run(folder: Path, store: Store) -> None:
    study = Study(folder, **store)
    seen: dict[str, Counter[str]] = {name: Counter() for name in NAMES}
    async with study.app.router.lifespan_context(study.app):
        await study.begin()
        joining = [asyncio.create_task(joined(study, name, seen[name])) for name in NAMES]
        while len(members := await study.admin("GET", f"{study.path}/members")) < len(NAMES):
            await asyncio.sleep(0.02)
        for member in members:
            path = f"{study.path}/members/{member['name']}"
            await study.admin("PATCH", path, {"status": "approved"})
        await study.admin("POST", f"{study.path}/runs", {"kind": "train", "deadline_s": 300})
        models = await asyncio.gather(*joining)
    assert any(set(each) >= POINTS_OF_AN_AUTHOR for each in seen.values())
    for each in seen.values():
        assert POINTS <= set(each) <= POINTS | POINTS_OF_AN_AUTHOR
        assert min(each.values()) >= 2  # what has arrived is not requested again
        assert min(each[kind] for kind in POINTS_OF_A_SUM) >= 5
    assert len({model.id for model in models}) == 1
    model = models[0].artifact.model
    sessions.assert_same(model, sessions.simulated(study.session, study.homes))
    whole = Site.joined(sessions.dealt(study.session, study.homes))
    pooled = Statistics.of_table(model.urk, *whole.table(Part.TRAINING, model))
    assert model.statistics is not None
    for ours, theirs in (
        (model.statistics.scatter, pooled.scatter),
        (model.statistics.cross, pooled.cross),
    ):
        assert torch.dist(ours, theirs) <= 1e-6 * theirs.norm()


# What a hospital's death leaves does not depend on the coordinator's database, and crashes of the
# coordinator are tried on both (tests/service/runs/test_run_crashes.py).
@pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
def test_hospitals_killed_at_every_request_go_on_to_the_pooled_model(
    tmp_path: Path, store: Store
) -> None:
    asyncio.run(whole_run(tmp_path, store))
