"""Hospitals of blind runs that die at each of their requests, or lose what they had stored."""

import asyncio
import sqlite3
from collections import Counter
from pathlib import Path

import httpx
import pytest

from client_sdk import GlobalModel
from kernels.storage import encode
from tests.client_sdk.conversation.blind_study import BlindStudy, objects_once
from tests.client_sdk.conversation.test_blind_lies import honest
from tests.e2e.mortal import Killed, Mortal

POINTS = {
    "advert",
    "boxes",
    "certify",
    "draft",
    "endorse",
    "object",
    "reveal",
    "POST /sessions/…/runs/…/model",
    "POST /sessions/…/runs/…/states",
    "POST /sessions/…/runs/…/vectors",
}


async def dying(study: BlindStudy, name: str, seen: Counter[str]) -> GlobalModel:
    """Join, and again after each death."""
    while True:
        try:
            return await study.join(name, transport=Mortal(study.app, seen))
        except Killed:
            continue


async def all_die(folder: Path, model: str) -> None:
    study = BlindStudy(folder / "dying")
    seen: dict[str, Counter[str]] = {name: Counter() for name in study.names}
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model=model)
        joining = [asyncio.create_task(dying(study, name, seen[name])) for name in study.names]
        await study.start({"kind": "train"}, joining)
        done, late = await asyncio.wait(joining, return_when=asyncio.FIRST_EXCEPTION, timeout=120)
        found = [task.result() for task in done]
        for task in late:
            task.cancel()
        assert not late, (await study.runs(), seen, study.events)
    assert set().union(*seen.values()) >= POINTS
    assert len({each.id for each in found}) == 1
    assert encode(found[0].artifact.model) == await honest(folder, 3)


@pytest.mark.parametrize("model", [pytest.param("served", marks=pytest.mark.slow), "members"])
def test_hospitals_that_die_at_every_message_get_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """One of them objects once to each task, so that states are sealed as well."""
    objects_once(monkeypatch)
    asyncio.run(all_die(tmp_path, model))


async def one_forgets(folder: Path, rank: int) -> None:
    study = BlindStudy(folder / "lost")
    name = sorted(study.names, key=lambda each: study.roster[each])[rank]
    vectors = 0

    class Forgetting(httpx.ASGITransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            nonlocal vectors
            response = await super().handle_async_request(request)
            vectors += request.url.path.endswith("/vectors")
            if vectors == 2:
                vectors += 1
                raise Killed
            return response

    async def forgetful() -> GlobalModel:
        try:
            return await study.join(name, transport=Forgetting(study.app))
        except Killed:
            with sqlite3.connect(study.folder / name / "journal.sqlite") as db:
                assert db.execute("DELETE FROM positions").rowcount > 0
            db.close()
        return await study.join(name, transport=Forgetting(study.app))

    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="served")
        others = [each for each in study.names if each != name]
        joining = [asyncio.create_task(study.join(each)) for each in others]
        joining.append(asyncio.create_task(forgetful()))
        await study.start({"kind": "train"}, joining)
        done, late = await asyncio.wait(joining, return_when=asyncio.FIRST_EXCEPTION, timeout=120)
        found = [task.result() for task in done]
        for task in late:
            task.cancel()
        assert not late, (await study.runs(), study.events)
    assert {encode(each.artifact.model) for each in found} == {await honest(folder, 3)}


@pytest.mark.parametrize("rank", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_hospital_that_lost_its_positions_takes_them_from_witnesses(
    tmp_path: Path, rank: int
) -> None:
    """Also if it is the one that is asked first to write the next task."""
    asyncio.run(one_forgets(tmp_path, rank))
