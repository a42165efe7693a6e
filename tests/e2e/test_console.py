"""The console in a real browser: an admin authorises, creates a session, starts a run, predicts."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator

from benchmarks.federation import Federation
from tests.e2e import browser
from tests.e2e.browser import NEEDS_CHROMIUM, PHONE, Tab
from tests.e2e.warm import Warm

pytestmark = NEEDS_CHROMIUM


class Console:
    """A person's actions in the console."""

    def __init__(self, tab: Tab, federation: Federation) -> None:
        self.tab = tab
        self.page = tab.page
        self.federation = federation

    def authorise(self, scheme: str, token: str) -> None:
        self.page.get_by_role("button", name="Authorize").first.click()
        form = self.page.locator(".auth-container", has_text=f"{scheme} (http, Bearer)")
        form.get_by_role("textbox").fill(token)
        form.get_by_role("button", name="Apply credentials").click()
        self.tab.picture(f"authorize-{scheme}")
        self.page.locator(".btn-done").first.click()

    def execute(self, operation: str) -> Locator:
        """Press Execute on an unchanged example and return the coordinator's answer."""
        block = self.page.locator(f".opblock[id$='-{operation}']").first
        block.locator(".opblock-summary-control").click()
        block.get_by_role("button", name="Execute").click()
        answer = block.locator(".live-responses-table")
        answer.wait_for()
        answer.scroll_into_view_if_needed()
        self.tab.picture(operation)
        return answer


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation.started(
        tmp_path_factory.mktemp("console"), arguments=["--sample"], launch=Warm
    ) as federation:
        yield federation


@pytest.fixture
def console(federation: Federation) -> Iterator[Console]:
    with browser.opened() as tab:
        tab.page.goto(f"{federation.url}/docs")
        tab.page.locator(".opblock").first.wait_for()
        yield Console(tab, federation)


def test_an_admin_authorises_makes_a_session_starts_a_run_and_predicts(console: Console) -> None:
    assert "401" in console.execute("listSessions").inner_text()
    console.authorise("admin", console.federation.token)
    assert "201" in console.execute("createSession").inner_text()
    names = [each["name"] for each in console.federation.admin("GET", "/sessions")]
    assert "Length of stay" in names
    assert "201" in console.execute("startRun").inner_text()
    predicted = console.execute("predict").inner_text()
    assert "200" in predicted
    assert '"latent_variance"' in predicted
    assert "Bearer vgp_…" in console.page.locator("body").inner_text()
    assert console.federation.token not in console.page.content()
    console.tab.resize(PHONE)
    console.tab.picture("console-phone")
    assert console.tab.overflow == 0
    assert console.tab.hosts == {urlsplit(console.federation.url).netloc}
    assert console.tab.complaints == []
