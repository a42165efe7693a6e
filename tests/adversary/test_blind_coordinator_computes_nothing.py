"""With blind sums the coordinator decodes no total and runs no update.

Hospitals and coordinator are in one process here, and use the same code. Whose call it is follows
from the call stack: the coordinator's has a function of `service`, which hospitals never import.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernels.rounds import position
from privacy.encoding import Encoding
from tests.client_sdk.conversation.blind_study import STAGES, BlindStudy

PARTIES = {"service": "coordinator", "client_sdk": "hospital"}
PLACES = ((Encoding, "decode"), (position, "updated"))
HOSPITALS = 3


def whose_call() -> str:
    """Return the party whose function is nearest on the call stack."""
    frame = sys._getframe(2)
    while frame is not None:
        party = PARTIES.get(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        if party is not None:
            return party
        frame = frame.f_back
    return "nobody"


async def calls(folder: Path, monkeypatch: pytest.MonkeyPatch, **how: str) -> Counter[str]:
    """Return how often each party has decoded a total and run an update."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Any) -> Any:
        def counted_call(*given: Any, **named: Any) -> Any:
            counted[f"{whose_call()}: {name}"] += 1
            return function(*given, **named)

        return counted_call

    study = BlindStudy(folder)
    async with study.app.router.lifespan_context(study.app):
        await study.begin(**how)
        with monkeypatch.context() as recording:
            for owner, name in PLACES:
                recording.setattr(owner, name, counting(name, getattr(owner, name)))
            await study.run()
    return counted


def test_no_update_of_a_blind_run_is_the_coordinators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = asyncio.run(calls(tmp_path, monkeypatch, sums="blind", model="served"))
    # More often than once a total: they also try every stage before they enter a run.
    assert counted["hospital: updated"] >= HOSPITALS * len(STAGES)
    assert counted["hospital: decode"] >= HOSPITALS * len(STAGES)
    assert {call for call in counted if not call.startswith("hospital")} == set()


def test_the_updates_of_an_open_run_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = asyncio.run(calls(tmp_path, monkeypatch, sums="open", model="served"))
    assert counted["coordinator: updated"] == counted["coordinator: decode"] == len(STAGES)
