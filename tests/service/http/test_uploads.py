"""Endless or slow uploads of a member fill neither the disk nor the memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from httpx import Response

from service.errors import SpoolFull, UploadUnderWay
from service.runs.spool import Spool
from tests.service.coordinator import Coordinator
from tests.service.sites import OCTETS, Site, session_of, start, stop_engine, until

LITTLE_S = 1.0


@pytest.fixture
def hurried(tmp_path: Path) -> Iterator[Coordinator]:
    limits = {"body_deadline_s": LITTLE_S, "vector_deadline_s": LITTLE_S}
    with Coordinator(tmp_path, **limits) as coordinator:
        stop_engine(coordinator)
        yield coordinator


def uploading(coordinator: Coordinator) -> tuple[Site, str, bytes]:
    """Return a hospital, and the target and bytes of its upload."""
    sites = session_of(coordinator)
    run = start(coordinator, sites[0].session)
    until(sites, "task", run)
    item = sites[0].next()
    assert item is not None
    return sites[0], f"/sessions/{sites[0].session}/runs/{run}/vectors", sites[0].vector(item)


async def post(site: Site, target: str, body: bytes, more: asyncio.Event) -> Response:
    """Post bytes, the last of which is sent on request."""

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:-1]
        await more.wait()
        yield body[-1:]

    headers = {"Authorization": site.header("POST", target, body), **OCTETS}
    headers["Content-Length"] = str(len(body))
    return await site.coordinator._http.post(target, headers=headers, content=pieces())


def code(response: Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def test_one_vector_of_a_member_arrives_at_a_time(coordinator: Coordinator) -> None:
    stop_engine(coordinator)
    site, target, body = uploading(coordinator)

    async def twice() -> tuple[Response, Response]:
        more = asyncio.Event()
        first = asyncio.create_task(post(site, target, body, more))
        await asyncio.sleep(0)
        while not coordinator.app.state.spool._arriving:
            await asyncio.sleep(0.01)
        # The address of another run does not allow a second upload.
        elsewhere = target.replace(target.split("/")[4], "0" * 8 + target.split("/")[4][8:])
        second = await post(site, elsewhere, body, more)
        more.set()
        return await first, second

    first, second = coordinator._runner.run(twice())
    assert code(second) == (503, "upload.under_way")
    assert second.headers["retry-after"] == "1"
    assert first.status_code == 204
    assert site.post(target, body).status_code == 204


def test_a_vector_that_dribbles_is_given_up_and_can_be_sent_again(hurried: Coordinator) -> None:
    site, target, body = uploading(hurried)
    slow = hurried._runner.run(post(site, target, body, asyncio.Event()))
    assert code(slow) == (408, "request.too_slow")
    assert slow.headers["connection"] == "close"
    assert site.post(target, body).status_code == 204


def test_a_message_that_dribbles_is_given_up(hurried: Coordinator) -> None:
    site, *_ = session_of(hurried)
    for path in (f"runs/{site.session}/messages", "refusals"):
        target = f"/sessions/{site.session}/{path}"
        slow = hurried._runner.run(post(site, target, b"{}", asyncio.Event()))
        assert code(slow) == (408, "request.too_slow")


def test_the_spool_has_a_limit_and_what_has_left_makes_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100)
    with spool.room("s", b"1", 60):
        with pytest.raises(SpoolFull, match="max_spool"), spool.room("s", b"2", 41):
            pass
        with pytest.raises(UploadUnderWay), spool.room("s", b"1", 1):
            pass
        with spool.room("s", b"2", 40), pytest.raises(SpoolFull), spool.room("t", b"1", 1):
            pass
    with pytest.raises(KeyError), spool.room("s", b"1", 100):
        raise KeyError
    with spool.room("s", b"1", 100):
        pass
