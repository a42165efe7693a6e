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
    Advert,
    Boxes,
    Certification,
    Draft,
    Objection,
    Reveal,
)

KINDS = {
    Advert.kind: "advert",
    Boxes.kind: "boxes",
    Certification.kind: "certify",
    Reveal.kind: "reveal",
    Draft.kind: "draft",
    Objection.kind: "objection",
    Endorsement.kind: "endorse",
}


class Killing(httpx.HTTPTransport):
    def __init__(self, kind: str, nth: int, when: str) -> None:
        super().__init__()
        self._kind, self._left, self._when = kind, nth, when

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        now = self._is_it(request)
        if now and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        response = super().handle_request(request)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    def _is_it(self, request: httpx.Request) -> bool:
        path = request.url.path
        if path.endswith("/vectors"):
            kind = "upload"
        elif path.endswith("/messages"):
            kind = KINDS.get(request.read()[1], "other")
        else:
            return False
        self._left -= kind == self._kind
        return kind == self._kind and self._left == 0


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
