"""A hospital that is killed by a real SIGKILL at one point of its conversation.

`python -m tests.e2e.hospital KIND:NTH:before|after LINK TABLE POLICY ROSTER HOME`: before the NTH
request of that kind is sent, or after its answer has arrived and before it is used. The product has
no code for this: it is an httpx transport that kills its own process.
"""

import os
import signal
import sys

import httpx

from client_sdk import join
from privacy.members.endorsement import Endorsement
from privacy.securesum.messages import (
    Abandonment,
    Advert,
    Boxes,
    Certification,
    Draft,
    Objection,
    Repair,
    Reveal,
)

KINDS = {
    Abandonment.kind: "abandon",
    Advert.kind: "advert",
    Boxes.kind: "boxes",
    Certification.kind: "certify",
    Draft.kind: "draft",
    Endorsement.kind: "endorse",
    Objection.kind: "object",
    Repair.kind: "repair",
    Reveal.kind: "reveal",
}
PATHS = {"vectors": "upload", "states": "seal", "model": "hand-over"}


class Killing(httpx.HTTPTransport):
    def __init__(self, kind: str, nth: int, when: str) -> None:
        super().__init__()
        self._kind, self._left, self._when = kind, nth, when

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        now = self._is_it(request)
        if now and self._left == 1 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        response = super().handle_request(request)  # not counted if there is no answer
        self._left -= now
        if now and self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    def _is_it(self, request: httpx.Request) -> bool:
        if request.method != "POST":
            return False
        *_, last = request.url.path.split("/")
        kind = KINDS[request.read()[1]] if last == "messages" else PATHS.get(last, "other")
        return kind == self._kind


if __name__ == "__main__":
    point, link, table, policy, roster, home = sys.argv[1:]
    kind, nth, when = point.split(":")
    join(
        link,
        table,
        policy,
        roster=roster,
        home=home,
        progress="plain",
        transport=Killing(kind, int(nth), when),
    )
