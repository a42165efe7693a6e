"""A temporary database outage, such as a failover, does not end any run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.http.shared_check import KEPT_S
from tests.postgres import Postgres
from tests.service.coordinator import Coordinator
from tests.service.programs import TINY, model_bytes, simulated
from tests.service.sites import session_of, start, stored_model, until, work


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as url:
        yield url


def test_requests_fail_while_it_is_away_and_the_run_goes_on(
    postgres: Postgres, url: str, tmp_path: Path
) -> None:
    with Coordinator(tmp_path, database_url=url) as coordinator:
        sites = session_of(coordinator)
        run = start(coordinator, sites[0].session)
        until(sites, "task", run)
        with postgres.away(url):
            for path in (f"/sessions/{sites[0].session}/next?wait=0", "/healthz"):
                assert sites[0].send("GET", path).status_code == 500
            assert coordinator.request("GET", "/v2/health/live").status_code == 200
            unready = coordinator.request("GET", "/readyz")
            assert unready.status_code == 503
            assert unready.json()["detail"].startswith("Failing checks: database. ")
        work(sites)
        assert stored_model(coordinator, sites[0]) == model_bytes(simulated(TINY))
        coordinator.clock.now += KEPT_S
        assert coordinator.request("GET", "/readyz").status_code == 200
