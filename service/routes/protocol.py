"""For anyone: which protocol is spoken here."""

from dataclasses import dataclass
from importlib.metadata import version

from fastapi import APIRouter

from service.http.every_request import OLDEST, PROTOCOL

router = APIRouter(tags=["anyone"])


@dataclass(frozen=True)
class Protocol:
    """The newest and the oldest protocol that this coordinator speaks."""

    protocol: int
    oldest: int
    version: str


@router.get("/protocol", operation_id="getProtocol", summary="Say which protocol is spoken")
async def protocol() -> Protocol:
    """Say which protocol is spoken here."""
    return Protocol(PROTOCOL, OLDEST, version("veilgp"))
