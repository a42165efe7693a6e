"""For admins: callers and their tokens."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, status

from service.context import Here
from service.errors import NotFound
from service.http.access import Admin
from service.http.bodies import json_body
from service.http.declarations import declares
from service.http.times import iso_time, iso_time_if
from service.prediction import callers
from service.prediction.callers import CallerRow, NewCaller

router = APIRouter(prefix="/callers", tags=["admins: callers"])


@dataclass(frozen=True)
class ShownCaller:
    """A caller, without its token."""

    id: str
    name: str
    models: tuple[str, ...]
    trusted: bool
    created_at: str
    expires_at: str | None
    revoked_at: str | None


@dataclass(frozen=True)
class CallerWithToken(ShownCaller):
    """A new caller with its token, which is not shown again."""

    token: str


@router.post(
    "",
    operation_id="createCaller",
    status_code=status.HTTP_201_CREATED,
    summary="Create a caller and its token",
)
@declares(NotFound)
def create(
    _: Admin, new: Annotated[NewCaller, json_body(NewCaller)], here: Here
) -> CallerWithToken:
    """Create a token that allows predictions with the listed models."""
    with here.database.changing() as connection:
        caller, issued = callers.create(connection, new, now=here.clock())
    return CallerWithToken(**vars(_shown(caller)), token=issued.secret)


@router.get("", operation_id="listCallers", summary="List the callers")
def every(_: Admin, here: Here) -> list[ShownCaller]:
    """List all callers, including revoked ones."""
    with here.database.reading() as connection:
        return [_shown(caller) for caller in callers.every(connection)]


@router.delete(
    "/{caller_id}",
    operation_id="revokeCaller",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Revoke a caller's token",
)
@declares(NotFound)
def revoke(_: Admin, caller_id: str, here: Here) -> None:
    """Revoke a caller's token with immediate effect."""
    with here.database.changing() as connection:
        callers.revoke(connection, caller_id, now=here.clock())


def _shown(caller: CallerRow) -> ShownCaller:
    return ShownCaller(
        id=caller.id,
        name=caller.name,
        models=caller.models,
        trusted=caller.trusted,
        created_at=iso_time(caller.created_at),
        expires_at=iso_time_if(caller.expires_at),
        revoked_at=iso_time_if(caller.revoked_at),
    )
