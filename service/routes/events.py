"""A run as server-sent events: the current state first, then every change.

    id: <a digest of the state>
    event: run
    data: <the answer of GET /runs/{id}>

Each event has the whole state, so nothing is lost if the connection breaks, the coordinator
restarts or another replica answers: a client that reconnects gets the current state. A client that
has received the final state, and sends its id as `Last-Event-ID`, is answered with 204, on which
browsers stop reconnecting.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from service.context import Context, Here
from service.errors import NotFound
from service.http.access import Watcher
from service.http.declarations import declares
from service.routes.parts import RunsHere
from service.routes.runs import WatchedOut, watched
from service.runs.runs import Runs

router = APIRouter(tags=["admins: runs"])

HEARTBEAT_S = 15.0
"""Seconds between comments that keep proxies from closing an idle connection."""
LOOK_AGAIN_S = 2.0
"""Seconds after which a change is seen that no wakeup announced, such as another replica's."""
LONGEST_S = 3600.0
"""Seconds after which a stream ends, so that the client must authenticate again."""

_STATE = {
    "type": "string",
    "contentMediaType": "application/json",
    "contentSchema": {"$ref": "#/components/schemas/WatchedOut"},
}
# OpenAPI 3.1 cannot describe a stream: by convention the schema is that of each event.
_EVENT = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {"id": {"type": "string"}, "event": {"const": "run"}, "data": _STATE},
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"schema": _EVENT}},
        "description": "Events; the data of each is an answer of `GET /runs/{run_id}`.",
    },
    204: {"description": "The run has ended and the client has received its final state."},
}


@router.get(
    "/runs/{run_id}/events",
    operation_id="streamRunEvents",
    summary="Follow a run",
    responses=_ANSWERS,
    response_class=StreamingResponse,
)
@declares(NotFound)
async def follow(
    _: Watcher,
    run_id: UUID,
    here: Here,
    runs: RunsHere,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """Stream the run's current state, and every new state until the run ends.

    The stream ends after an hour. Reconnect then, or when the connection breaks: the first event
    has the current state.
    """
    now = await run_in_threadpool(watched, here, runs, str(run_id))
    if now.ended_at is not None and last_event_id == _Event(now).id:
        return Response(status_code=204)
    return StreamingResponse(
        _states(now, here, runs),
        media_type="text/event-stream",
        # nginx would otherwise hold events back until its buffer is full.
        headers={"X-Accel-Buffering": "no"},
    )


async def _states(run: WatchedOut, here: Context, runs: Runs) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    until = loop.time() + LONGEST_S
    told, told_at = None, loop.time()
    with runs.wakeups.waiting(run.session) as waiter:
        while loop.time() < until:
            event = _Event(run)
            if event.id != told:
                told, told_at = event.id, loop.time()
                yield event.encode()
            elif loop.time() - told_at >= HEARTBEAT_S:
                told_at = loop.time()
                yield b": still here\n\n"
            if run.ended_at is not None:
                return
            await waiter.wait(LOOK_AGAIN_S)
            run = await run_in_threadpool(watched, here, runs, run.id)


class _Event:
    """One state of a run, identified by its digest."""

    def __init__(self, run: WatchedOut) -> None:
        self._data = run.model_dump_json()
        self.id = hashlib.sha256(self._data.encode()).hexdigest()[:16]

    def encode(self) -> bytes:
        return f"id: {self.id}\nevent: run\ndata: {self._data}\n\n".encode()
