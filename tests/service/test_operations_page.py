"""Names and numbers in docs/operations.md are correct; `test_backup` runs its commands."""

import re
from pathlib import Path

from privacy.securesum.masking import body_bytes
from service import readiness
from service.database import database
from service.http import connections, long_poll
from service.http.logs import IDS
from service.http.metrics import Metrics
from service.runs import engine
from service.settings import PREFIX, Settings
from tests.service.contract.test_contract import operations
from tests.service.coordinator import Coordinator

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "operations.md").read_text().split())
DEFAULTS = Settings.model_fields


def test_settings_that_it_names_are_settings() -> None:
    named = set(re.findall(rf"{PREFIX}([A-Z_]+)", PAGE))
    assert named
    assert {name.lower() for name in named} <= set(DEFAULTS)
    for name in ("lease_s", "open_metrics", "max_vector", "caller_rows_per_minute"):
        assert f"`{name}`" in PAGE
        assert name in DEFAULTS


def test_paths_that_it_names_are_operations() -> None:
    known = {(method.upper(), path) for path, method, _ in operations()}
    named = re.findall(r"`(GET|POST|PUT|DELETE) (/[^`\s]*)`", PAGE)
    assert len(named) >= 5
    assert set(named) <= known
    assert ("GET", "/runs/{run_id}/events") in known


def test_figures_that_it_names_are_those_that_there_are() -> None:
    registry = Metrics().registry
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }
    assert set(re.findall(r"veilgp_[a-z_]+[a-z]", PAGE)) == names


def test_a_line_of_the_log_has_the_ids_that_it_names() -> None:
    for name in IDS:
        assert f"`{name}`" in PAGE


def test_its_numbers_are_those_of_the_code() -> None:
    to_database = database._CONNECTIONS + database._MORE_CONNECTIONS
    octets = body_bytes(DEFAULTS["max_vector"].default)
    for said in (
        f"`lease_s` ({DEFAULTS['lease_s'].default} s)",
        f"within {engine.LOOK_AGAIN_S:.0f} s more",
        f"members look every {long_poll.LOOK_AGAIN_S:.0f} s",
        f"up to {to_database} connections",
        f"{readiness.LEAST_FREE >> 20} MiB free for uploads",
        f"let an answer take {long_poll.MAX_WAIT_S} s",
        f"up to {octets >> 20} MiB with the default `max_vector`",
        *(
            f"`{name}` ({DEFAULTS[name].default})"
            for name in (
                "max_connections",
                "max_unauthenticated",
                "max_unauthenticated_per_address",
            )
        ),
        f"`header_deadline_s` ({DEFAULTS['header_deadline_s'].default} s)",
        f"`body_deadline_s` ({DEFAULTS['body_deadline_s'].default} s)",
        f"closed after {connections.KEEP_ALIVE_S} s",
        f"does not read its answer after {connections.STALL_S:.0f} s",
    ):
        assert said in PAGE, said


def test_every_answer_has_its_requests_id(coordinator: Coordinator) -> None:
    for path in ("/healthz", "/no/such/place", "/"):
        assert re.fullmatch(
            "[0-9a-f]{32}", coordinator.request("GET", path).headers["X-Request-Id"]
        )
