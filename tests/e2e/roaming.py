"""A hospital that sends each request to another replica than the last one, if it answers.

`python -m tests.e2e.roaming PORT,PORT LINK TABLE POLICY ROSTER HOME`: a stateless load balancer, as
an httpx transport.
"""

import sys
from itertools import cycle

import httpx

from client_sdk import join


class RoundRobin(httpx.HTTPTransport):
    def __init__(self, ports: list[int]) -> None:
        super().__init__()
        self._ports, self._count = cycle(ports), len(ports)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for _ in range(self._count - 1):
            try:
                return self._at(next(self._ports), request)
            except httpx.ConnectError:  # nothing was sent: try another replica
                continue
        return self._at(next(self._ports), request)

    def _at(self, port: int, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(port=port)
        return super().handle_request(request)


if __name__ == "__main__":
    ports, link, table, policy, roster, home = sys.argv[1:]
    join(
        link,
        table,
        policy,
        roster=roster,
        home=home,
        progress="plain",
        transport=RoundRobin([int(port) for port in ports.split(",")]),
    )
