"""Metrics for Prometheus: requests, predictions, sums, runs, queues.

Each application has its own registry. Labels are routes, methods and statuses; none names a
session, a member, a model or a caller. Requests to routes that members may call are not timed:
with few members, a duration would describe one hospital (docs/threats.md A17).
"""

from collections.abc import Mapping
from time import perf_counter

from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.declarations import MEMBER, declarations_of

_NO_ROUTE = "none"


class Metrics:
    """The metrics of one application."""

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
            "Duration of requests; not measured for routes that members may call.",
            ["method", "route"],
            registry=registry,
        )
        self.predicted = Counter("veilgp_predicted_rows", "Rows predicted.", registry=registry)
        self._runs = Gauge("veilgp_runs", "Runs by status.", ["status"], registry=registry)
        self._sums = Gauge("veilgp_sums", "Secure sums of all runs.", registry=registry)
        self._sessions = Gauge("veilgp_sessions", "Sessions.", registry=registry)
        self._queues = Gauge(
            "veilgp_queue",
            "Waiting long polls, waiting predictions, and runs being worked on.",
            ["queue"],
            registry=registry,
        )

    def text(
        self, *, runs: Mapping[str, int], sums: int, sessions: int, queues: Mapping[str, int]
    ) -> bytes:
        """Return all current metrics in Prometheus' text format; `runs` are counts by status."""
        for status, count in runs.items():
            self._runs.labels(status).set(count)
        self._sums.set(sums)
        self._sessions.set(sessions)
        for queue, length in queues.items():
            self._queues.labels(queue).set(length)
        return generate_latest(self.registry)


class RequestMeter:
    """Counts every request by its route, not by its path, because paths contain ids."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and count its answer."""
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
    """Whether members may call a route, according to the declarations of its dependencies."""
    return isinstance(route, APIRoute) and any(
        MEMBER in each.security for each in declarations_of(route.dependant)
    )


def route_of(scope: Scope) -> str:
    """Return the path pattern of the request's route, or `none` before it is matched."""
    return str(getattr(scope.get("route"), "path", _NO_ROUTE))


def _method(name: str) -> str:
    # A client may send any method name, and each new one would add a permanent time series.
    return name if name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD") else "other"
