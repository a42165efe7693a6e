"""A coordinator that asks for a signature on a model under the last sum of another run.

Signed so, the model would be that of the other run by the word of honest members. And a model for
members only would be committed to with the salt of a run whose salt is published: the coordinator
could compare guesses of the model with it.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from benchmarks import hospitals
from client_sdk import GlobalModel, join_async
from client_sdk.errors import WrongRun
from client_sdk.network.exchange import ITEM_LIMITS
from privacy.frames import MEDIA_TYPE, Frame, pieces
from privacy.members.endorsement import Endorsement
from tests.client_sdk.conversation.blind_study import BlindStudy
from tests.e2e import sessions

CERTIFICATE = "last_certificate"


class Asking(httpx.ASGITransport):
    """A coordinator that asks once more for an endorsement, with a certificate of its choice.

    seen: the newest certificate of each run. said: what hospitals have endorsed.
    """

    def __init__(self, app: Any, seen: dict[str, bytes], said: list[Endorsement]) -> None:
        super().__init__(app)
        self.seen, self.said = seen, said
        self.other: bytes | None = None
        self._asked: tuple[Frame, dict[str, str]] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        response = await super().handle_async_request(request)
        data = await response.aread()
        headers = {
            name: text for name, text in response.headers.items() if name != "content-length"
        }
        if data and headers.get("content-type", "").startswith(MEDIA_TYPE):
            frame = Frame.read(data, ITEM_LIMITS)
            if frame.part(CERTIFICATE) is not None:
                self.seen[frame.content["run"]] = frame.bytes(CERTIFICATE) or b""
            if frame.content["kind"] in ("author", "endorse"):
                self._asked = frame, headers
        if request.url.path.endswith("/messages") and body[1] == Endorsement.kind:
            self.said.append(Endorsement.decode(body))
            if self.other is not None and self._asked is not None:
                (frame, headers), other, self.other = self._asked, self.other, None
                parts = {**frame.parts, CERTIFICATE: memoryview(other)}
                data = b"".join(bytes(piece) for piece in pieces(frame.content, parts))
                return httpx.Response(200, headers=headers, stream=httpx.ByteStream(data))
        stream = httpx.ByteStream(data)
        return httpx.Response(response.status_code, headers=headers, stream=stream)


async def endorsed(folder: Path) -> tuple[bytes, list[Endorsement], list[BaseException | None]]:
    """Return the second session, what was endorsed, and how each hospital ended."""
    study = BlindStudy(folder)
    seen: dict[str, bytes] = {}
    said: list[Endorsement] = []

    def asking() -> Asking:
        return Asking(study.app, seen, said)

    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="served")
        first = [asyncio.create_task(study.join(n, transport=asking())) for n in study.names]
        await study.start({"kind": "train"}, first)
        while not seen:
            await asyncio.sleep(0.001)
        for task in first:  # hospitals are stopped in the middle, and keep the group key
            task.cancel()
        await asyncio.gather(*first, return_exceptions=True)
        (other,) = seen.values()
        await study.begin(model="members", name="second")

        async def join(name: str, mix: Any) -> GlobalModel:
            transport = asking()
            transport.other = other
            return await join_async(
                study.links[name],
                hospitals.patients(mix, sessions.ROWS, 7),
                study.policy(),
                home=folder / name,
                roster=study.roster,
                source="another table",
                transport=transport,
            )

        of = {mix.name: mix for mix in hospitals.MIXES}
        second = [asyncio.create_task(join(name, of[name])) for name in study.names]
        await study.start({"kind": "train"}, second)
        done, late = await asyncio.wait(second, timeout=60)
        for task in late:
            task.cancel()
        session = bytes.fromhex(study.session["id"].replace("-", ""))
    return session, said, [task.exception() for task in done]


def test_a_model_is_not_signed_under_the_sum_of_another_run(tmp_path: Path) -> None:
    session, said, ends = asyncio.run(endorsed(tmp_path))
    assert said
    assert all(each.statement.session == session for each in said)
    assert any(isinstance(end, WrongRun) for end in ends)
