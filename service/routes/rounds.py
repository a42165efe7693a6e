"""A member's part in a run: get the next item, answer, upload.

Members pull, and the server derives what each has not answered yet; every request may be repeated.
The response to an answer can itself wait for the next item, which halves the requests of a sum.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from kernels.errors import ArtifactError
from privacy import frames
from privacy.securesum.errors import SecureSumError
from privacy.securesum.item_kinds import ItemKind
from privacy.securesum.masking import body_bytes, check_body
from privacy.securesum.messages import SealedState, Upload
from service import models
from service.context import Here
from service.errors import (
    BodyTooLarge,
    BodyTooSlow,
    LengthRequired,
    NotFound,
    RunEnded,
    SpoolFull,
    UploadUnderWay,
)
from service.http.access import ApprovedMember
from service.http.bodies import BodyStream, announced_size, in_time, read_body
from service.http.declarations import BINARY, BINARY_CONTENT, declares
from service.http.long_poll import Wait, held_back
from service.http.times import iso_time
from service.routes.parts import RunsHere, SpoolHere
from service.runs import rows
from service.runs.machine.closed_sum import ClosedSum
from service.runs.machine.items import about_last
from service.runs.progress import Progress
from service.runs.runs import NextItem
from service.settings import MAX_UPLOAD_HEADER

router = APIRouter(prefix="/sessions/{session_id}", tags=["members: rounds"])

MAX_MESSAGE = 2 << 20
MAX_STATE = 256 << 20
MAX_MODEL = 256 << 20
_LENGTH_OCTETS = 4
_MAX_HEADER = MAX_UPLOAD_HEADER - _LENGTH_OCTETS

_OCTETS_IN = {"requestBody": {"required": True, "content": dict(BINARY_CONTENT)}}


_NEXT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "The next item, as a frame: the length of its head (4 bytes, big-endian), the head, "
            "and the parts that the head lists, one after the other. The head is canonical JSON "
            '(RFC 8785): {"content": {…}, "parts": [{"bytes": …, "name": …}, …]}. The content has '
            f"`kind` ({', '.join(ItemKind)}), `run`, `number`, `deadline`, `progress` and further "
            "fields that depend on the kind. Every item but `ended` has the part `message`, an "
            "encoded protocol message; a task may have the part `delivery`. Readers check names "
            "and sizes before they read a part."
        ),
        "content": {frames.MEDIA_TYPE: {"schema": dict(BINARY)}},
    },
    204: {"description": "There is no next item yet."},
}


@dataclass(frozen=True)
class _ItemFrame:
    """An item as it is sent."""

    content: Mapping[str, object]
    parts: Mapping[str, bytes] = field(default_factory=dict)

    def response(self) -> Response:
        """Return a response that copies no part."""
        pieces = frames.pieces(self.content, self.parts)

        async def sent() -> AsyncIterator[bytes | memoryview]:
            for piece in pieces:
                yield piece

        size = sum(map(len, pieces))
        return StreamingResponse(
            sent(), media_type=frames.MEDIA_TYPE, headers={"Content-Length": str(size)}
        )


@router.get(
    "/next",
    operation_id="getNextItem",
    summary="Wait for the next item",
    response_class=Response,
    responses=_NEXT,
)
@declares(NotFound)
async def next_item(
    member: ApprovedMember,
    request: Request,
    here: Here,
    runs: RunsHere,
    wait: Wait = 0.0,
    run: UUID | None = None,
    *,
    witnesses: bool = False,
    objected: bool = False,
) -> Response:
    """Return one item, or 204 after `wait` seconds without one.

    `run` is the run that the member last took part in: if that run has ended, the item says so.
    With `witnesses`, a task is returned once enough other members have answered it, with their
    signed headers: for a member that cannot compute the task's state itself. With `objected`, a
    task of blind sums is returned once its author has sealed its state for the others.
    """
    need = {"witnesses": witnesses, "objected": objected}
    return await _awaited(request, here, runs, member, wait, run, **need)


async def _awaited(
    request: Request,
    here: Here,
    runs: RunsHere,
    member: ApprovedMember,
    wait: float,
    run: UUID | None,
    **need: bool,
) -> Response:
    item = await held_back(
        request,
        runs.wakeups,
        member.session_id,
        wait,
        look=lambda: _look(here, runs, member.session_id, member.key, run, **need),
        said=lambda item: item is not None,
    )
    return Response(status_code=204) if item is None else item.response()


@router.get(
    "/runs/{run_id}/states/{digest}",
    operation_id="downloadState",
    summary="Download the state of the current sum",
    responses={200: {"content": dict(BINARY_CONTENT)}},
    response_class=Response,
)
@declares(NotFound, RunEnded)
def state(member: ApprovedMember, run_id: UUID, digest: str, runs: RunsHere) -> Response:
    """Return the state with this digest, in hexadecimal, while the sum from it is running."""
    data = runs.state(member.session_id, str(run_id), digest)
    return Response(data, media_type="application/octet-stream")


@router.get(
    "/runs/{run_id}/totals/{epoch}/{slot}",
    operation_id="downloadTotal",
    summary="Download the total of the newest closed sum",
    responses={200: {"content": dict(BINARY_CONTENT)}},
    response_class=Response,
)
@declares(NotFound)
def total(
    member: ApprovedMember,
    run_id: UUID,
    epoch: Annotated[int, Path(ge=0)],
    slot: Annotated[int, Path(ge=0)],
    runs: RunsHere,
) -> Response:
    """Return a total's integers: signed, 64 bits, little-endian.

    A total of up to 1 MiB is also included in an item, as `total_body`.
    """
    where = member.session_id, str(run_id), member.key
    data = runs.total(*where, epoch=epoch, slot=slot)
    return Response(data, media_type="application/octet-stream")


@router.post(
    "/runs/{run_id}/messages",
    operation_id="sendMessage",
    status_code=204,
    summary="Send a protocol message",
    responses=_NEXT,
    openapi_extra=_OCTETS_IN,
)
@declares(BodyTooLarge, BodyTooSlow, NotFound, RunEnded, SecureSumError)
async def say(
    member: ApprovedMember,
    run_id: UUID,
    request: Request,
    here: Here,
    runs: RunsHere,
    wait: Wait = 0.0,
) -> Response:
    """Send one encoded message that answers an item.

    An Advert, Boxes, Draft, Objection, Certification, Reveal, Repair, Abandonment or Endorsement.
    With `wait`, the response is the next item, as from `getNextItem`.
    """
    data = await read_body(request, member, MAX_MESSAGE)
    await run_in_threadpool(runs.take_message, member.session_id, str(run_id), member.key, data)
    return await _after(request, here, runs, member, wait, run_id)


@router.post(
    "/runs/{run_id}/states",
    operation_id="sendSealedState",
    status_code=204,
    summary="Send a state, sealed for the other members",
    responses=_NEXT,
    openapi_extra=_OCTETS_IN,
)
@declares(BodyTooLarge, BodyTooSlow, NotFound, RunEnded, SecureSumError)
async def seal(
    member: ApprovedMember,
    run_id: UUID,
    request: Request,
    here: Here,
    runs: RunsHere,
    wait: Wait = 0.0,
) -> Response:
    """Send the state of the current task of blind sums, which only members can open.

    4 bytes with the length of the header, the SealedState, its box. Only the author of the task is
    asked. With `wait`, the response is the next item.
    """
    header, box = _divided(await read_body(request, member, MAX_STATE))
    sealed = SealedState.decode(header)
    where = member.session_id, str(run_id), member.key
    await run_in_threadpool(runs.add_state, *where, sealed, box)
    return await _after(request, here, runs, member, wait, run_id)


@router.get(
    "/runs/{run_id}/model",
    operation_id="downloadModelToEndorse",
    summary="Download the finished model before its end",
    responses={200: {"content": dict(BINARY_CONTENT)}},
    response_class=Response,
)
@declares(NotFound, RunEnded)
def model_section(member: ApprovedMember, run_id: UUID, runs: RunsHere) -> Response:
    """Return the bytes of the model that members are to endorse; with open sums only."""
    data = runs.model_section(member.session_id, str(run_id))
    return Response(data, media_type="application/octet-stream")


@router.post(
    "/runs/{run_id}/model",
    operation_id="handOverModel",
    status_code=204,
    summary="Hand over the finished model",
    responses=_NEXT,
    openapi_extra=_OCTETS_IN,
)
@declares(BodyTooLarge, BodyTooSlow, NotFound, RunEnded, SecureSumError, ArtifactError)
async def hand_over(
    member: ApprovedMember,
    run_id: UUID,
    request: Request,
    here: Here,
    runs: RunsHere,
    wait: Wait = 0.0,
    model: Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")] = None,
) -> Response:
    """Hand over the model of blind sums that members have endorsed.

    Without `model`: its bytes, which must be the endorsed ones. With `model`, the id of a model for
    members only: 4 bytes with the length of the header, the Archive, the sealed content. With
    `wait`, the response is the next item.
    """
    data = await read_body(request, member, MAX_MODEL)
    where = member.session_id, str(run_id), member.key
    if model is None:
        await run_in_threadpool(runs.hand_over, *where, data)
    else:
        await run_in_threadpool(runs.hand_over_sealed, *where, data, model_id=model)
    return await _after(request, here, runs, member, wait, run_id)


def _divided(data: bytes) -> tuple[bytes, bytes]:
    """Return the header and the rest of a body that begins with the header's length."""
    end = _LENGTH_OCTETS + int.from_bytes(data[:_LENGTH_OCTETS], "big")
    if len(data) < _LENGTH_OCTETS or end > len(data):
        raise BodyTooLarge("The header must end within the body.")
    return data[_LENGTH_OCTETS:end], data[end:]


async def _after(
    request: Request, here: Here, runs: RunsHere, member: ApprovedMember, wait: float, run: UUID
) -> Response:
    if wait == 0:
        return Response(status_code=204)
    return await _awaited(request, here, runs, member, wait, run)


@router.post(
    "/runs/{run_id}/vectors",
    operation_id="uploadVector",
    status_code=204,
    summary="Upload a masked vector",
    responses=_NEXT,
    openapi_extra=_OCTETS_IN,
)
@declares(
    LengthRequired,
    BodyTooLarge,
    BodyTooSlow,
    UploadUnderWay,
    SpoolFull,
    NotFound,
    RunEnded,
    SecureSumError,
)
async def upload(
    member: ApprovedMember,
    run_id: UUID,
    request: Request,
    here: Here,
    runs: RunsHere,
    spool: SpoolHere,
    wait: Wait = 0.0,
) -> Response:
    """Upload a masked vector: 4 bytes with the length of the header, the header, the vector.

    Sizes and the signed header are checked before the vector is read. The vector is spooled to
    disk, and added to the running total only after all of it has arrived and matches the signature,
    so that an interrupted upload leaves nothing in the total. Memory use is that of one total,
    however many members upload at once. With `wait`, the response is the next item.
    """
    most = MAX_UPLOAD_HEADER + body_bytes(here.settings.max_vector)
    size = announced_size(request, least=_LENGTH_OCTETS, most=most)
    where = member.session_id, str(run_id), member.key
    with spool.room(member.session_id, member.key, size) as file:
        async with in_time(here.settings.vector_deadline_s):
            arrived = await _arrived(BodyStream(request.stream()), size, member, where, runs, file)
        if arrived is not None:
            header, vector = arrived
            file.seek(0)
            await run_in_threadpool(runs.add_vector, *where, header, size=vector, read=file.read)
    return await _after(request, here, runs, member, wait, run_id)


async def _arrived(
    stream: BodyStream,
    size: int,
    member: ApprovedMember,
    where: tuple[str, str, bytes],
    runs: RunsHere,
    file: IO[bytes],
) -> tuple[Upload, int] | None:
    """Read a vector into the file; return its header and size, or None for a repeated upload."""
    head = int.from_bytes(await stream.take(_LENGTH_OCTETS), "big")
    if head > _MAX_HEADER or head > size - _LENGTH_OCTETS:
        raise BodyTooLarge(
            f"The header must be at most {_MAX_HEADER} bytes long and end within the body, not "
            f"{head} bytes long."
        )
    raw = await stream.take(head)
    vector = size - _LENGTH_OCTETS - head
    try:
        header = Upload.decode(raw)
        length = await run_in_threadpool(runs.expects, *where, header)
        if length is None:
            await stream.drain()
            return None
        check_body(header, length, vector)
    except Exception:
        await stream.drain()
        raise
    await stream.save(vector, file, member)
    return header, vector


def _look(
    here: Here,
    runs: RunsHere,
    session_id: str,
    key: bytes,
    run: UUID | None,
    **need: bool,
) -> _ItemFrame | None:
    found = runs.next_item(session_id, key, **need)
    if run is not None and (found is None or found.run_id != str(run)):
        with here.database.reading() as connection:
            ended = rows.ended_for(connection, session_id, str(run), key)
            last = None if ended is None else rows.last_sum(connection, str(run))
            certificate = None
            if ended is not None and ended.model_id is not None:
                certificate = models.certificate(connection, ended.model_id)
        if ended is not None:
            return _ended(ended, last, certificate)
    return None if found is None else _item(found)


def _progress(shown: Progress | rows.RunRow) -> dict[str, object]:
    return {
        "stage": shown.stage,
        "stages": shown.stages,
        "algorithm": shown.algorithm,
        "sums": shown.sums,
    }


def _item(found: NextItem) -> _ItemFrame:
    progress = found.progress
    content = {
        "kind": found.item.kind,
        "run": found.run_id,
        "number": progress.number,
        "deadline": iso_time(progress.deadline_at),
        "progress": _progress(progress),
        **found.item.more,
    }
    return _ItemFrame(content, {"message": found.item.message.encode(), **found.item.parts})


def _ended(run: rows.RunRow, last: ClosedSum | None, certificate: bytes | None) -> _ItemFrame:
    signed = {} if certificate is None else {"certificate": certificate}
    return _ItemFrame(
        {
            "kind": ItemKind.ENDED,
            "run": run.id,
            "number": run.epoch,
            "deadline": iso_time(run.deadline_at),
            "progress": _progress(run),
            "outcome": {
                "status": run.status,
                "code": run.code,
                "detail": run.detail,
                "model": run.model_id,
            },
        },
        {**about_last(last), **signed},
    )
