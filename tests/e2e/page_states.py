"""The page in every state, for a browser: `python -m tests.e2e.page_states FOLDER` takes pictures.

The coordinator is that of `veilgp serve --sample`, with three sessions more: one with noise that
has spent some of its budget, one whose training diverges, and one whose model only hospitals have.
It runs in this process. The pictures (light, dark, and as wide as a phone) are for looking at; what
axe-core finds in any of them is printed.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from sqlalchemy import Connection, insert, update

from benchmarks.federation import free_port, wait_until
from kernels.rounds.plan import release_plan
from kernels.rounds.program import Program
from kernels.rounds.run_kinds import Kind
from privacy.accounting.promises import promised
from privacy.identity import Identity
from privacy.ledger import Entry
from service import sample
from service.command import server
from service.database import data_directory
from service.database.database import Database
from service.database.tables import members, runs
from service.http import tokens
from service.runs import saving, starting
from service.sample import HOSPITALS, STATED
from service.sessions import ledgers, sessions
from service.sessions.members import Refusal, record_refusal
from service.sessions.sessions import NewSession
from service.settings import Settings
from tests.e2e import browser
from tests.e2e.browser import DESKTOP, PHONE, Tab

PRIVATE_STAGES = [
    {"algorithm": "moments"},
    {"algorithm": "linear"},
    {"algorithm": "evaluation", "parameters": {"recalibrated": False}},
]


@dataclass(frozen=True)
class Pages:
    """A running coordinator: its URL, its admin token, and the path of each state by its name."""

    url: str
    token: str
    paths: Mapping[str, str]

    def signed_in(self, tab: Tab) -> None:
        """Sign in with this tab."""
        tab.page.goto(self.url)
        tab.page.get_by_label("Admin token").fill(self.token)
        tab.page.get_by_role("button", name="Sign in").click()
        tab.page.get_by_role("heading", name="Sessions").wait_for()


@contextmanager
def served(folder: Path, *, full: bool = True) -> Iterator[Pages]:
    """Run a coordinator with all states, or with none."""
    settings = Settings(data_dir=folder, port=free_port(), log_level="warning", shutdown_s=1)
    data_directory.prepare(folder)
    database = Database(settings.url)
    database.migrate()
    with database.changing() as connection:
        token = tokens.reset_admin(connection, now=time.time()).secret
        paths = _seed(connection, time.time()) if full else {}
    database.close()
    running = server(settings)
    thread = Thread(target=running.run, daemon=True)
    thread.start()
    wait_until(lambda: running.started, "the coordinator answers", every_s=0.05)
    everywhere = {"overview": "/", "new-session": "/view/new", "callers": "/view/callers"}
    try:
        yield Pages(f"http://127.0.0.1:{settings.port}", token, {**everywhere, **paths})
    finally:
        running.should_exit = True
        thread.join()


def _seed(connection: Connection, now: float) -> Mapping[str, str]:
    sample.seed(connection, now=now)
    key = Identity.generate().key
    connection.execute(
        insert(members).values(
            session_id=sample.NEW, key=key, name="Amrum", status="approved", enrolled_at=now
        )
    )
    said = "The policy of Amrum allows no sums that the coordinator can read (open_sums = false)."
    record_refusal(connection, sample.NEW, key, Refusal("policy.open_sums", said, now - 3600))
    model = sample.model_ids(connection)[sample.MODEL]
    return {
        "waiting": f"/view/{sample.NEW}",
        "running": f"/view/{sample.RUNNING}",
        "done": f"/view/{sample.SESSION}",
        "failed": f"/view/{sample.FAILED}",
        "private": f"/view/{_private(connection, now)}",
        "diverged": f"/view/{_diverged(connection, now)}",
        "model": f"/view/models/{model}",
    }


def _new(connection: Connection, name: str, now: float, **changed: object) -> str:
    new = NewSession.model_validate({"name": name, **STATED, **changed})
    session = sessions.create(connection, new, now=now)
    connection.execute(
        insert(members),
        [
            {
                "session_id": session.id,
                "key": Identity.generate().key,
                "name": name,
                "status": "approved",
                "enrolled_at": now,
            }
            for name in HOSPITALS
        ],
    )
    return session.id


def _private(connection: Connection, now: float) -> str:
    budget = {"differential_privacy": True, "epsilon": 4.0, "delta": 1e-5, "runs": 2}
    kernel = {"architecture": "rbf", "samples": 16, "seed": 1}
    new = {"privacy": budget, "stages": PRIVATE_STAGES, "kernel": kernel}
    session = _new(connection, "Sample, with noise", now, **new)
    stored = sessions.find(connection, session)
    plan = release_plan(Program.from_json(stored.program))
    slot = 0
    for release in promised(plan, honest=stored.terms.honest):
        for _ in range(release.sums):
            once = replace(release, sums=1)
            ledgers.add(connection, Entry(now + slot, session, sample.RUN, 0, slot, once))
            slot += 1
    return session


def _diverged(connection: Connection, now: float) -> str:
    session = _new(connection, "Sample, diverging", now, sums="open")
    run = starting.start(
        connection, session_id=session, kind=Kind.TRAIN, model=None, deadline_s=3600, now=now
    )
    losses = (1.41, 1.32, 1.9, 3.4, 8.8, 31.0)
    told = [
        {
            "stage": 1,
            "algorithm": "exact",
            "sum": 2 * step + 3,
            "run": 0,
            "step": step,
            "evidence": loss,
            "held_out_error": 0.6 + loss / 40,
            "gradient_norm": 0.2 * loss,
        }
        for step, loss in enumerate(losses)
    ]
    saving.add_metrics(connection, run, told)
    # An ended run: no hospital answers, and the engine must not look for the state of stage 1.
    detail = "Sylt had not answered by the deadline."
    saving.give_up(connection, run, code="run.deadline", detail=detail, now=now)
    connection.execute(update(runs).where(runs.c.id == run).values(stage=1, sums=14))
    return session


def _take(folder: Path) -> None:
    """Take a picture of every state, in light, in dark, and as wide as a phone."""
    folder.mkdir(parents=True, exist_ok=True)

    def picture(tab: Tab, name: str) -> None:
        tab.page.screenshot(path=folder / f"{name}.png", full_page=True)
        for barrier in tab.barriers:
            print(f"{name}: {barrier}")  # noqa: T201
        if tab.overflow:
            print(f"{name}: {tab.overflow} pixels too wide")  # noqa: T201

    with served(folder / "empty", full=False) as pages, browser.opened() as tab:
        tab.page.goto(pages.url)
        picture(tab, "sign-in")
        tab.page.goto(f"{pages.url}/join/5a3b1e00-0000-4000-8000-000000000001#a-secret")
        picture(tab, "invitation")
        tab.resize(PHONE)
        picture(tab, "invitation-phone")
        tab.resize(DESKTOP)
        pages.signed_in(tab)
        picture(tab, "no-session")
    with served(folder / "full") as pages:
        for scheme in ("light", "dark"):
            with browser.opened(color_scheme=scheme) as tab:
                pages.signed_in(tab)
                for name, path in pages.paths.items():
                    tab.page.goto(f"{pages.url}{path}")
                    if name == "model":
                        tab.page.get_by_text("What each column does").first.wait_for()
                    picture(tab, f"{name}-{scheme}")
                    if scheme == "light":
                        tab.resize(PHONE)
                        picture(tab, f"{name}-phone")
                        tab.resize(DESKTOP)
                if scheme == "light":
                    _forms(pages, tab, folder)


def _forms(pages: Pages, tab: Tab, folder: Path) -> None:
    """Take pictures of refused forms and of what is shown once."""
    page = tab.page
    page.goto(f"{pages.url}/view/new")
    page.get_by_label("Name", exact=True).fill("Sample")
    page.get_by_text("or paste its text").click()
    page.get_by_label("Text of the schema").fill('{"features": []}')
    page.get_by_label("How many hospitals").fill("two")
    page.get_by_text("Yes: hospitals add noise").click()
    page.get_by_text("This coordinator too").click()
    page.get_by_role("button", name="Create the session").click()
    page.screenshot(path=folder / "refused-session.png", full_page=True)
    page.goto(f"{pages.url}{pages.paths['waiting']}")
    page.get_by_label("Name of the hospital").fill("Helgoland")
    page.get_by_role("button", name="Make the link").click()
    page.screenshot(path=folder / "invited.png", full_page=True)
    page.goto(f"{pages.url}{pages.paths['waiting']}")
    page.get_by_role("button", name="Start training").click()
    page.screenshot(path=folder / "refused-run.png", full_page=True)
    page.goto(f"{pages.url}{pages.paths['model']}")
    page.get_by_label("Who predicts").fill("Ward 3")
    page.get_by_role("button", name="Make the token").click()
    page.screenshot(path=folder / "token.png", full_page=True)


if __name__ == "__main__":
    _take(Path(sys.argv[1]))
