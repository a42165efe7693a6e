"""The page shows an admin all sessions and models, and others a sign-in form.

No number is a single site's.
"""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from kernels.model.results import released
from kernels.rounds.site.site import Part
from kernels.tables.targets import AnyTarget
from service.database import tables
from service.database.tables import tokens as token_table
from service.http import sign_in
from service.http.tokens import Role, issue
from service.page.plots import calibration_plot, reliability_plot, steps_plot
from service.sessions import presence
from tests.certified import HOSPITALS, ROSTER, certificate_of, signable
from tests.kernels.rounds import artifacts, every_kind
from tests.kernels.rounds.artifacts import WITH_STUDENTS
from tests.kernels.rounds.every_kind import READMITTED, STAY, VISITS
from tests.kernels.rounds.tables import table
from tests.service.coordinator import Coordinator
from tests.service.page.browsing import attempt, page, signed_in
from tests.service.programs import PRIVATE, WHOLE
from tests.service.sites import Site, session_of, start, stop_engine, until, work
from tests.service.stored import add_model, add_sealed, later


def trained(coordinator: Coordinator) -> list[Site]:
    sites = session_of(coordinator, WHOLE)
    start(coordinator, sites[0].session)
    work(sites)
    return sites


def test_a_private_session_shows_what_it_has_spent_and_what_a_run_costs(
    coordinator: Coordinator,
) -> None:
    sites = session_of(coordinator, PRIVATE, epsilon=2.0)
    before = page(coordinator, f"/view/{sites[0].session}", cookie := signed_in(coordinator)).text
    assert "<strong>0 is spent</strong>" in before
    assert "ε spent" not in before
    run = start(coordinator, sites[0].session)
    stop_engine(coordinator)
    until(sites, "task", run)
    shown = page(coordinator, f"/view/{sites[0].session}", cookie).text
    assert "The unit of privacy is the row" in shown
    assert "in 1 sum (" in shown
    assert "ε spent" in shown


def test_a_session_is_shown_with_all_that_an_admin_asks_for(coordinator: Coordinator) -> None:
    sites = trained(coordinator)
    cookie = signed_in(coordinator)
    model = sites[0].outcome["model"]
    overview = page(coordinator, "/", cookie).text
    assert sites[0].session in overview
    assert "<strong>3 present</strong>" in overview
    assert model[:10] in overview
    shown = page(coordinator, f"/view/{sites[0].session}", cookie).text
    read = page(coordinator, f"/view/models/{model}", cookie).text
    for promised in ("recalibrated", "conformal", "on average", "Trained from the start"):
        assert promised in read, promised
    for promised in (
        "on average",
        "Training from the start is done",
        "Loss (exact)",
        "negative log evidence per row",
        "Error on held-out rows (exact)",
        "number of sums",
        "at least 3 hospitals",
        "no differential privacy",
        "counts of rows by the size of their prediction error",
        "site-1",
        model[:10],
    ):
        assert promised in shown, promised
    charts = read.partition("<h2>Calibration</h2>")[2].partition("</section>")[0]
    assert charts.count("<svg") == 2, "a calibration curve for each target"
    curves = shown.partition("<h2>Learning curves</h2>")[2].partition("</section>")[0]
    assert curves.count("<svg") == 3


def test_a_run_that_has_failed_has_nothing_next(coordinator: Coordinator) -> None:
    sites = session_of(coordinator, WHOLE)
    run = start(coordinator, sites[0].session)
    assert coordinator.admin("POST", f"/runs/{run}/cancel").status_code == 200
    shown = page(coordinator, f"/view/{sites[0].session}", signed_in(coordinator)).text
    assert "Training from the start was cancelled" in shown
    stages = shown.partition('<ol class="stages">')[2].partition("</ol>")[0]
    assert re.findall('<li class="([a-z]+)">', stages) == ["stopped", *["unreached"] * 4]


def numbers(text: str) -> set[str]:
    """Return every number in the text, without those inside tags, ids and fingerprints."""
    seen = re.sub(
        r"<[^>]*>|(\d{5} ){7}\d{5}|[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4,}){4}|[0-9a-f]{10}…",
        " ",
        text,
    )
    return set(re.findall(r"[0-9]+(?:[.][0-9]+)?", seen))


def test_the_rows_of_all_are_shown_and_no_figure_of_one(coordinator: Coordinator) -> None:
    sites = session_of(coordinator, WHOLE, [table(n, seed=n) for n in (503, 701, 911)])
    run = start(coordinator, sites[0].session)
    work(sites)
    cookie = signed_in(coordinator)
    shown = numbers(page(coordinator, "/", cookie).text)
    shown |= numbers(page(coordinator, f"/view/{sites[0].session}", cookie).text)
    model = sites[0].outcome["model"]
    shown |= numbers(page(coordinator, f"/view/models/{model}", cookie).text)
    told = shown | numbers(coordinator.admin("GET", f"/runs/{run}").text)
    assert str(sum(site.rows.count(Part.TRAINING) for site in sites)) in shown
    for site in sites:
        own = [len(site.table["age"]), site.rows.count(Part.TRAINING)]
        for name in ("age", "stay", "cost"):
            column = site.table[name]
            own += [column.mean(), column.std(), column.sum(), column.min(), column.max()]
        for figure in own:
            assert not told & {f"{figure:.{digits}g}" for digits in (4, 5, 17)}, figure


def test_an_open_run_is_shown_with_its_stage_its_deadline_and_whom_it_waits_for(
    coordinator: Coordinator,
) -> None:
    sites = session_of(coordinator, WHOLE)
    run = start(coordinator, sites[0].session)
    stop_engine(coordinator)
    until(sites, "task", run)
    sites[1].work()
    shown = page(coordinator, f"/view/{sites[0].session}", signed_in(coordinator)).text
    assert f'data-run="{run}"' in shown
    assert "Stage 1 of 5 (<code>moments</code>)" in shown
    assert "Measure the columns" in shown
    assert re.search(r"0 sums\s+of at most 9", shown)
    assert 'data-deadline="2027-01-15T09:00:00.000Z"' in shown
    assert "Waiting for site-0, site-2." in shown


def test_nobody_sees_the_page_without_the_admins_token(coordinator: Coordinator) -> None:
    sites = trained(coordinator)
    with coordinator.context.database.changing() as connection:
        caller = issue(connection, Role.CALLER, "ward", now=coordinator.clock(), models=["m"])
    assert attempt(coordinator, caller.secret).status_code == 403
    assert attempt(coordinator, "").status_code == 403
    for cookie in (None, *(f"{sign_in.COOKIE}={s}" for s in (coordinator.token, caller.secret))):
        for path in ("/", f"/view/{sites[0].session}"):
            answer = page(coordinator, path, cookie)
            assert answer.status_code in (200, 303)
            assert sites[0].session not in answer.text
            assert sites[0].name not in answer.text


def test_the_browser_keeps_something_lesser_than_the_token(coordinator: Coordinator) -> None:
    answer = attempt(coordinator, coordinator.token)
    cookie = answer.headers["Set-Cookie"]
    assert coordinator.token not in str(answer.headers)
    for attribute in ("HttpOnly", "SameSite=strict", f"Max-Age={sign_in.LASTS_S}", "Path=/"):
        assert attribute in cookie
    secret = cookie.partition("=")[2].partition(";")[0]
    assert coordinator.bearer(secret, "GET", "/sessions").status_code == 401
    assert coordinator.bearer(secret, "POST", "/predict").status_code == 401
    assert page(coordinator, "/sessions", f"{sign_in.COOKIE}={secret}").status_code == 401
    with coordinator.context.database.reading() as connection:
        kept = connection.execute(select(token_table).where(token_table.c.role == Role.PAGE)).one()
    assert secret.encode() not in kept.hash


@pytest.mark.parametrize("end", ["time", "sign-out", "reset"])
def test_signing_in_ends(coordinator: Coordinator, end: str) -> None:
    cookie = signed_in(coordinator)
    assert "Sign out" in page(coordinator, "/", cookie).text
    if end == "time":
        coordinator.clock.now += sign_in.LASTS_S
    elif end == "sign-out":
        coordinator.request("POST", "/sign-out", headers={"Cookie": cookie})
    else:
        coordinator.reset_token()
    assert 'id="token"' in page(coordinator, "/", cookie).text


def test_over_tls_the_cookie_is_never_sent_without(tmp_path: Any) -> None:
    url = "https://gp.example"
    with Coordinator(tmp_path, behind_tls_proxy=True, public_url=url) as coordinator:
        assert "; Secure" in attempt(coordinator, coordinator.token).headers["Set-Cookie"]


class _Inline(HTMLParser):
    """Finds content that a strict policy forbids, and references to other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        inline = tag == "style" or (tag == "script" and "src" not in given)
        handlers = [name for name in given if name == "style" or name.startswith("on")]
        places = [given[name] or "" for name in ("src", "href", "action") if name in given]
        elsewhere = [each for each in places if each[:1] not in "/#" or each.startswith("//")]
        if inline or handlers or elsewhere:
            self.found.append(f"{tag} {given}")


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(coordinator: Coordinator) -> None:
    sites = trained(coordinator)
    cookie = signed_in(coordinator)
    at, model = f"/view/{sites[0].session}", sites[0].outcome["model"]
    own = ("/", at, f"/view/models/{model}", "/view/new", "/view/callers")
    everyones = ("/", f"/join/{sites[0].session}")
    for path, by in (*((path, None) for path in everyones), *((path, cookie) for path in own)):
        answer = page(coordinator, path, by)
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        parser = _Inline()
        parser.feed(answer.text)
        assert parser.found == []
        for name in re.findall(r'"(/page/[^"]+)"', answer.text):
            assert page(coordinator, name, None).status_code == 200
    assert page(coordinator, "/page/session.html", cookie).status_code == 404


def test_names_cannot_write_into_the_page(coordinator: Coordinator) -> None:
    name = "<script>alert(1)"
    session = coordinator.session(name=name)
    coordinator.approved(session, "<b>Kiel")
    cookie = signed_in(coordinator)
    model = add_model(coordinator, artifacts.artifact(), session)
    for path in ("/", f"/view/models/{model}", f"/view/{session}"):
        text = page(coordinator, path, cookie).text
        assert "<script>alert" not in text
        assert "<b>Kiel" not in text
    assert "&lt;b&gt;Kiel" in text


def test_plots_escape_their_titles_and_survive_any_figures() -> None:
    assert "<b>" not in steps_plot("<b>", [[(0, 1.0)]])
    assert steps_plot("nothing", [[(0, float("nan"))], []]) == ""
    for values in ([0.0], [5.0, 5.0], [-1e9, 1e-9], [float("inf"), 1.0]):
        drawn = steps_plot("x", [list(enumerate(values))])
        assert "nan" not in drawn
        assert "inf" not in drawn
    assert "<i>" not in calibration_plot("<i>", [0.5], {"<i>": [0.4]}, rows=10)
    for seen in ([], [0.0], [float("nan")], [1e9]):
        drawn = reliability_plot("x", seen, seen, [0.0] * len(seen), shares=False, bars=False)
        assert "nan" not in drawn


def test_a_member_is_present_while_it_asks(coordinator: Coordinator) -> None:
    sites = session_of(coordinator)
    sites[0].next()

    def there() -> frozenset[str]:
        with coordinator.context.database.reading() as connection:
            return presence.present(connection, sites[0].session, now=coordinator.clock())

    assert there() == {"site-0"}
    coordinator.clock.now += presence.WITHIN_S + 1
    assert there() == frozenset()


def test_a_model_that_is_damaged_is_shown_and_can_be_deleted(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    model = add_model(coordinator, artifacts.artifact(), session)
    with coordinator.context.database.changing() as connection:
        connection.execute(update(tables.models).values(card="{}"))
    for path in ("/", f"/view/{session}", f"/view/models/{model}"):
        assert model[:10] in page(coordinator, path, cookie).text
    assert "cannot be read" in page(coordinator, f"/view/models/{model}", cookie).text


def test_a_model_says_where_it_comes_from_and_stands_beside_the_others(
    coordinator: Coordinator,
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    first = artifacts.artifact()
    parent = add_model(coordinator, first, session)
    coordinator.clock.now += 60
    child = replace(later(first), card=replace(later(first).card, parent=parent))
    model = add_model(coordinator, child, session)
    shown = page(coordinator, f"/view/models/{model}", cookie).text
    history = shown.partition("<h2>History</h2>")[2].partition("</section>")[0]
    assert f'Started from <a href="/view/models/{parent}">' in history
    assert "No other model was made from it" in history
    assert "Compared with the other models" in shown
    assert shown.count(parent[:10]) >= 2
    before = page(coordinator, f"/view/models/{parent}", cookie).text
    assert f'Continued as <a href="/view/models/{model}">' in before


def test_an_unknown_session_leads_back_to_all(coordinator: Coordinator) -> None:
    cookie = signed_in(coordinator)
    missing = "/view/00000000-0000-0000-0000-000000000001"
    answer = page(coordinator, missing, cookie)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")


def test_methods_stand_side_by_side_and_fedbnr_first(coordinator: Coordinator) -> None:
    session = coordinator.session()
    cookie = signed_in(coordinator)
    plain = add_model(coordinator, artifacts.artifact(), session)
    assert "<h2>Methods</h2>" not in page(coordinator, f"/view/models/{plain}", cookie).text
    coordinator.clock.now += 60
    made = artifacts.artifact(artifacts.STUDENTS)
    model = add_model(coordinator, made, session)
    shown = page(coordinator, f"/view/models/{model}", cookie).text
    section = shown.partition("<h2>Methods</h2>")[2].partition("</section>")[0]
    named = re.findall(r'data-name="Method"><code>(\w+)</code>', section)
    assert named == [*WITH_STUDENTS, *WITH_STUDENTS]
    assert section.count("distilled") == 2 * (len(WITH_STUDENTS) - 1)
    assert made.card.evaluation is not None
    for each in made.card.evaluation.others:
        for quality in each.quality:
            assert f"{quality.nll:.4g}" in section
    assert section.count("<svg") == 2
    for number in range(len(WITH_STUDENTS)):
        assert f"line-{number}" in section


def test_outcomes_are_listed_with_how_often_they_occurred(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    made = every_kind.artifact()
    add_model(coordinator, made, session)
    assert made.id[:10] in page(coordinator, "/", cookie).text
    shown = page(coordinator, f"/view/models/{made.id}", cookie).text
    section = shown.partition("<h2>Outcomes</h2>")[2].partition("</section>")[0]
    named = re.findall(r'data-name="Target">(\w+)</td>', section)
    assert named == ["readmitted", "discharged", "visits", "days"]
    assert all(own.occurred in section for own in made.card.outcomes)


def test_scores_of_outcomes_stand_beside_them_with_a_plot_for_each(
    coordinator: Coordinator,
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    made = every_kind.judged()
    add_model(coordinator, made, session)
    shown = page(coordinator, f"/view/models/{made.id}", cookie).text
    section = shown.partition("<h2>Outcomes</h2>")[2].partition("</section>")[0]
    assert section.count("<svg") == 4
    assert made.card.evaluation is not None
    readmitted, discharged, visits, days = made.card.evaluation.outcomes
    for own in (readmitted, discharged, visits, days):
        assert f"{own.log_loss:.4g}" in section
        assert f"{own.raw_log_loss:.4g}" in section
        assert f"{own.log_loss:.4g}" in page(coordinator, "/", cookie).text
    for own, name in (
        (readmitted, "AUC"),
        (discharged, "accuracy"),
        (visits, "deviance"),
        (days, "concordance"),
    ):
        assert f"{name} {own.further[name]:.4g}" in section
    assert f"{visits.inside(0.9):.1%}" in section
    assert section.count('class="point"') == sum(
        len(own.quality.curve.rows) for own in made.card.evaluation.outcomes
    )


@pytest.mark.parametrize("targets", [(READMITTED, STAY), (STAY, READMITTED, VISITS), (STAY,)])
def test_released_scores_of_outcomes_are_shown_if_they_are_the_programs(
    coordinator: Coordinator, targets: tuple[AnyTarget, ...]
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    with coordinator.context.database.changing() as connection:
        program = every_kind.program(*targets).to_json()
        connection.execute(update(tables.sessions).values(program=program))
    made = signable(every_kind.judged(READMITTED, STAY))
    model = add_sealed(coordinator, session, certificate_of(made))
    shown = page(coordinator, f"/view/models/{model}", cookie).text
    assert ("<h2>Outcomes</h2>" in shown) == (targets == (READMITTED, STAY))
    assert made.card.evaluation is not None
    loss = f"{made.card.evaluation.outcomes[0].log_loss:.4g}"
    assert (loss in shown) == (targets == (READMITTED, STAY))


@pytest.mark.parametrize("cut", ["observed", "inside"])
def test_released_curves_that_are_too_short_do_not_break_the_page(
    coordinator: Coordinator, cut: str
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    made = signable(every_kind.judged(READMITTED, STAY))
    with coordinator.context.database.changing() as connection:
        program = every_kind.program(READMITTED, STAY).to_json()
        connection.execute(update(tables.sessions).values(program=program))
    plain = json.loads(released(made.model))
    own = plain["evaluation"]["outcomes"][0]
    (own["coverage"] if cut == "inside" else own["binary"]["curve"])[cut].pop()
    cut_short = certificate_of(made, results=json.dumps(plain).encode())
    model = add_sealed(coordinator, session, cut_short)
    answer = page(coordinator, f"/view/models/{model}", cookie)
    assert answer.status_code == 200
    assert "<h2>Outcomes</h2>" not in answer.text


def test_a_model_is_shown_with_the_names_of_those_who_signed_it(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    _enrol(coordinator, session)
    made = signable(artifacts.artifact())
    certificate = certificate_of(made)
    add_model(coordinator, made, session, certificate=certificate.encode())
    for path in ("/", f"/view/{session}", f"/view/models/{made.id}"):
        shown = page(coordinator, path, cookie).text
        cell = shown.partition('data-name="Signed by">')[2].partition("</td>")[0]
        assert "5 of 5" in cell
        assert "Aarhus" in cell
        assert HOSPITALS[4].fingerprint in cell  # is not on the session's roster
        assert "only hospitals have it" not in shown
    add_model(coordinator, later(made), session)
    assert "nobody" in page(coordinator, "/", cookie).text


def test_of_a_model_for_members_only_released_results_are_shown(coordinator: Coordinator) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    _enrol(coordinator, session)
    with coordinator.context.database.changing() as connection:
        connection.execute(update(tables.sessions).values(program=artifacts.PROGRAM.to_json()))
    made = signable(artifacts.artifact())
    model = add_sealed(coordinator, session, certificate_of(made))
    assert made.card.evaluation is not None
    for path in ("/", f"/view/{session}", f"/view/models/{model}"):
        shown = page(coordinator, path, cookie).text
        for promised in (
            model[:10],
            "only hospitals have it",
            "cannot predict with it",
            "Aarhus",
            f'class="number">{made.card.rows}<',
            *(f"{each.nll:.4g}" for each in made.card.evaluation.recalibrated or ()),
        ):
            assert promised in shown, promised
    assert page(coordinator, f"/view/models/{model}", cookie).text.count("<svg") == 2


@pytest.mark.parametrize("results", [b"", b"{}", b"\xff", b'{"evaluation":null,"rows":1}'])
def test_results_that_cannot_be_read_do_not_break_the_page(
    coordinator: Coordinator, results: bytes
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    model = add_sealed(
        coordinator, session, certificate_of(signable(artifacts.artifact()), results=results)
    )
    for path in ("/", f"/view/{session}", f"/view/models/{model}"):
        assert model[:10] in page(coordinator, path, cookie).text


def _enrol(coordinator: Coordinator, session: str) -> None:
    """Add four of the five hospitals that sign to a session's roster."""
    with coordinator.context.database.changing() as connection:
        rows = [
            {
                "session_id": session,
                "key": key,
                "name": name,
                "status": "approved",
                "enrolled_at": 0.0,
            }
            for name, key in tuple(ROSTER.items())[:4]
        ]
        connection.execute(insert(tables.members), rows)
