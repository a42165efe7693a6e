"""For admins: public tables for distillation and ensembles."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, status
from pydantic import AfterValidator

from kernels.errors import ProgramError, TableError
from service.context import Here
from service.errors import NotFound
from service.http.access import Admin
from service.http.bodies import json_body
from service.http.declarations import declares
from service.http.request_models import checked_name
from service.http.times import iso_time
from service.sessions import public_sets
from service.sessions.public_sets import NewPublicSet

router = APIRouter(prefix="/public-sets", tags=["admins: public sets"])

MOST_OCTETS = 64 << 20
"""Most bytes of a public set as JSON: enough for 4096 rows with many columns."""

_SetName = Annotated[str, Path(max_length=100), AfterValidator(checked_name)]


@dataclass(frozen=True)
class ShownPublicSet:
    """A public set, without its cells."""

    name: str
    columns: tuple[str, ...]
    rows: int
    created_at: str


@router.put(
    "/{name}",
    operation_id="storePublicSet",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Store a public set",
)
@declares(ProgramError, TableError)
def put(
    _: Admin,
    name: _SetName,
    new: Annotated[NewPublicSet, json_body(NewPublicSet, limit=MOST_OCTETS)],
    here: Here,
) -> None:
    """Store or replace a public set; sessions that already use it keep their copy."""
    with here.database.changing() as connection:
        public_sets.put(connection, name, new.columns, now=here.clock())


@router.get("", operation_id="listPublicSets", summary="List the public sets")
def every(_: Admin, here: Here) -> list[ShownPublicSet]:
    """List all public sets, without their cells."""
    with here.database.reading() as connection:
        return [
            ShownPublicSet(each.name, each.columns, each.rows, iso_time(each.created_at))
            for each in public_sets.every(connection)
        ]


@router.delete(
    "/{name}",
    operation_id="deletePublicSet",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Delete a public set",
)
@declares(NotFound)
def remove(_: Admin, name: str, here: Here) -> None:
    """Delete a public set; sessions that already use it keep their copy."""
    with here.database.changing() as connection:
        public_sets.remove(connection, name)
