"""Unmasked samples of members' own models, for open ensembles: upload, withdraw, list."""

from typing import IO
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from kernels.errors import StateError
from kernels.rounds.ensemble.open_ensemble import OpenSamples, most_octets, open_stage
from kernels.rounds.program import Program
from privacy.errors import WrongBody
from service.context import Context, Here
from service.database import notices
from service.errors import (
    BodyTooLarge,
    BodyTooSlow,
    LengthRequired,
    NotFound,
    SamplesDiffer,
    SamplesNotAsked,
    SamplesWithdrawn,
    SpoolFull,
    UploadUnderWay,
)
from service.http.access import Admin, AnyMember, ApprovedMember, MemberAccess
from service.http.bodies import BodyStream, announced_size, in_time
from service.http.declarations import BINARY_CONTENT, declares
from service.http.times import iso_time_if
from service.routes.parts import PredictorHere, SpoolHere
from service.runs import open_samples, rows

router = APIRouter()


class OpenMemberOut(BaseModel):
    """A member that has uploaded samples or has withdrawn."""

    name: str
    samples: int | None
    octets: int | None
    sha256: str | None
    shown_at: str | None
    withdrawn_at: str | None = Field(description="When the samples were deleted for good.")


class OpenEnsembleOut(BaseModel):
    """The members of a run's open ensemble."""

    asked: bool = Field(description="Whether the run's program requests samples.")
    cohort: int = Field(description="How many members the run has.")
    members: list[OpenMemberOut]


@router.put(
    "/sessions/{session_id}/runs/{run_id}/samples",
    operation_id="uploadUnmaskedSamples",
    status_code=204,
    tags=["members: rounds"],
    summary="Upload unmasked samples of the member's own model",
    openapi_extra={"requestBody": {"required": True, "content": dict(BINARY_CONTENT)}},
)
@declares(
    NotFound,
    SamplesNotAsked,
    SamplesWithdrawn,
    SamplesDiffer,
    LengthRequired,
    BodyTooLarge,
    BodyTooSlow,
    UploadUnderWay,
    SpoolFull,
    WrongBody,
    StateError,
)
async def show(
    member: ApprovedMember, run_id: UUID, request: Request, here: Here, spool: SpoolHere
) -> None:
    """Upload a safetensors file with a member's samples after its run is done.

    From then on predictions of the open ensemble use them. Only the samples that the run's program
    requests are accepted, from the member that signed, and a repeated upload must have the same
    bytes. No sum hides these numbers: a hospital's SDK sends them only if the hospital's own policy
    allows it explicitly.
    """
    body = BodyStream(request.stream())
    try:
        program = await run_in_threadpool(_expected, here, member, run_id)
        size = announced_size(request, most=most_octets(program))
    except Exception:
        await body.drain()
        raise
    with spool.room(member.session_id, member.key, size) as file:
        async with in_time(here.settings.vector_deadline_s):
            await body.save(size, file, member)
        file.seek(0)
        await run_in_threadpool(_keep, here, member, run_id, program, file)


@router.delete(
    "/sessions/{session_id}/samples",
    operation_id="withdrawUnmaskedSamples",
    status_code=204,
    tags=["members: rounds"],
    summary="Withdraw the samples of the member's own model",
)
def withdraw(member: AnyMember, here: Here, predictor: PredictorHere) -> None:
    """Withdraw permanently from the open ensembles of all runs of the session so far.

    Once this request is answered, the samples are deleted and no later prediction of any replica
    uses them. A suspended member may withdraw, too. A member that has uploaded no samples can no
    longer upload any for these runs.
    """
    with here.database.erasing() as connection:
        open_samples.withdraw(connection, member.session_id, member.key, now=here.clock())
        notices.notify(connection, member.session_id)
    predictor.close(member.session_id)


@router.get(
    "/runs/{run_id}/samples",
    operation_id="listUnmaskedSamples",
    tags=["admins: runs"],
    summary="List the members of an open ensemble",
)
@declares(NotFound)
def shown(_: Admin, run_id: UUID, here: Here) -> OpenEnsembleOut:
    """List the members that share samples of their own models, and those that have withdrawn."""
    with here.database.reading() as connection:
        run = rows.find(connection, str(run_id))
        found = open_samples.listed(connection, run.id)
        cohort = open_samples.cohort(connection, run.id)
    return OpenEnsembleOut(
        asked=open_stage(Program.from_json(run.program)) is not None,
        cohort=cohort,
        members=[
            OpenMemberOut(
                name=each.name,
                samples=each.samples,
                octets=each.octets,
                sha256=each.sha256,
                shown_at=iso_time_if(each.shown_at),
                withdrawn_at=iso_time_if(each.withdrawn_at),
            )
            for each in found
        ],
    )


def _expected(here: Context, member: MemberAccess, run_id: UUID) -> Program:
    with here.database.reading() as connection:
        return open_samples.expected(connection, member.session_id, str(run_id), member.key)


def _keep(
    here: Context, member: MemberAccess, run_id: UUID, program: Program, file: IO[bytes]
) -> None:
    data = file.read()
    samples = OpenSamples.from_bytes(data, program)
    with here.database.changing() as connection:
        open_samples.expected(connection, member.session_id, str(run_id), member.key)
        open_samples.show(connection, str(run_id), member.key, samples, data, now=here.clock())
