"""A stranger's request never waits for the database's write lock, nor makes others wait for it."""

from typing import Any

import pytest

from service.database.database import Database
from tests.service.coordinator import Coordinator, Hospital


def test_a_stranger_takes_no_lock(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = coordinator.session()

    def locked(*_: Any, **__: Any) -> Any:
        raise AssertionError("a stranger's request takes the write lock")

    monkeypatch.setattr(Database, "changing", locked)
    for secret in ("", "nonsense", "vgp_admin_nonsense"):
        answer = coordinator.request("POST", "/sign-in", data={"token": secret})
        assert answer.status_code == 403
    refused = Hospital(coordinator).enrol(session, "nonsense")
    assert (refused.status_code, refused.json()["code"]) == (403, "invitation.invalid")
    assert Hospital(coordinator).membership(session).status_code == 404
