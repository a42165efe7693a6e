"""A real browser: an installed Chromium, for instance Debian's; none is downloaded.

With BROWSER_PICTURES=FOLDER every `Tab.picture` is saved there.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, sync_playwright

DESKTOP, PHONE = (1280, 1000), (360, 740)
"""Widths and heights; the phone is a small one."""

_CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
NEEDS_CHROMIUM = pytest.mark.skipif(
    _CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)
_PICTURES = os.environ.get("BROWSER_PICTURES")
_QUIET = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]


class Tab:
    """A page, with its requests and its console errors."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._heard(said.type, said.text))

    def _heard(self, kind: str, text: str) -> None:
        # A refused request is the coordinator's answer, shown in the page.
        if kind == "error" and "the server responded with a status" not in text:
            self.complaints.append(text)

    @property
    def hosts(self) -> set[str]:
        """The hosts that it has sent requests to."""
        return {urlsplit(url).netloc for url in self.asked if not url.startswith("data:")}

    def resize(self, size: tuple[int, int]) -> None:
        self.page.set_viewport_size({"width": size[0], "height": size[1]})

    @property
    def overflow(self) -> int:
        """The number of pixels beyond the right edge, which need horizontal scrolling."""
        pixels: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return pixels

    @property
    def barriers(self) -> list[str]:
        """What axe-core finds that keeps people from using the page: rule, place, reason."""
        self.page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
        found = self.page.evaluate("axe.run()")
        return [
            f"{each['id']} ({each['impact']}): {node['html'][:120]} {node['failureSummary'][:200]}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def picture(self, name: str, *, whole: bool = False) -> None:
        if _PICTURES:
            self.page.screenshot(path=Path(_PICTURES) / f"{name}.png", full_page=whole)


@contextmanager
def opened(**preferences: str) -> Iterator[Tab]:
    """Open a tab in a new browser, with preferences such as `color_scheme`."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_QUIET)
        tab = Tab(browser.new_page(**preferences))
        tab.resize(DESKTOP)
        yield tab
        browser.close()
