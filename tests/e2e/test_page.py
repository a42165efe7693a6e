"""The page in a real browser: it follows a run to its model, and every form can be used by key.

The coordinator is a real process. Its hospitals answer from here, one step after another, so that
the run does not move while the page is checked.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Page

from benchmarks import hospitals
from benchmarks.federation import Federation, wait_until
from privacy.identity import Identity
from tests.e2e import browser, sessions
from tests.e2e.browser import DESKTOP, NEEDS_CHROMIUM, PHONE, Tab
from tests.e2e.warm import Warm
from tests.service.sites import Site, work

pytestmark = NEEDS_CHROMIUM

ONLY_EVENTS = """
const every = window.setInterval;
window.setInterval = (what, ms) => (ms < 5000 ? every(what, ms) : 0);
"""
"""The page also refreshes regularly. With this disabled, every change comes from an event."""


@dataclass(frozen=True)
class Wire:
    """A coordinator's process, with the interface that `tests.service.sites` uses."""

    federation: Federation

    def request(self, method: str, target: str, **more: Any) -> httpx.Response:
        return self.federation.http.request(method, f"{self.federation.url}{target}", **more)

    def clock(self) -> float:
        return time.time()


class Study:
    """A session with three hospitals, and a run of it."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        # Metrics by step are the coordinator's to show only if it reads the sums.
        self.session = sessions.create(federation, sums="open")["id"]
        self.hospitals = [self._hospital(name) for name in sessions.TABLES]

    def _hospital(self, name: str) -> Site:
        at = f"/sessions/{self.session}"
        site = Site(Wire(self.federation), Identity.generate(), name, self.session)
        site.host, site.table = urlsplit(self.federation.url).netloc, sessions.TABLES[name]
        link = self.federation.admin("POST", f"{at}/invitations", {"name": name})["link"]
        assert site.enrol(self.session, link.partition("#")[2]).status_code == 201
        self.federation.admin("PATCH", f"{at}/members/{name}", {"status": "approved"})
        return site

    def start(self) -> None:
        new = {"kind": "train", "deadline_s": 3000}
        self.run = self.federation.admin("POST", f"/sessions/{self.session}/runs", new)["id"]

    @property
    def state(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self.federation.admin("GET", f"/runs/{self.run}")
        return state

    def work_until(self, sums: int) -> Mapping[str, Any]:
        """Let the hospitals answer until the run has this number of sums."""

        def enough() -> bool:
            there = self.state["progress"]["sums"] >= sums
            if not there:
                for site in self.hospitals:
                    site.work()
            return there

        wait_until(enough, f"{sums} sums are there", every_s=0.02)
        return self.state

    def finish(self) -> Mapping[str, Any]:
        work(self.hospitals)
        return self.state


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    with Federation.started(tmp_path_factory.mktemp("page"), launch=Warm) as federation:
        yield federation


@pytest.fixture
def tab() -> Iterator[Tab]:
    with browser.opened() as tab:
        tab.page.set_default_timeout(60_000)
        tab.page.add_init_script(ONLY_EVENTS)
        yield tab


def fits_a_phone(tab: Tab, name: str) -> None:
    tab.picture(f"{name}-desktop", whole=True)
    assert tab.barriers == [], name
    tab.resize(PHONE)
    tab.picture(f"{name}-phone", whole=True)
    assert tab.overflow == 0, name
    tab.resize(DESKTOP)


def test_the_page_follows_a_run_to_its_model(federation: Federation, tab: Tab) -> None:
    study, page = Study(federation), tab.page
    study.start()
    page.goto(federation.url)
    fits_a_phone(tab, "sign-in")
    page.get_by_label("Admin token").fill(federation.token)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="study").click()
    page.get_by_text("Stage 1 of 5 (moments) · 0 sums").wait_for()
    page.evaluate("window.loaded = 'once'")

    study.work_until(1)
    page.get_by_text("Stage 2 of 5 (exact)").wait_for()
    page.get_by_text("3 present").wait_for()

    half = page.get_by_label("Name of the hospital")
    half.fill("half a na")
    metrics = study.work_until(3)["metrics"]
    page.locator("progress[value='3']").wait_for()
    assert half.input_value() == "half a na", "what is being filled in stays"
    half.fill("")
    half.blur()
    evidence = f"{metrics[-1]['evidence']:.4g}"
    page.get_by_label(f"Loss (exact) by sum, last value {evidence}").wait_for()
    fits_a_phone(tab, "running")
    assert tab.complaints == []

    assert federation.coordinator is not None
    assert f"page {federation.url}/" in federation.coordinator.words()
    assert f"console {federation.url}/docs" in federation.coordinator.words()
    federation.coordinator.kill()
    federation.restart_coordinator()
    done = study.finish()
    assert done["status"] == "done"
    page.get_by_text("Training from the start is done").wait_for()
    page.get_by_text("on average").first.wait_for()
    page.get_by_title(done["model"]).wait_for()
    fits_a_phone(tab, "done")

    assert page.evaluate("window.loaded") == "once"
    assert f"{federation.url}/runs/{study.run}/events" in tab.asked
    page.get_by_role("link", name="Sessions").first.click()
    page.get_by_title(done["model"]).wait_for()
    fits_a_phone(tab, "overview")
    page.get_by_role("link", name="study, run 1").first.click()
    page.get_by_label("held-out rows inside their intervals").first.wait_for()
    fits_a_phone(tab, "model")
    assert tab.hosts == {urlsplit(federation.url).netloc}
    assert all("net::ERR_" in each for each in tab.complaints), "only that it was away"


def focused(page: Page) -> str:
    """Return what has the focus, and whether it can be seen."""
    return str(
        page.evaluate(
            """() => {
                const own = document.activeElement, look = getComputedStyle(own);
                const seen = look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2;
                return `${seen ? "" : "unseen "}${own.textContent.trim() || own.name}`;
            }"""
        )
    )


def test_a_session_is_made_and_a_hospital_invited_by_key_alone(
    federation: Federation, tab: Tab, tmp_path: Path
) -> None:
    page, key = tab.page, tab.page.keyboard
    page.goto(federation.url)
    key.type(federation.token)  # the field has the focus
    key.press("Enter")
    page.get_by_role("heading", name="Sessions").wait_for()
    key.press("Tab")
    assert focused(page) == "Skip to the content"
    key.press("Enter")
    key.press("Tab")
    assert focused(page) == "New session"
    key.press("Enter")
    page.get_by_role("heading", name="New session").wait_for()
    fits_a_phone(tab, "new-session")
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"features": []}))
    page.get_by_label("Schema file").set_input_files(schema)
    page.get_by_label("Name", exact=True).focus()
    key.type("by key")
    page.get_by_label("How many hospitals").focus()
    key.type("3")
    page.get_by_role("radio", name="No: sums").focus()
    key.press("Space")
    key.press("Tab")
    assert focused(page) == "smallest_table"
    key.press("Tab")
    assert focused(page) == "model", "the fields of the budget are for noise only"
    key.press("Space")
    page.get_by_role("button", name="Create the session").focus()
    key.press("Enter")
    page.get_by_role("alert").wait_for()
    fits_a_phone(tab, "refused")
    assert page.get_by_label("Text of the schema").input_value() == schema.read_text()
    schema.write_text(json.dumps(hospitals.SCHEMA))
    page.get_by_label("Schema file").set_input_files(schema)
    page.get_by_role("button", name="Create the session").press("Enter")
    page.get_by_text("0 of 3 hospitals are here").wait_for()
    fits_a_phone(tab, "waiting")
    page.get_by_label("Name of the hospital").focus()
    key.type("North")
    key.press("Enter")
    page.get_by_role("heading", name="Invitation for North").wait_for()
    fits_a_phone(tab, "invited")
    link = page.locator("#link").inner_text()
    page.goto(link)
    assert f"LINK='{link}'" in page.locator("pre").all_inner_texts()
    fits_a_phone(tab, "invitation")
    assert tab.complaints == []
