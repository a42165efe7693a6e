"""Blind runs that end because of a site or a total: nobody is named, and no total's reason."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import RunFailed
from client_sdk.gate.door import Door
from privacy.securesum.errors import NoUpdate, SiteFailed
from privacy.securesum.masking import FailedVector
from tests.client_sdk.conversation.blind_study import BlindStudy


async def ended(study: BlindStudy, **session: Any) -> tuple[Any, list[Any]]:
    """Return how a run ended for the coordinator, and for each hospital."""
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="served", **session)
        joining = [asyncio.create_task(study.join(name)) for name in study.names]
        await study.start({"kind": "train"}, joining)
        done = await asyncio.wait_for(asyncio.gather(*joining, return_exceptions=True), timeout=60)
        (run,) = await study.runs()
    return run, done


def test_a_site_that_fails_in_a_blind_run_is_not_named_and_nor_is_who_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = BlindStudy(tmp_path)
    failing, computed = study.roster[study.names[1]], Door._computed

    def either(self: Door, task: Any, *given: Any) -> Any:
        answer = computed(self, task, *given)
        if self.home.identity.key != failing:
            return answer
        return replace(answer, vector=FailedVector.drawn(task.length, os.urandom))

    monkeypatch.setattr(Door, "_computed", either)
    run, ends = asyncio.run(ended(study))
    assert all(isinstance(end, SiteFailed | RunFailed) for end in ends)
    assert (run["status"], run["code"]) == ("failed", "run.site_failed")
    assert not any(name in run["detail"] for name in study.names)


def test_a_total_that_ends_a_blind_run_does_not_say_why_to_the_coordinator(tmp_path: Path) -> None:
    """Fewer rows than stated: a hospital is told so, and the coordinator that the run is over."""
    study = BlindStudy(tmp_path)
    run, ends = asyncio.run(ended(study, least_rows=100_000))
    assert (run["status"], run["code"]) == ("failed", "total.no_update")
    assert run["detail"] == NoUpdate.public_detail
    assert {type(end) for end in ends} <= {NoUpdate, RunFailed}
    assert any("training rows" in str(end) for end in ends if isinstance(end, NoUpdate))
