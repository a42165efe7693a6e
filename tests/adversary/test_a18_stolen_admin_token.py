"""A18: a stolen admin token can start runs and make sessions; each site stops at its own cap."""

from pathlib import Path

from client_sdk.errors import BudgetSpent
from client_sdk.home.home import Home
from privacy.ledger import Budget
from tests.client_sdk.conftest import homes
from tests.client_sdk.hospitals import drive
from tests.client_sdk.private import DELTA, private_session

__all__ = ["homes"]


def test_session_after_session_a_site_spends_its_cap_and_no_more(homes: Path) -> None:
    """One run costs ε = 0.76, two together 1.11, three 1.39."""
    cap, uploads = 1.2, []
    for _ in range(4):
        coordinator, hospitals = private_session(homes, epsilon=cap)
        drive(hospitals, coordinator, first_error=True)
        uploads.append(len(coordinator.uploads))
    assert uploads == [6, 6, 0, 0]
    assert isinstance(hospitals[0].error, BudgetSpent)
    store = Home(hospitals[0].path).read()
    spent = store.ledger("table", Budget(cap, DELTA)).spent.epsilon
    store.close()
    assert 1.0 < spent <= cap
