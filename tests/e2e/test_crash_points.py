"""Hospitals that die at each of their requests, with the real coordinator, in one process.

A killed process leaves its home directory behind; a join that stops at once and starts again from
there leaves the same. Sums are open: for blind ones the same is done in
tests/client_sdk/conversation/test_blind_crashes.py. Real signals are in test_session.py, one for
each role; crashes of the coordinator are in tests/service/runs/test_run_crashes.py.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
import torch

from client_sdk import GlobalModel, Policy, join_async
from kernels.layer.statistics import Statistics
from kernels.rounds.site.site import Part, Site
from tests.e2e import sessions
from tests.e2e.mortal import Killed, Mortal
from tests.e2e.test_kinds_of_runs import NAMES, Study
from tests.stores import Store

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
"""All requests and messages of a hospital in a session of one run."""


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
                transport=Mortal(study.app, seen),
            )
        except Killed:
            continue


async def whole_run(folder: Path, store: Store) -> None:
    study = Study(folder, **store)
    seen: dict[str, Counter[str]] = {name: Counter() for name in NAMES}
    async with study.app.router.lifespan_context(study.app):
        await study.begin(sums="open")
        joining = [asyncio.create_task(joined(study, name, seen[name])) for name in NAMES]
        while len(members := await study.admin("GET", f"{study.path}/members")) < len(NAMES):
            await asyncio.sleep(0.02)
        for member in members:
            path = f"{study.path}/members/{member['name']}"
            await study.admin("PATCH", path, {"status": "approved"})
        await study.admin("POST", f"{study.path}/runs", {"kind": "train", "deadline_s": 300})
        models = await asyncio.gather(*joining)
    for each in seen.values():
        assert set(each) == POINTS
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
