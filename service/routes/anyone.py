"""For anyone: which protocol is spoken here, and whether the coordinator lives."""

from dataclasses import dataclass
from importlib.metadata import version

from fastapi import APIRouter
from sqlalchemy import text

from service.context import Here
from service.protocol import OLDEST, PROTOCOL

router = APIRouter(tags=["anyone"])


@dataclass(frozen=True)
class Protocol:
    """The newest and the oldest protocol that this coordinator speaks."""

    protocol: int
    oldest: int
    version: str


@dataclass(frozen=True)
class Health:
    """Alive, with its database."""

    status: str


@router.get("/protocol", summary="Say which protocol is spoken")
async def protocol() -> Protocol:
    """Say which protocol is spoken here."""
    return Protocol(PROTOCOL, OLDEST, version("veilgp"))


@router.get("/healthz", summary="Say whether the coordinator lives")
def healthz(here: Here) -> Health:
    """Say whether the coordinator and its database answer."""
    with here.database.reading() as connection:
        connection.execute(text("SELECT 1"))
    return Health("ok")
