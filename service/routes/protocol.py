"""For anyone: the supported protocol versions."""

from dataclasses import dataclass
from importlib.metadata import version

from fastapi import APIRouter

from service.http.every_request import OLDEST, PROTOCOL

router = APIRouter(tags=["anyone"])


@dataclass(frozen=True)
class Protocol:
    """The newest and the oldest protocol that this coordinator supports."""

    protocol: int
    oldest: int
    version: str


@router.get("/protocol", operation_id="getProtocol", summary="Get the supported protocols")
async def protocol() -> Protocol:
    """Return the newest and the oldest supported protocol, and the version of veilgp."""
    return Protocol(PROTOCOL, OLDEST, version("veilgp"))
