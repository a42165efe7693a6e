"""Figures for Prometheus: requests, predictions, sums, runs, queues.

Each application has a registry of its own. A label is a route, a method, a status: none names a
session, a member, a model or a caller. Requests to routes that a member may call are not timed at
all: over few members that would be one hospital's figure (docs/threats.md, A17).
"""

from collections.abc import Mapping
from time import perf_counter

from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.declarations import MEMBER, declarations_of

_NO_ROUTE = "none"


class Metrics:
    """The figures of one application."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "veilgp_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.durations = Histogram(
            "veilgp_request_seconds",
            "How long answers took; not measured where members may ask.",
            ["method", "route"],
            registry=registry,
        )
        self.predicted = Counter("veilgp_predicted_rows", "Rows predicted.", registry=registry)
        self._runs = Gauge("veilgp_runs", "Runs by status.", ["status"], registry=registry)
        self._sums = Gauge("veilgp_sums", "Secure sums of all runs.", registry=registry)
        self._sessions = Gauge("veilgp_sessions", "Sessions.", registry=registry)
        self._queues = Gauge(
            "veilgp_queue",
            "What waits: long polls, predictions, runs at work.",
            ["queue"],
            registry=registry,
        )

    def text(
        self, *, runs: Mapping[str, int], sums: int, sessions: int, queues: Mapping[str, int]
    ) -> bytes:
        """Return all figures as they are now, in Prometheus' text form; runs are by status."""
        for status, count in runs.items():
            self._runs.labels(status).set(count)
        self._sums.set(sums)
        self._sessions.set(sessions)
        for queue, length in queues.items():
            self._queues.labels(queue).set(length)
        return generate_latest(self.registry)


class RequestMeter:
    """Counts every request by its route, not by its path: paths have ids in them."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, began = 500, perf_counter()

        async def heard(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, heard)
        finally:
            method, route = _method(scope["method"]), route_of(scope)
            self._metrics.requests.labels(method, route, status).inc()
            if not admits_members(scope.get("route")):
                self._metrics.durations.labels(method, route).observe(perf_counter() - began)


def admits_members(route: object) -> bool:
    """Whether a member may call a route, by what its dependencies declare."""
    return isinstance(route, APIRoute) and any(
        MEMBER in each.security for each in declarations_of(route.dependant)
    )


def route_of(scope: Scope) -> str:
    """Give the pattern of the path that was asked for, once it is known."""
    return str(getattr(scope.get("route"), "path", _NO_ROUTE))


def _method(name: str) -> str:
    # Anything may stand there, and every new one would be a series for ever.
    return name if name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD") else "other"
