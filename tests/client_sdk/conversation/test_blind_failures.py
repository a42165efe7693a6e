"""A site of a blind run that cannot compute: the run ends, and names nobody."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import RunFailed
from client_sdk.gate.door import Door
from privacy.securesum.errors import SiteFailed
from privacy.securesum.masking import FailedVector
from tests.client_sdk.conversation.blind_study import BlindStudy


async def ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[BlindStudy, Any, list[Any]]:
    study = BlindStudy(folder)
    failing, computed = study.roster[study.names[1]], Door._computed

    def either(self: Door, task: Any, *given: Any) -> Any:
        answer = computed(self, task, *given)
        if self.home.identity.key != failing:
            return answer
        return replace(answer, vector=FailedVector.drawn(task.length, os.urandom))

    monkeypatch.setattr(Door, "_computed", either)
    async with study.app.router.lifespan_context(study.app):
        await study.begin(model="served")
        joining = [asyncio.create_task(study.join(name)) for name in study.names]
        await study.start({"kind": "train"}, joining)
        done = await asyncio.wait_for(asyncio.gather(*joining, return_exceptions=True), timeout=60)
        (run,) = await study.runs()
    return study, run, done


def test_a_site_that_fails_in_a_blind_run_is_not_named_and_nor_is_who_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, run, ends = asyncio.run(ended(tmp_path, monkeypatch))
    assert all(isinstance(end, SiteFailed | RunFailed) for end in ends)
    assert (run["status"], run["code"]) == ("failed", "run.site_failed")
    assert not any(name in run["detail"] for name in study.names)
