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
    created_at: str
    expires_at: str | None
    revoked_at: str | None


@dataclass(frozen=True)
class CallerWithToken(ShownCaller):
    """A new caller; the token is shown this once."""

    token: str


@router.post(
    "",
    operation_id="createCaller",
    status_code=status.HTTP_201_CREATED,
    summary="Make a token for a caller",
)
@declares(NotFound)
def create(
    _: Admin, new: Annotated[NewCaller, json_body(NewCaller)], here: Here
) -> CallerWithToken:
    """Make a token for predictions of these models."""
    with here.database.changing() as connection:
        caller, issued = callers.create(connection, new, now=here.clock())
    return CallerWithToken(**vars(_shown(caller)), token=issued.secret)


@router.get("", operation_id="listCallers", summary="List the callers")
def every(_: Admin, here: Here) -> list[ShownCaller]:
    """List the callers, revoked ones included."""
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
    """Make a caller's token worthless at once."""
    with here.database.changing() as connection:
        callers.revoke(connection, caller_id, now=here.clock())


def _shown(caller: CallerRow) -> ShownCaller:
    return ShownCaller(
        id=caller.id,
        name=caller.name,
        models=caller.models,
        created_at=iso_time(caller.created_at),
        expires_at=iso_time_if(caller.expires_at),
        revoked_at=iso_time_if(caller.revoked_at),
    )
