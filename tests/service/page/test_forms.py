"""Forms of the page do what the API does, by its rules; nobody else can send them."""

import json
import re
from typing import Any

import pytest
from sqlalchemy import update

from service.database.tables import members
from service.errors import FormUnreadable
from service.http.forms import KEY, read_fields
from service.sessions.members import Refusal, record_refusal
from tests.certified import certificate_of, signable
from tests.kernels.rounds import artifacts
from tests.service.coordinator import SCHEMA, Coordinator, Hospital
from tests.service.page.browsing import Browser, page, said, signed_in
from tests.service.programs import WHOLE
from tests.service.sites import session_of
from tests.service.stored import add_model, add_sealed

NEW = {"name": "Stay", "members": "3", "privacy": "exact", "model": "served"}


def only_session(coordinator: Coordinator) -> dict[str, Any]:
    (found,) = coordinator.admin("GET", "/sessions").json()
    whole: dict[str, Any] = coordinator.admin("GET", f"/sessions/{found['id']}").json()
    return whole


def test_a_session_is_made_from_a_schema_file_as_the_api_makes_it(coordinator: Coordinator) -> None:
    browser = Browser.of(coordinator)
    browser.open("/view/new")
    fields = {**browser.forms("/view/new")[0], **NEW, "max_sums": "60"}
    del fields["schema_file"]
    coordinator.forget_cookies()
    file = b"\xef\xbb\xbf" + json.dumps(SCHEMA).encode()
    answer = coordinator.request(
        "POST",
        "/view/new",
        data=fields,
        files={"schema_file": ("schema.json", file, "application/json")},
        headers={"Cookie": browser.cookie},
    )
    assert answer.status_code == 303, said(answer.text)
    made = only_session(coordinator)
    assert answer.headers["Location"] == f"/view/{made['id']}"
    api = {"schema": SCHEMA, "members": 3, "max_sums": 60, "model": "served"}
    privacy = {"differential_privacy": False}
    same = coordinator.admin("POST", "/sessions", {"name": "other", "privacy": privacy, **api})
    assert made["program"] == same.json()["program"]
    assert made["in_words"][0] in page(coordinator, f"/view/{made['id']}", browser.cookie).text


HOPELESS = {"privacy": "noise", "epsilon": "0.01", "delta": "1e-5", "least_rows": "50"}


def test_the_smallest_table_decides_the_size_and_belongs_to_exact_sums(
    coordinator: Coordinator,
) -> None:
    browser = Browser.of(coordinator)
    browser.open("/view/new")
    schema = json.dumps(SCHEMA)
    small = {**NEW, "schema": schema, "smallest_table": "128"}
    assert browser.send("/view/new", **small).status_code == 200
    made = only_session(coordinator)
    api = {"schema": SCHEMA, "members": 3, "smallest_table": 128, "model": "served"}
    exact = {"differential_privacy": False}
    same = coordinator.admin("POST", "/sessions", {"name": "other", "privacy": exact, **api})
    assert made["program"] == same.json()["program"]
    browser.open("/view/new")
    wrong = browser.send("/view/new", **{**small, "name": "100 rows", "smallest_table": "100"})
    assert "smallest_table must be a power of two" in said(wrong.text)
    assert browser.forms("/view/new")[0]["smallest_table"] == "100"
    noisy = {**small, "name": "Noisy", "privacy": "noise", "epsilon": "8", "delta": "1e-5"}
    assert browser.send("/view/new", **noisy).status_code == 200, "its field is hidden with noise"


def test_a_session_without_prospect_is_made_only_if_the_box_is_ticked(
    coordinator: Coordinator,
) -> None:
    browser = Browser.of(coordinator)
    browser.open("/view/new")
    hopeless = {**NEW, "schema": json.dumps(SCHEMA), **HOPELESS}
    refused = browser.send("/view/new", **hopeless)
    assert (refused.status_code, "no better than predicting" in said(refused.text)) == (422, True)
    assert "without_prospect" not in browser.forms("/view/new")[0]
    assert browser.send("/view/new", **hopeless, without_prospect="yes").status_code == 200
    assert only_session(coordinator)["forecast"]


WRONG = [
    ({"schema": "{"}, "schema"),
    ({"schema": "[]"}, "must be a JSON object"),
    ({"schema": ""}, "choose a schema file"),
    ({"schema": '{"features": [], "targets": []}'}, "features"),
    ({"members": "two"}, "members: Input should be a valid integer"),
    ({"members": "2"}, "members"),
    ({"privacy": "noise"}, "are missing: epsilon"),
    ({"privacy": "noise", "epsilon": "0,5", "delta": "1e-5"}, "privacy.epsilon"),
    ({"model": ""}, "model"),
    ({"name": ""}, "name"),
]
"""What may be entered wrongly in the form of a session, and what is said then."""


def test_a_refused_session_says_why_and_keeps_what_was_entered(coordinator: Coordinator) -> None:
    browser = Browser.of(coordinator)
    for entered, told in WRONG:
        browser.open("/view/new")
        given = {**NEW, "schema": json.dumps(SCHEMA), "delta": "1e-6", **entered}
        answer = browser.send("/view/new", **given)
        assert answer.status_code == 422
        assert told in said(answer.text)
        again = browser.forms("/view/new")[0]
        fields = {name: text for name, text in given.items() if name != "schema"}
        assert {name: again.get(name, "") for name in fields} == fields
        area = re.search(r'<textarea id="schema"[^>]*>(.*?)</textarea>', answer.text, re.DOTALL)
        assert area is not None
        assert area[1].replace("&#34;", '"') == given["schema"]
    assert coordinator.admin("GET", "/sessions").json() == []


def test_hospitals_are_invited_compared_approved_and_suspended(coordinator: Coordinator) -> None:
    session, browser = coordinator.session(), Browser.of(coordinator)
    at = f"/view/{session}"
    browser.open(at)
    shown = browser.send(f"{at}/invite", name=" Nørd ").text
    link = re.search(r'<code id="link"[^>]*>([^<]*)</code>', shown)
    assert link is not None
    hospital = Hospital(coordinator)
    assert hospital.enrol(session, link[1].partition("#")[2]).status_code == 201
    waits = browser.open(at)
    assert "Nørd waits for your approval" in waits
    assert hospital.identity.fingerprint in waits
    assert "by phone" in said(browser.send(f"{at}/members").text)
    assert hospital.membership(session).json()["member"]["status"] == "pending"
    browser.send(f"{at}/members", compared="yes")
    assert hospital.membership(session).json()["member"]["status"] == "approved"
    browser.open(at)
    browser.send(f"{at}/members")
    assert hospital.membership(session).status_code == 403
    browser.open(at)
    twice = browser.send(f"{at}/invite", name="NØRD")
    assert twice.status_code == 409
    assert "already a member" in said(twice.text)
    assert browser.forms(f"{at}/invite")[0]["name"] == "NØRD"
    link = re.search(
        r'<code id="link"[^>]*>([^<]*)</code>', browser.send(f"{at}/invite", name="West").text
    )
    assert link is not None
    assert re.search(r"West was invited; .*It has not been read yet\.", browser.open(at))
    read = {"invitation": link[1].partition("#")[2]}
    assert coordinator.request("POST", f"/sessions/{session}/offer", json=read).status_code == 200
    assert re.search(r"West was invited; .*It was first read .*\d", browser.open(at))
    browser.send(f"{at}/revoke")
    assert "West was invited" not in browser.open(at)


def test_runs_are_started_cancelled_and_started_again(coordinator: Coordinator) -> None:
    session = session_of(coordinator, WHOLE)[0].session
    at, browser = f"/view/{session}", Browser.of(coordinator)
    browser.open(at)
    refused = browser.send(f"{at}/runs", 1, kind="evaluate", hours="0,5")
    assert (refused.status_code, "deadline_s" in said(refused.text)) == (422, True)
    kept = browser.forms(f"{at}/runs")[1]
    assert (kept["kind"], kept["hours"]) == ("evaluate", "0,5")
    assert "starts from a model" in said(browser.send(f"{at}/runs", 1, hours="0.5").text)
    shown = browser.send(f"{at}/runs", 1, kind="train", hours="0.5").text
    assert 'data-deadline="2027-01-15T08:30:00.000Z"' in shown
    late = browser.post(f"{at}/runs", {**browser.forms(f"{at}/runs")[0]})
    assert (late.status_code, "still open" in said(late.text)) == (409, True)
    browser.open(at)
    assert "was cancelled" in browser.send(f"{at}/cancel").text
    browser.open(at)
    coordinator.clock.now += 1
    assert 'class="standing busy"' in browser.send(f"{at}/retry").text


def test_a_token_is_shown_once_and_predicts_what_it_names(coordinator: Coordinator) -> None:
    session, browser = coordinator.session(), Browser.of(coordinator)
    model = add_model(coordinator, artifacts.artifact(), session, serve_uncertified=False)
    at = f"/view/models/{model}"
    assert "is not served" in browser.open(at)
    assert browser.send(f"{at}/serve").status_code == 200
    browser.open(at)
    assert "must have 1 to 100" in said(browser.send(f"{at}/alias", alias="a b").text)
    browser.open(at)
    assert "<h1>stay</h1>" in browser.send(f"{at}/alias", alias="stay").text
    browser.open(at)
    shown = browser.send(f"{at}/token", name="Ward 3", of="stay").text
    (token,) = set(re.findall(r"vgp_caller_[\w-]+", shown))
    card = coordinator.bearer(token, "GET", "/models/stay")
    assert card.status_code == 200
    listed = browser.open("/view/callers")
    assert "Ward 3" in listed
    assert token not in listed
    browser.send("/view/callers")
    assert coordinator.bearer(token, "GET", "/models/stay").status_code == 401
    browser.open(at)
    browser.send(f"{at}/unname")
    browser.open(at)
    assert "Tick the box" in said(browser.send(f"{at}/delete").text)
    browser.send(f"{at}/delete", sure="yes")
    assert coordinator.admin("GET", f"/models/{model}").status_code == 404


def test_no_other_page_can_send_a_form(coordinator: Coordinator) -> None:
    session, browser = coordinator.session(), Browser.of(coordinator)
    at = f"/view/{session}"
    browser.open(at)
    key = browser.forms(f"{at}/invite")[0][KEY]
    assert browser.cookie.partition("=")[2] not in browser.text
    another = Browser.of(coordinator)
    for fields, headers in (
        ({"name": "X"}, {}),
        ({"name": "X", KEY: ""}, {}),
        ({"name": "X", KEY: key[:-1]}, {}),
        ({"name": "X", KEY: "ß"}, {}),
        ({"name": "X", KEY: key}, {"Sec-Fetch-Site": "same-site"}),
        ({"name": "X", KEY: key}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        answer = browser.post(f"{at}/invite", fields, **headers)
        assert (answer.status_code, "form.forged" in answer.text) == (403, True)
    assert another.post(f"{at}/invite", {"name": "X", KEY: key}).status_code == 403
    stranger = Browser(coordinator, "veilgp_page=vgp_page_x")
    assert stranger.post(f"{at}/invite", {"name": "X", KEY: key}).status_code == 303
    assert coordinator.admin("GET", f"/sessions/{session}/invitations").json() == []
    own = {"name": "X", KEY: key}
    assert browser.post(f"{at}/invite", own, **{"Sec-Fetch-Site": "same-origin"}).status_code == 200
    cross = {"token": coordinator.token}
    for path in ("/sign-in", "/sign-out"):
        assert browser.post(path, cross, **{"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_every_form_has_the_key_and_no_action_works_signed_out(coordinator: Coordinator) -> None:
    session, browser = coordinator.session(), Browser.of(coordinator)
    coordinator.invite(session, "West")
    coordinator.approved(session, "Nord")
    model = add_model(coordinator, artifacts.artifact(), session)
    for path in ("/", "/view/new", "/view/callers", f"/view/{session}", f"/view/models/{model}"):
        text = browser.open(path)
        actions = set(re.findall(r'action="([^"]+)"', text)) - {"/sign-out"}
        for action in actions:
            assert all(KEY in fields for fields in browser.forms(action))
            coordinator.forget_cookies()
            answer = coordinator.request("POST", action, data=browser.forms(action)[0])
            assert (answer.status_code, answer.headers["Location"]) == (303, "/")


def test_a_body_that_is_no_form_is_refused() -> None:
    plain = "application/x-www-form-urlencoded"
    kind = "multipart/form-data; boundary=x"
    nested = b'--x\r\nContent-Disposition: form-data; name="a"\r\nContent-Type: message/rfc822\r\n'
    for head, body in (
        (plain, b"name=1&name=2"),
        (plain, b"name=%ff"),
        (plain, b"&".join(b"a%d=1" % n for n in range(500))),
        (kind, b"name=1"),
        (kind, b"--x\r\n\r\nno name\r\n--x--"),
        (kind, nested + b"\r\nA: b\r\n\r\nc\r\n--x--"),
        (kind, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--x--'),
        ("multipart/form-data", b"--x\r\n\r\n--x--"),
    ):
        with pytest.raises(FormUnreadable):
            read_fields(head, body)
    part = b'--x\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n1\r\n\xc3\xb8\r\n'
    assert read_fields(kind, part + b"--x--\r\n") == {"a": "1\nø"}
    named = part.replace(b'"b"', b'"St\xc3\xb8.json"')
    assert read_fields(kind, named + b"--x--\r\n") == {"a": "1\nø"}


def test_a_join_link_explains_itself_to_anyone_and_says_nothing_of_a_session(
    coordinator: Coordinator,
) -> None:
    session = coordinator.session(name="Sepsis")
    answer = page(coordinator, f"/join/{session}", None)
    other = page(coordinator, "/join/00000000-0000-0000-0000-000000000001", None)
    assert (answer.status_code, answer.text) == (200, other.text)
    assert "Sepsis" not in answer.text
    for command in ("identity", "policy draft", "approve", "join", "log"):
        assert f"veilgp {command}" in answer.text


def test_a_refusal_is_dated_and_cleared_by_a_model_that_the_hospital_has_signed(
    coordinator: Coordinator,
) -> None:
    session, cookie = coordinator.session(), signed_in(coordinator)
    coordinator.approved(session, "Nord")
    made = signable(artifacts.artifact())
    certificate = certificate_of(made)
    with coordinator.context.database.changing() as connection:
        key = certificate.signers[0]
        connection.execute(update(members).values(key=key))
        refusal = Refusal("policy.columns", "No column “age” here.", coordinator.clock())
        record_refusal(connection, session, key, refusal)
    shown = page(coordinator, f"/view/{session}", cookie).text
    assert "2027-01-15 08:00 UTC</time>: No column “age” here." in shown
    coordinator.clock.now += 60
    add_sealed(coordinator, session, certificate)
    assert "No column" not in page(coordinator, f"/view/{session}", cookie).text
