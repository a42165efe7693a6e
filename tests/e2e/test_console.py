"""The console in a real browser: an admin authorises, makes a session, starts a run, predicts.

It needs a Chromium, Debian's for instance; nothing is downloaded. No request leaves the host.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Locator, Page, sync_playwright

from benchmarks.federation import Federation

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PICTURES = os.environ.get("CONSOLE_PICTURES")
"""A folder for screenshots, for whoever wants to look at them."""
QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)


class Console:
    """The page, with all that it asked for and complained about."""

    def __init__(self, page: Page, federation: Federation) -> None:
        self.page = page
        self.federation = federation
        self.asked: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._heard(said.type, said.text))

    def _heard(self, kind: str, text: str) -> None:
        # A refused request is the coordinator's answer, shown in the page.
        if kind == "error" and "the server responded with a status" not in text:
            self.complaints.append(text)

    def authorise(self, scheme: str, token: str) -> None:
        self.page.get_by_role("button", name="Authorize").first.click()
        form = self.page.locator(".auth-container", has_text=f"{scheme} (http, Bearer)")
        form.get_by_role("textbox").fill(token)
        form.get_by_role("button", name="Apply credentials").click()
        self.picture(f"authorize-{scheme}")
        self.page.locator(".btn-done").first.click()

    def execute(self, operation: str) -> Locator:
        """Press Execute on an example as it stands, and give the coordinator's answer."""
        block = self.page.locator(f".opblock[id$='-{operation}']").first
        block.locator(".opblock-summary-control").click()
        block.get_by_role("button", name="Execute").click()
        answer = block.locator(".live-responses-table")
        answer.wait_for()
        answer.scroll_into_view_if_needed()
        self.picture(operation)
        return answer

    def picture(self, name: str) -> None:
        if PICTURES:
            self.page.screenshot(path=Path(PICTURES) / f"{name}.png")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation.started(
        tmp_path_factory.mktemp("console"), arguments=["--sample"]
    ) as federation:
        yield federation


@pytest.fixture
def console(federation: Federation) -> Iterator[Console]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        console = Console(page, federation)
        page.goto(f"{federation.url}/docs")
        page.locator(".opblock").first.wait_for()
        yield console
        browser.close()


def test_an_admin_authorises_makes_a_session_starts_a_run_and_predicts(console: Console) -> None:
    assert "401" in console.execute("sessions_every").inner_text()
    console.authorise("admin", console.federation.token)
    assert "201" in console.execute("sessions_create").inner_text()
    names = [each["name"] for each in console.federation.admin("GET", "/sessions")]
    assert "Length of stay" in names
    assert "201" in console.execute("runs_start").inner_text()
    predicted = console.execute("predict_predict").inner_text()
    assert "200" in predicted
    assert '"latent_variance"' in predicted
    assert "Bearer vgp_…" in console.page.locator("body").inner_text()
    assert console.federation.token not in console.page.content()
    console.page.set_viewport_size({"width": 390, "height": 844})
    console.picture("phone")
    hosts = {urlsplit(url).netloc for url in console.asked if not url.startswith("data:")}
    assert hosts == {urlsplit(console.federation.url).netloc}
    assert console.complaints == []
